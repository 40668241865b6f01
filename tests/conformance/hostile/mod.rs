//! Hostile clients at full scale next to bystanders: a client with its own token, an operator's probe, a watch, and an
//! informer. The client is not refused and gets the same responses, the probe succeeds, the informer neither lists
//! again nor sees an error, and memory stays within a stated bound.

mod connections;
mod floods;
mod held;
mod informer;
mod reads;

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::{
    connections::Victim,
    informer::{Informer, Troubles},
};
use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, Protocol},
    gateway::PATIENCE,
    identity::{Asserts, Delegated, reader_token},
    report::Tally,
    resuming,
    servers::POLL,
};

/// The number of the bystander's requests during each attack.
const REQUESTS: usize = 40;
/// The number of requests where their times are noted; compared are those of full size.
const MANY_REQUESTS: usize = 80;
/// The number of requests at full size, always: as many as take about as long as an attack, whose first tenth of a
/// second is the hardest.
const REQUESTS_FULL: usize = 1_000;
/// How many times slower the bystander's requests may be than in the quiet run, in the 99th percentile; at full size
/// only, which is for a machine without other work: server, gateway and both clients share the cores. The goal is 3 for
/// the means of several runs, since the quiet figure of a run varies by a quarter.
const SLOWER_MAX: u32 = 4;
/// The maximum duration of a probe: a kubelet's default is a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// A kubelet restarts a container after this many failed probes in succession.
const PROBE_FAILURES: usize = 3;
/// The maximum time for a response to the bystander.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How much more of a limit may be used once all hostile clients have gone, of those that count what is in flight: the
/// gateway's own requests come and go.
const LEFT: u64 = 5;
/// The same in bytes.
const BYTES_LEFT: u64 = 64 << 10;
/// The maximum time until what they have taken is given back: longer than `limits.answerTimeout`, and than text counts
/// that was inflated for lists: twice `cache.listBytesTimeout`, and a minute until caches without a limit are measured.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(240);
/// The memory that hostile clients may add to the gateway: `limits.answerBytes`, and some for streams and tables.
const MEMORY: u64 = (256 << 20) + (128 << 20);

/// The config maps whose list, selected by a label, takes tens of megabytes.
const OBJECTS: usize = 40;
const OBJECT_BYTES: usize = 512 << 10;
/// The users of attacks by several: each may have a quarter of what all share.
const SEVERAL: [&str; 5] = ["keeper", "named", "wide", "impersonator", "admin"];
/// Answered from memory.
const LIST: &str = "/api/v1/namespaces/conf/pods?resourceVersion=0";
/// The same objects as initial events.
const WATCH: &str = "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=600";
/// Forwarded.
const FORWARDED: &str = "/api/v1/namespaces/conf/pods/pod-00";

/// The gateway and the bystanders.
struct Scene<'a> {
    side: &'a Side,
    certificates: &'a Certificates,
    delegated: Delegated,
    victim: Victim,
    informer: Informer,
    admin: String,
    tally: Tally,
}

/// The measurements of a bystander.
struct Times {
    requests: Vec<Duration>,
    /// Of tokens that the gateway has not seen before.
    new_tokens: Vec<Duration>,
    /// The most resident memory of the gateway, in bytes.
    resident: u64,
}

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    seed(&side.server.endpoint).await?;
    let mut scene = Scene::start("gateway-hostile", side, certificates).await?;
    let quiet = scene.bystander("quiet", MANY_REQUESTS).await?;
    let used = scene.used().await?;
    if let Some(attacks) = std::env::var_os("KUBE_FANOUT_ATTACKS") {
        scene.chosen(&attacks.to_string_lossy(), &quiet).await?;
        clean_up(&side.server.endpoint).await?;
        return Ok(scene.tally);
    }
    scene.unknown_clients(&quiet).await?;
    scene.unread_refusals(&quiet).await?;
    scene.unread_lists(&quiet).await?;
    scene.unread_watches(&quiet).await?;
    scene.unread_watches_of_five(&quiet).await?;
    scene.idle_admin_connections(&quiet).await?;
    scene.idle_connections(&quiet).await?;
    scene.upgrades(&quiet).await?;
    scene.spellings(&quiet).await?;
    scene.many_questions(&quiet).await?;
    scene.many_tokens(&quiet).await?;
    scene.many_versions(&quiet).await?;
    scene.long_selectors(&quiet).await?;
    scene.tables(&quiet).await?;
    scene.revoked_watch(&quiet).await?;
    scene.given_back(&used).await?;
    let mut tally = scene.tally;

    // A gateway that cannot log any more does not recover, so it has no other attack.
    let mut scene = Scene::start("gateway-unread", side, certificates).await?;
    let quiet = scene.bystander("quiet, a gateway of its own", REQUESTS).await?;
    scene.unread_log(&quiet).await?;
    tally.merge(scene.tally);
    clean_up(&side.server.endpoint).await?;
    Ok(tally)
}

