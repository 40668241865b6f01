//! What a reflector says becomes instances, wake-ups and metrics here.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    NotCached,
    entry::Entry,
    instance::{Instance, Resource},
};
use crate::{
    encode::BookmarkTemplate,
    fanout::EndCause,
    reflector::{Failure, Filled, Loss, Sink},
    store::{Change, Object},
};

#[derive(Debug)]
pub(super) struct CacherSink {
    entry: Arc<Entry>,
    resource: Resource,
    instance: Option<Arc<Instance>>,
    /// When upstream last told something.
    heard: Instant,
    /// Counts the fills: 1 for the first.
    epoch: u64,
    /// Why upstream is not followed, as it was logged last. `None` while it is.
    failing: Option<Failure>,
}

impl CacherSink {
    pub(super) fn new(entry: Arc<Entry>, resource: Resource) -> Self {
        Self { entry, resource, instance: None, heard: Instant::now(), epoch: 0, failing: None }
    }
}

impl Sink for CacherSink {
    fn filling(&mut self) {
        self.entry.not_ready(NotCached::Filling);
    }

    fn pausing(&mut self) {
        self.entry.not_ready(NotCached::Unfilled);
    }

    fn filled(&mut self, filled: Filled) {
        let instance = Arc::new(Instance::new(self.resource.clone(), filled));
        instance.observe();
        self.epoch += 1;
        self.resource.metrics.set_epoch(self.epoch);
        self.resource.metrics.set_progress(instance.reader.progress());
        self.instance = Some(instance.clone());
        tracing::info!(resource = %instance.resource, version = %instance.reader.progress(),
            objects = instance.reader.snapshot().len(), epoch = self.epoch, "cache filled");
        self.entry.ready(instance);
    }

    fn changed(&mut self, change: &Change) {
        let Some(instance) = &self.instance else { return };
        self.heard = Instant::now();
        let field = instance.reader.schema().indexed_field();
        let value = |object: &Arc<Object>| field.map(|field| object.field(field).to_owned());
        let (before, after) = (change.before.as_ref().and_then(value), value(&change.object));
        instance.hub.announce(change, [before.as_deref(), after.as_deref()]);
        self.resource.metrics.set_progress(change.version);
    }

    fn bookmark(&mut self, template: BookmarkTemplate) {
        let Some(instance) = &self.instance else { return };
        self.heard = Instant::now();
        instance.record_bookmark(template);
        self.resource.metrics.set_progress(instance.reader.progress());
    }

    fn lost(&mut self, loss: Loss) {
        let (why, cause) = match loss {
            Loss::Backwards => (NotCached::Filling, EndCause::Lost),
            Loss::Corrupt => (NotCached::Filling, EndCause::Corrupt),
            // What came before was right.
            Loss::Inconsistent => (NotCached::Filling, EndCause::Relisted),
            Loss::Gone => (NotCached::UnknownResource, EndCause::Stopped),
        };
        tracing::warn!(resource = %self.resource.resource, ?loss, "cache given up");
        self.instance = None;
        self.entry.stop(why, cause);
    }

    fn restarting(&mut self, failure: Option<Failure>) {
        let cause = failure.map_or("ended", Failure::as_str);
        self.resource.metrics.reflector_restarted(cause);
        tracing::debug!(resource = %self.resource.resource, cause, "reflector restarts");
        // These are ordinary: the cache is filled anew, or in another way, or the resource is gone.
        let is_ordinary =
            |failure: &Failure| matches!(failure, Failure::Expired | Failure::Refused | Failure::NotFound);
        if let Some(error) = failure.filter(|failure| !is_ordinary(failure) && self.failing != Some(*failure)) {
            self.failing = Some(error);
            tracing::warn!(resource = %self.resource.resource, %error, "cache not kept up, trying again");
        }
        let Some(instance) = &self.instance else { return };
        // A watch that ends, however, was there until now; of one that is silent that is not known.
        if !matches!(failure, Some(Failure::Silent | Failure::Stuck)) {
            self.heard = Instant::now();
        }
        instance.unfollowed(self.heard);
    }

    fn watch_list_works(&mut self) {
        if let Some(instance) = &self.instance {
            instance.set_watch_list();
        }
    }

    fn following(&mut self) {
        self.heard = Instant::now();
        if self.failing.take().is_some() {
            tracing::info!(resource = %self.resource.resource, "cache kept up again");
        }
        if let Some(instance) = &self.instance {
            instance.following();
        }
    }
}
