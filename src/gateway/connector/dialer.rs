//! Opens connections to the API server: TCP, a proxy where one is configured, TLS, all within one time limit.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        Connected, Connection,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioIo,
};
use kube_client::{Config, client::ConfigExt};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

use base::config::Redacted;

use super::{
    BoxError, BuildError,
    acceptance::Acceptance,
    client_certificate::Presented,
    connection_closer::{Breaks, Broken, ConnectionCloser},
    servers::{Held, Route},
    silence::Silence,
    socket::{Socket, SocketOpener},
};

/// Time limit for TCP, proxy and TLS handshake together: long enough for a slow proxy, short enough to answer with 503.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The place of the server in an acceptance about one.
const ONLY: usize = 0;
/// The HTTP versions that are offered to upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocols {
    /// HTTP/2 if upstream speaks it over TLS, else HTTP/1.1.
    Any,
    /// For upgrades, which are not possible over HTTP/2, and for connections that carry one request at a time.
    Http1,
}

/// Dials upstream. Cheap to clone.
#[derive(Clone)]
pub(super) struct Dialer {
    secured: HttpsConnector<Dial>,
    target: DialTarget,
    /// What connections show, if that can change: they break when it does.
    presented: Option<Arc<Presented>>,
    silence: Silence,
}

/// Where connections lead, and what breaks them.
#[derive(Clone, Debug)]
pub(super) enum DialTarget {
    /// The address of the configuration. With an acceptance, only if the server there accepts the identity.
    Address {
        cluster: ConnectionCloser,
        acceptance: Option<Acceptance>,
    },
    Servers(Route),
}

/// The stream below TLS: directly to upstream, or through a proxy, which may use TLS itself.
pub(super) type DialedStream = MaybeHttpsStream<TokioIo<Socket>>;
pub(super) type Dial = BoxCloneSyncService<Uri, DialedStream, BoxError>;

/// A connection to upstream that records whether an answer was ever received on it.
pub(super) struct UpstreamStream {
    stream: MaybeHttpsStream<DialedStream>,
    usage: ConnectionUse,
    /// What tells that the connection is not to be used any more, and wakes who reads.
    breaks: Breaks,
    broken: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Counts the connection at its server; `None` if there is only one address.
    _held: Option<Held>,
    /// Told when something is received.
    silence: Silence,
}

/// Whether an answer was received on a connection. One that breaks without any answer was not stale.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionUse(Arc<AtomicBool>);

/// The connection was not established in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
pub(super) struct ConnectTimedOut(pub(super) Duration);

impl Dialer {
    /// `server_name` is what upstream's certificate is checked against; `None` for the host that is dialled.
    pub(super) fn new(
        dial: Dial,
        tls: ClientConfig,
        server_name: Option<ServerName<'static>>,
        protocols: Protocols,
        target: DialTarget,
        presented: Option<Arc<Presented>>,
        silence: Silence,
    ) -> Self {
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = server_name {
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let secured = match protocols {
            Protocols::Any => builder.enable_all_versions().wrap_connector(dial),
            Protocols::Http1 => builder.enable_http1().wrap_connector(dial),
        };
        Self { secured, target, presented, silence }
    }

    /// Breaks a connection that is opened now when there is another certificate; `None` if it cannot change.
    fn token(&self) -> Option<CancellationToken> {
        self.presented.as_ref().map(|presented| presented.token())
    }
}

impl Service<Uri> for Dialer {
    type Response = UpstreamStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<UpstreamStream, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.secured.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let route = match &self.target {
            DialTarget::Servers(route) => route.clone(),
            DialTarget::Address { cluster, acceptance } => {
                let acceptance = acceptance.clone();
                let accepted = acceptance.as_ref().map(|acceptance| acceptance.token(ONLY));
                let breaks = Breaks::by([Some(cluster.token()), self.token(), accepted].into_iter().flatten());
                let check = move || acceptance.as_ref().map_or(Ok(()), |acceptance| acceptance.check(ONLY));
                if let Err(error) = check() {
                    return Box::pin(async move { Err(error.into()) });
                }
                let (connecting, silence) = (self.secured.call(address), self.silence.clone());
                return Box::pin(async move {
                    let stream = in_time(connecting).await?;
                    check()?;
                    Ok(UpstreamStream::new(stream, breaks, None, silence))
                });
            }
        };
        let (secured, dialer) = (self.secured.clone(), self.clone());
        let open = move |address| -> BoxFuture<'static, _> { Box::pin(secured.clone().oneshot(address)) };
        Box::pin(async move {
            let (stream, held) = in_time(route.connect(open, || dialer.token(), address)).await?;
            Ok(UpstreamStream::new(stream, held.breaks(), Some(held), dialer.silence))
        })
    }
}

