//! The built gateway as a child process, and its log line for each request.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    certificates::Certificates,
    client::{Ask, Endpoint},
    ports::free_port,
    servers::{POLL, Server},
};

/// The maximum time for the gateway to start, to fill a cache, or to log a finished request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The origin of a response, and the reason if it was not memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// `served`, `forwarded` or `rejected`.
    pub(crate) by: String,
    pub(crate) reason: String,
}

#[derive(Default)]
struct Seen {
    addresses: HashMap<String, String>,
    /// By user agent, which is unique for each request of the suite.
    outcomes: HashMap<String, Outcome>,
    /// All other lines.
    told: Vec<String>,
    /// Whether the log is no longer read, and the pipe that stays open then.
    is_unread: bool,
    unread: Option<BufReader<ChildStderr>>,
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) endpoint: Endpoint,
    pub(crate) kubeconfig: PathBuf,
    seen: Arc<Mutex<Seen>>,
    config: PathBuf,
    child: Child,
    /// Another gateway between this one and the server.
    above: Option<Box<Self>>,
}

impl Gateway {
    /// In `trusted` mode, as the admin.
    pub(crate) async fn start(name: &str, server: &Server, certificates: &Certificates, folder: &Path) -> Result<Self> {
        Self::start_with(name, "", server, certificates, folder).await
    }

    /// The same with further fields of the configuration. With the environment's `KUBE_FANOUT_LAYERS`, behind another
    /// gateway.
    pub(crate) async fn start_with(
        name: &str,
        fields: &str,
        server: &Server,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        if std::env::var_os("KUBE_FANOUT_LAYERS").is_none() {
            return Self::start_in_front_of(name, fields, &server.kubeconfig, certificates, folder).await;
        }
        let above = format!("{name}-above");
        let above = Self::start_in_front_of(&above, "", &server.kubeconfig, certificates, folder).await?;
        let mut gateway = Self::start_in_front_of(name, fields, &above.kubeconfig, certificates, folder).await?;
        gateway.above = Some(Box::new(above));
        Ok(gateway)
    }

    /// The same in front of the server of a kubeconfig.
    pub(crate) async fn start_in_front_of(
        name: &str,
        fields: &str,
        upstream: &Path,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let upstream = format!("{{kubeconfig: \"{}\"}}", upstream.display());
        Self::start_at(name, &upstream, fields, certificates, folder).await
    }

    /// With several servers, configured as those of one cluster; the kubeconfig of the first one.
    pub(crate) async fn start_among(name: &str, servers: &[&Server], certificates: &Certificates) -> Result<Self> {
        let first = servers.first().context("no server")?;
        let addresses: Vec<_> = servers.iter().map(|server| format!("\"{}\"", server.address())).collect();
        let kubeconfig = first.kubeconfig.display();
        let upstream = format!("{{kubeconfig: \"{kubeconfig}\", servers: [{}]}}", addresses.join(", "));
        Self::start_at(name, &upstream, "", certificates, &certificates.folder).await
    }

    async fn start_at(
        name: &str,
        upstream: &str,
        fields: &str,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let config = folder.join(format!("{name}.yaml"));
        // A fixed address, so that it stays the same after a restart.
        let address = format!("127.0.0.1:{}", free_port()?);
        write_config(&config, upstream, &address, fields)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let child = launched(&config, &seen).await?;
        let url = format!("http://{address}");
        let kubeconfig = certificates.kubeconfig(name, &url)?;
        Ok(Self { endpoint: Endpoint::plain(&url)?, kubeconfig, seen, config, child, above: None })
    }

    /// Like [`Self::start`], but answers most-recent reads from memory after a proof.
    pub(crate) async fn proving(name: &str, server: &Server, certificates: &Certificates) -> Result<Self> {
        Self::start_with(name, "reads: {mostRecent: prove}", server, certificates, &certificates.folder).await
    }

