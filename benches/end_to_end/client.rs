//! A client with as little work of its own as possible: HTTP/1.1 or HTTP/2, one connection each, those of
//! `kube-fanout load`. For the rows whose requests no profile describes (see the crate's documentation).

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use kube_fanout::load::{self, HttpVersion, Tls};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::time::timeout;

use crate::certificates::ADMIN_TOKEN;

/// The address of the servers, and the name in their certificates.
const ADDRESS: &str = "127.0.0.1";
const HOST: &str = "localhost";
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
/// What kubectl asks for.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Ask {
    pub(crate) fn json(path: impl Into<String>) -> Self {
        Self { path: path.into(), accept: JSON, gzip: false, http2: false }
    }

    pub(crate) fn protobuf(path: impl Into<String>) -> Self {
        Self { accept: PROTOBUF, ..Self::json(path) }
    }

    pub(crate) fn table(path: impl Into<String>) -> Self {
        Self { accept: TABLE, ..Self::json(path) }
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
    connection: load::Connection,
    http2: bool,
    port: u16,
}

impl Endpoint {
    pub(crate) fn tls(port: u16, authority: &Path) -> Result<Self> {
        Ok(Self { port, authority: Some(CertificateDer::from_pem_file(authority)?) })
    }

    pub(crate) fn plain(port: u16) -> Self {
        Self { port, authority: None }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{ADDRESS}:{}", self.port)
    }

    pub(crate) async fn connect(&self, http2: bool) -> Result<Connection> {
        // Connections of one `Tls` would resume each other's sessions, and then cost the server less.
        let tls = self.authority.as_ref().map(tls).transpose()?;
        let http = if http2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
        let connection = load::Connection::open(ADDRESS, self.port, tls.as_ref(), http).await?;
        Ok(Connection { connection, http2, port: self.port })
    }

    /// The body of the answer to one get on a new connection. Fails if the answer is no success.
    pub(crate) async fn get(&self, ask: &Ask) -> Result<Bytes> {
        let mut connection = self.connect(ask.http2).await?;
        Ok(connection.open(ask).await?.into_body().collect().await?.to_bytes())
    }
}

fn tls(authority: &CertificateDer<'static>) -> Result<Tls> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls::new(config, ServerName::try_from(HOST)?))
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
        let authority = format!("{HOST}:{}", self.port);
        if self.http2 {
            request.uri(format!("https://{authority}{path}"))
        } else {
            request.uri(path).header(header::HOST, authority)
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let path = request.uri().to_string();
        let answer = timeout(HEAD_MAX, self.connection.send(request)).await;
        let answer = answer.context("no answer")?.with_context(|| path.clone())?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("{path}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(answer)
    }
}
