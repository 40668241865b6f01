//! A client with as little work of its own as possible: HTTP/1.1 or HTTP/2, one connection each.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::TlsConnector;

use crate::certificates::ADMIN_TOKEN;

/// The timeout for the head of an answer.
const HEAD_MAX: Duration = Duration::from_secs(120);

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    /// The authority that signed the server's certificate; `None` for plain HTTP.
    authority: Option<CertificateDer<'static>>,
}

/// A get.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) gzip: bool,
    pub(crate) http2: bool,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Ask {
    pub(crate) fn json(path: impl Into<String>) -> Self {
        Self { path: path.into(), accept: JSON, gzip: false, http2: false }
    }

    pub(crate) fn protobuf(path: impl Into<String>) -> Self {
        Self { accept: PROTOBUF, ..Self::json(path) }
    }

    pub(crate) fn gzip(self) -> Self {
        Self { gzip: true, ..self }
    }

    pub(crate) fn http2(self) -> Self {
        Self { http2: true, ..self }
    }
}

/// An open connection; closed when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: Sender,
    port: u16,
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Endpoint {
    pub(crate) fn tls(port: u16, authority: &Path) -> Result<Self> {
        Ok(Self { port, authority: Some(CertificateDer::from_pem_file(authority)?) })
    }

    pub(crate) fn plain(port: u16) -> Self {
        Self { port, authority: None }
    }

    pub(crate) async fn connect(&self, http2: bool) -> Result<Connection> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await?;
        stream.set_nodelay(true)?;
        let mut driver = JoinSet::new();
        let sender = match &self.authority {
            None => handshake(stream, http2, &mut driver).await?,
            Some(authority) => {
                let name = ServerName::try_from("localhost")?;
                let tls = TlsConnector::from(Arc::new(tls(authority, http2)?)).connect(name, stream).await?;
                handshake(tls, http2, &mut driver).await?
            }
        };
        Ok(Connection { sender, port: self.port, _driver: driver })
    }

    /// The body of the answer to one get on a new connection. Fails if the answer is no success.
    pub(crate) async fn get(&self, ask: &Ask) -> Result<Bytes> {
        let mut connection = self.connect(ask.http2).await?;
        Ok(connection.open(ask).await?.into_body().collect().await?.to_bytes())
    }
}

fn tls(authority: &CertificateDer<'static>, http2: bool) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(config)
}

async fn handshake<I>(io: I, http2: bool, driver: &mut JoinSet<()>) -> Result<Sender>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(io);
    if !http2 {
        let (sender, connection) = http1::handshake(io).await?;
        // The reader of the body gets the error.
        driver.spawn(async move { connection.await.unwrap_or_default() });
        return Ok(Sender::Http1(sender));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        // The window sizes of Go's clients.
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(1 << 30)
        .handshake(io)
        .await?;
    driver.spawn(async move { connection.await.unwrap_or_default() });
    Ok(Sender::Http2(sender))
}

impl Connection {
    /// Sends a get and returns its answer, whose body is not read yet. Fails if the answer is no success.
    pub(crate) async fn open(&mut self, ask: &Ask) -> Result<Response<Incoming>> {
        let request = self.request(Method::GET, &ask.path).header(header::ACCEPT, ask.accept);
        let request = if ask.gzip { request.header(header::ACCEPT_ENCODING, "gzip") } else { request };
        self.send(request.body(Full::default())?).await
    }

    /// Reads an answer to its end and returns the number of bytes of its body.
    pub(crate) async fn read(&mut self, ask: &Ask) -> Result<u64> {
        let mut body = self.open(ask).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(bytes)
    }

    /// Sends a write. Fails if the answer is no success.
    pub(crate) async fn write(&mut self, method: Method, path: &str, body: &serde_json::Value) -> Result<()> {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { JSON };
        let request = self.request(method, path).header(header::CONTENT_TYPE, content);
        self.send(request.body(Full::from(body.to_string()))?).await?.into_body().collect().await?;
        Ok(())
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let request = Request::builder().method(method).header(header::AUTHORIZATION, format!("Bearer {ADMIN_TOKEN}"));
        let authority = format!("localhost:{}", self.port);
        match self.sender {
            Sender::Http1(_) => request.uri(path).header(header::HOST, authority),
            Sender::Http2(_) => request.uri(format!("https://{authority}{path}")),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let path = request.uri().to_string();
        let answer = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        let answer = timeout(HEAD_MAX, answer).await.context("no answer")?.with_context(|| path.clone())?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("{path}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(answer)
    }
}
