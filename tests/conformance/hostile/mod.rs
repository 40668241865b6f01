//! Hostile clients at full scale next to bystanders: a client with its own token, an operator's probe, and a watch. The
//! client is not refused and gets the same responses, the probe succeeds, and memory stays within a stated bound.

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use futures_util::future;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::{
    net::TcpSocket,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, Protocol, tls_config},
    identity::{Asserts, Delegated, reader_token},
    report::Tally,
};

/// The number of streams on one connection.
const STREAMS: usize = 1000;
/// The number of connections to the admin port: more than it accepts.
const ADMIN_CONNECTIONS: usize = 150;
/// The minimum number of requests of a flood.
const FLOOD: usize = 3000;
/// The address of hostile clients, which differs from the bystander's.
const ELSEWHERE: &str = "127.0.0.2:0";
/// The number of the bystander's requests during each attack.
const REQUESTS: usize = 40;
/// The number of requests where their times are compared. The times are printed but not asserted: server, gateway and
/// both clients share the cores, and on a busy machine the quiet run alone varies by a factor of three.
const MANY_REQUESTS: usize = 200;
/// The maximum duration of a probe: a kubelet's default is a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The memory that hostile clients may add to the gateway: `limits.answerBytesPerClient`, and some for streams and
/// tables.
const MEMORY: u64 = (256 << 20) + (128 << 20);

/// The config maps whose list, selected by a label, takes tens of megabytes.
const OBJECTS: usize = 40;
const OBJECT_BYTES: usize = 512 << 10;
const SELECTED: &str = "/api/v1/namespaces/conf/configmaps?resourceVersion=0&labelSelector=hostile";
/// Answered from memory.
const LIST: &str = "/api/v1/namespaces/conf/pods?resourceVersion=0";

/// Forwarded.
const FORWARDED: &str = "/api/v1/namespaces/conf/pods/pod-00";

/// The gateway and the bystanders.
struct Scene<'a> {
    side: &'a Side,
    certificates: &'a Certificates,
    delegated: Delegated,
    admin: String,
    tally: Tally,
}

/// The durations of requests.
struct Times(Vec<Duration>);

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    seed(&side.server.endpoint).await?;
    let delegated = Delegated::start("gateway-hostile", Asserts::FrontProxy, None, &side.server, certificates).await?;
    delegated.warm().await?;
    let admin = delegated.gateway.admin().context("the gateway did not say where its admin port is")?;
    let mut scene = Scene { side, certificates, delegated, admin, tally: Tally::default() };
    let quiet = scene.bystander("quiet", MANY_REQUESTS).await?;
    scene.unknown_clients(&quiet).await?;
    scene.unread_lists(&quiet).await?;
    scene.idle_admin_connections(&quiet).await?;
    scene.many_questions(&quiet).await?;
    scene.many_tokens(&quiet).await?;
    clean_up(&side.server.endpoint).await?;
    Ok(scene.tally)
}

