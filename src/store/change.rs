//! One change of one object: what happened, what was there before, and its frames.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::{bridge::Gap, object::Object, snapshot::Snapshot};
use crate::apimachinery::{Representation, ResourceVersion};

/// What upstream said of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    /// It is not there any more, and upstream did not tell of its deletion: that lies in a gap that was bridged.
    Gone,
    /// What it is selected by has changed in such a gap: who loses it by that is told so first, for it may have left the selector
    /// long before the version that it has now. What it is now follows as a change of its own.
    Reselected,
}

/// The different bytes that watchers of one change can receive (read-path 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Added,
    Modified,
    Deleted,
    /// It no longer matches the selector, or is gone without a word from upstream: DELETED with the previous content and the
    /// version of the change.
    Left,
}

/// A change and the state after it. Frames are made once and shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// Counts the changes of a store from 0, without gaps.
    pub number: u64,
    /// The object's own; where it was lost in a gap, the last version at which it is known to have been there.
    pub version: ResourceVersion,
    pub kind: ChangeKind,
    /// The new state; for a deletion the last state, with the version of the deletion.
    pub object: Arc<Object>,
    /// What the store held before.
    pub before: Option<Arc<Object>>,
    pub(super) after: Snapshot,
    /// What was bridged by this change and others.
    pub(super) gap: Option<Gap>,
    pub(super) frames: [OnceLock<Bytes>; 4],
    /// Frames in other forms than the store's own.
    pub(super) frames_in: Mutex<Vec<(Representation, FrameKind, Bytes)>>,
}

impl Change {
    /// The frame of that kind, made by `encode` when it is first asked for.
    pub fn frame(&self, kind: FrameKind, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.frames[kind as usize].get_or_init(|| encode(self)).clone()
    }

    /// The same in another form than the store's own; a failure is not kept.
    pub fn frame_in<E>(
        &self,
        form: Representation,
        kind: FrameKind,
        encode: impl FnOnce(&Self) -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut frames = self.frames_in.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., frame)) = frames.iter().find(|(known, made, _)| (*known, *made) == (form, kind)) {
            return Ok(frame.clone());
        }
        let frame = encode(self)?;
        frames.push((form, kind, frame.clone()));
        Ok(frame)
    }

    /// What was bridged by this change and others, if it is not one that upstream told.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// The lowest version at which every client knows of the change. One that knows a version within a gap may have been told
    /// anything of what lies in it.
    pub fn known_at(&self) -> ResourceVersion {
        self.gap.map_or(self.version, |gap| gap.to)
    }

    /// Which frame a watcher gets, given whether the object matched before and matches now.
    pub fn frame_kind(&self, matched: impl Fn(&Object) -> bool) -> Option<FrameKind> {
        let before = self.before.as_deref().is_some_and(&matched);
        let now = !matches!(self.kind, ChangeKind::Deleted | ChangeKind::Gone) && matched(&self.object);
        match (before, now) {
            (false, false) => None,
            (true, false) if self.kind == ChangeKind::Modified && self.gap.is_some() => None,
            (_, true) if self.kind == ChangeKind::Reselected => None,
            (false, true) => Some(FrameKind::Added),
            (true, true) => Some(FrameKind::Modified),
            (true, false) if self.kind == ChangeKind::Deleted => Some(FrameKind::Deleted),
            (true, false) => Some(FrameKind::Left),
        }
    }

    /// What keeping this change costs beside the newest state: previous bytes, its frame, copied nodes.
    pub(super) fn bytes(&self) -> usize {
        /// A leaf's pointers and the nodes above it, copied by the change.
        const COPIED_NODES: usize = 4096;
        // Those of a bridge share the state behind it.
        let copied = if self.gap.is_some() { 0 } else { COPIED_NODES };
        self.object.tail().len() + copied
    }
}

impl From<ChangeKind> for FrameKind {
    fn from(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Added => Self::Added,
            ChangeKind::Modified => Self::Modified,
            ChangeKind::Deleted => Self::Deleted,
            ChangeKind::Gone | ChangeKind::Reselected => Self::Left,
        }
    }
}
