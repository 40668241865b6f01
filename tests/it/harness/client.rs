//! Clients of a gateway: plain requests, and watches that are read line by line.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::net::TcpStream;

use super::{Route, access::AccessLog, within};

/// The prefix of these clients' user agents, by which upstreams recognize forwarded requests.
pub(crate) const USER_AGENT: &str = "it/";

static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// A client of one gateway.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    url: String,
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    log: AccessLog,
}

/// A complete response and its origin.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) route: Route,
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    body: Incoming,
    unread: BytesMut,
    log: AccessLog,
    user_agent: String,
}

/// A watch's connection broke: its stream has no proper end.
#[derive(Debug)]
pub(crate) struct Broken;

impl Client {
    pub(crate) fn new(url: String, log: AccessLog) -> Self {
        // A connection for each request: the gateway might close a kept one just when it is used again.
        let http = legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { url, http, log }
    }

    /// A client of the same gateway over HTTP/2: all requests share one connection.
    pub(crate) fn over_http2(&self) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { http, ..self.clone() }
    }

    /// A client of the same gateway over HTTP/2 that accepts one byte of each response, and accepts more only when the
    /// response is read.
    pub(crate) fn taking_a_byte(&self) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        let http = builder.http2_only(true).http2_initial_stream_window_size(1).build_http();
        Self { http, ..self.clone() }
    }

    pub(crate) fn log(&self) -> AccessLog {
        self.log.clone()
    }

    /// A client of the same gateway over HTTP/2 that accepts no byte of any response.
    pub(crate) fn that_does_not_read(&self) -> Self {
        let mut http = legacy::Client::builder(TokioExecutor::new());
        let http = http.http2_only(true).http2_initial_stream_window_size(0).build_http();
        Self { http, ..self.clone() }
    }

    /// A client of the same gateway from another address of this machine.
    pub(crate) fn at(&self, address: [u8; 4]) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address.into()));
        let http = legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { http, ..self.clone() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    /// Whether the gateway no longer accepts connections.
    pub(crate) async fn is_refused(&self) -> bool {
        TcpStream::connect(self.address()).await.is_err()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], Bytes::new()).await
    }

    pub(crate) async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let (user_agent, response) = self.send(method, path, headers, body).await;
        self.answer(&user_agent, response).await
    }

    /// Sends a request, and also returns the user agent that it was sent with.
    pub(crate) async fn asked(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (String, Answer) {
        let (user_agent, response) = self.send(method, path, headers, Bytes::new()).await;
        let answer = self.answer(&user_agent, response).await;
        (user_agent, answer)
    }

    /// A response whose body has not been read.
    pub(crate) async fn head(&self, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        self.send("GET", path, headers, Bytes::new()).await.1
    }

    async fn answer(&self, user_agent: &str, response: Response<Incoming>) -> Answer {
        let (head, body) = response.into_parts();
        let body = within("the whole answer", body.collect()).await.unwrap().to_bytes();
        let route = self.log.route(user_agent).await;
        Answer { status: head.status, headers: head.headers, body, route }
    }

    /// Opens a watch without reading from it.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.open(path).await.unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"))
    }

    /// Opens a watch in another representation than JSON.
    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        self.watch_with(path, &[("accept", accept)]).await
    }

    /// Opens a watch with these headers.
    pub(crate) async fn watch_with(&self, path: &str, headers: &[(&str, &str)]) -> Watch {
        self.open_with(path, headers).await.unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"))
    }

    /// Opens a watch, or returns the response that refuses it.
    pub(crate) async fn open(&self, path: &str) -> Result<Watch, Answer> {
        self.open_with(path, &[]).await
    }

    /// Like [`Self::open`], with these headers.
    pub(crate) async fn open_with(&self, path: &str, headers: &[(&str, &str)]) -> Result<Watch, Answer> {
        let (user_agent, response) = self.send("GET", path, headers, Bytes::new()).await;
        if response.status() != StatusCode::OK {
            return Err(self.answer(&user_agent, response).await);
        }
        Ok(Watch { body: response.into_body(), unread: BytesMut::new(), log: self.log.clone(), user_agent })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> (String, Response<Incoming>) {
        let user_agent = format!("{USER_AGENT}{}", REQUESTS.fetch_add(1, Relaxed));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        request = request.header(header::USER_AGENT, &user_agent);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let response = within("the answer's head", self.http.request(request)).await;
        (user_agent, response.unwrap())
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

impl Watch {
    /// The next event, unchanged; `None` at the proper end of the stream.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.unread) {
                let line = self.unread.split_to(end + 1);
                return Ok(Some(String::from_utf8(line.to_vec()).unwrap()));
            }
            match within("the watch's next event", self.body.frame()).await {
                Some(Ok(frame)) => self.unread.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(Broken),
                None => {
                    assert!(self.unread.is_empty(), "half an event: {:?}", self.unread);
                    return Ok(None);
                }
            }
        }
    }

    /// The next `count` bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Bytes {
        while self.unread.len() < count {
            let frame = within("the watch's next bytes", self.body.frame()).await.expect("more of the stream");
            self.unread.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        }
        self.unread.split_to(count).freeze()
    }

    /// Whether the stream breaks before its proper end.
    pub(crate) async fn ends_broken(mut self) -> bool {
        loop {
            match within("the stream's end", self.body.frame()).await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return true,
                None => return false,
            }
        }
    }

    /// All bytes from here to the proper end of the stream.
    pub(crate) async fn rest(mut self) -> (String, Route) {
        let mut text = String::new();
        while let Some(line) = self.line().await.expect("a proper end") {
            text.push_str(&line);
        }
        let Self { body, log, user_agent, .. } = self;
        drop(body);
        (text, log.route(&user_agent).await)
    }
}