impl Scene<'_> {
    /// A thousand requests without credentials on one connection that accepts no byte of a response.
    async fn unknown_clients(&mut self, quiet: &Times) -> Result<()> {
        let attack = Attack::connect(&self.delegated.secure, &self.certificates.folder).await?;
        let path = "/api/v1/namespaces/conf/pods/pod-00?x=forwarded";
        let held = attack.ask(0..STREAMS, |_| (path.to_owned(), None)).await;
        self.beside("1,000 requests without credentials that are not read", quiet, REQUESTS).await?;
        drop(held);
        Ok(())
    }

    /// Lists by a selector, each of tens of megabytes, on a connection that accepts no byte of them.
    async fn unread_lists(&mut self, quiet: &Times) -> Result<()> {
        // Fill the cache first.
        self.delegated.gateway.warm("/api/v1/configmaps").await?;
        let before = self.delegated.gateway.resident()?;
        let attack = Attack::connect(&self.delegated.secure, &self.certificates.folder).await?;
        let keeper = "Bearer conformance-keeper";
        let held = attack.ask(0..STREAMS, |_| (SELECTED.to_owned(), Some(keeper.to_owned()))).await;
        let name = "1,000 selected lists that are not read";
        self.beside(name, quiet, REQUESTS).await?;
        let grown = self.delegated.gateway.resident()?.saturating_sub(before);
        self.tally.note(format!("{name}: {} MiB more, {} answers begun", grown >> 20, held.len()));
        self.tally.holds(name, grown <= MEMORY, || format!("{grown} bytes more, {MEMORY} allowed"));
        Ok(())
    }

    /// Connections to the admin port that send one request and stay open.
    async fn idle_admin_connections(&mut self, quiet: &Times) -> Result<()> {
        let base = format!("http://{}", self.admin);
        let mut kept = Vec::new();
        for _ in 0..ADMIN_CONNECTIONS {
            let client = Endpoint::plain(&base)?;
            // The later ones may already have been closed in favour of others.
            timeout(PROBE_TIMEOUT, client.get("/livez")).await.ok();
            kept.push(client);
        }
        self.beside("idle connections to the admin port", quiet, REQUESTS).await?;
        drop(kept);
        Ok(())
    }

    /// Distinct selectors, for each of which the gateway must send an access review to the API server.
    async fn many_questions(&mut self, quiet: &Times) -> Result<()> {
        let keeper = || "Bearer conformance-keeper".to_owned();
        let request = move |number| (format!("{LIST}&labelSelector=a%3D{number}"), Some(keeper()));
        self.flood("distinct selectors of one user", quiet, request).await
    }

    /// Invented tokens, for each of which the gateway must send a token review to the API server.
    async fn many_tokens(&mut self, quiet: &Times) -> Result<()> {
        let request = |number| (LIST.to_owned(), Some(format!("Bearer invented-{number}")));
        self.flood("invented tokens of one address", quiet, request).await
    }

    /// Requests that differ in their number, a quarter of a connection's streams at a time, for as long as the bystander
    /// takes.
    async fn flood(
        &mut self,
        name: &str,
        quiet: &Times,
        request: impl Fn(usize) -> (String, Option<String>) + Send + 'static,
    ) -> Result<()> {
        let (base, certificates) = (self.delegated.secure.clone(), self.certificates.folder.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let asks_on = is_over.clone();
        // In its own thread, so that the measurement is of the gateway and not of this suite's runtime.
        let attack = std::thread::spawn(move || -> Result<usize> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let attack = Attack::connect(&base, &certificates).await?;
                let mut asked = 0;
                while asked < FLOOD || !asks_on.load(Relaxed) {
                    attack.ask(asked..asked + STREAMS / 4, &request).await;
                    asked += STREAMS / 4;
                }
                Ok(asked)
            })
        });
        let beside = self.beside(name, quiet, MANY_REQUESTS).await;
        is_over.store(true, Relaxed);
        let asked = tokio::task::spawn_blocking(|| attack.join()).await?;
        let asked = asked.map_err(|_| anyhow!("the attack broke off"))??;
        self.tally.note(format!("{name}: {asked} were sent"));
        beside
    }

    /// Runs the bystander during an attack, and notes its times.
    async fn beside(&mut self, attack: &str, quiet: &Times, requests: usize) -> Result<()> {
        let times = self.bystander(attack, requests).await?;
        let (quiet, now) = (quiet.p99(), times.p99());
        self.tally.note(format!("{attack}: the bystander's p99 is {now:.1?}, {quiet:.1?} when it is quiet"));
        Ok(())
    }

    /// Sends requests of clients with new tokens, probes, and a change that a watch must receive.
    async fn bystander(&mut self, during: &str, requests: usize) -> Result<Times> {
        let api = &self.side.server.endpoint;
        let mut watch = self.watch().await?;
        let mut times = Vec::new();
        for number in 0..requests {
            // Every fourth request has a new token, and is forwarded.
            let is_new = number % 4 == 0;
            let token = if is_new { reader_token(api).await? } else { "conformance-reader".to_owned() };
            let path = if is_new { FORWARDED } else { LIST };
            let client = self.client()?;
            let started = Instant::now();
            let ask = Ask::get(path).header("authorization", &format!("Bearer {token}"));
            let answer = timeout(Duration::from_secs(20), client.send(&ask)).await;
            if !is_new {
                times.push(started.elapsed());
            }
            let status = answer.map_or(0, |answer| answer.map_or(0, |answer| answer.status));
            self.tally.equal(&format!("{during}: a client with a token of its own"), &200, &status);
            let probe = Endpoint::plain(&format!("http://{}", self.admin))?;
            let alive = timeout(PROBE_TIMEOUT, probe.get("/livez")).await;
            let status = alive.map_or(0, |answer| answer.map_or(0, |answer| answer.status));
            self.tally.equal(&format!("{during}: a probe within a second"), &200, &status);
        }
        let marker = json!({"metadata": {"annotations": {"hostile": during}}});
        api.patch("/api/v1/namespaces/conf/pods/pod-00", &marker).await?;
        let told = timeout(Duration::from_secs(20), until_told(&mut watch, during)).await;
        self.tally.holds(&format!("{during}: a watch goes on"), matches!(told, Ok(Ok(()))), || format!("{told:?}"));
        Ok(Times(times))
    }

    async fn watch(&self) -> Result<Response<Incoming>> {
        let path = "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=600";
        let ask = Ask::get(path).header("authorization", "Bearer conformance-reader");
        let answer = self.client()?.open(&ask).await?;
        ensure!(answer.status() == 200, "the bystander's watch: {}", answer.status());
        Ok(answer)
    }

    fn client(&self) -> Result<Endpoint> {
        let authority = self.certificates.file("ca.crt");
        Endpoint::showing(&self.delegated.secure, Path::new(&authority), None, Protocol::Http1)
    }
}

