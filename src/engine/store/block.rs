//! Objects that are kept compressed: the text of neighbours in one block, inflated when one of them is read.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

use super::budget::StoreBudget;
use base::apimachinery::Representation;

/// What separates items, in front of the text of each block: an uncompressed `,`.
pub const SEPARATOR_BLOCK: [u8; 6] = [0x00, 1, 0, 0xfe, 0xff, b','];
/// A final block without content (RFC 1951).
pub const FINAL_BLOCK: [u8; 2] = [0x03, 0x00];
/// More bytes of text than this cannot be in a byte of deflate (RFC 1951: 258 bytes in two bits).
const DEFLATE_RATIO_MAX: usize = 1032;

/// Compressed bytes that can become part of any gzip member.
#[derive(Clone, Debug)]
pub struct Deflated {
    /// Raw deflate blocks (RFC 1951) that refer to nothing before them. None of them is final, and the last one ends on
    /// a byte boundary.
    pub blocks: Bytes,
    /// CRC-32 of the uncompressed bytes.
    pub checksum: u32,
    /// The number of uncompressed bytes.
    pub length: u64,
}

/// Items as lists have them, compressed: those of one leaf, of which gzip lists send the very same bytes, or some of
/// history.
///
/// The text consists of parts, so that a reader of one object inflates only the part that has it. What is inflated is
/// shared by all readers. For one that asks for a single object it is kept until none has asked from one
/// [`Reader::sweep`](super::Reader::sweep) to the next; for one that reads whole blocks in turn (a [`Thaw`]) only if
/// something had been inflated since the last sweep already.
pub struct Block {
    deflated: Deflated,
    /// The representation of the items.
    form: Representation,
    /// The ends of the parts. The first one begins behind what separates items.
    parts: Box<[PartEnd]>,
    /// The position in the compressed bytes at which the first part begins.
    prefix: usize,
    text: Mutex<Text>,
    /// For the text.
    budget: StoreBudget,
    /// Whether a change in history is counted as keeping the block.
    is_pinned: AtomicBool,
}

/// Where a part of a block ends, which refers to nothing outside of itself.
#[derive(Clone, Copy, Debug)]
pub struct PartEnd {
    /// The position in the text.
    pub text: usize,
    /// The position in the compressed bytes.
    pub packed: usize,
}

#[derive(Debug, Default)]
struct Text {
    /// The parts that are inflated. Empty if none is.
    kept: Vec<(usize, Bytes)>,
    /// Whether a single object was read since the last sweep.
    is_asked: bool,
    /// Whether something was inflated since the last sweep.
    is_recent: bool,
    /// How many [`Thaw`]s read the block now.
    readers: usize,
    /// Whether the newest objects are in another block. Then [`Block::sweep`] is not called any more.
    is_retired: bool,
}

impl Block {
    /// A block of the text that is compressed in `deflated` behind the first `prefix` bytes of its blocks.
    pub fn new(
        form: Representation,
        deflated: Deflated,
        prefix: usize,
        parts: Vec<PartEnd>,
        budget: StoreBudget,
    ) -> Self {
        let (text, is_pinned) = Default::default();
        Self { deflated, form, parts: parts.into(), prefix, text, budget, is_pinned }
    }

    /// Notes that a change in history keeps the block. Returns its compressed bytes, or 0 if an earlier change does.
    pub(super) fn pin(&self) -> usize {
        if self.is_pinned.swap(true, Relaxed) { 0 } else { self.packed_len() }
    }

    /// Whether [`Self::pin`] was called.
    pub(super) fn is_pinned(&self) -> bool {
        self.is_pinned.load(Relaxed)
    }

    /// What that many bytes of the text take compressed.
    pub(super) fn share_of(&self, length: usize) -> usize {
        let share = (length as u64).saturating_mul(self.packed_len() as u64) / self.deflated.length.max(1);
        usize::try_from(share).map_or(length, |share| share.min(length))
    }

    /// Notes that the newest objects were moved into another block. The text is kept no longer than it is being read.
    pub(super) fn retire(&self) {
        let mut text = self.lock();
        text.is_retired = true;
        if text.readers == 0 {
            text.kept = Vec::new();
        }
    }

    /// Whether the newest objects are in another block.
    pub(super) fn is_retired(&self) -> bool {
        self.lock().is_retired
    }

    /// The items compressed for lists in that representation, if the block has that.
    pub(super) fn deflated(&self, form: Representation) -> Option<&Deflated> {
        (self.form == form).then_some(&self.deflated)
    }

