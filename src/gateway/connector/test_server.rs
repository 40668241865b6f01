//! Servers on loopback that play the API server in unit tests.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use super::{Connector, test_authority::Authority};

pub(crate) type TestBody = UnsyncBoxBody<Bytes, hyper::Error>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<TestBody>> + Send + Sync>;

/// The client certificate of the connection that a request came on, in the request's extensions.
#[derive(Clone)]
pub(crate) struct Shown(pub(crate) Option<Vec<u8>>);

/// Serves until dropped.
pub(crate) struct TestServer {
    pub(crate) config: kube_client::Config,
    _tasks: JoinSet<()>,
}

impl TestServer {
    /// HTTP/1.1 without TLS.
    pub(crate) async fn start<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        Self::run(Arc::new(move |request| Box::pin(answer(request))), None).await
    }

    /// HTTP/2 and HTTP/1.1 with TLS. Requests a client certificate and passes it to the handler: [`Shown`].
    pub(crate) async fn start_tls<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        Self::start_tls_with(&Authority::new(), &[b"h2", b"http/1.1"], answer).await
    }

    /// Its certificate, and those of its clients, are issued by `authority`. Speaks `protocols`, by their ALPN names.
    pub(crate) async fn start_tls_with<F>(
        authority: &Authority,
        protocols: &[&[u8]],
        answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        let mut tls = authority.server();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let mut server = Self::run(Arc::new(move |request| Box::pin(answer(request))), Some(tls)).await;
        server.config.root_cert = Some(vec![authority.certificate().to_vec()]);
        server
    }

    async fn run(handler: Handler, tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = config(address);
        if tls.is_some() {
            config.cluster_url = format!("https://localhost:{}", address.port()).parse().unwrap();
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls.map(|tls| TlsAcceptor::from(Arc::new(tls))), handler));
        Self { config, _tasks: tasks }
    }

    pub(crate) fn connector(&self) -> Connector {
        Connector::new(&self.config).unwrap()
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, handler: Handler) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, handler) = (tls.clone(), handler.clone());
        connections.spawn(async move {
            let Some(tls) = tls else { return serve(stream, Shown(None), handler).await };
            let stream = tls.accept(stream).await.unwrap();
            let chain = stream.get_ref().1.peer_certificates();
            let shown = Shown(chain.map(|chain| chain[0].to_vec()));
            serve(stream, shown, handler).await;
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shown: Shown, handler: Handler) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(shown.clone());
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    // Some tests disconnect their clients.
    let _ended = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

/// How to reach a server at `address` without TLS.
pub(crate) fn config(address: SocketAddr) -> kube_client::Config {
    kube_client::Config::new(format!("http://{address}").parse().unwrap())
}

pub(crate) fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Reads one request without a body from a connection that a test scripts byte by byte; its text.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}