impl<'a> Scene<'a> {
    async fn start(name: &str, side: &'a Side, certificates: &'a Certificates) -> Result<Self> {
        let delegated = Delegated::start(name, Asserts::FrontProxy, None, &side.server, certificates).await?;
        delegated.warm().await?;
        let admin = delegated.gateway.admin().context("the gateway did not say where its admin port is")?;
        let victim = Victim::new(&delegated.secure, &certificates.folder)?;
        let kubeconfig =
            certificates.kubeconfig_of(&format!("{name}-informer"), &delegated.secure, "conformance-reader")?;
        let informer = Informer::start(&kubeconfig).await?;
        Ok(Self { side, certificates, delegated, victim, informer, admin, tally: Tally::default() })
    }
}

impl Scene<'_> {
    /// The attacks on requests that upstream has to answer, to measure some of them several times
    /// (`KUBE_FANOUT_ATTACKS=addresses,selectors`).
    async fn chosen(&mut self, attacks: &str, quiet: &Times) -> Result<()> {
        for attack in attacks.split(',') {
            match attack {
                "questions" => self.many_questions(quiet).await?,
                "tokens" => self.many_tokens(quiet).await?,
                "addresses" => self.tokens_of_addresses(quiet).await?,
                "versions" => self.many_versions(quiet).await?,
                "selectors" => self.long_selectors(quiet).await?,
                "tables" => self.tables(quiet).await?,
                "five" => self.revoked_watch(quiet).await?,
                // The last one: the gateway cannot log any more.
                "log" => self.unread_log(quiet).await?,
                "quiet" => drop(self.bystander("quiet once more", MANY_REQUESTS).await?),
                other => bail!("KUBE_FANOUT_ATTACKS: there is no attack {other:?}"),
            }
        }
        Ok(())
    }

    /// Runs the bystander during an attack, notes its times, and compares the gateway's memory with a quiet run's.
    async fn beside(&mut self, attack: &str, quiet: &Times, requests: usize) -> Result<()> {
        let times = self.bystander(attack, requests).await?;
        let grown = times.resident.saturating_sub(quiet.resident);
        let (now, new) = (p99(&times.requests), p99(&times.new_tokens));
        let (quiet, new_quiet) = (p99(&quiet.requests), p99(&quiet.new_tokens));
        self.tally.note(format!(
            "{attack}: the bystander's p99 is {now:.1?}, {quiet:.1?} when it is quiet; with new tokens {new:.1?}, \
             {new_quiet:.1?}; {} MiB more",
            grown >> 20
        ));
        if resuming::is_full() {
            self.tally.holds(&format!("{attack}: times"), now <= quiet * SLOWER_MAX, || {
                format!("the p99 is {now:.1?}, {SLOWER_MAX} times {quiet:.1?} allowed")
            });
        }
        self.tally.holds(&format!("{attack}: memory"), grown <= MEMORY, || {
            format!("{grown} bytes more than in a quiet run, {MEMORY} allowed")
        });
        Ok(())
    }

    /// Sends requests of clients with new tokens, probes, and a change that a watch must receive.
    async fn bystander(&mut self, during: &str, requests: usize) -> Result<Times> {
        let requests = if resuming::is_full() { REQUESTS_FULL } else { requests };
        let api = &self.side.server.endpoint;
        let mut watch = self.watch().await?;
        let mut times = Times { requests: Vec::new(), new_tokens: Vec::new(), resident: 0 };
        let (mut failing, mut most_failing) = (0, 0);
        for number in 0..requests {
            // Every fourth request has a new token, and is forwarded.
            let is_new = number % 4 == 0;
            let token = if is_new { reader_token(api).await? } else { "conformance-reader".to_owned() };
            let path = if is_new { FORWARDED } else { LIST };
            let client = self.client()?;
            let started = Instant::now();
            let ask = Ask::get(path).header("authorization", &format!("Bearer {token}"));
            let answer = timeout(ANSWERED_WITHIN, client.send(&ask)).await;
            let kind = if is_new { &mut times.new_tokens } else { &mut times.requests };
            kind.push(started.elapsed());
            let status = answer.map_or(0, |answer| answer.map_or(0, |answer| answer.status));
            self.tally.equal(&format!("{during}: a client with a token of its own"), &200, &status);
            let probe = Endpoint::plain(&format!("http://{}", self.admin))?;
            let alive = timeout(PROBE_TIMEOUT, probe.get("/livez")).await;
            let is_alive = matches!(alive, Ok(Ok(answer)) if answer.status == 200);
            failing = if is_alive { 0 } else { failing + 1 };
            most_failing = most_failing.max(failing);
            times.resident = times.resident.max(self.delegated.gateway.resident()?);
        }
        self.tally.holds(&format!("{during}: probes"), most_failing < PROBE_FAILURES, || {
            format!("{most_failing} in succession got no 200 within a second")
        });
        let marker = json!({"metadata": {"annotations": {"hostile": during}}});
        api.patch("/api/v1/namespaces/conf/pods/pod-00", &marker).await?;
        let told = timeout(ANSWERED_WITHIN, until_told(&mut watch, during)).await;
        self.tally.holds(&format!("{during}: a watch goes on"), matches!(told, Ok(Ok(()))), || format!("{told:?}"));
        let seen = timeout(ANSWERED_WITHIN, self.informer.sees(during)).await;
        self.tally.holds(&format!("{during}: an informer sees a change"), seen.is_ok(), || "it does not".to_owned());
        self.tally.equal(&format!("{during}: an informer"), &Troubles::default(), &self.informer.troubles());
        Ok(times)
    }

    /// How much of each limit is used, of those that are shown.
    async fn used(&self) -> Result<BTreeMap<String, u64>> {
        let metrics = Endpoint::plain(&format!("http://{}", self.admin))?.get("/metrics").await?.text();
        let of_limit = |line: &str| {
            let (limit, used) = line.strip_prefix("kube_fanout_limit_used{limit=\"")?.split_once("\"} ")?;
            Some((limit.to_owned(), used.parse().ok()?))
        };
        Ok(metrics.lines().filter_map(of_limit).collect())
    }

    /// Nothing is held for clients that have gone, compared with what was used before they came.
    async fn given_back(&mut self, before: &BTreeMap<String, u64>) -> Result<()> {
        let name = "all hostile clients have gone";
        self.tally.holds(name, before.contains_key("connections"), || format!("the limits are {before:?}"));
        let started = Instant::now();
        loop {
            let more = |(limit, used): &(String, u64)| {
                let left = if limit.ends_with("_bytes") { BYTES_LEFT } else { LEFT };
                *used > before.get(limit).map_or(0, |before| *before) + left
            };
            let held: Vec<_> = self.used().await?.into_iter().filter(more).collect();
            if held.is_empty() || started.elapsed() > GIVEN_BACK_WITHIN {
                self.tally.equal(name, &Vec::new(), &held);
                return Ok(());
            }
            sleep(POLL).await;
        }
    }

    async fn watch(&self) -> Result<Response<Incoming>> {
        let answer = self.watch_of(WATCH, "conformance-reader").await?;
        ensure!(answer.status() == 200, "the bystander's watch: {}", answer.status());
        Ok(answer)
    }

    /// The watch of a user whose right to it was granted a moment ago.
    async fn watch_when_allowed(&self, path: &str, token: &str) -> Result<Response<Incoming>> {
        let started = Instant::now();
        loop {
            let answer = self.watch_of(path, token).await?;
            if answer.status() == 200 {
                return Ok(answer);
            }
            ensure!(started.elapsed() < PATIENCE, "the watch of {token}: {}", answer.status());
            sleep(POLL).await;
        }
    }

    async fn watch_of(&self, path: &str, token: &str) -> Result<Response<Incoming>> {
        self.client()?.open(&Ask::get(path).header("authorization", &format!("Bearer {token}"))).await
    }

    fn client(&self) -> Result<Endpoint> {
        let authority = self.certificates.file("ca.crt");
        Endpoint::showing(&self.delegated.secure, Path::new(&authority), None, Protocol::Http1)
    }
}

fn p99(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
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
