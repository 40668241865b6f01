//! An embedded API server, and a gateway in front of it.

use kube_fanout::{
    config::Config,
    sim::{Features, Sim, SimServer},
};

use super::{
    Answer, Client, Gateway, Informer, Route, Selection,
    upstream::{directly, pod, pods},
};

/// Both, and the operations of tests on them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) server: SimServer,
    pub(crate) gateway: Gateway,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Sim::new(), |_| {}).await
    }

    pub(crate) async fn start_lacking(features: Features) -> Self {
        let sim = Sim::new();
        sim.set_features(features);
        Self::start_with(sim, |_| {}).await
    }

    pub(crate) async fn start_with(sim: Sim, change: impl FnOnce(&mut Config)) -> Self {
        let server = sim.start().await.unwrap();
        let gateway = Gateway::start_with(&server.url(), change).await;
        Self { sim, server, gateway }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.gateway.client
    }

    pub(crate) fn informer(&self, selection: Selection) -> Informer {
        Informer::new(self.client().clone(), self.sim.clone(), selection)
    }

    /// Upstream's own response: status and body.
    pub(crate) async fn directly(&self, path: &str) -> (u16, String) {
        directly(&self.sim, path).await
    }

    /// Asserts that the gateway's response equals upstream's own, and returns it.
    pub(crate) async fn assert_same(&self, path: &str, route: &Route) -> Answer {
        let answer = self.client().get(path).await;
        let (status, body) = self.directly(path).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (status, body.as_str()), "{path}");
        assert_eq!(answer.route, *route, "{path}");
        answer
    }

    pub(crate) fn create_pod(&self, namespace: &str, name: &str, app: &str) {
        self.sim.create(pod(namespace, name, app)).unwrap();
    }

    /// Changes a pod's label.
    pub(crate) fn label_pod(&self, key: &str, app: &str) {
        self.sim.modify(&pods(), key, |pod| pod["metadata"]["labels"]["app"] = app.into()).unwrap();
    }

    pub(crate) fn delete_pod(&self, key: &str) {
        self.sim.delete(&pods(), key).unwrap();
    }
}
