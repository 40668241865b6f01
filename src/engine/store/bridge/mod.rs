//! The difference between two states as changes, for when upstream no longer has the changes between them
//! (the manual's chapter `consistency`, "The bridge").

#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use super::{
    block::Thaw,
    change::{Change, ChangeKind},
    history::{Gap, HistoryLimits},
    object::Object,
    snapshot::Snapshot,
};
use base::apimachinery::{ObjectKey, ResourceVersion};

/// Why a later state cannot be expressed as changes of the earlier one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBridged {
    /// The new state is older than the version that the store had reached.
    #[error("version {to} is older than version {from}, which the cache had reached")]
    Backwards { from: ResourceVersion, to: ResourceVersion },
    /// The two states cannot be from the same history: upstream's storage was restored, or another program writes it.
    #[error("the old and the new state of {0} contradict each other: upstream's storage was restored or replaced")]
    Contradiction(ObjectKey),
    /// More changes than history holds: a watcher could not read all of them from there.
    #[error("{changes} changes of {bytes} bytes exceed the cache's history")]
    TooLarge { changes: usize, bytes: usize },
}

/// The changes of a bridge, in the order in which watchers are sent them. Pure: computed from two states, published by
/// [`super::Writer::bridge`].
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Objects that no longer exist, with their last content, in the order of their keys.
    pub(super) gone: Vec<Arc<Object>>,
    /// New and changed objects, in the order of their versions.
    pub(super) come: Vec<Come>,
}

/// A new or changed object.
#[derive(Debug)]
pub(super) struct Come {
    pub(super) now: Arc<Object>,
    pub(super) before: Option<Arc<Object>>,
}

impl Come {
    pub(super) fn kind(&self) -> ChangeKind {
        if self.before.is_some() { ChangeKind::Modified } else { ChangeKind::Added }
    }

    /// Whether a selector may have selected the old object and not the new one.
    pub(super) fn is_reselected(&self) -> bool {
        self.before.as_ref().is_some_and(|before| !before.is_selected_like(&self.now))
    }
}

impl Difference {
    /// The difference between `old` and a state at version `to`, whose objects are in the order of their keys.
    pub(super) fn between(old: &Snapshot, new: &[Arc<Object>], to: ResourceVersion) -> Result<Self, NotBridged> {
        let gap = Gap { from: old.version(), to };
        Self::default().follows(gap)?;
        let (mut difference, mut new, mut thaw) = (Self::default(), new.iter().peekable(), Thaw::default());
        let mut old = old.leaves().flat_map(|leaf| leaf.objects()).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(&new.key),
            };
            let before = if order.is_le() { old.next() } else { None };
            before.inspect(|before| before.thaw(&mut thaw));
            let now = if order.is_ge() { new.next() } else { None };
            difference.add(before, now, to)?;
        }
        difference.in_order(gap)
    }

    /// The same, where only the objects are given that may differ; `None`: gone.
    pub(super) fn of_changed(
        old: &Snapshot,
        changed: &BTreeMap<ObjectKey, Option<Arc<Object>>>,
        to: ResourceVersion,
    ) -> Result<Self, NotBridged> {
        let gap = Gap { from: old.version(), to };
        Self::default().follows(gap)?;
        let (mut difference, mut thaw) = (Self::default(), Thaw::default());
        for (key, now) in changed {
            let before = old.get(key.as_str());
            before.inspect(|before| before.thaw(&mut thaw));
            difference.add(before, now.as_ref(), to)?;
        }
        difference.in_order(gap)
    }

    fn in_order(mut self, gap: Gap) -> Result<Self, NotBridged> {
        self.come.sort_by_key(|come| come.now.version);
        self.follows(gap)?;
        Ok(self)
    }

    fn add(
        &mut self,
        before: Option<&Arc<Object>>,
        now: Option<&Arc<Object>>,
        to: ResourceVersion,
    ) -> Result<(), NotBridged> {
        let impossible = |object: &Object| Err(NotBridged::Contradiction(object.key.clone()));
        match (before, now) {
            (Some(before), Some(now)) if before.version == now.version && before.tail() == now.tail() => {}
            (Some(before), Some(now)) if before.version >= now.version => return impossible(now),
            (_, Some(now)) if now.version > to => return impossible(now),
            (Some(before), Some(now)) if before.uid() == now.uid() => {
                self.come.push(Come { now: now.clone(), before: Some(before.clone()) });
            }
            // Deleted, and created again under the same name.
            (before, now) => {
                self.gone.extend(before.cloned());
                self.come.extend(now.map(|now| Come { now: now.clone(), before: None }));
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.gone.len() + self.come.len() + self.come.iter().filter(|come| come.is_reselected()).count()
    }

    /// Refuses what would push itself out of history.
    pub(super) fn within(&self, limits: HistoryLimits) -> Result<(), NotBridged> {
        let reselected = self.come.iter().filter(|come| come.is_reselected());
        let objects = self.gone.iter().chain(self.come.iter().chain(reselected).map(|come| &come.now));
        let (changes, bytes) = (self.len(), objects.map(|object| Change::bytes_of(object)).sum());
        let fits = changes <= HistoryLimits::COUNT_MIN || changes <= HistoryLimits::COUNT_MAX && bytes <= limits.bytes;
        if fits { Ok(()) } else { Err(NotBridged::TooLarge { changes, bytes }) }
    }

    /// Refuses what cannot have happened within the gap.
    pub(super) fn follows(&self, gap: Gap) -> Result<(), NotBridged> {
        let Gap { from, to } = gap;
        if to < from {
            return Err(NotBridged::Backwards { from, to });
        }
        let too_early = self.come.first().map(|come| &come.now).filter(|now| now.version <= from);
        match too_early.or(self.gone.first().filter(|_| from == to)) {
            Some(impossible) => Err(NotBridged::Contradiction(impossible.key.clone())),
            None => Ok(()),
        }
    }

    /// The state after the bridge; `old` is the state before it.
    pub(super) fn apply(&self, old: &Snapshot, to: ResourceVersion) -> Snapshot {
        let mut state = old.clone();
        for gone in &self.gone {
            state.remove(&gone.key);
        }
        for come in &self.come {
            state.insert(come.now.clone());
        }
        state.at(to)
    }

    /// Objects that are part of the state no more.
    pub(super) fn replaced(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.gone.iter().chain(self.come.iter().filter_map(|come| come.before.as_ref()))
    }
}
