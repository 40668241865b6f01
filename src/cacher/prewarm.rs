//! Caches that are filled before their first request.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Cachers, NotCached};
use crate::{
    apimachinery::{Encoding, GroupResource, GroupVersionResource},
    telemetry::Chain,
};

/// How often resources to prewarm are checked, in order to start those that appear late or were gone for a while.
const EVERY: Duration = Duration::from_secs(30);

/// The delay after the first check: discovery has answered by then.
const FIRST: Duration = Duration::from_secs(2);

/// Why a name is not that of a resource that can be cached.
pub const NO_SUCH_GROUP: &str = "the API server has no such API group";
pub const NO_SUCH_RESOURCE: &str =
    "the API server has no such resource; write the plural name with its group, like deployments.apps";
pub const AGGREGATED: &str = "it is served by an aggregated API server, and such resources are not cached";
pub const NOT_WATCHABLE: &str = "the API server does not support list and watch for the resource";

/// Why a resource will not be cached, however long one waits; usually its name is misspelt.
fn missing(why: NotCached) -> Option<&'static str> {
    match why {
        NotCached::UnknownResource => Some(NO_SUCH_RESOURCE),
        NotCached::NotWatchable => Some(NOT_WATCHABLE),
        NotCached::Aggregated => Some(AGGREGATED),
        NotCached::TooManyResources => Some("the gateway already caches the maximum number of resources"),
        NotCached::Excluded
        | NotCached::Filling
        | NotCached::Unfilled
        | NotCached::Draining
        | NotCached::Undiscovered
        | NotCached::NotInProtobuf => None,
    }
}

impl Cachers {
    /// Starts the configured resources, each in the preferred version of its group, and keeps them running.
    pub fn prewarm(&self) {
        let cachers = self.clone();
        self.shared.tasks.spawn("prewarm", async move {
            tokio::select! {
                () = cachers.keep_warm() => {}
                () = cachers.shared.tasks.token().cancelled() => {}
            }
        });
    }

    async fn keep_warm(&self) {
        let (mut config, mut told) = (self.shared.config.subscribe(), HashMap::new());
        let mut pause = FIRST;
        loop {
            let wanted = config.borrow_and_update().prewarm.clone();
            let looks = wanted.iter().map(|wanted| async move { (wanted.clone(), self.look(wanted).await) });
            let missing: HashMap<_, _> = join_all(looks).await.into_iter().collect();
            for (resource, missing) in &missing {
                if let Some(error) = missing
                    && told.get(resource) != Some(&Some(*error))
                {
                    tracing::warn!(%resource, error, "cannot cache a resource of cache.prewarm");
                }
            }
            told = missing;
            pause = match timeout(pause, config.changed()).await {
                Ok(_) => FIRST,
                Err(_) => EVERY,
            };
        }
    }

    /// Starts the resource unless it is running. Returns why it will not be cached, if that is known.
    async fn look(&self, wanted: &GroupResource) -> Option<&'static str> {
        match self.shared.upstream.preferred_version(&wanted.group).await {
            Ok(Some(version)) => {
                let resource = GroupVersionResource::new(&wanted.group, &version, &wanted.resource);
                self.find(&resource, Encoding::Json).err().and_then(missing)
            }
            Ok(None) => Some(NO_SUCH_GROUP),
            Err(error) => {
                tracing::warn!(resource = %wanted, error = %Chain(&error), "cannot look up a resource of cache.prewarm");
                None
            }
        }
    }
}