    /// All items compressed.
    pub(super) fn all(&self) -> &Deflated {
        &self.deflated
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &PartEnd> {
        self.parts.iter()
    }

    /// The position in the compressed bytes at which the first part begins.
    pub(super) fn prefix(&self) -> usize {
        self.prefix
    }

    /// Whether one part of the text has all of these positions.
    pub(super) fn has_part_with(&self, at: &Range<usize>) -> bool {
        self.parts.iter().find(|end| end.text > at.start).is_some_and(|end| at.end <= end.text)
    }

    /// The number of bytes of the text.
    pub fn text_len(&self) -> u64 {
        self.deflated.length
    }

    /// The number of compressed bytes.
    pub fn packed_len(&self) -> usize {
        self.deflated.blocks.len()
    }

    /// The number of bytes of inflated text that are kept now.
    pub(super) fn kept(&self) -> usize {
        self.lock().kept.iter().map(|(_, part)| part.len()).sum()
    }

    /// The bytes of the text at those positions, which lie within one part. Inflating takes about a millisecond for
    /// each half megabyte of the part; others that want something of the same block wait for it.
    pub(super) fn text(&self, at: Range<usize>) -> Bytes {
        let number = self.parts.partition_point(|end| end.text <= at.start);
        let begins = number.checked_sub(1).map_or(0, |before| self.parts[before].text);
        let within = at.start - begins..at.end - begins;
        let mut text = self.lock();
        let is_single = text.readers == 0;
        text.is_asked |= is_single;
        if let Some((_, part)) = text.kept.iter().find(|(kept, _)| *kept == number) {
            return part.slice(within);
        }
        let part = self.inflate(number);
        text.is_recent = true;
        // A reader of whole blocks drops it soon, and is one of a bounded number.
        if !is_single || !text.is_retired && self.budget.take(part.len()) {
            text.kept.push((number, part.clone()));
        }
        part.slice(within)
    }

    /// Drops the text if no single object was read since the last call.
    pub(super) fn sweep(&self) {
        let mut text = self.lock();
        text.is_recent = false;
        if !std::mem::take(&mut text.is_asked) && text.readers == 0 {
            text.kept = Vec::new();
        }
    }

    fn inflate(&self, part: usize) -> Bytes {
        let begins = part.checked_sub(1).map_or(PartEnd { text: 0, packed: self.prefix }, |before| self.parts[before]);
        let ends = self.parts[part];
        let (packed, length) = (&self.deflated.blocks[begins.packed..ends.packed], ends.text - begins.text);
        let mut text = Vec::with_capacity(length);
        let inflated = Decompress::new(false).decompress_vec(packed, &mut text, FlushDecompress::Sync);
        inflated.expect("the block was compressed here, or verified");
        assert_eq!(text.len(), length, "the block has its text");
        text.into()
    }

    /// The whole text, if it is what the block says of it, and if the blocks can become part of a gzip member; nothing
    /// of it is kept. Must be called for a block that another process has made, before anything of it is read or sent.
    pub fn verified_text(&self) -> Option<Vec<u8>> {
        let Deflated { blocks, checksum, length } = &self.deflated;
        let is_prefix = *blocks.get(..self.prefix)? == SEPARATOR_BLOCK;
        let (mut text, mut begins) = (Vec::new(), PartEnd { text: 0, packed: self.prefix });
        for ends in &self.parts {
            let packed = blocks.get(begins.packed..ends.packed)?;
            text.extend_from_slice(&inflated(packed, ends.text - begins.text)?);
            begins = *ends;
        }
        let is_whole = begins.packed == blocks.len() && text.len() as u64 == *length;
        (is_prefix && is_whole && crc32fast::hash(&text) == *checksum).then_some(text)
    }

    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of whole blocks that end on a byte boundary, of which none is final; `None` if they are not, or have
/// another length.
fn inflated(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    if length / DEFLATE_RATIO_MAX > packed.len() {
        return None;
    }
    // Behind a block that is not whole there is no final one.
    let packed = [packed, &FINAL_BLOCK].concat();
    let (mut text, mut inflater) = (Vec::with_capacity(length + 1), Decompress::new(false));
    let status = inflater.decompress_vec(&packed, &mut text, FlushDecompress::Finish).ok()?;
    let is_whole = text.len() == length && inflater.total_in() == packed.len() as u64;
    (is_whole && status == Status::StreamEnd).then_some(text)
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Block").field("bytes", &self.packed_len()).finish_non_exhaustive()
    }
}

/// A reader of many objects in the order of their keys. While it reads a block, the text is kept for it, and dropped
/// when it goes on to the next one.
#[derive(Debug, Default)]
pub struct Thaw(Option<Arc<Block>>);

impl Thaw {
    /// The next object that is read is in that block; `None` if it is not compressed.
    pub(super) fn enter(&mut self, block: Option<Arc<Block>>) {
        let Some(block) = block else { return };
        if self.0.as_ref().is_some_and(|now| Arc::ptr_eq(now, &block)) {
            return;
        }
        let mut text = block.lock();
        text.is_asked |= text.is_recent;
        text.readers += 1;
        drop(text);
        self.leave();
        self.0 = Some(block);
    }

