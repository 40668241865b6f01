//! The demo's own clients: the informers and dashboards of a small cluster, over sockets.

use std::time::Duration;

use futures_util::future::{join, join_all};
use http::{Request, StatusCode, Uri, header, uri::InvalidUri};
use http_body_util::BodyExt;
use kube_client::client::Body;
use tokio::time::{interval, sleep};

use base::config::with_needed_authorities;

/// How long a watch lasts, in seconds: short, so that the demo shows watches that end.
const WATCH_SECONDS: std::ops::Range<u64> = 120..300;
/// Pause after a failed request.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between waves of lists, as from dashboards that are opened.
const WAVE_EVERY: Duration = Duration::from_secs(20);
/// Lists of each kind in a wave, and how many of those of pods are not compressed: they cost the API server less than
/// the others, and the gateway more.
const WAVE_LISTS: usize = 15;
const WAVE_PLAIN: usize = 5;
const GZIP: &str = "gzip";
const PLAIN: &str = "identity";
const NAMESPACES: [&str; 5] = ["billing", "catalog", "checkout", "data", "gateway"];
/// Maximum number of watches of all pods: each receives every change.
const POD_WATCHES_MAX: usize = 5;

/// Clients of one gateway.
#[derive(Clone)]
pub(super) struct Clients {
    client: kube_client::Client,
    watches: Vec<Watch>,
}

/// One watch that a client keeps open.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watch {
    user_agent: &'static str,
    /// The path of the collection.
    path: String,
    query: String,
}

impl Clients {
    /// Clients with `watches` watches, for a cluster of `nodes` nodes.
    pub(super) fn new(gateway: &str, watches: usize, nodes: usize) -> Result<Self, InvalidUri> {
        let access = with_needed_authorities(kube_client::Config::new(gateway.parse::<Uri>()?));
        // Without TLS, every parsed address can be used.
        let client = kube_client::Client::try_from(access).expect("an address without TLS can be used");
        Ok(Self { client, watches: (0..watches).map(|index| Watch::of(index, nodes.max(1))).collect() })
    }

    /// Runs the clients until dropped.
    pub(super) async fn run(self) {
        if self.watches.is_empty() {
            return std::future::pending().await;
        }
        let watches = join_all(self.watches.iter().map(|watch| self.keep(watch)));
        join(watches, self.waves()).await;
    }

    /// Lists, then watches without end, as an informer does.
    async fn keep(&self, watch: &Watch) {
        let Watch { user_agent, path, query } = watch;
        while self.get(user_agent, &format!("{path}?resourceVersion=0{query}"), GZIP).await.is_none() {
            sleep(RETRY).await;
        }
        loop {
            let seconds = fastrand::u64(WATCH_SECONDS);
            let changes = "watch=1&resourceVersion=0&resourceVersionMatch=NotOlderThan&sendInitialEvents=false";
            let whole = format!("{path}?{changes}&allowWatchBookmarks=true&timeoutSeconds={seconds}{query}");
            if self.get(user_agent, &whole, GZIP).await.is_none() {
                sleep(RETRY).await;
            }
        }
    }

    async fn waves(&self) {
        let mut ticks = interval(WAVE_EVERY);
        loop {
            ticks.tick().await;
            let list = |path: &'static str, coding| async move { self.get("dashboard/2.7", path, coding).await };
            let coding = |index| if index < WAVE_PLAIN { PLAIN } else { GZIP };
            let pods = (0..WAVE_LISTS).map(|index| list("/api/v1/pods?resourceVersion=0", coding(index)));
            let nodes = (0..WAVE_LISTS).map(|_| list("/api/v1/nodes?resourceVersion=0", GZIP));
            join(join_all(pods), join_all(nodes)).await;
        }
    }

    /// Reads an answer to its end. `None` if there is none, or it is an error.
    async fn get(&self, user_agent: &str, path: &str, coding: &str) -> Option<()> {
        let request = Request::get(path)
            .header(header::USER_AGENT, user_agent)
            .header(header::ACCEPT_ENCODING, coding)
            .body(Body::empty())
            .ok()?;
        let answer = self.client.send(request).await.ok()?;
        let is_good = answer.status() == StatusCode::OK;
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame.ok()?;
        }
        is_good.then_some(())
    }
}

impl Watch {
    /// The mix of a cluster: most watches are those of kubelets, few cover a whole resource.
    fn of(index: usize, nodes: usize) -> Self {
        let (turn, node) = (index / 10, index % nodes);
        let kubelet = "kubelet/v1.36.0 (linux/amd64)";
        let namespaced =
            |resource: &str| format!("/api/v1/namespaces/{}/{resource}", NAMESPACES[turn % NAMESPACES.len()]);
        let (user_agent, path, query) = match index % 10 {
            0..=2 => (kubelet, "/api/v1/pods".to_owned(), format!("&fieldSelector=spec.nodeName%3Dnode-{node}")),
            3 | 4 => (kubelet, "/api/v1/nodes".to_owned(), format!("&fieldSelector=metadata.name%3Dnode-{node}")),
            5 => (kubelet, namespaced("configmaps"), String::new()),
            6 => ("kube-proxy/v1.36.0 (linux/amd64)", "/api/v1/services".to_owned(), String::new()),
            7 => ("controller/1.4", namespaced("pods"), String::new()),
            8 => ("gitops/2.11", "/apis/apps/v1/deployments".to_owned(), String::new()),
            _ if turn < POD_WATCHES_MAX => ("policy-agent/3.2", "/api/v1/pods".to_owned(), String::new()),
            _ => ("gitops/2.11", "/api/v1/services".to_owned(), String::new()),
        };
        Self { user_agent, path, query }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_watches_are_of_all_pods() {
        let watches: Vec<_> = (0..300).map(|index| Watch::of(index, 60)).collect();
        let of_all = |watch: &&Watch| watch.path == "/api/v1/pods" && watch.query.is_empty();
        assert_eq!(watches.iter().filter(of_all).count(), POD_WATCHES_MAX);
        let agents: std::collections::HashSet<_> = watches.iter().map(|watch| watch.user_agent).collect();
        assert!(agents.len() >= 5, "{agents:?}");
    }
}
