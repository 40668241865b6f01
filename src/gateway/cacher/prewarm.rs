//! Caches that are filled before their first request.

use std::{collections::HashMap, sync::PoisonError, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::{Cachers, NotCached, cachers::Shared, store_key::Prewarmed};
use base::{
    apimachinery::{Encoding, GroupResource, GroupVersionResource, ResourceRequest},
    telemetry::Chain,
};

/// How often resources to prewarm are checked, in order to start those that appear late or were gone for a while.
const EVERY: Duration = Duration::from_secs(30);

/// The delay after the first check: discovery has answered by then.
const FIRST: Duration = Duration::from_secs(2);

/// Shown for a name of `cache.prewarm` whose API group the API server does not have.
pub const NO_SUCH_GROUP: &str = "the API server has no such API group";
pub const NO_SUCH_RESOURCE: &str =
    "the API server has no such resource; write the plural name with its group, like deployments.apps";
pub const AGGREGATED: &str = "it is served by an aggregated API server, and such resources are not cached";
const UNATTRIBUTED: &str = "undiscovered: the gateway may not list apiservices (apiregistration.k8s.io), which say \
                           whether an aggregated API server serves it; grant it, or with a Role put the group in \
                           cache.trustedGroups";
const NOT_LOOKED_UP: &str = "undiscovered: its API group could not be looked up";
pub const NOT_WATCHABLE: &str = "the API server does not support list and watch for the resource";

/// Why a resource will not be cached, however long one waits: usually its name is misspelt, or a right is missing.
fn missing(why: NotCached) -> Option<&'static str> {
    match why {
        NotCached::UnknownResource => Some(NO_SUCH_RESOURCE),
        NotCached::NotWatchable => Some(NOT_WATCHABLE),
        NotCached::Aggregated => Some(AGGREGATED),
        NotCached::Unattributed => Some(UNATTRIBUTED),
        NotCached::Forbidden => Some(
            "the gateway may not list and watch it there; grant it, or name the namespaces where it may \
             ({resource: ..., namespaces: [...]})",
        ),
        NotCached::TooManyResources => Some("the gateway already caches the maximum number of resources"),
        NotCached::MemoryFull => Some("it does not fit into the memory for caches; raise cache.bytes"),
        NotCached::Excluded
        | NotCached::Filling
        | NotCached::Unfilled
        | NotCached::Draining
        | NotCached::Undiscovered
        | NotCached::TooManyScopes
        | NotCached::SingleObject
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
        let mut config = self.shared.config.subscribe();
        let mut pause = FIRST;
        loop {
            let wanted = config.borrow_and_update().prewarm.clone();
            let began = Instant::now();
            let looks = wanted.iter().map(|wanted| async move { (wanted.clone(), self.warm(wanted).await) });
            let missing: HashMap<_, _> = join_all(looks).await.into_iter().collect();
            self.shared.note_missing(missing);
            let is_changed = tokio::select! {
                changed = timeout(pause, config.changed()) => changed.is_ok(),
                () = self.shared.upstream.recovered_since(began) => true,
            };
            // These caches wait for upstream, and asking one that cannot be reached costs it nothing.
            pause = if is_changed || self.shared.upstream.is_unreachable() { FIRST } else { EVERY };
        }
    }

    /// Starts a store unless there is one that covers it. Returns why there will be none, if that is known.
    async fn warm(&self, wanted: &Prewarmed) -> Option<&'static str> {
        if self.shared.has(wanted) {
            return None;
        }
        let GroupResource { group, resource } = &wanted.resource;
        match self.shared.upstream.preferred_version(group).await {
            Ok(Some(version)) => {
                let target = ResourceRequest {
                    resource: GroupVersionResource::new(group, &version, resource),
                    namespace: wanted.scope.namespace.as_deref().map(str::to_owned),
                    name: None,
                    subresource: None,
                    watch_path: false,
                };
                self.find(&target, None, Encoding::Json).err().and_then(missing)
            }
            Ok(None) => Some(NO_SUCH_GROUP),
            Err(error) => {
                // That upstream accepts no connections is logged where it is found out.
                if !error.is_refused_connection() {
                    let error = Chain(&error);
                    tracing::warn!(resource = %wanted.resource, %error, "cannot look up a resource of cache.prewarm");
                }
                Some(NOT_LOOKED_UP)
            }
        }
    }
}

impl Shared {
    /// Keeps why resources are missing, and tells the log of what is new.
    fn note_missing(&self, missing: HashMap<Prewarmed, Option<&'static str>>) {
        let missing: HashMap<_, _> = missing.into_iter().filter_map(|(wanted, why)| Some((wanted, why?))).collect();
        let mut known = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        for (wanted, error) in &missing {
            if *error != NOT_LOOKED_UP && known.get(wanted) != Some(error) {
                tracing::warn!(resource = %wanted, error, "cannot cache a resource of cache.prewarm");
            }
        }
        *known = missing;
    }
}
