//! One change of one object: what happened, what was there before, and its frames.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::{object::Object, snapshot::Snapshot};
use crate::apimachinery::{Representation, ResourceVersion};

/// What upstream said of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// The different bytes that watchers of one change can receive (read-path 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Added,
    Modified,
    Deleted,
    /// It no longer matches the selector: DELETED with the previous content and the new version.
    Left,
}

/// A change and the state after it. Frames are made once and shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// Counts the changes of a store from 0, without gaps.
    pub number: u64,
    pub version: ResourceVersion,
    pub kind: ChangeKind,
    /// The new state; for a deletion the last state, with the version of the deletion.
    pub object: Arc<Object>,
    /// What the store held before.
    pub before: Option<Arc<Object>>,
    pub(super) after: Snapshot,
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

    /// Which frame a watcher gets, given whether the object matched before and matches now.
    pub fn frame_kind(&self, matched: impl Fn(&Object) -> bool) -> Option<FrameKind> {
        let before = self.before.as_deref().is_some_and(&matched);
        let now = self.kind != ChangeKind::Deleted && matched(&self.object);
        match (before, now) {
            (false, false) => None,
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
        self.object.tail().len() + COPIED_NODES
    }
}

impl From<ChangeKind> for FrameKind {
    fn from(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Added => Self::Added,
            ChangeKind::Modified => Self::Modified,
            ChangeKind::Deleted => Self::Deleted,
        }
    }
}
