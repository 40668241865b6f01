//! Turns the reports of a reflector into instances, wake-ups and metrics.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    NotCached,
    entry::{Entry, GivenUp},
    instance::{Instance, Resource},
};
use crate::persist::StateFile;
use engine::{
    encode::BookmarkTemplate,
    fanout::EndCause,
    reflector::{Bridged, Condition, Failure, Filled, Health, Loss, ReflectorEvents, Unbridged},
    store::{Change, ChangeKind, Object},
};

#[derive(Debug)]
pub(super) struct EventHandler {
    entry: Arc<Entry>,
    resource: Resource,
    /// What is kept of the store, if anything is.
    state_file: Option<StateFile>,
    instance: Option<Arc<Instance>>,
    /// Why upstream is not followed, as last logged; `None` while it is followed.
    failing: Option<Failure>,
    /// Since when upstream refuses the gateway's rights; `None` if it does not.
    denied_since: Option<Instant>,
}

/// How long rights may be missing before a filled store is given up: an API server that has just started refuses
/// everything until it has read its roles.
const DENIED_MAX: Duration = Duration::from_secs(60);

impl EventHandler {
    pub(super) fn new(entry: Arc<Entry>, resource: Resource, state_file: Option<StateFile>) -> Self {
        Self { entry, resource, state_file, instance: None, failing: None, denied_since: None }
    }

    fn kept_up(&mut self) {
        self.denied_since = None;
        if self.failing.take().is_some() {
            tracing::info!(resource = %self.resource.name(), "cache follows upstream again");
        }
    }

    /// Notes whether upstream refuses the gateway's rights.
    fn denied(&mut self, is_denied: bool) {
        let since = (is_denied && self.resource.is_given_up).then(|| self.denied_since.unwrap_or_else(Instant::now));
        self.denied_since = since;
        if since.is_some_and(|since| self.instance.is_none() || since.elapsed() >= DENIED_MAX) {
            self.entry.not_ready(NotCached::Forbidden);
            self.entry.give_up(GivenUp::Forbidden);
        }
    }

    /// Gives up the instance, which is no longer the resource's store.
    fn let_go(&mut self) {
        if let Some(instance) = self.instance.take() {
            self.resource.siblings.remove(&instance);
        }
    }
}

impl Drop for EventHandler {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl ReflectorEvents for EventHandler {
    fn health(&mut self, health: Health) {
        if health.is_followed() {
            self.kept_up();
        }
        match (&self.instance, health.condition) {
            (Some(instance), _) => instance.set_health(health),
            (None, Condition::Filling) => self.entry.not_ready(NotCached::Filling),
            // The task of the store ends it.
            (None, Condition::Unfilled)
                if self.denied_since.is_some() || matches!(self.failing, Some(Failure::OverBudget(_))) => {}
            (None, Condition::Unfilled) => self.entry.not_ready(NotCached::Unfilled),
            // The reason was set when the instance was lost.
            (None, Condition::Followed | Condition::Unfollowed { .. } | Condition::Gone) => {}
        }
    }

    fn filled(&mut self, filled: Filled, health: Health) {
        let source = filled.source.as_str();
        let instance = Arc::new(Instance::new(self.resource.clone(), filled, health));
        instance.observe();
        self.resource.metrics.set_epoch(health.epoch);
        self.resource.metrics.filled(source);
        self.resource.metrics.set_progress(instance.reader.progress());
        self.resource.siblings.add(&instance);
        self.let_go();
        self.instance = Some(instance.clone());
        tracing::info!(resource = %self.resource.name(), version = %instance.reader.progress(),
            objects = instance.reader.snapshot().len(), epoch = health.epoch, source, "cache filled");
        self.entry.ready(instance);
        self.kept_up();
    }

