//! Ten thousand connections that send nothing, send a byte per second, or never read: the requests of other clients
//! continue, and memory stays within the limits of connections.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, stream};
use kube_fanout::lifecycle;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use crate::{
    Side,
    client::{Ask, Endpoint},
    gateway::unique_agent,
    report::Tally,
};

/// Slightly more than the gateway's default limit.
const CONNECTIONS: usize = 10_500;
/// The number of connections that request a list and never read it.
const NEVER_READ: usize = 500;
/// The number of further connections that send a byte per second of an endless request.
const DRIP: usize = 5_000;
/// The number of files that this process needs for other purposes.
const FILES_FOR_OTHERS: usize = 1_000;
/// The number of connections that are opened concurrently.
const AT_ONCE: usize = 200;
/// The number of requests from other clients, each on its own connection.
const REQUESTS: usize = 200;
/// The maximum memory of a connection whose client does not read: hyper's buffer of a quarter of a megabyte, and the
/// rest of the connection.
const BYTES_EACH: u64 = 300 << 10;
/// The maximum memory of a connection without a request.
const BYTES_SILENT: u64 = 32 << 10;

/// Small, so that unread data stays in the gateway.
const RECEIVE_BUFFER: u32 = 4 << 10;

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let list = "/api/v1/secrets?resourceVersion=0";
    side.gateway.warm("/api/v1/secrets").await?;
    let address: SocketAddr = side.gateway.endpoint.base.trim_start_matches("http://").parse()?;
    let files = lifecycle::raise_open_files()?.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    let connections = CONNECTIONS.min(files.saturating_sub(FILES_FOR_OTHERS));
    if connections < CONNECTIONS {
        eprintln!("!!! ONLY {connections} CONNECTIONS INSTEAD OF {CONNECTIONS}: this process may open no more files");
    }
    let before = side.gateway.resident()?;
    let mut crowd = Vec::with_capacity(connections);
    let mut opened =
        stream::iter(0..connections).map(|number| connect(address, number, list)).buffer_unordered(AT_ONCE);
    while let Some(stream) = opened.next().await {
        crowd.push(stream?);
    }
    drop(opened);
    let dripping = crowd.split_off(connections.saturating_sub(DRIP));
    let mut drips = JoinSet::new();
    drips.spawn(drip(dripping));

    let mut tally = Tally::default();
    let (mut peak, started) = (side.gateway.resident()?, Instant::now());
    for _ in 0..REQUESTS {
        let agent = unique_agent("crowd");
        // Each on its own connection, like a new client.
        let client = Endpoint::plain(&side.gateway.endpoint.base)?;
        let answer =
            client.send(&Ask::get("/api/v1/namespaces/conf?resourceVersion=0").header("user-agent", &agent)).await;
        let status = answer.map(|answer| answer.status).map_err(|error| format!("{error:#}"));
        tally.equal("a request of others", &Ok(200), &status);
        peak = peak.max(side.gateway.resident()?);
    }
    let grown = peak.saturating_sub(before);
    let allowed = (NEVER_READ as u64) * BYTES_EACH + (connections as u64) * BYTES_SILENT;
    tally.holds("memory within its limits", grown <= allowed, || format!("{grown} bytes more, {allowed} allowed"));
    let each = started.elapsed().as_secs_f64() * 1_000.0 / REQUESTS as f64;
    tally.note(format!("{connections} connections: {} MiB more; {each:.1} ms for a request of others", grown >> 20));
    drop((crowd, drips));
    Ok(tally)
}

/// Opens a connection. Some of them send a request, the others nothing yet.
async fn connect(address: SocketAddr, number: usize, list: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let mut stream = socket.connect(address).await.context("the gateway takes no connection")?;
    if number < NEVER_READ {
        stream.write_all(format!("GET {list} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    }
    ensure!(stream.peer_addr().is_ok(), "connection {number} is gone already");
    Ok(stream)
}

/// Sends one byte per second on each connection, as part of an endless head. Connections that the gateway has closed
/// are ignored.
async fn drip(mut streams: Vec<TcpStream>) {
    for byte in b"GET /".iter().chain(b"a".iter().cycle()) {
        for stream in &mut streams {
            stream.try_write(&[*byte]).ok();
        }
        sleep(Duration::from_secs(1)).await;
    }
}