/// An HTTP/2 connection whose streams accept no data.
struct Attack {
    sender: SendRequest<Empty<Bytes>>,
    base: String,
    _driver: JoinSet<()>,
}

impl Attack {
    /// Connects to the gateway at `base`, whose authority is in that folder.
    async fn connect(base: &str, certificates: &Path) -> Result<Self> {
        let mut tls = tls_config(Some(&certificates.join("ca.crt")), None)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        // The gateway distinguishes unknown clients by their addresses.
        let socket = TcpSocket::new_v4()?;
        socket.bind(ELSEWHERE.parse()?)?;
        let stream = socket.connect(base.trim_start_matches("https://").parse()?).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect(ServerName::try_from("127.0.0.1")?, stream).await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(0);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Ok(Self { sender, base: base.to_owned(), _driver: driver })
    }

    /// The unread responses that were not refused.
    async fn ask(
        &self,
        numbers: Range<usize>,
        request: impl Fn(usize) -> (String, Option<String>),
    ) -> Vec<Response<Incoming>> {
        let asked = numbers.map(|number| self.one(request(number)));
        let answers = future::join_all(asked.map(|asked| timeout(Duration::from_secs(10), asked))).await;
        answers.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
    }

    async fn one(&self, (path, authorization): (String, Option<String>)) -> Result<Response<Incoming>> {
        let mut request = Request::get(format!("{}{path}", self.base));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        Ok(self.sender.clone().send_request(request.body(Empty::new())?).await?)
    }
}

impl Times {
    fn p99(&self) -> Duration {
        let mut times = self.0.clone();
        times.sort();
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }
}

async fn until_told(watch: &mut Response<Incoming>, marker: &str) -> Result<()> {
    let mut seen = String::new();
    while !seen.contains(marker) {
        let frame = watch.body_mut().frame().await.context("the watch ended")??;
        seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap_or(&Bytes::new())));
    }
    Ok(())
}

async fn seed(api: &Endpoint) -> Result<()> {
    for number in 0..OBJECTS {
        let metadata = json!({"name": format!("hostile-{number}"), "labels": {"hostile": "yes"}});
        let data = json!({"text": "x".repeat(OBJECT_BYTES)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        api.create("/api/v1/namespaces/conf/configmaps", &map).await?;
    }
    Ok(())
}

async fn clean_up(api: &Endpoint) -> Result<()> {
    api.delete("/api/v1/namespaces/conf/configmaps?labelSelector=hostile").await.map(drop)
}
