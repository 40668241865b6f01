//! The measured servers, each in its own process.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube_fanout::sim::Sim;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    certificates::Certificates,
    client::{Ask, Endpoint},
    flags,
    ports::free_port,
    processes::Process,
};

/// The time that a server may take to be ready.
const READY_MAX: Duration = Duration::from_secs(120);
/// The gateway that cargo has built for this bench. `BENCH_GATEWAY` names another one, for comparison.
const GATEWAY: &str = env!("CARGO_BIN_EXE_kube-fanout");

/// The API server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) endpoint: Endpoint,
    pub(crate) url: String,
    pub(crate) kubeconfig: PathBuf,
    /// The process of a real API server; `None` for `sim`, whose costs are not comparable.
    pub(crate) real: Option<u32>,
    pub(crate) name: String,
    process: Process,
    storage: Option<Storage>,
}

/// etcd, and the port of its clients.
#[derive(Debug)]
struct Storage {
    clients: u16,
    /// `None` where another server owns it.
    _process: Option<Process>,
}

/// A gateway, or the baseline.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) process: Process,
    /// The time from its start until it was ready.
    pub(crate) ready_after: Duration,
}

impl Upstream {
    /// kube-apiserver from `KUBEBUILDER_ASSETS`, else `sim`.
    pub(crate) async fn start(real: bool, certificates: &Certificates, folder: &Path) -> Result<Self> {
        let mut upstream = match std::env::var_os("KUBEBUILDER_ASSETS").filter(|_| real) {
            Some(assets) => Self::start_real(Path::new(&assets), certificates, folder)?,
            None => Self::start_sim(certificates, folder)?,
        };
        let ask = Ask::json("/readyz");
        wait(&mut upstream.process, async || upstream.endpoint.get(&ask).await.is_ok()).await?;
        if upstream.real.is_some() {
            let version: serde_json::Value =
                serde_json::from_slice(&upstream.endpoint.get(&Ask::json("/version")).await?)?;
            upstream.name = format!("kube-apiserver {}", version["gitVersion"].as_str().unwrap_or("of no version"));
        }
        Ok(upstream)
    }

    fn start_real(assets: &Path, certificates: &Certificates, folder: &Path) -> Result<Self> {
        let storage = start_storage("etcd", assets, folder)?;
        let port = free_port()?;
        let process = Self::start_api("kube-apiserver", assets, port, storage.clients, certificates, folder)?;
        Self::tls(port, "upstream", certificates, process, storage)
    }

