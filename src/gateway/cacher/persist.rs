//! Writes the states of stores from time to time, so that a gateway that starts again goes on from them.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{cachers::Shared, entry::Entry, instance::Instance, store_key::StoreKey};
use crate::persist::StateFile;
use base::apimachinery::ResourceVersion;

/// How often the state of a store is written if it has moved on: more often than API servers forget changes.
const EVERY: Duration = Duration::from_secs(30);
/// The pause after writing a state is at least this many times what that took.
const PAUSE_TIMES: u32 = 19;

impl Shared {
    /// The file of a store; `None` if its state is not kept.
    pub(super) fn state_file(&self, key: &StoreKey) -> Option<StateFile> {
        let (group, resource) = (&*key.resource.group, &*key.resource.resource);
        // Nothing shows whether a definition that is not read has changed while no gateway was there. Groups of custom
        // resources have a dot in their names.
        let is_undefined = group.contains('.') && self.is_trusted(group);
        // All events of a lease are deleted at one version, within which a state is not whole. They are soon old, too.
        if is_undefined || resource == "events" {
            return None;
        }
        let is_secret = group.is_empty() && resource == "secrets";
        self.states.as_ref()?.file_of(key.to_string(), is_secret)
    }

    /// The store is gone, or not needed any more.
    pub(super) fn forget_state(&self, key: &StoreKey) {
        if let Some(file) = self.state_file(key) {
            file.remove();
        }
    }

    /// Writes the state of the store whenever it has moved on.
    pub(super) async fn persist(&self, entry: &Entry, key: &StoreKey) -> Infallible {
        let Some(file) = self.state_file(key) else { return pending().await };
        let (mut pause, mut written) = (EVERY, None::<(Weak<Instance>, ResourceVersion, Instant)>);
        loop {
            sleep(pause).await;
            // Looked at in its turn: by then the store may be doubted.
            let Some(_turn) = file.turn().await else { continue };
            let Some(instance) = entry.instance().ok().filter(is_sure) else { continue };
            let (state, Some(provenance)) = (instance.reader.snapshot(), instance.provenance().cloned()) else {
                continue;
            };
            let now = state.version();
            let is_young = |at: &Instant| at.elapsed() < file.written_again_after();
            let is_this = |of: &Weak<Instance>| Weak::ptr_eq(of, &Arc::downgrade(&instance));
            if written.as_ref().is_some_and(|(of, version, at)| is_this(of) && *version == now && is_young(at)) {
                continue;
            }
            let began = Instant::now();
            file.write(state, instance.reader.schema().clone(), provenance).await;
            written = Some((Arc::downgrade(&instance), now, began));
            pause = EVERY.max(began.elapsed() * PAUSE_TIMES);
        }
    }
}

/// Whether nothing is known that makes the store doubtful.
fn is_sure(instance: &Arc<Instance>) -> bool {
    instance.is_followed() && !instance.is_stale() && !instance.was_rolled_back()
}