async fn in_time<S>(connecting: impl Future<Output = Result<S, BoxError>>) -> Result<S, BoxError> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    connected.unwrap_or_else(|_| Err(Box::new(ConnectTimedOut(CONNECT_TIMEOUT))))
}

/// The route to upstream below TLS, over these sockets, with the same proxies that kube-client accepts.
pub(super) fn dial(config: &Config, sockets: SocketOpener) -> Result<Dial, BuildError> {
    let sockets = sockets.map_response(TokioIo::new);
    let Some(proxy) = &config.proxy_url else {
        return Ok(boxed(sockets.map_response(MaybeHttpsStream::Http)));
    };
    match proxy.scheme_str() {
        Some("socks5") => Ok(boxed(SocksV5::new(proxy.clone(), sockets).map_response(MaybeHttpsStream::Http))),
        Some("http") => {
            let tunnel = with_proxy_credentials(Tunnel::new(proxy.clone(), sockets), proxy);
            Ok(boxed(tunnel.map_response(MaybeHttpsStream::Http)))
        }
        Some("https") => {
            let secured = config
                .rustls_https_connector_with_connector(sockets)
                .map_err(|error| BuildError::Tls(Redacted::new(&error)))?;
            Ok(boxed(with_proxy_credentials(Tunnel::new(proxy.clone(), secured), proxy)))
        }
        scheme => Err(BuildError::Proxy(scheme.unwrap_or_default().to_owned())),
    }
}

fn boxed<S>(service: S) -> Dial
where
    S: Service<Uri, Response = DialedStream> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service.map_err(Into::into))
}

/// The Proxy-Authorization for `user:password@` in a proxy's address.
fn with_proxy_credentials<C>(tunnel: Tunnel<C>, proxy: &Uri) -> Tunnel<C> {
    let userinfo = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let Some((userinfo, _)) = userinfo else { return tunnel };
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(userinfo).collect();
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(decoded)));
    tunnel.with_auth(value.expect("base64 is a header value"))
}

impl ConnectionUse {
    /// Records that an answer was received on this connection.
    pub(super) fn answered(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether an answer was ever received on the connection.
    pub(super) fn has_answered(connected: &Connected) -> bool {
        let mut extras = http::Extensions::new();
        connected.get_extras(&mut extras);
        extras.get::<Self>().is_some_and(|usage| usage.0.load(Ordering::Relaxed))
    }
}

impl UpstreamStream {
    fn new(stream: MaybeHttpsStream<DialedStream>, breaks: Breaks, held: Option<Held>, silence: Silence) -> Self {
        Self { stream, usage: ConnectionUse::default(), broken: breaks.broken(), breaks, _held: held, silence }
    }

    /// What tells that the connection is not to be used any more.
    pub(super) fn breaks(&self) -> Breaks {
        self.breaks.clone()
    }

    /// A request that has got this connection at the same moment is not sent on it either.
    fn check(&self) -> io::Result<()> {
        if self.breaks.is_broken() { Err(broken()) } else { Ok(()) }
    }
}

/// An error, not an end: it must never look like the end of an answer.
fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, Broken)
}

impl Connection for UpstreamStream {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.usage.clone())
    }
}

impl Read for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(broken()));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.silence.heard();
        }
        read
    }
}

impl Write for UpstreamStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl fmt::Debug for UpstreamStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpstreamStream").field("usage", &self.usage).finish_non_exhaustive()
    }
}
