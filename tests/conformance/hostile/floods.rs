//! Attacks that send requests for as long as the bystander runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use anyhow::{Result, anyhow};
use futures_util::future;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant, timeout};

use super::{LIST, MANY_REQUESTS, SEVERAL, Scene, Times, WATCH, connections::Victim};
use crate::{client::Endpoint, identity};

/// The minimum number of requests of a flood; and of one that includes versions of the future, for which the API server
/// waits three seconds.
const FLOOD: usize = 3000;
const SLOW_FLOOD: usize = 1000;
/// The same of a flood of questions, which the gateway answers at a pace: far more than are free of it.
const QUESTIONS: usize = 900;
/// The number of its requests at a time: more than the reviews that one client may have.
const AT_ONCE: usize = 300;
/// The address of a flood; those of several follow it. The bystander has another one.
const FLOODING: u8 = 30;
/// The time within which a watch without a right ends: that of a verdict, and three intervals of reviews (the manual,
/// `operations`: time without a review of a watch).
const REVOKED_MAX: Duration = identity::TTL.saturating_add(identity::WATCH_INTERVAL.saturating_mul(3));

/// The priority of the thread that sends a flood, the lowest of Linux: a hostile client has its own machine, so it has
/// to take the gateway's time by its requests and not by the cores that it shares with the gateway here.
const FLOOD_NICE: i32 = 19;

/// Requests that differ in their number. They are sent by their own thread, so that the measurement is of the
/// gateway and not of this suite's runtime.
struct Flood {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize>>,
}

impl Flood {
    /// Sends at least that many requests, each time as many as may be on their way on all connections together. There
    /// is a connection for each address in `from`.
    fn start(
        victim: Victim,
        from: Vec<u8>,
        at_least: usize,
        request: impl Fn(usize) -> (String, Option<String>) + Send + 'static,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let asks_on = is_over.clone();
        let thread = std::thread::spawn(move || -> Result<usize> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let attacks = future::try_join_all(from.into_iter().map(|from| victim.unread(from))).await?;
                // Once they are connected, since the gateway ends a handshake that takes too long. On Linux this is the
                // priority of the calling thread.
                rustix::process::setpriority_process(None, FLOOD_NICE)?;
                let each = AT_ONCE.div_ceil(attacks.len());
                let mut asked = 0;
                while asked < at_least || !asks_on.load(Relaxed) {
                    let numbers = |connection| asked + connection * each..asked + (connection + 1) * each;
                    let all = attacks.iter().enumerate();
                    future::join_all(all.map(|(connection, attack)| attack.ask(numbers(connection), &request))).await;
                    asked += each * attacks.len();
                }
                Ok(asked)
            })
        });
        Self { is_over, thread }
    }

    /// The number of its requests.
    async fn end(self) -> Result<usize> {
        self.is_over.store(true, Relaxed);
        let asked = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        asked.map_err(|_| anyhow!("the attack broke off"))?
    }
}

