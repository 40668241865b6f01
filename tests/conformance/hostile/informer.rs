//! An informer beside the attacks: a controller's cache, which must not notice them.

use std::{
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{Store, store::Writer},
        watcher::{self, watcher},
    },
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{client, gateway::PATIENCE, servers::POLL};

/// A kube-rs reflector of the pods of `conf`, through the gateway.
pub(super) struct Informer {
    store: Store<Pod>,
    troubles: Arc<Mutex<Troubles>>,
    _task: JoinSet<()>,
}

/// Effects of an attack on an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    /// The lists after the first one.
    pub(super) lists: usize,
    pub(super) errors: Vec<String>,
}

impl Informer {
    /// Returns once it has the pods.
    pub(super) async fn start(kubeconfig: &Path) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client::kube(kubeconfig).await?, "conf");
        let (troubles, mut writer) = (Arc::<Mutex<Troubles>>::default(), Writer::new(()));
        let (store, seen) = (writer.as_reader(), troubles.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
            let mut has_listed = false;
            while let Some(event) = events.next().await {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Ok(event) => {
                        if matches!(event, watcher::Event::Init) {
                            seen.lists += usize::from(has_listed);
                            has_listed = true;
                        }
                        writer.apply_watcher_event(&event);
                    }
                    Err(error) => seen.errors.push(error.to_string()),
                }
            }
        });
        timeout(PATIENCE, store.wait_until_ready()).await??;
        Ok(Self { store, troubles, _task: task })
    }

    /// Returns when a pod has an annotation `hostile` of that value.
    pub(super) async fn sees(&self, marker: &str) {
        let is_marked = |pod: &Arc<Pod>| pod.annotations().get("hostile").is_some_and(|value| value == marker);
        while !self.store.state().iter().any(is_marked) {
            sleep(POLL).await;
        }
    }

    /// The effects since the last call.
    pub(super) fn troubles(&self) -> Troubles {
        std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
