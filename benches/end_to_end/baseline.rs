//! The minimum that a gateway can do: it sends the bytes of a list that it fetched once, and relays the events of one
//! upstream watch to all clients. It has no rules, no selection and no history. TLS, HTTP and the allocator are those
//! of the gateway.

use std::{convert::Infallible, path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, header};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube_fanout::load::Splitter;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::client::{Ask, Endpoint};

/// The size of a frame of a list, in bytes: about as large as the gateway's.
const PIECE: usize = 256 << 10;
/// The number of events by which a client may lag behind.
const EVENTS: usize = 4096;
/// The maximum number of streams per connection, as in the gateway.
const STREAMS: u32 = 1000;
const PODS: &str = "/api/v1/pods";

/// The list and the watch of one encoding.
#[derive(Clone)]
struct Relay {
    pieces: Arc<Vec<Bytes>>,
    events: broadcast::Sender<Bytes>,
}

/// Serves until the process is killed. Arguments: the URL of upstream, the port to listen on, and the folder of the
/// certificates.
pub(crate) async fn serve(arguments: &[&str]) -> Result<()> {
    let [upstream, port, certificates] = arguments else { bail!("upstream, port and certificates, not {arguments:?}") };
    let (upstream, certificates) = (endpoint(upstream, Path::new(certificates))?, Path::new(certificates));
    let mut tasks = JoinSet::new();
    let json = Relay::start(&upstream, Ask::json, &mut tasks).await?;
    // Not every server supports protobuf.
    let protobuf = Relay::start(&upstream, Ask::protobuf, &mut tasks).await.unwrap_or_else(|_| json.clone());
    let tls = acceptor(certificates)?;
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tasks.spawn(connection(stream, tls.clone(), json.clone(), protobuf.clone()));
        while tasks.try_join_next().is_some() {}
    }
}

/// The server at this URL.
pub(crate) fn endpoint(url: &str, certificates: &Path) -> Result<Endpoint> {
    let (scheme, rest) = url.split_once("://").context("a URL")?;
    let port = rest.rsplit_once(':').context("a port")?.1.parse()?;
    if scheme == "https" { Endpoint::tls(port, &certificates.join("ca.crt")) } else { Ok(Endpoint::plain(port)) }
}

fn acceptor(certificates: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificates.join("server.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certificates.join("server.key"))?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Relay {
    async fn start(upstream: &Endpoint, ask: fn(String) -> Ask, tasks: &mut JoinSet<()>) -> Result<Self> {
        let list = upstream.get(&ask(format!("{PODS}?resourceVersion=0"))).await?;
        let is_protobuf = list.starts_with(b"k8s\0");
        let page = upstream.get(&Ask::json(format!("{PODS}?limit=1"))).await?;
        let page: serde_json::Value = serde_json::from_slice(&page)?;
        let version = page["metadata"]["resourceVersion"].as_str().context("no version")?;
        let mut connection = upstream.connect(false).await?;
        let watch = ask(format!("{PODS}?watch=1&timeoutSeconds=7200&resourceVersion={version}"));
        let mut body = connection.open(&watch).await?.into_body();
        let pieces = (0..list.len()).step_by(PIECE).map(|at| list.slice(at..list.len().min(at + PIECE))).collect();
        let (events, _) = broadcast::channel(EVENTS);
        let relay = Self { pieces: Arc::new(pieces), events: events.clone() };
        tasks.spawn(async move {
            let (_connection, mut splitter) = (connection, Splitter::new(is_protobuf));
            while let Some(Ok(frame)) = body.frame().await {
                // Fails if there is no client.
                splitter.push(&frame.into_data().unwrap_or_default(), |event| {
                    events.send(Bytes::copy_from_slice(event)).unwrap_or_default();
                });
            }
        });
        Ok(relay)
    }

    fn list(&self) -> BoxBody<Bytes, Infallible> {
        let pieces = self.pieces.clone();
        let frames = (0..pieces.len()).map(move |at| Ok(Frame::data(pieces[at].clone())));
        BodyExt::boxed(StreamBody::new(stream::iter(frames)))
    }

    fn watch(&self) -> BoxBody<Bytes, Infallible> {
        let frames = stream::unfold(self.events.subscribe(), async |mut events| {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((Ok(Frame::data(event)), events)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        BodyExt::boxed(StreamBody::new(frames))
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, json: Relay, protobuf: Relay) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let accept = request.headers().get(header::ACCEPT).map(|accept| accept.as_bytes());
        let relay = if accept.is_some_and(|accept| accept.ends_with(b"protobuf")) { &protobuf } else { &json };
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
        let body = if is_watch { relay.watch() } else { relay.list() };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS);
    // An error is ignored, since the client notices it.
    builder.serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
}
