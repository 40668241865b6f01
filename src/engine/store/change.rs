//! One change of one object: its kind, the state before and after it, and its frames.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

use super::{budget::StoreBudget, history::Gap, object::Object, snapshot::Snapshot};
use base::apimachinery::{Encoding, Representation, ResourceVersion, View};

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

impl FrameKind {
    /// The type of the event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted | Self::Left => "DELETED",
        }
    }
}

/// A change. Frames are made once and shared by all watchers, until nothing but them keeps the text of
/// the object.
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
    /// The gap that was bridged by this change and others.
    pub(super) gap: Option<Gap>,
    /// Compressed bytes that are kept for `before` alone: of the block that it was in.
    pub(super) pinned: u32,
    /// Whether compressing its objects was not worth it.
    is_tried: AtomicBool,
    /// Few, and usually only upstream's own.
    frames: Mutex<Vec<Frame>>,
    copies: FrameCopies,
}

#[derive(Debug)]
struct Frame {
    form: Representation,
    kind: FrameKind,
    bytes: Bytes,
    /// `None` if it is upstream's own, which shares the text of the object.
    counted: Option<FrameCopies>,
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(copies) = &self.counted {
            copies.0.bytes.fetch_sub(self.bytes.len(), Relaxed);
        }
    }
}

/// The frames that the changes of a store keep and that share no text of its objects. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameCopies(Arc<Copies>);

#[derive(Debug, Default)]
struct Copies {
    bytes: AtomicUsize,
    budget: StoreBudget,
}

impl FrameCopies {
    pub(super) fn within(budget: StoreBudget) -> Self {
        Self(Arc::new(Copies { bytes: AtomicUsize::default(), budget }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes.load(Relaxed)
    }

    /// Counts a frame for as long as it has what is returned.
    fn count(&self, frame: &Bytes) -> Self {
        self.0.budget.charge(frame.len());
        self.0.bytes.fetch_add(frame.len(), Relaxed);
        self.clone()
    }
}

impl Change {
    pub(super) fn new(
        number: u64,
        (version, kind): (ResourceVersion, ChangeKind),
        object: Arc<Object>,
        copies: FrameCopies,
    ) -> Self {
        let (before, gap, pinned, is_tried, frames) = Default::default();
        Self { number, version, kind, object, before, gap, pinned, is_tried, frames, copies }
    }

    /// The same, of an object that the store held.
    pub(super) fn replacing(self, before: Option<Arc<Object>>) -> Self {
        let pinned = before.as_ref().and_then(|before| before.block()).map_or(0, |block| block.pin());
        Self { before, pinned: u32::try_from(pinned).unwrap_or(u32::MAX), ..self }
    }

    /// The same, with the event as upstream framed it.
    pub(super) fn framed(self, encoding: Encoding, line: Bytes) -> Self {
        let own = Representation { encoding, view: View::Whole };
        let frame = Frame { form: own, kind: self.kind.into(), bytes: line, counted: None };
        Self { frames: Mutex::new(vec![frame]), ..self }
    }

    /// The same, for a change that was found when a gap was bridged.
    pub(super) fn within(self, gap: Gap) -> Self {
        Self { gap: Some(gap), ..self }
    }

    /// The frame in that representation, made by `encode` on the first call. Errors are not kept.
    pub fn frame<E>(
        &self,
        form: Representation,
        kind: FrameKind,
        encode: impl FnOnce(&Self) -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut frames = self.lock();
        if let Some(frame) = frames.iter().find(|frame| (frame.form, frame.kind) == (form, kind)) {
            return Ok(frame.bytes.clone());
        }
        let bytes = encode(self)?;
        frames.reserve_exact(1);
        frames.push(Frame { form, kind, bytes: bytes.clone(), counted: Some(self.copies.count(&bytes)) });
        Ok(bytes)
    }

    /// Its objects that are to be compressed, because they are text, or alone in a block that its other objects have
    /// left. `newest` are those that are compressed with their neighbours.
    pub(super) fn past_objects(&self, newest: &Snapshot) -> impl Iterator<Item = &Arc<Object>> {
        let is_tried = self.is_tried.load(Relaxed);
        let is_newest =
            |object: &Arc<Object>| newest.get(object.key.as_str()).is_some_and(|newest| Arc::ptr_eq(newest, object));
        let is_past = move |object: &&Arc<Object>| {
            !is_tried && object.block().is_none_or(|block| block.is_retired()) && !is_newest(object)
        };
        self.before.iter().chain([&self.object]).filter(is_past)
    }

    /// Notes that its objects take hardly less if they are compressed.
    pub(super) fn stays_text(&self) {
        self.is_tried.store(true, Relaxed);
    }

    /// Drops the frames, which are made again for watchers that come later, but upstream's own while it shares the
    /// object's text. Returns whether there were any.
    pub(super) fn forget_frames(&self) -> bool {
        let is_compressed = self.object.is_compressed();
        let is_given_up = |frame: &mut Frame| is_compressed || frame.counted.is_some();
        let forgotten: Vec<_> = self.lock().extract_if(.., is_given_up).collect();
        !forgotten.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the state after the change of the one before it, and returns the object that it replaces.
    pub(super) fn apply_to(&self, state: &mut Snapshot) -> Option<Arc<Object>> {
        match self.kind {
            ChangeKind::Added | ChangeKind::Modified => state.insert(self.object.clone()),
            ChangeKind::Deleted | ChangeKind::Gone => state.remove(&self.object.key),
            ChangeKind::Reselected => None,
        }
    }

    /// The object that the frame of that kind has.
    pub fn source(&self, kind: FrameKind) -> &Arc<Object> {
        match kind {
            FrameKind::Left => self.before.as_ref().unwrap_or(&self.object),
            FrameKind::Added | FrameKind::Modified | FrameKind::Deleted => &self.object,
        }
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

    /// The memory that this change takes besides the newest state, in bytes. Less once its objects are compressed.
    pub(super) fn bytes(&self) -> usize {
        let pinned = self.before.as_ref().and_then(|before| before.block()).filter(|block| block.is_pinned());
        let text = self.object.tail_len() - self.object.kept_bytes();
        Self::bytes_of(&self.object) - text + pinned.map_or(0, |_| self.pinned as usize)
    }

    /// The same for a change to that object, when it is new.
    pub(super) fn bytes_of(object: &Object) -> usize {
        object.tail_len() + object.unusual_bytes() + Self::OWN_BYTES
    }

    /// An estimate of what a change takes besides the bytes of its object: itself, the object's key and places, and its
    /// part of the states that history keeps.
    pub(super) const OWN_BYTES: usize = 768;
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