    /// In `delegated` mode, with TLS; `fields` are the fields `listeners`, `upstream` and `clients` of its
    /// configuration.
    pub(crate) async fn delegated(name: &str, fields: &str, url: &str, certificates: &Certificates) -> Result<Self> {
        let config = certificates.folder.join(format!("{name}.yaml"));
        fs::write(
            &config,
            cold(format!(
                "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n{fields}\n\
                 admin: {{address: \"127.0.0.1:0\"}}\n{}\n",
                logging(),
            )),
        )?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let child = launched(&config, &seen).await?;
        let kubeconfig = certificates.kubeconfig(name, url)?;
        let endpoint = Endpoint::direct(url, Path::new(&certificates.file("ca.crt")))?;
        Ok(Self { endpoint, kubeconfig, seen, config, child, above: None })
    }

    /// Kills the gateway as a crash would, and starts it again at the same address with empty memory.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = launch(&self.config, &self.seen)?;
        Ok(())
    }

    /// Asks the gateway to end, as a rolling update does, and returns when it has.
    pub(crate) async fn end(mut self) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?).context("no process")?;
        kill_process(id, Signal::TERM)?;
        let started = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(started.elapsed() < PATIENCE, "the gateway does not end");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Reads no more of the log than its next line, and leaves the pipe open: its writer will find it full.
    pub(crate) fn stop_reading(&self) {
        lock(&self.seen).is_unread = true;
    }

    /// The address of the admin port.
    pub(crate) fn admin(&self) -> Option<String> {
        admin(&self.seen)
    }

    /// How many lines of its log hold this text, the lines for requests aside.
    pub(crate) fn has_told(&self, text: &str) -> usize {
        lock(&self.seen).told.iter().filter(|line| line.contains(text)).count()
    }

    /// How many of its servers are in each of these states.
    pub(crate) async fn servers<const N: usize>(&self, states: [&str; N]) -> Result<[usize; N]> {
        let admin = self.admin().context("no admin port")?;
        let status = Endpoint::plain(&format!("http://{admin}"))?.json("/status.json").await?;
        let servers = status["upstream"]["servers"].as_array().context("no servers")?;
        Ok(states.map(|state| servers.iter().filter(|server| server["state"] == state).count()))
    }

    /// Returns when this many of its servers are in use.
    pub(crate) async fn in_use(&self, count: usize) -> Result<()> {
        let started = Instant::now();
        while self.servers(["inUse"]).await? != [count] {
            anyhow::ensure!(started.elapsed() < PATIENCE * 3, "not {count} servers in use");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// The resident memory of the process, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kibibytes << 10)
    }

    /// How the request with this user agent was answered; it must have finished.
    pub(crate) async fn outcome(&self, agent: &str) -> Result<Outcome> {
        let started = Instant::now();
        loop {
            if let Some(outcome) = lock(&self.seen).outcomes.get(agent) {
                return Ok(outcome.clone());
            }
            anyhow::ensure!(started.elapsed() < PATIENCE, "no access log line for {agent}");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns when lists of this collection come from memory.
    pub(crate) async fn warm(&self, collection: &str) -> Result<()> {
        self.serves(&Ask::get(format!("{collection}?resourceVersion=0&limit=1"))).await
    }

    /// Like [`Self::warm`], for a representation with its own store.
    pub(crate) async fn warm_as(&self, collection: &str, accept: &str) -> Result<()> {
        self.serves(&Ask::get(format!("{collection}?resourceVersion=0&limit=1")).header("accept", accept)).await
    }

    /// Returns when this collection's cache has reached a version.
    pub(crate) async fn reached(&self, collection: &str, version: u64) -> Result<()> {
        self.reached_as(collection, version, "application/json").await
    }

    /// Returns when this collection's cache for a representation has reached a version.
    pub(crate) async fn reached_as(&self, collection: &str, version: u64, accept: &str) -> Result<()> {
        let path = format!("{collection}?resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit=1");
        self.serves(&Ask::get(path).header("accept", accept)).await
    }

    /// Returns when the request is answered from memory.
    pub(crate) async fn serves(&self, ask: &Ask) -> Result<()> {
        let started = Instant::now();
        loop {
            let agent = unique_agent("warm");
            // The gateway may have been started a moment ago.
            let answer = self.endpoint.send(&ask.clone().header("user-agent", &agent)).await;
            let outcome = if answer.is_ok() { Some(self.outcome(&agent).await?) } else { None };
            if outcome.as_ref().is_some_and(|outcome| outcome.by == "served") {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("{ask:?} is not served but {outcome:?}: {answer:?}");
            }
            sleep(POLL).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A user agent that no other request has.
pub(crate) fn unique_agent(prefix: &str) -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    format!("{prefix}/conformance-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_config(path: &Path, upstream: &str, address: &str, fields: &str) -> Result<()> {
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n\
         listeners: [{{address: \"{address}\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n\
         upstream: {upstream}\n{}\n{fields}\n",
        logging(),
    );
    Ok(fs::write(path, cold(text))?)
}

/// Lets everything be compressed at once, and inflated by each reader, if that is to be tested.
fn cold(text: String) -> String {
    const FIELD: &str = "compressAfter: 0s";
    match std::env::var_os("KUBE_FANOUT_COLD") {
        None => text,
        Some(_) if text.contains("\ncache: {") => text.replace("\ncache: {", &format!("\ncache: {{{FIELD}, ")),
        Some(_) => format!("{text}cache: {{{FIELD}}}\n"),
    }
}

/// Starts the gateway, and returns when it serves.
async fn launched(config: &Path, seen: &Arc<Mutex<Seen>>) -> Result<Child> {
    let mut child = launch(config, seen)?;
    let started = Instant::now();
    loop {
        if lock(seen).addresses.contains_key("serving") && admin(seen).is_some() {
            return Ok(child);
        }
        if started.elapsed() > PATIENCE || child.try_wait()?.is_some() {
            child.kill().ok();
            child.wait().ok();
            bail!("the gateway did not say that it serves, see {}", config.display());
        }
        sleep(POLL).await;
    }
}

/// The address of the admin port. Earlier builds, which this one may be compared with, have another message.
fn admin(seen: &Mutex<Seen>) -> Option<String> {
    let seen = lock(seen);
    ["serving the admin port", "admin port"].iter().find_map(|message| seen.addresses.get(*message).cloned())
}

/// The tested build, or another one to compare it with (`KUBE_FANOUT_BINARY`).
fn binary() -> PathBuf {
    std::env::var_os("KUBE_FANOUT_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_kube-fanout").into(), PathBuf::from)
}

/// Logs every request. Builds from before `logging.access` always did.
fn logging() -> &'static str {
    if std::env::var_os("KUBE_FANOUT_LOGS_ALL").is_some() {
        "logging: {format: json, level: info}"
    } else {
        "logging: {format: json, level: info, access: all}"
    }
}

/// Starts the gateway. Its log is parsed, and written next to its configuration.
fn launch(config: &Path, seen: &Arc<Mutex<Seen>>) -> Result<Child> {
    let mut child = Command::new(binary())
        .args(["run", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stderr, log, seen) = (child.stderr.take().context("no stderr")?, config.with_extension("log"), seen.clone());
    std::thread::spawn(move || read_log(BufReader::new(stderr), &log, &seen));
    Ok(child)
}

fn read_log(mut stderr: BufReader<ChildStderr>, log: &Path, seen: &Mutex<Seen>) {
    let mut file = fs::File::options().create(true).append(true).open(log).ok();
    for line in stderr.by_ref().lines().map_while(Result::ok) {
        if let Some(file) = &mut file {
            writeln!(file, "{line}").ok();
        }
        let mut seen = lock(seen);
        if seen.is_unread {
            break;
        }
        seen.read(&line);
    }
    let mut seen = lock(seen);
    if seen.is_unread {
        seen.unread = Some(stderr);
    }
}

impl Seen {
    fn read(&mut self, text: &str) {
        let Ok(line) = serde_json::from_str::<Value>(text) else { return };
        if line["target"] != "access" {
            self.told.push(text.to_owned());
        }
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        if line["target"] == "access" {
            let outcome = Outcome { by: text("outcome"), reason: text("reason") };
            self.outcomes.insert(text("user_agent"), outcome);
        } else if !text("address").is_empty() {
            self.addresses.insert(text("message"), text("address"));
        }
    }
}
