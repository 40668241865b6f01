//! Servers on loopback that play the API server in tests of this module and of `forward`.

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
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use super::Upstream;

pub(crate) type TestBody = UnsyncBoxBody<Bytes, hyper::Error>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<TestBody>> + Send + Sync>;

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

    /// HTTP/2 and HTTP/1.1 with TLS.
    pub(crate) async fn start_tls<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let certificate = issued.cert.der().clone();
        Self::run(Arc::new(move |request| Box::pin(answer(request))), Some((certificate, key))).await
    }

    async fn run(handler: Handler, identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = config(address);
        let tls = identity.map(|(certificate, key)| {
            config.cluster_url = format!("https://localhost:{}", address.port()).parse().unwrap();
            config.root_cert = Some(vec![certificate.to_vec()]);
            let mut tls =
                ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            TlsAcceptor::from(Arc::new(tls))
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, handler));
        Self { config, _tasks: tasks }
    }

    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::new(&self.config).unwrap()
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, handler: Handler) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, handler) = (tls.clone(), handler.clone());
        connections.spawn(async move {
            match tls {
                Some(tls) => serve(tls.accept(stream).await.unwrap(), handler).await,
                None => serve(stream, handler).await,
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, handler: Handler) {
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    // Clients that go away are what some tests are about.
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
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(crate) async fn write(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}