impl Scene<'_> {
    /// Distinct selectors, for each of which the gateway must send an access review to the API server.
    pub(super) async fn many_questions(&mut self, quiet: &Times) -> Result<()> {
        let request = |number| selected("keeper", number);
        self.flood("distinct selectors of one user", vec![FLOODING], QUESTIONS, quiet, request).await
    }

    /// Invented tokens, for each of which the gateway must send a token review to the API server.
    pub(super) async fn many_tokens(&mut self, quiet: &Times) -> Result<()> {
        self.tokens_of("one address", vec![FLOODING], quiet).await?;
        self.tokens_of("100 connections of one address", vec![FLOODING; 100], quiet).await?;
        self.tokens_of_addresses(quiet).await
    }

    pub(super) async fn tokens_of_addresses(&mut self, quiet: &Times) -> Result<()> {
        self.tokens_of("50 addresses", (FLOODING..FLOODING + 50).collect(), quiet).await
    }

    async fn tokens_of(&mut self, attack: &str, from: Vec<u8>, quiet: &Times) -> Result<()> {
        let series = from.len();
        let request = move |number| (LIST.to_owned(), Some(format!("Bearer invented-{series}-{number}")));
        self.flood(&format!("invented tokens of {attack}"), from, FLOOD, quiet, request).await
    }

    /// Versions that do not exist: of groups, and of the collection.
    pub(super) async fn many_versions(&mut self, quiet: &Times) -> Result<()> {
        let request = |number: usize| {
            let path = match number % 3 {
                0 => format!("/apis/apps/v{number}/namespaces/conf/deployments?resourceVersion=0"),
                1 => format!("/api/v1/namespaces/conf/pods?resourceVersion={}", 1_000_000_000 + number),
                _ => format!("/api/v1/namespaces/conf/pods?resourceVersionMatch=Exact&resourceVersion={number}"),
            };
            (path, Some("Bearer conformance-keeper".to_owned()))
        };
        self.flood("invented versions", vec![FLOODING], SLOW_FLOOD, quiet, request).await
    }

    /// Requests each of which writes a line to the log.
    pub(super) async fn unread_log(&mut self, quiet: &Times) -> Result<()> {
        self.delegated.gateway.stop_reading();
        let request = |_| (LIST.to_owned(), Some("Bearer conformance-keeper".to_owned()));
        self.flood("a log that is not read", vec![FLOODING], FLOOD, quiet, request).await
    }

    /// Reviews of as many users at once, each of which uses up its share, and a watch whose user loses the right to it.
    pub(super) async fn revoked_watch(&mut self, quiet: &Times) -> Result<()> {
        let name = "distinct selectors of five users";
        let api = &self.side.server.endpoint;
        identity::grant_pods(api, "outsider").await?;
        let mut watch = self.watch_when_allowed(WATCH, "conformance-outsider").await?;
        let full = self.reached("client_access_reviews").await?;
        let floods: Vec<_> = (FLOODING..)
            .zip(SEVERAL)
            .map(|(from, user)| {
                Flood::start(self.victim.clone(), vec![from], QUESTIONS, move |number| selected(user, number))
            })
            .collect();
        let beside = self.beside(name, quiet, MANY_REQUESTS).await;
        identity::revoke_pods(api, "outsider").await?;
        let revoked = Instant::now();
        let ended = timeout(REVOKED_MAX, watch.body_mut().collect()).await;
        let seconds = revoked.elapsed().as_secs_f64();
        let mut asked = 0;
        for flood in floods {
            asked += flood.end().await?;
        }
        let full = self.reached("client_access_reviews").await? - full;
        self.tally.note(format!(
            "{name}: {asked} were sent, {full} reviews found their user's share used up; \
             a watch ended {seconds:.1} s after its right"
        ));
        self.tally.holds(&format!("{name}: shares are used up"), full > 0, || "they never were".to_owned());
        self.tally.holds(&format!("{name}: a watch ends with its right"), matches!(ended, Ok(Ok(_))), || {
            format!("not after {seconds:.1} s: {ended:?}")
        });
        beside
    }

    /// How often a limit of the gateway was reached.
    pub(super) async fn reached(&self, limit: &str) -> Result<u64> {
        let metrics = Endpoint::plain(&format!("http://{}", self.admin))?.get("/metrics").await?.text();
        let series = format!("kube_fanout_limits_reached_total{{limit=\"{limit}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("0");
        Ok(value.parse()?)
    }

    /// Runs the bystander during a flood.
    pub(super) async fn flood(
        &mut self,
        name: &str,
        from: Vec<u8>,
        at_least: usize,
        quiet: &Times,
        request: impl Fn(usize) -> (String, Option<String>) + Send + 'static,
    ) -> Result<()> {
        let flood = Flood::start(self.victim.clone(), from, at_least, request);
        let beside = self.beside(name, quiet, MANY_REQUESTS).await;
        let asked = flood.end().await?;
        self.tally.note(format!("{name}: {asked} were sent"));
        beside
    }
}

/// A list by a selector that no other request has.
fn selected(user: &str, number: usize) -> (String, Option<String>) {
    (format!("{LIST}&labelSelector=a%3D{number}"), Some(format!("Bearer conformance-{user}")))
}
