//! Real API servers: where their binaries are, and how they are started, stopped and restarted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    certificates::Certificates,
    client::{Ask, Endpoint},
    flags,
    ports::free_port,
    processes::Process,
};

/// The maximum time for a server to become ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// A server that knows watch-list answers this with 200; an older one refuses the match for watches.
const WATCH_LIST: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1&allowWatchBookmarks=true\
    &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
/// The polling interval of conditions.
pub(crate) const POLL: Duration = Duration::from_millis(25);

/// Folders with the binaries.
#[derive(Clone, Debug)]
pub(crate) struct Assets {
    /// `kube-apiserver`, `etcd`, `kubectl`.
    pub(crate) full: PathBuf,
    /// `apiextensions-apiserver`, `etcd`, `kubectl`; `None` where these have not been built.
    pub(crate) crd: Option<PathBuf>,
}

impl Assets {
    /// From `KUBEBUILDER_ASSETS`, as usual in the ecosystem, and `KUBE_FANOUT_CRD_ASSETS`; otherwise from the folder of
    /// `.ci/upstreams`.
    pub(crate) fn find() -> Result<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let built = cache.join("kube-fanout/upstreams");
        let full = std::env::var_os("KUBEBUILDER_ASSETS").map_or(built.join("v1.20"), PathBuf::from);
        let crd = std::env::var_os("KUBE_FANOUT_CRD_ASSETS").map_or(built.join("v1.36"), PathBuf::from);
        for name in ["kube-apiserver", "etcd", "kubectl"] {
            if !full.join(name).is_file() {
                bail!(
                    "NO API SERVER TO COMPARE WITH: {} does not exist; run .ci/upstreams, or set KUBEBUILDER_ASSETS",
                    full.join(name).display()
                );
            }
        }
        Ok(Self { full, crd: crd.join("apiextensions-apiserver").is_file().then_some(crd) })
    }
}

/// An API server and its etcd.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) kubeconfig: PathBuf,
    /// `1.36`; empty until it is ready.
    pub(crate) version: String,
    /// Whether the server has watch-list, and with it today's watch cache: expectations of it and of the gateway depend
    /// on this. Known once it is ready.
    pub(crate) has_watch_list: bool,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    api: Option<Process>,
    etcd_program: PathBuf,
    etcd_arguments: Vec<String>,
    etcd: Option<Process>,
}

impl Server {
    /// With all built-in types.
    pub(crate) fn full(assets: &Path, certificates: &Certificates, folder: &Path) -> Result<Self> {
        Self::start("full", assets, "kube-apiserver", flags::full(certificates), certificates, folder)
    }

    /// Custom resources on the current library. Delegates authentication to `full`.
    pub(crate) fn crd(assets: &Path, full: &Self, certificates: &Certificates, folder: &Path) -> Result<Self> {
        let flags = flags::custom_resources(&full.kubeconfig);
        Self::start("crd", assets, "apiextensions-apiserver", flags, certificates, folder)
    }

    fn start(
        name: &'static str,
        assets: &Path,
        program: &str,
        flags: Vec<String>,
        certificates: &Certificates,
        folder: &Path,
    ) -> Result<Self> {
        let (port, storage, peer) = (free_port()?, free_port()?, free_port()?);
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        let url = format!("https://127.0.0.1:{port}");
        let mut arguments = flags::api_server(port, storage, certificates);
        arguments.extend(flags);
        let program = assets.join(program);
        arguments.extend(flags::shards(&program)?);
        let etcd_arguments = flags::etcd(&folder.join("etcd"), storage, peer);
        let mut server = Self {
            endpoint: Endpoint::direct(&url, Path::new(&certificates.file("ca.crt")))?,
            kubeconfig: certificates.kubeconfig(name, &url)?,
            version: String::new(),
            has_watch_list: false,
            program,
            arguments,
            folder,
            api: None,
            etcd_program: assets.join("etcd"),
            etcd_arguments,
            etcd: None,
        };
        server.start_storage()?;
        server.start_api()?;
        Ok(server)
    }