    fn bridged(&mut self, bridged: Bridged, health: Health) {
        let Some(instance) = self.instance.clone() else { return };
        let Bridged { from, to, changes, bookmark } = bridged;
        // The health must be set before watchers are woken, since bookmarks are only sent while the cache is followed.
        instance.set_health(health);
        changes.iter().for_each(|change| self.changed(change));
        if let Some(template) = bookmark {
            instance.record_bookmark(template);
        }
        self.resource.metrics.set_progress(to);
        self.resource.metrics.bridged("made");
        let gone = changes.iter().filter(|change| change.kind == ChangeKind::Gone).count();
        tracing::info!(resource = %self.resource.name(), %from, version = %to, changes = changes.len(), gone,
            watches = instance.hub.watchers(), "cache bridged; its watches continue");
        instance.hub.bridged();
        self.kept_up();
    }

    fn unbridged(&mut self, why: &Unbridged) {
        self.resource.metrics.bridged(why.as_str());
        if *why != Unbridged::Off {
            tracing::warn!(resource = %self.resource.name(), error = %why, "cache not bridged; its watches end");
        }
    }

    fn changed(&mut self, change: &Change) {
        let Some(instance) = &self.instance else { return };
        let field = instance.reader.schema().indexed_field();
        let value = |object: &Arc<Object>| field.map(|field| object.field(field).to_owned());
        let (before, after) = (change.before.as_ref().and_then(value), value(&change.object));
        instance.hub.announce(change, [before.as_deref(), after.as_deref()]);
        self.resource.metrics.set_progress(change.version);
    }

    fn bookmark(&mut self, template: BookmarkTemplate) {
        let Some(instance) = &self.instance else { return };
        instance.record_bookmark(template);
        self.resource.metrics.set_progress(instance.reader.progress());
    }

    fn lost(&mut self, loss: Loss) {
        let (why, cause) = match loss {
            Loss::Backwards => (NotCached::Filling, EndCause::Lost),
            Loss::Corrupt => (NotCached::Filling, EndCause::Corrupt),
            // What was sent before was correct.
            Loss::Inconsistent => (NotCached::Filling, EndCause::Relisted),
            Loss::Gone => (NotCached::UnknownResource, EndCause::Stopped),
            // The clients list again: at the same version they may have other objects than upstream.
            Loss::Replaced => (NotCached::UnknownResource, EndCause::Replaced),
        };
        tracing::warn!(resource = %self.resource.name(), error = %loss, "cache discarded");
        self.let_go();
        // A gateway that starts again must not go on from what is not believed.
        if let Some(file) = &self.state_file {
            file.remove();
        }
        self.entry.stop(why, cause);
    }

    fn unverified(&mut self, failure: Failure) {
        self.denied(failure == Failure::Denied);
    }

    fn restarting(&mut self, failure: Option<Failure>) {
        let cause = failure.map_or("ended", Failure::as_str);
        self.denied(failure == Some(Failure::Denied));
        if let Some(Failure::OverBudget(bytes)) = failure {
            self.failing = failure;
            // What is there cannot be brought to the new state either.
            self.entry.not_ready(NotCached::MemoryFull);
            self.entry.give_up(GivenUp::OverBudget(bytes));
        }
        self.resource.metrics.reflector_restarted(cause);
        // The first fill of a cache by list, because upstream has no watch-list, is not a restart.
        if self.instance.is_some() || failure != Some(Failure::Refused) {
            self.entry.restarted(cause);
        }
        tracing::debug!(resource = %self.resource.name(), cause, "reflector restarts");
        // These are normal: the cache is filled again, or in another way, or the resource is gone.
        let is_ordinary = |failure: &Failure| {
            matches!(failure, Failure::Expired | Failure::Refused | Failure::NotFound | Failure::OverBudget(_))
        };
        if let Some(error) = failure.filter(|failure| !is_ordinary(failure) && self.failing != Some(*failure)) {
            self.failing = Some(error);
            tracing::warn!(resource = %self.resource.name(), %error, "cache does not follow upstream; trying again");
        }
    }
}
