//! One change of one object: its kind, the state before and after it, and its frames.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::{history::Gap, object::Object, snapshot::Snapshot};
use base::apimachinery::{Representation, ResourceVersion};

/// What upstream reported about the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    /// The object no longer exists, but upstream did not report its deletion, because it happened within a bridged gap.
    Gone,
    /// The labels or selectable fields of the object changed within a bridged gap. Watchers whose selector the object
    /// left by that are notified first, since it may have left the selector long before its current version. The
    /// current state follows as a separate change.
    Reselected,
}

/// The different frames that watchers of one change can receive (read-path 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Added,
    Modified,
    Deleted,
    /// The object no longer matches the selector, or disappeared within a gap: DELETED with the previous content and
    /// the version of the change.
    Left,
}

/// A change and the state after it. Frames are made once and shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// The position of the change in its store: counted from [`super::FIRST_CHANGE`], without gaps.
    pub number: u64,
    /// The version of `object`. For [`ChangeKind::Gone`] and [`ChangeKind::Reselected`], the last version before the
    /// gap.
    pub version: ResourceVersion,
    pub kind: ChangeKind,
    /// The new state of the object. For a deletion: the last state, with the version of the deletion.
    pub object: Arc<Object>,
    /// The object that the store held before, if any.
    pub before: Option<Arc<Object>>,
    pub(super) after: Snapshot,
    /// The gap that was bridged by this change and others.
    pub(super) gap: Option<Gap>,
    /// Compressed bytes that are kept for `before` alone: of the block that it was in.
    pub(super) pinned: u32,
    pub(super) frames: [OnceLock<Bytes>; 4],
    /// Frames in representations other than the store's own.
    pub(super) frames_in: Mutex<Vec<(Representation, FrameKind, Bytes)>>,
}

impl Change {
    /// The frame of that kind, made by `encode` on the first call.
    pub fn frame(&self, kind: FrameKind, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.frames[kind as usize].get_or_init(|| encode(self)).clone()
    }

    /// The frame in a representation other than the store's own, made by `encode` on the first call. Errors are not
    /// kept.
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

    /// The gap that was bridged by this change and others; `None` for a change that upstream reported.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// The lowest version at which every client knows of the change. A client at a version within a gap may have seen
    /// any part of what happened in the gap.
    pub fn known_at(&self) -> ResourceVersion {
        self.gap.map_or(self.version, |gap| gap.to)
    }

    /// The kind of frame that a watcher gets, given which objects match its selector; `None` if the watcher gets none.
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

    /// The memory that this change takes besides the newest state, in bytes: the object's bytes and the copied nodes.
    pub(super) fn bytes(&self) -> usize {
        // The changes of one bridge share the state after it.
        let bytes = if self.gap.is_some() { self.object.tail_len() } else { Self::bytes_of(&self.object) };
        bytes + self.pinned as usize
    }

    /// The compressed bytes that history keeps for the object that a change replaces, unless an earlier change does.
    pub(super) fn pinned_for(before: Option<&Arc<Object>>) -> u32 {
        let pinned = before.and_then(|before| before.block()).map_or(0, |block| block.pin());
        u32::try_from(pinned).unwrap_or(u32::MAX)
    }

    /// The same for a change to that object.
    pub(super) fn bytes_of(object: &Object) -> usize {
        /// An estimate for the pointers of the leaf that the change copied, and for the tree nodes above it.
        const COPIED_NODES: usize = 4096;
        object.tail_len() + object.unusual_bytes() + COPIED_NODES
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
