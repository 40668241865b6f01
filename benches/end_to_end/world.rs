//! The servers and certificates with which the rows are measured.

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
};

/// The servers, filled with pods.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) sizes: Sizes,
    pub(crate) gateway: Server,
    pub(crate) baseline: Server,
    pub(crate) upstream: Upstream,
    pub(crate) certificates: Certificates,
    /// The size of all pods in JSON, in bytes.
    pub(crate) json_bytes: u64,
    folder: TempDir,
}

/// The gateway with which nearly all rows are measured.
pub(crate) const PODS: Gateway = Gateway { prewarm: "pods", clients: "trusted", bridge: true, fields: "" };
/// All pods, from memory.
pub(crate) const LIST: &str = "/api/v1/pods?resourceVersion=0";

impl World {
    pub(crate) async fn start(sizes: Sizes) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let certificates = Certificates::make(folder.path())?;
        let upstream = Upstream::start(sizes.real, &certificates, folder.path()).await?;
        pods::seed(&upstream.endpoint, &sizes).await?;
        let baseline = Server::baseline(&upstream, &certificates, folder.path()).await?;
        let gateway = Server::gateway(PODS, &upstream, &certificates, folder.path()).await?;
        let json_bytes = gateway.endpoint.get(&Ask::json(LIST)).await?.len() as u64;
        if upstream.real.is_some() {
            // The first request in protobuf starts its cache; requests are forwarded until it is full.
            let ask = Ask::protobuf("/api/v1/pods?resourceVersion=0&limit=1");
            gateway.endpoint.get(&ask).await?;
            tokio::time::sleep(std::time::Duration::from_secs(sizes.seconds.max(3))).await;
        }
        Ok(Self { sizes, gateway, baseline, upstream, certificates, json_bytes, folder })
    }

    /// Another gateway, for values that can only be measured once per process.
    pub(crate) async fn fresh_gateway(&self) -> Result<Server> {
        Server::gateway(PODS, &self.upstream, &self.certificates, self.folder()).await
    }

    /// A gateway that sends reviews to the API server.
    pub(crate) async fn delegated_gateway(&self) -> Result<Server> {
        let gateway = Gateway { clients: "delegated", ..PODS };
        Server::gateway(gateway, &self.upstream, &self.certificates, self.folder()).await
    }

    /// A gateway that answers most-recent lists from memory where that is cheaper (`auto`).
    pub(crate) async fn most_recent_gateway(&self) -> Result<Server> {
        let gateway = Gateway { fields: "reads: {mostRecent: auto}\n", ..PODS };
        Server::gateway(gateway, &self.upstream, &self.certificates, self.folder()).await
    }

    pub(crate) async fn fresh_baseline(&self) -> Result<Server> {
        Server::baseline(&self.upstream, &self.certificates, self.folder()).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The API server, if it is a real one.
    pub(crate) fn api_server(&self) -> Option<(Endpoint, u32)> {
        Some((self.upstream.endpoint.clone(), self.upstream.real?))
    }

    /// Writes something other than the measured objects to the server.
    pub(crate) async fn write_elsewhere(&self, upstream: &Upstream) -> Result<()> {
        let group = format!("elsewhere-{}.example.com", pods::now());
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        upstream.endpoint.connect(false).await?.write(Method::POST, definitions, &definition).await
    }

    /// The current version of the collection.
    pub(crate) async fn version(&self) -> Result<String> {
        let page = self.upstream.endpoint.get(&Ask::json("/api/v1/pods?limit=1")).await?;
        let page: serde_json::Value = serde_json::from_slice(&page)?;
        Ok(page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// The conditions on which the figures depend.
    pub(crate) fn description(&self) -> String {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "NOT OPTIMIZED" } else { "optimized" };
        format!(
            "{}, {cores} cores of {}, load average {}\n\
             kube-fanout {} ({profile}), in front of {}\n\
             {} pods, {:.1} MB of JSON",
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

/// The load average of the last minute, which shows other work on the machine.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