    fn leave(&mut self) {
        let Some(block) = self.0.take() else { return };
        let mut text = block.lock();
        text.readers -= 1;
        if text.readers == 0 && (!text.is_asked || text.is_retired || block.budget.is_tight()) {
            text.kept = Vec::new();
        }
    }
}

impl Drop for Thaw {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use base::apimachinery::{Encoding, View};
    use flate2::{Compression, write::DeflateEncoder};

    use super::*;

    const FORM: Representation = Representation { encoding: Encoding::Json, view: View::Whole };

    fn block(parts: &[&str]) -> Arc<Block> {
        let (mut blocks, mut ends, mut end) = (b"-".to_vec(), Vec::new(), 0);
        for part in parts {
            let mut encoder = DeflateEncoder::new(blocks, Compression::fast());
            encoder.write_all(part.as_bytes()).unwrap();
            blocks = encoder.finish().unwrap();
            end += part.len();
            ends.push(PartEnd { text: end, packed: blocks.len() });
        }
        let text = parts.concat();
        let deflated =
            Deflated { blocks: blocks.into(), checksum: crc32fast::hash(text.as_bytes()), length: text.len() as u64 };
        Arc::new(Block::new(FORM, deflated, 1, ends, StoreBudget::default()))
    }

    #[test]
    fn a_single_object_inflates_its_part() {
        let block = block(&["one", "two three", "four"]);
        for (at, text, kept) in [(4..7, "wo ", 9), (0..3, "one", 12), (3..12, "two three", 12), (12..16, "four", 16)] {
            assert_eq!((block.text(at.clone()), block.kept()), (text.into(), kept), "{at:?}");
        }
        block.sweep();
        block.text(12..13);
        block.sweep();
        assert_eq!(block.kept(), 16, "all of it while something is asked for");
        block.sweep();
        assert_eq!(block.kept(), 0);
    }

    #[test]
    fn the_text_is_kept_while_single_objects_are_read() {
        let block = block(&["one two three"]);
        assert_eq!(block.kept(), 0);
        assert_eq!(block.text(0..13), "one two three");
        block.sweep();
        assert_eq!(block.kept(), 13, "it was read since the last sweep");
        block.sweep();
        assert_eq!(block.kept(), 0);
    }

    #[test]
    fn a_reader_of_many_blocks_keeps_one_of_them() {
        let blocks = [block(&["one"]), block(&["four"])];
        let mut thaw = Thaw::default();
        for block in &blocks {
            thaw.enter(Some(block.clone()));
            // Objects that are not compressed lie in between.
            thaw.enter(None);
            let text = block.text(0..3);
            assert_eq!(text.as_ptr(), block.text(0..3).as_ptr());
            block.sweep();
            assert!(block.kept() >= text.len());
        }
        assert_eq!(blocks[0].kept(), 0);
        drop(thaw);
        assert_eq!(blocks[1].kept(), 0);
    }

    #[test]
    fn the_text_of_a_retired_block_is_not_kept() {
        let block = block(&["one", "more"]);
        block.text(0..3);
        assert_eq!(block.kept(), 3);
        block.retire();
        for _ in 0..3 {
            assert_eq!((block.text(0..3), block.kept()), ("one".into(), 0));
            let mut thaw = Thaw::default();
            thaw.enter(Some(block.clone()));
            block.text(0..3);
            assert_eq!(block.kept(), 3);
            drop(thaw);
            assert_eq!(block.kept(), 0);
        }
    }

    #[test]
    fn the_text_is_kept_if_such_readers_come_often() {
        let block = block(&["one", "more"]);
        for kept in [0, 7] {
            let mut thaw = Thaw::default();
            thaw.enter(Some(block.clone()));
            block.text(0..3);
            block.text(3..7);
            drop(thaw);
            assert_eq!(block.kept(), kept);
        }
        block.sweep();
        block.sweep();
        assert_eq!(block.kept(), 0);
    }
}