    /// Another kube-apiserver of the same storage. It replaces `before`, at the same port.
    pub(crate) async fn second(
        &self,
        before: Option<Self>,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").context("no API server to start")?;
        let clients = self.storage.as_ref().context("no storage")?.clients;
        let port = before.as_ref().map_or_else(free_port, |before| Ok(before.endpoint.port))?;
        drop(before);
        let process = Self::start_api("second", Path::new(&assets), port, clients, certificates, folder)?;
        let storage = Storage { clients, _process: None };
        let mut second = Self::tls(port, "second", certificates, process, storage)?;
        let ask = Ask::json("/readyz");
        wait(&mut second.process, async || second.endpoint.get(&ask).await.is_ok()).await?;
        Ok(second)
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    fn start_api(
        name: &str,
        assets: &Path,
        port: u16,
        etcd: u16,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Process> {
        let program = assets.join("kube-apiserver");
        let arguments = [
            flags::api_server(port, etcd, certificates),
            flags::full(certificates),
            flags::shards(&program)?.into_iter().collect(),
            // The load comes from one user, who must not be throttled.
            vec!["--enable-priority-and-fairness=false".to_owned()],
            unlimited(),
        ];
        Process::start(name, program, arguments.concat(), folder)
    }

    /// Custom resources on the current library (`apiextensions-apiserver`), which has `core` authenticate its clients.
    pub(crate) async fn start_custom(
        assets: &Path,
        core: &Self,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let storage = start_storage("etcd-custom", assets, folder)?;
        let port = free_port()?;
        let arguments = [
            flags::api_server(port, storage.clients, certificates),
            flags::custom_resources(&core.kubeconfig),
            unlimited(),
        ];
        let program = assets.join("apiextensions-apiserver");
        let process = Process::start("apiextensions-apiserver", program, arguments.concat(), folder)?;
        let mut upstream = Self::tls(port, "custom", certificates, process, storage)?;
        let ask = Ask::json("/readyz");
        wait(&mut upstream.process, async || upstream.endpoint.get(&ask).await.is_ok()).await?;
        Ok(upstream)
    }

    fn tls(port: u16, name: &str, certificates: &Certificates, process: Process, storage: Storage) -> Result<Self> {
        let url = format!("https://127.0.0.1:{port}");
        Ok(Self {
            endpoint: Endpoint::tls(port, Path::new(&certificates.file("ca.crt")))?,
            kubeconfig: certificates.kubeconfig(name, &url)?,
            url,
            real: Some(process.id()),
            name: String::new(),
            process,
            storage: Some(storage),
        })
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Whether the server is too old for watch-lists.
    pub(crate) fn is_old(&self) -> bool {
        let minor = self.name.split_once(" v1.").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
        minor.is_some_and(|minor| minor < 32)
    }

    fn start_sim(certificates: &Certificates, folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        Ok(Self {
            endpoint: Endpoint::plain(port),
            kubeconfig: certificates.kubeconfig("upstream", &url)?,
            url,
            real: None,
            name: "sim (set KUBEBUILDER_ASSETS to compare with a real API server)".to_owned(),
            process: this_program("sim", &["serve-sim", &port.to_string()], folder)?,
            storage: None,
        })
    }
}

/// The configuration of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gateway {
    /// The resource whose cache is filled before the measurement; empty for none.
    pub(crate) prewarm: &'static str,
    /// `trusted` or `delegated`.
    pub(crate) clients: &'static str,
    /// `cache.bridge`
    pub(crate) bridge: bool,
    /// Additional lines of the configuration.
    pub(crate) fields: &'static str,
}

impl Server {
    pub(crate) async fn gateway(
        gateway: Gateway,
        upstream: &Upstream,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let Gateway { prewarm, clients, bridge, fields } = gateway;
        // Only written if it is off, since older builds do not know the field.
        let bridge = if bridge { "" } else { ", bridge: false" };
        let (port, admin) = (free_port()?, free_port()?);
        let config = folder.join(format!("gateway-{port}.yaml"));
        let (certificate, key) = (certificates.file("server.crt"), certificates.file("server.key"));
        let text = format!(
            "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n\
             listeners: [{{address: \"127.0.0.1:{port}\", tls: {{certFile: {certificate}, keyFile: {key}}}}}]\n\
             upstream: {{kubeconfig: {}}}\nclients: {{mode: {clients}}}\ncache: {{prewarm: [{prewarm}]{bridge}}}\n\
             admin: {{address: \"127.0.0.1:{admin}\"}}\nlimits: {{connections: 20000}}\n\
             logging: {{level: warn}}\n{fields}",
            upstream.kubeconfig.display(),
        );
        fs::write(&config, text)?;
        let started = Instant::now();
        let arguments = ["run", "--config", &config.display().to_string()];
        let program = std::env::var_os("BENCH_GATEWAY").unwrap_or_else(|| GATEWAY.into());
        let mut process = Process::start(&format!("gateway-{port}"), program, arguments, folder)?;
        let (admin, ask) = (Endpoint::plain(admin), Ask::json("/readyz"));
        wait(&mut process, async || admin.get(&ask).await.is_ok()).await.context("the gateway")?;
        let ready_after = started.elapsed();
        let endpoint = Endpoint::tls(port, Path::new(&certificates.file("ca.crt")))?;
        Ok(Self { endpoint, process, ready_after })
    }

    /// The baseline, which has fetched its lists when this returns.
    pub(crate) async fn baseline(upstream: &Upstream, certificates: &Certificates, folder: &Path) -> Result<Self> {
        let (port, started) = (free_port()?, Instant::now());
        let (url, own) = (upstream.url.as_str(), port.to_string());
        let certificates = certificates.folder.display().to_string();
        let name = format!("baseline-{port}");
        let mut process = this_program(&name, &["serve-baseline", url, &own, &certificates], folder)?;
        let endpoint = Endpoint::tls(port, &Path::new(&certificates).join("ca.crt"))?;
        wait(&mut process, async || endpoint.connect(false).await.is_ok()).await.context("the baseline")?;
        Ok(Self { endpoint, process, ready_after: started.elapsed() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

/// The flags that keep an API server from limiting the load.
fn unlimited() -> Vec<String> {
    vec![
        "--max-requests-inflight=0".to_owned(),
        "--max-mutating-requests-inflight=0".to_owned(),
        // No stream may end while it is measured.
        "--min-request-timeout=7200".to_owned(),
    ]
}

fn start_storage(name: &str, assets: &Path, folder: &Path) -> Result<Storage> {
    let (clients, peers) = (free_port()?, free_port()?);
    let mut arguments = flags::etcd(&folder.join(name), clients, peers);
    // The speed of the disk is not to be measured.
    arguments.push("--unsafe-no-fsync".to_owned());
    let process = Process::start(name, assets.join("etcd"), arguments, folder)?;
    Ok(Storage { clients, _process: Some(process) })
}

/// Starts this program in another role.
pub(crate) fn this_program(name: &str, arguments: &[&str], folder: &Path) -> Result<Process> {
    Process::start(name, std::env::current_exe()?, arguments, folder)
}

/// Waits until a process that was just started is ready.
pub(crate) async fn wait(process: &mut Process, is_ready: impl AsyncFn() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_ready().await {
        process.check()?;
        ensure!(started.elapsed() < READY_MAX, "not ready after {READY_MAX:?}");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Serves the embedded API server until the process is killed.
pub(crate) async fn serve_sim(port: u16) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    Sim::new().serve(listener, CancellationToken::new()).await;
    Ok(())
}
