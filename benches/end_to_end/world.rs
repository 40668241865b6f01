//! Everything that rows are measured with.

use std::{fs, path::Path};

use anyhow::Result;
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    certificates::Certificates,
    client::{Ask, Endpoint},
    pods,
    servers::{Gateway, Server, Upstream},
    sizes::Sizes,
    storm::Scene,
};

/// The servers, full of pods.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) sizes: Sizes,
    pub(crate) gateway: Server,
    pub(crate) floor: Server,
    pub(crate) upstream: Upstream,
    pub(crate) certificates: Certificates,
    /// Bytes of all pods in JSON.
    pub(crate) json_bytes: u64,
    folder: TempDir,
}

/// What nearly all rows are measured with.
const PODS: Gateway = Gateway { prewarm: "pods", clients: "trusted", fields: "" };
/// All pods, from memory.
pub(crate) const LIST: &str = "/api/v1/pods?resourceVersion=0";

impl World {
    pub(crate) async fn start(sizes: Sizes) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let certificates = Certificates::make(folder.path())?;
        let upstream = Upstream::start(sizes.real, &certificates, folder.path()).await?;
        pods::seed(&upstream.endpoint, &sizes).await?;
        let floor = Server::floor(&upstream, &certificates, folder.path()).await?;
        let gateway = Server::gateway(PODS, &upstream, &certificates, folder.path()).await?;
        let json_bytes = gateway.endpoint.get(&Ask::json(LIST)).await?.len() as u64;
        if upstream.real.is_some() {
            // The first request in protobuf starts its cache, and is forwarded until that is full.
            let ask = Ask::protobuf("/api/v1/pods?resourceVersion=0&limit=1");
            gateway.endpoint.get(&ask).await?;
            tokio::time::sleep(std::time::Duration::from_secs(sizes.seconds.max(3))).await;
        }
        Ok(Self { sizes, gateway, floor, upstream, certificates, json_bytes, folder })
    }

    /// Another gateway, for what can only be measured once in a process.
    pub(crate) async fn fresh_gateway(&self) -> Result<Server> {
        Server::gateway(PODS, &self.upstream, &self.certificates, self.folder()).await
    }

    /// A gateway that asks the API server who its clients are and what they may.
    pub(crate) async fn delegated_gateway(&self) -> Result<Server> {
        let gateway = Gateway { clients: "delegated", ..PODS };
        Server::gateway(gateway, &self.upstream, &self.certificates, self.folder()).await
    }

    /// A gateway that answers most-recent lists from memory where that is the better answer.
    pub(crate) async fn most_recent_gateway(&self) -> Result<Server> {
        let gateway = Gateway { fields: "reads: {mostRecent: auto}\n", ..PODS };
        Server::gateway(gateway, &self.upstream, &self.certificates, self.folder()).await
    }

    pub(crate) async fn fresh_floor(&self) -> Result<Server> {
        Server::floor(&self.upstream, &self.certificates, self.folder()).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The API server, if it is a real one.
    pub(crate) fn api_server(&self) -> Option<(Endpoint, u32)> {
        Some((self.upstream.endpoint.clone(), self.upstream.real?))
    }

    /// All pods. An API server without watch-list refuses the form; `sim` and current ones have it.
    pub(crate) fn pods(&self) -> Scene<'_> {
        let upstream = &self.upstream;
        Scene { world: self, upstream, collection: "/api/v1/pods", resource: "pods", watch_list: !upstream.is_old() }
    }

    /// Writes something to that server that is none of the objects.
    pub(crate) async fn write_elsewhere(&self, upstream: &Upstream) -> Result<()> {
        let group = format!("elsewhere-{}.example.com", pods::now());
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        upstream.endpoint.connect(false).await?.write(Method::POST, definitions, &definition).await
    }

    /// Version of the collection now.
    pub(crate) async fn version(&self) -> Result<String> {
        let page = self.upstream.endpoint.get(&Ask::json("/api/v1/pods?limit=1")).await?;
        let page: serde_json::Value = serde_json::from_slice(&page)?;
        Ok(page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// What the figures depend on.
    pub(crate) fn description(&self) -> String {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "NOT OPTIMIZED" } else { "optimized" };
        format!(
            "{}, {cores} cores of {}, load average {}\nkube-fanout {} ({profile}), before {}\n{} pods, {:.1} MB of JSON",
            jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC"),
            model.map_or("an unknown processor", |(_, model)| model),
            load_average(),
            env!("CARGO_PKG_VERSION"),
            self.upstream.name,
            self.sizes.pods,
            self.json_bytes as f64 / 1e6,
        )
    }
}

/// Of the last minute: who else was at work.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
