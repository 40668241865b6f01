//! Bodies that are relayed while they arrive, requests that end with their client, and protocol upgrades.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    Side,
    client::{Ask, Endpoint},
    gateway::{PATIENCE, unique_agent},
    report::Tally,
    servers::POLL,
};

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let mut tally = Tally::default();
    big_write(side, &mut tally).await?;
    cancelled(side, &mut tally).await?;
    web_socket(side, &mut tally).await?;
    Ok(tally)
}

/// The maximum size of a request body in kube-apiserver.
const BODY_MAX: usize = 3 << 20;

/// A write near the server's limit arrives unchanged and is returned unchanged.
async fn big_write(side: &Side, tally: &mut Tally) -> Result<()> {
    let path = "/api/v1/namespaces/conf/configmaps";
    let text = "0123456789abcdef".repeat(60_000);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"text": text}});
    side.gateway.endpoint.create(path, &object).await?;
    let direct = side.server.endpoint.json(&format!("{path}/big")).await?;
    tally.holds("a write of a megabyte", direct["data"]["text"] == text, || "the text differs".to_owned());
    // Above the limit, but by less than a Go server still reads after its refusal. With a larger body the connection
    // ends during the write, and the client may or may not see the response.
    let body = Bytes::from("x".repeat(BODY_MAX + (64 << 10)));
    let ask = Ask { method: Method::POST, body, ..Ask::get(path) }.header("content-type", "application/json");
    let direct = side.server.endpoint.send(&ask).await?;
    let forwarded = side.gateway.endpoint.send(&ask).await?;
    tally.equal("a write that is too large", &413, &direct.status);
    tally.equal("the same through the gateway", &413, &forwarded.status);
    side.server.endpoint.delete(&format!("{path}/big")).await?;
    Ok(())
}

/// A forwarded watch ends upstream when its client disconnects.
async fn cancelled(side: &Side, tally: &mut Tally) -> Result<()> {
    let direct = &side.server.endpoint;
    let before = event_watches(direct).await?;
    let ask = Ask::get("/api/v1/namespaces/conf/events?watch=1&resourceVersion=0&timeoutSeconds=300");
    // A client with its own connection, so that dropping the client closes it.
    let client = Endpoint::plain(&side.gateway.endpoint.base)?;
    let answer = client.open(&ask).await?;
    let during = count(direct, |watches| watches > before).await?;
    drop((answer, client));
    let after = count(direct, |watches| watches <= before).await?;
    tally.holds("a forwarded watch is open upstream", during > before, || format!("{before}, then {during}"));
    tally.equal("and ends with its client", &before, &after);
    Ok(())
}

async fn event_watches(api: &Endpoint) -> Result<u64> {
    let text = api.get("/metrics").await?.text();
    let of_events = |line: &&str| {
        line.starts_with("apiserver_longrunning")
            && ["resource=\"events\"", "scope=\"namespace\""].iter().all(|label| line.contains(label))
    };
    Ok(text.lines().filter(of_events).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

/// The number of watches once `is_right` returns true for it, or at the timeout.
async fn count(api: &Endpoint, is_right: impl Fn(u64) -> bool) -> Result<u64> {
    let started = Instant::now();
    loop {
        let watches = event_watches(api).await?;
        if is_right(watches) || started.elapsed() > PATIENCE {
            return Ok(watches);
        }
        sleep(POLL).await;
    }
}

/// A watch over WebSocket: forwarded frame by frame.
async fn web_socket(side: &Side, tally: &mut Tally) -> Result<()> {
    let address = side.gateway.endpoint.base.trim_start_matches("http://");
    let mut socket = BufReader::new(TcpStream::connect(address).await?);
    let agent = unique_agent("websocket");
    let request = format!(
        "GET /api/v1/namespaces/conf/configmaps?watch=1&resourceVersion=0&timeoutSeconds=2\
         &fieldSelector=metadata.name=cm-00 HTTP/1.1\r\n\
         Host: {address}\r\nUser-Agent: {agent}\r\nOrigin: http://{address}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = timeout(PATIENCE, socket.read_line(&mut head)).await.context("no answer")??;
        anyhow::ensure!(read > 0, "the connection was closed after {head:?}");
    }
    tally.holds("an upgrade", head.starts_with("HTTP/1.1 101"), || head.clone());
    let (opcode, message) = frame(&mut socket).await?;
    let event: serde_json::Value = serde_json::from_slice(&message).unwrap_or_default();
    let is_event = opcode == 1 && event["type"] == "ADDED" && event["object"]["metadata"]["name"] == "cm-00";
    tally.holds("an event in a text frame", is_event, || String::from_utf8_lossy(&message).into_owned());
    let (opcode, _) = frame(&mut socket).await?;
    tally.equal("a close frame at the end", &8, &opcode);
    drop(socket);
    tally.answered(&side.gateway.outcome(&agent).await?);
    Ok(())
}

/// A frame from the server: opcode and payload.
async fn frame(socket: &mut BufReader<TcpStream>) -> Result<(u8, Vec<u8>)> {
    let read = async {
        let opcode = socket.read_u8().await? & 0x0f;
        let length = match socket.read_u8().await? & 0x7f {
            126 => usize::from(socket.read_u16().await?),
            127 => usize::try_from(socket.read_u64().await?)?,
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).await?;
        anyhow::Ok((opcode, payload))
    };
    timeout(PATIENCE, read).await.context("no frame")?
}
