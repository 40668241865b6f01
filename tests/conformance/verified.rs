//! A cache misses a change, through a fault between it and a real API server: the comparison with upstream
//! (`cache.verifyInterval`) finds this, and clients get the server's state again.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::{Request, Response, header};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Duration, Instant, sleep, timeout},
};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint},
    gateway::Gateway,
    report::Tally,
    servers::POLL,
};

/// More objects than the smallest cache that is compared has.
const OBJECTS: usize = 120;
const COLLECTION: &str = "/api/v1/configmaps";
const PART: &str = "/api/v1/namespaces/conf/configmaps";
/// Changes to this text do not reach the gateway.
const LOST: &str = "lost-on-the-way";
/// The shortest interval that the configuration allows. A cache has to differ twice, ten seconds apart.
const INTERVAL: &str = "30s";
const FOUND_WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let direct = &side.server.endpoint;
    for number in 0..OBJECTS {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number),
            "labels": {"verified": "yes"}}, "data": {"state": "first"}});
        direct.create(PART, &map).await?;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let checked = check(side, certificates, address);
    let tally = tokio::select! {
        tally = checked => tally,
        never = relay(listener, direct.clone()) => match never? {},
    };
    direct.delete(&format!("{PART}?labelSelector=verified")).await?;
    tally
}

async fn check(side: &Side, certificates: &Certificates, relay: SocketAddr) -> Result<Tally> {
    let (direct, mut tally) = (&side.server.endpoint, Tally::default());
    let gateway = start(certificates, relay).await?;
    gateway.warm(COLLECTION).await?;
    let watch = format!("{COLLECTION}?watch=1&resourceVersion=0&labelSelector=verified&timeoutSeconds=600");
    let mut watch = gateway.endpoint.open(&Ask::get(watch)).await?.into_body();

    direct.patch(&format!("{PART}/{}", name(77)), &json!({"data": {"state": LOST}})).await?;
    let after = direct.patch(&format!("{PART}/{}", name(78)), &json!({"data": {"state": "second"}})).await?;
    gateway.reached(COLLECTION, crate::client::version_of(&after)).await?;
    let from_memory = format!("{PART}/{}?resourceVersion=0", name(77));
    let held = gateway.endpoint.get(&from_memory).await?.text();
    ensure!(!held.contains(LOST), "the change has reached the gateway: {held}");

    let (metrics, started) =
        (Endpoint::plain(&format!("http://{}", gateway.admin().context("no admin port")?))?, Instant::now());
    let found = loop {
        if has_found(&metrics.get("/metrics").await?.text()) {
            break true;
        }
        if started.elapsed() > FOUND_WITHIN {
            break false;
        }
        sleep(POLL * 10).await;
    };
    tally.holds("a change that was lost is found", found, || format!("not within {FOUND_WITHIN:?}"));
    tally.note(format!("found after {:.0?}, with cache.verifyInterval {INTERVAL}", started.elapsed()));
    let told = timeout(FOUND_WITHIN, until_told(&mut watch)).await;
    tally.holds("the watch ends or gets the change", matches!(told, Ok(Ok(()))), || format!("{told:?}"));
    gateway.warm(COLLECTION).await?;
    // Not both with version 0: an old API server sends that list in any order.
    let theirs = direct.json(COLLECTION).await?;
    let ours = gateway.endpoint.json(&format!("{COLLECTION}?resourceVersion=0")).await?;
    tally.equal("all objects", &theirs["items"], &ours["items"]);
    Ok(tally)
}

async fn start(certificates: &Certificates, relay: SocketAddr) -> Result<Gateway> {
    let kubeconfig = certificates.kubeconfig("losing-relay", &format!("http://{relay}"))?;
    let fields = format!("cache: {{verifyInterval: {INTERVAL}}}");
    Gateway::start_in_front_of("gateway-verified", &fields, &kubeconfig, certificates, &certificates.folder).await
}

fn name(number: usize) -> String {
    format!("verified-{number:03}")
}

/// Whether a cache of config maps was found to differ.
fn has_found(metrics: &str) -> bool {
    metrics.lines().any(|line| {
        let is_ours = line.starts_with("kube_fanout_cache_verifications_total") && line.contains("configmaps");
        is_ours && line.contains("\"different\"") && !line.ends_with(" 0")
    })
}

/// Returns when the watch has received the lost change, or has ended.
async fn until_told(watch: &mut Incoming) -> Result<()> {
    while let Some(frame) = watch.frame().await {
        let frame = frame?;
        let text = String::from_utf8_lossy(frame.data_ref().map_or(&[], |data| data)).into_owned();
        if text.contains(LOST) || text.contains("\"ERROR\"") {
            break;
        }
    }
    Ok(())
}

/// Relays requests without bodies to the server, and responses back, but drops watch events that contain [`LOST`].
async fn relay(listener: TcpListener, server: Endpoint) -> Result<Infallible> {
    let (server, mut connections) = (Arc::new(server), JoinSet::new());
    loop {
        let (stream, _) = listener.accept().await?;
        let server = server.clone();
        let service = service_fn(move |request| pass(server.clone(), request));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // The gateway may close it at any time.
        connections.spawn(async move { connection.await.unwrap_or_default() });
    }
}

async fn pass(
    server: Arc<Endpoint>,
    request: Request<Incoming>,
) -> Result<Response<impl Body<Data = Bytes, Error = hyper::Error>>> {
    let path = request.uri().path_and_query().context("no path")?.to_string();
    let is_watch = path.contains("watch=");
    let mut ask = Ask { method: request.method().clone(), ..Ask::get(path) };
    for name in [header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT] {
        if let Some(value) = request.headers().get(&name) {
            ask = ask.header(name.as_str(), value.to_str()?);
        }
    }
    ask.body = request.into_body().collect().await?.to_bytes();
    let (mut head, body) = server.open(&ask).await?.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.remove(header::TRANSFER_ENCODING);
    let data = BodyStream::new(body).try_filter_map(async |frame| Ok(frame.into_data().ok()));
    let data = if is_watch { without_lost(data).left_stream() } else { data.right_stream() };
    Ok(Response::from_parts(head, StreamBody::new(data.map_ok(Frame::data))))
}

/// The lines of a watch, without changes that contain [`LOST`]. Initial events, which are ADDED, are kept.
fn without_lost(data: impl Stream<Item = hyper::Result<Bytes>>) -> impl Stream<Item = hyper::Result<Bytes>> {
    data.scan(BytesMut::new(), |unread, data| {
        let kept = data.map(|data| {
            unread.extend_from_slice(&data);
            let mut kept = BytesMut::new();
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line = unread.split_to(end + 1);
                let text = String::from_utf8_lossy(&line);
                if !(text.contains(LOST) && text.contains(r#""type":"MODIFIED""#)) {
                    kept.unsplit(line);
                }
            }
            kept.freeze()
        });
        async { Some(kept) }
    })
}
