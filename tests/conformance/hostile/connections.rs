//! The connections of hostile clients, each from an address of its own choice.

use std::{ops::Range, path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::future;
use http::{Request, Response, request};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{Duration, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::client::tls_config;

/// The maximum time for the head of a response that the gateway may hold back.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time for the head of a response that must come, on a busy machine.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

pub(super) const JSON: &str = "application/json";

/// The gateway as hostile clients reach it.
#[derive(Clone)]
pub(super) struct Victim {
    /// Its URL with TLS.
    pub(super) base: String,
    pub(super) tls: Arc<rustls::ClientConfig>,
    /// What its requests accept.
    pub(super) accept: &'static str,
}

/// An HTTP/2 connection whose streams accept no data.
pub(super) struct Attack {
    sender: SendRequest<Empty<Bytes>>,
    base: String,
    accept: &'static str,
    patience: Duration,
    _driver: JoinSet<()>,
}

/// An HTTP/1.1 connection, and the status of its only response; `None` if the gateway closed it.
pub(super) struct Kept {
    pub(super) status: Option<u16>,
    _stream: Option<TlsStream<TcpStream>>,
}

impl Victim {
    /// The gateway at `base`, whose authority is in that folder.
    pub(super) fn new(base: &str, certificates: &Path) -> Result<Self> {
        let tls = Arc::new(tls_config(Some(&certificates.join("ca.crt")), None)?);
        Ok(Self { base: base.to_owned(), tls, accept: JSON })
    }

    /// Connects from the address `127.0.0.{from}`: the gateway distinguishes unknown clients by their addresses.
    async fn connect(&self, from: u8, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, from], 0).into())?;
        let stream = socket.connect(self.base.trim_start_matches("https://").parse()?).await?;
        Ok(TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("127.0.0.1")?, stream).await?)
    }

    /// An HTTP/2 connection with a window of 0.
    pub(super) async fn unread(&self, from: u8) -> Result<Attack> {
        let refused = || format!("a hostile client's connection from 127.0.0.{from}");
        let stream = self.connect(from, b"h2").await.with_context(refused)?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(0);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.with_context(refused)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Ok(Attack { sender, base: self.base.clone(), accept: self.accept, patience: PATIENCE, _driver: driver })
    }

    /// A connection that sends one request, with these further header lines, reads the status, and then stays open.
    pub(super) async fn keep(&self, from: u8, path: &str, lines: &str) -> Kept {
        match timeout(LONG_PATIENCE, self.kept(from, path, lines)).await {
            Ok(Ok((status, stream))) => Kept { status: Some(status), _stream: Some(stream) },
            Ok(Err(_)) | Err(_) => Kept { status: None, _stream: None },
        }
    }

    async fn kept(&self, from: u8, path: &str, lines: &str) -> Result<(u16, TlsStream<TcpStream>)> {
        let mut stream = self.connect(from, b"http/1.1").await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n").as_bytes()).await?;
        stream.flush().await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        let status = std::str::from_utf8(&status)?.strip_prefix("HTTP/1.1 ").context("no HTTP/1.1")?.parse()?;
        Ok((status, stream))
    }
}

impl Attack {
    /// For requests that must all be answered.
    pub(super) fn patient(self) -> Self {
        Self { patience: LONG_PATIENCE, ..self }
    }

    /// The unread responses that were not refused.
    pub(super) async fn ask(
        &self,
        numbers: Range<usize>,
        request: impl Fn(usize) -> (String, Option<String>),
    ) -> Vec<Response<Incoming>> {
        self.all(numbers.map(|number| {
            let (path, authorization) = request(number);
            let request = Request::get(format!("{}{path}", self.base)).header("accept", self.accept);
            authorization.into_iter().fold(request, |request, value| request.header("authorization", value))
        }))
        .await
    }

    /// The unread responses to that many requests which the gateway refuses itself, because they have two lengths.
    pub(super) async fn ask_malformed(&self, count: usize) -> Vec<Response<Incoming>> {
        let request = || Request::get(&self.base).header("content-length", "0").header("content-length", "0");
        self.all((0..count).map(|_| request())).await
    }

    async fn all(&self, requests: impl Iterator<Item = request::Builder>) -> Vec<Response<Incoming>> {
        let asked = requests.map(|request| timeout(self.patience, self.one(request)));
        future::join_all(asked).await.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
    }

    async fn one(&self, request: request::Builder) -> Result<Response<Incoming>> {
        Ok(self.sender.clone().send_request(request.body(Empty::new())?).await?)
    }
}
