//! Clients of the gateways: one connection for each request, at a gateway that chance picks, as a Service would.

use std::{ops::Range, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::{sleep, timeout};
use turmoil::net::TcpStream;

use crate::{
    informer::Informer,
    phase::{Phase, Phases},
    selection::Selection,
    world::{GATEWAY_PORT, World, gateway},
};

/// Longer than the gateway waits for anything.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A watch that is quiet for longer has lost its bookmarks: clients' pings notice a dead connection in less.
const QUIET_MAX: Duration = Duration::from_secs(150);
/// How long a client may take to catch up once nothing goes wrong: longer than two gateways in a row wait after many
/// failures, each up to 37.5 s.
pub(crate) const IN_SYNC_MAX: Duration = Duration::from_secs(80);
/// The longest time between two restarts of an informer.
const RESTART_MAX: Duration = Duration::from_secs(20);
/// The longest time that an informer is away.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// A client of some gateways, or of one.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) world: World,
    /// Each request goes to any of these.
    pub(crate) gateways: Range<usize>,
    /// `Accept` of lists.
    pub(crate) lists: &'static str,
    /// `Accept` of watches.
    pub(crate) watches: &'static str,
    pub(crate) is_http2: bool,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    body: Incoming,
    unread: BytesMut,
    client: Client,
}

/// A watch's connection broke, or nothing came on it for too long.
#[derive(Debug)]
pub(crate) struct Broken;

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        match timeout(ANSWER_MAX, self.whole(path)).await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(_) => Answer { status: StatusCode::SERVICE_UNAVAILABLE, body: Bytes::new() },
        }
    }

    /// Opens a watch, or returns the response that refuses it.
    pub(crate) async fn open(&self, path: &str) -> Result<Watch, Answer> {
        let none = Answer { status: StatusCode::SERVICE_UNAVAILABLE, body: Bytes::new() };
        let Ok(Some(response)) = timeout(ANSWER_MAX, self.send(path, self.watches)).await else { return Err(none) };
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(Watch { body, unread: BytesMut::new(), client: self.clone() });
        }
        let body = timeout(ANSWER_MAX, body.collect()).await.ok().and_then(Result::ok);
        Err(body.map_or(none, |body| Answer { status: head.status, body: body.to_bytes() }))
    }

    async fn whole(&self, path: &str) -> Option<Answer> {
        let (head, body) = self.send(path, self.lists).await?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        self.world.record.told(&self.name, &body);
        Some(Answer { status: head.status, body })
    }

    /// `None` without an answer.
    async fn send(&self, path: &str, accept: &str) -> Option<http::Response<Incoming>> {
        let Range { start, end } = self.gateways;
        let number = if end - start == 1 { start } else { fastrand::usize(start..end) };
        let stream = TokioIo::new(TcpStream::connect((gateway(number), GATEWAY_PORT)).await.ok()?);
        let uri = format!("http://127.0.0.1{path}");
        let mut request = Request::get(if self.is_http2 { &uri } else { path })
            .header("accept", accept)
            .header("user-agent", &self.name);
        if self.world.is_delegated {
            request = request.header("authorization", format!("Bearer {}", self.name));
        }
        if self.is_http2 {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.ok()?;
            tokio::task::spawn_local(async move { connection.await.ok() });
            return sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.ok();
        }
        let (mut sender, connection) = http1::handshake(stream).await.ok()?;
        tokio::task::spawn_local(async move { connection.await.ok() });
        sender.send_request(request.header("host", "127.0.0.1").body(Empty::<Bytes>::new()).unwrap()).await.ok()
    }
}

impl Watch {
    /// The next event, unchanged; `None` at the proper end of the stream.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.unread) {
                let line = self.unread.split_to(end + 1);
                self.client.world.record.told(&self.client.name, &line);
                return Ok(Some(String::from_utf8(line.to_vec()).unwrap()));
            }
            match timeout(QUIET_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.unread.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Ok(Some(Err(_))) | Err(_) => return Err(Broken),
                Ok(None) => {
                    assert!(self.unread.is_empty(), "half an event: {:?}", self.unread);
                    return Ok(None);
                }
            }
        }
    }
}

/// Follows as long as things go wrong; in each calm it has to catch up.
pub(crate) async fn follow(client: Client, selection: Selection, mut phases: Phases) -> turmoil::Result {
    let anew = || {
        let mut informer = Informer::new(client.clone(), client.world.sim.clone(), selection.clone());
        informer.compares_bookmarks = true;
        informer
    };
    let mut informer = anew();
    loop {
        let phase = phases.now();
        match phase {
            Phase::Troubled => {
                tokio::select! {
                    () = restart_often(&mut informer, &client.world) => {}
                    () = phases.until_not(phase) => {}
                }
                continue;
            }
            Phase::Calm => informer.catch_up().await,
            Phase::Resting => informer.break_off(true),
            Phase::Restored => informer = anew(),
            Phase::Over => {}
        }
        if !phases.done_with(phase).await {
            return Ok(());
        }
    }
}

/// Follows, and is restarted now and then: at once or after a while, with or without its state. If it is away while a
/// gateway is cut off, it comes back when that has ended: with a version that lies in the gap of that gateway.
async fn restart_often(informer: &mut Informer, world: &World) {
    let mut cut_off = world.cut_off.subscribe();
    loop {
        tokio::select! {
            _ = informer.follow() => {}
            () = sleep(RESTART_MAX.mul_f64(fastrand::f64())) => {}
        }
        informer.break_off(fastrand::u32(..4) > 0);
        if fastrand::bool() {
            cut_off.wait_for(|cut_off| !cut_off.contains(&true)).await.unwrap();
            sleep(AWAY_MAX.mul_f64(fastrand::f64())).await;
        }
    }
}

/// The result of a future that must soon complete once nothing goes wrong.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(IN_SYNC_MAX, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}