    /// Another API server on the same storage, which ends when this is dropped.
    pub(crate) fn beside(&self, certificates: &Certificates) -> Result<Self> {
        let mut server = self.copy("beside", certificates)?;
        server.start_api()?;
        Ok(server)
    }

    /// An API server with its own storage, as of another cluster with the same certificates. Both end when this is
    /// dropped.
    pub(crate) fn apart(&self, certificates: &Certificates) -> Result<Self> {
        let (storage, peer) = (free_port()?, free_port()?);
        let mut server = self.copy("apart", certificates)?;
        server.arguments.retain(|argument| !argument.starts_with("--etcd-servers="));
        server.arguments.push(format!("--etcd-servers=http://127.0.0.1:{storage}"));
        server.etcd_arguments = flags::etcd(&server.folder.join("etcd"), storage, peer);
        server.start_storage()?;
        server.start_api()?;
        Ok(server)
    }

    /// The same server at another port, not started.
    fn copy(&self, name: &str, certificates: &Certificates) -> Result<Self> {
        let port = free_port()?;
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        let mut arguments = self.arguments.clone();
        arguments.retain(|argument| !argument.starts_with("--secure-port="));
        arguments.push(format!("--secure-port={port}"));
        Ok(Self {
            endpoint: Endpoint::direct(&format!("https://127.0.0.1:{port}"), Path::new(&certificates.file("ca.crt")))?,
            kubeconfig: self.kubeconfig.clone(),
            version: self.version.clone(),
            has_watch_list: self.has_watch_list,
            program: self.program.clone(),
            arguments,
            folder,
            api: None,
            etcd_program: self.etcd_program.clone(),
            etcd_arguments: self.etcd_arguments.clone(),
            etcd: None,
        })
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.endpoint.base.trim_start_matches("https://")
    }

    /// Stops the process of the API server without ending it, or lets it go on.
    pub(crate) fn freeze_api(&self, is_frozen: bool) -> Result<()> {
        self.api.as_ref().context("it does not run")?.signal(if is_frozen { Signal::STOP } else { Signal::CONT })
    }

    pub(crate) fn start_api(&mut self) -> Result<()> {
        self.api = Some(Process::start("api", &self.program, &self.arguments, &self.folder)?);
        Ok(())
    }

    /// Kills the API server as a crash would.
    pub(crate) fn kill_api(&mut self) {
        self.api = None;
    }

    pub(crate) fn start_storage(&mut self) -> Result<()> {
        self.etcd = Some(Process::start("etcd", &self.etcd_program, &self.etcd_arguments, &self.folder)?);
        Ok(())
    }

    pub(crate) fn kill_storage(&mut self) {
        self.etcd = None;
    }

    /// The data folder of etcd.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// Returns when the server reports that it is ready.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            for process in self.api.iter_mut().chain(&mut self.etcd) {
                process.check()?;
            }
            // Of several concurrent health requests, a current server checks etcd for the first one and answers the
            // others that etcd is not reachable.
            let mut ready = self.endpoint.get("/readyz").await;
            if ready.as_ref().is_ok_and(|answer| answer.status == 200) {
                ready = self.endpoint.get("/healthz").await;
            }
            match ready {
                Ok(answer) if answer.status == 200 => return self.learn().await,
                answer if started.elapsed() > READY_MAX => {
                    return Err(anyhow::anyhow!("not ready: {answer:?}")).context(self.program.display().to_string());
                }
                _ => sleep(POLL).await,
            }
        }
    }

    /// Asks for the version of the server and whether it has watch-list, once.
    async fn learn(&mut self) -> Result<()> {
        if self.version.is_empty() {
            let version = self.endpoint.json("/version").await?;
            let part = |name: &str| version[name].as_str().unwrap_or_default().trim_end_matches('+');
            self.has_watch_list = self.endpoint.send(&Ask::get(WATCH_LIST)).await?.status == 200;
            self.version = format!("{}.{}", part("major"), part("minor"));
        }
        Ok(())
    }
}
