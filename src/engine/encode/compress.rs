//! What has not been read or changed for a while is kept compressed.

use std::sync::Arc;

use super::{
    Form,
    gzip::{PREFIX, packed_items},
    list,
};
use crate::store::{
    Block, Leaf, NotPacked, Object, Past, Reader, Schema, Shape, StoreBudget, Thaw, pack, unpack_block,
};

/// Objects are kept compressed if that takes at most this part of their text.
const WORTH: u64 = 2;
/// The maximum number of bytes of one block; a single object may exceed it. Holds as many pods as a leaf.
pub const BLOCK_MAX: usize = 1 << 20;
/// The maximum number of bytes of an object that another process sends: more than any API server stores.
const OBJECT_MAX: u64 = 32 << 20;
/// The maximum number of bytes of a part of a block, which is inflated as a whole in some 150 microseconds; a single
/// object may exceed it. Smaller parts are inflated sooner, and take more.
const PART_MAX: usize = 96 << 10;

/// Neighbours that are compressed in one step.
#[derive(Debug)]
pub enum Settled {
    /// Objects of the newest state.
    Leaf(Arc<Leaf>),
    /// Objects that only history has.
    Past(Vec<Past>),
}

impl Settled {
    /// What has been there since the last call, and is text.
    pub fn of(reader: &Reader) -> Vec<Self> {
        let (past, shape) = (reader.settled_past(), &reader.schema().shape);
        let mut settled: Vec<_> = reader.settled().into_iter().map(Self::Leaf).collect();
        let mut rest = &past[..];
        while !rest.is_empty() {
            let count = within(rest.iter().map(|past| &past.object), shape);
            let (run, others) = rest.split_at(count);
            settled.push(Self::Past(run.to_vec()));
            rest = others;
        }
        settled
    }

    /// Whether nothing but this has it.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Leaf(leaf) => Arc::strong_count(leaf) == 1,
            Self::Past(past) => past.iter().all(Past::is_gone),
        }
    }

    /// Compresses it in the form that the store has. Takes some ten milliseconds.
    pub fn compress(&self, reader: &Reader) {
        let shape = &reader.schema().shape;
        match self {
            Self::Leaf(leaf) => compress(leaf, shape),
            Self::Past(past) => {
                let objects: Vec<_> = past.iter().map(|past| past.object.clone()).collect();
                reader.move_past(past, block(&objects, shape, reader.schema().budget()));
            }
        }
    }
}

/// Compresses the objects of a leaf: as gzip lists send them, if one block is enough for all of them.
pub fn compress(leaf: &Leaf, shape: &Shape) {
    let (objects, mut at) = (leaf.objects(), 0);
    while at < objects.len() {
        let end = at + within(objects[at..].iter(), shape);
        if let Some((block, positions)) = block(&objects[at..end], shape, leaf.budget()) {
            leaf.move_into(block, at..end, &positions);
        }
        at = end;
    }
    // What is text still, takes hardly less if it is compressed.
    leaf.settled_for_good();
}

/// How many of the objects have one block.
fn within<'a>(objects: impl Iterator<Item = &'a Arc<Object>>, shape: &Shape) -> usize {
    list::items_within(objects, shape, BLOCK_MAX).max(1)
}

/// The objects of a leaf as they are kept outside of the process ([`crate::store::unpack`]): in the block that has all
/// of them and nothing else, or in a new one. A very large leaf has several. `None` if an object is too large, which
/// none of upstream is.
pub fn packed(leaf: &Leaf, shape: &Shape) -> Option<Vec<Vec<u8>>> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < leaf.objects().len() {
        let (run, next) = packed_run(leaf, at, shape)?;
        runs.push(run);
        at = next;
    }
    Some(runs)
}

/// One of these runs, which begins with that object of the leaf, and the number of the next one's first object. Making
/// a new block takes some ten milliseconds.
pub fn packed_run(leaf: &Leaf, at: usize, shape: &Shape) -> Option<(Vec<u8>, usize)> {
    let rest = leaf.objects().get(at..)?;
    let run = &rest[..within(rest.iter(), shape).min(rest.len())];
    let new = || any_block(run, shape, leaf.budget()).map(|(block, positions)| (Arc::new(block), positions));
    let (block, positions) = block_of(run, shape).or_else(new)?;
    Some((pack(run, &block, &positions), at + run.len()))
}

/// The objects of a run that comes from another process, in one block, whose text is inflated once and compared with
/// the objects: later nothing can fail, and lists that are made in different ways do not differ.
///
/// # Errors
/// It is none, not of that schema, larger than [`packed_run`] makes them, or its text is not what it says.
pub fn unpack_verified(bytes: &[u8], schema: &Schema) -> Result<Vec<Arc<Object>>, NotPacked> {
    let (block, objects) = unpack_block(bytes, schema)?;
    let length_max = if objects.len() == 1 { OBJECT_MAX } else { BLOCK_MAX as u64 };
    if block.text_len() > length_max {
        return Err(NotPacked);
    }
    let text = block.verified_text().ok_or(NotPacked)?;
    let (separator, mut end) = (Form::Whole(schema.shape.clone()).separator_len(), 0);
    for object in &objects {
        let opening = list::item_opening(object, &schema.shape);
        // The first item has no separator in front of it.
        let opening = &opening[if end == 0 { separator } else { 0 }..];
        let (begin, version, digits) = (end + opening.len(), object.version.to_string(), object.version_at());
        let is_there = object.place().is_some_and(|(_, at)| at as usize == begin);
        let has_version = text.get(begin + digits.start..begin + digits.end) == Some(version.as_bytes());
        let metadata = object.metadata_at();
        let metadata = text.get(begin + metadata.start..begin + metadata.end);
        // Labels and fields are the sender's.
        let has_hash = metadata.is_some_and(|metadata| object.has_hash_of(metadata));
        if !is_there || !has_version || !has_hash || text.get(end..begin) != Some(opening) {
            return Err(NotPacked);
        }
        end = begin + object.tail_len();
    }
    (end == text.len()).then_some(objects).ok_or(NotPacked)
}

/// The block that has the objects and nothing else, and the positions of their tails.
fn block_of(objects: &[Arc<Object>], shape: &Shape) -> Option<(Arc<Block>, Vec<u32>)> {
    let places: Vec<_> = objects.iter().map(|object| object.place()).collect::<Option<_>>()?;
    let length = objects.iter().map(|object| list::item_len(object, shape)).sum::<usize>();
    let length = length - Form::Whole(shape.clone()).separator_len();
    let (block, _) = places.first()?;
    let has_all = places.iter().all(|(other, _)| Arc::ptr_eq(other, block));
    let is_exact = has_all && block.text_len() == length as u64;
    is_exact.then(|| (block.clone(), places.iter().map(|(_, at)| *at).collect()))
}

/// A block of the objects' items, and the positions of their tails in its text. `None` if it is not worth it.
fn block(objects: &[Arc<Object>], shape: &Shape, budget: &StoreBudget) -> Option<(Block, Vec<u32>)> {
    let is_worth_it = |block: &Block| block.packed_len() as u64 <= block.text_len() / WORTH;
    any_block(objects, shape, budget).filter(|(block, _)| is_worth_it(block))
}

/// The same, worth it or not.
fn any_block(objects: &[Arc<Object>], shape: &Shape, budget: &StoreBudget) -> Option<(Block, Vec<u32>)> {
    let form = Form::Whole(shape.clone());
    let separator = form.separator_len();
    let items = list::items(objects.iter(), shape, &mut Thaw::default()).slice(separator..);
    let (mut ends, mut begin, mut end, mut positions) = (Vec::new(), 0, 0, Vec::with_capacity(objects.len()));
    for object in objects {
        // The first item has no separator in front of it.
        let length = list::item_len(object, shape) - if end == 0 { separator } else { 0 };
        if end > begin && end + length - begin > PART_MAX {
            ends.push(end);
            begin = end;
        }
        end += length;
        positions.push(u32::try_from(end - object.tail_len()).ok()?);
    }
    ends.push(end);
    let (deflated, parts) = packed_items(&items, &ends);
    Some((Block::new(form.representation(), deflated, PREFIX, parts, budget.clone()), positions))
}

#[cfg(test)]
mod tests {
    use std::{io::Read, ops::Range, time::Duration};

    use base::apimachinery::ResourceVersion;
    use bytes::Bytes;

    use super::*;
    use crate::{
        encode::GzipMember,
        store::{ChangeKind, FIRST_CHANGE, FrameKind, HistoryLimits, Objects, Schema, Writer, store, unpack},
    };

    fn filled() -> (Writer, Reader) {
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
        let objects = ["a", "b", "c"].iter().map(|name| Arc::new(object(&schema, name, 1, &"text".repeat(2_000))));
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 8 << 20 };
        store(schema.clone(), &Objects::new(objects.collect()).unwrap(), version(1), limits)
    }

    fn version(version: u64) -> ResourceVersion {
        ResourceVersion::new(version).unwrap()
    }

    fn json(name: &str, version: u64, text: &str) -> String {
        format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"text":"{text}"}}"#)
    }

    fn object(schema: &Schema, name: &str, version: u64, text: &str) -> Object {
        Object::from_event(json(name, version, text).into(), schema).unwrap()
    }

    /// Changes the objects in turns, and returns the events as upstream frames them.
    fn change(writer: &mut Writer, versions: Range<u64>, text: impl Fn(u64) -> String) -> Vec<String> {
        let line = |at: u64| {
            let (name, text) = (["a", "b", "c"][usize::try_from(at % 3).unwrap()], text(at));
            let line = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", json(name, at, &text));
            let object = Bytes::from(line.clone()).slice(28..line.len() - 2);
            let object = Object::from_event(object, writer.schema()).unwrap();
            writer.apply(ChangeKind::Modified, object, line.clone().into()).unwrap();
            line
        };
        versions.map(line).collect()
    }

    fn compress(reader: &Reader) {
        Settled::of(reader).iter().for_each(|settled| settled.compress(reader));
    }

    fn frames(reader: &Reader, kind: FrameKind) -> Vec<String> {
        let form = Form::Whole(Shape::Custom);
        let changes = reader.backlog(FIRST_CHANGE, usize::MAX >> 1).unwrap().changes;
        let text = |frame: Bytes| String::from_utf8(frame.to_vec()).unwrap();
        changes.iter().map(|change| text(form.frame(change, kind, &mut Thaw::default()).unwrap())).collect()
    }

    #[test]
    fn history_takes_little_once_it_has_settled() {
        let (mut writer, reader) = filled();
        let mut lines = change(&mut writer, 2..302, |at| "text ".repeat(2_000) + &at.to_string());
        let raw = reader.size();
        assert!(raw.change_bytes > 300 * 10_000, "{raw:?}");
        compress(&reader);
        assert_eq!(reader.size(), raw, "nothing had been there before");
        // The newest objects with their leaf, of which history learns at the next call.
        (0..2).for_each(|_| compress(&reader));
        let settled = reader.size();
        assert!(settled.change_bytes < raw.change_bytes / 5, "{settled:?}");
        // A watch that resumes, and what it inflates.
        assert_eq!(frames(&reader, FrameKind::Modified), lines);
        // Both count.
        let inflated = reader.size();
        assert!(inflated.joined_bytes > 297 * 10_000 && inflated.derived_bytes > 297 * 10_000, "{inflated:?}");
        let left = frames(&reader, FrameKind::Left);
        assert!(left[3].contains(r#""type":"DELETED""#) && left[3].ends_with("text 2\"}}\n"), "{}", left[3]);
        compress(&reader);
        (0..2).for_each(|_| reader.sweep());
        assert_eq!(reader.size(), settled);
        // What follows is added to what was compressed.
        lines.extend(change(&mut writer, 302..308, |at| "text ".repeat(2_000) + &at.to_string()));
        (0..3).for_each(|_| compress(&reader));
        assert!(reader.size().change_bytes < settled.change_bytes + 6 * 4_000, "{:?}", reader.size());
        assert_eq!(frames(&reader, FrameKind::Modified), lines);
        reader.shorten_history();
        let short = reader.size();
        assert!(short.change_bytes < settled.change_bytes / 2, "{short:?}");
    }

    #[test]
    fn frames_of_a_kind_that_upstream_did_not_send_count_until_their_changes_have_settled_or_history_is_shortened() {
        let (mut writer, reader) = filled();
        let made = |reader: &Reader| reader.size().derived_bytes;
        // Random text, which stays as it is.
        let noise =
            |at: u64| (0..500_u64).map(move |n| format!("{:x}", (n + at * 501).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let lines = change(&mut writer, 2..52, |at| noise(at).collect());
        assert_eq!(frames(&reader, FrameKind::Modified), lines);
        assert_eq!(made(&reader), 0, "upstream's own share the text of the objects");
        let left = frames(&reader, FrameKind::Left);
        let bytes: usize = left.iter().map(String::len).sum();
        assert_eq!((made(&reader), frames(&reader, FrameKind::Left)), (bytes, left.clone()), "made once");
        reader.shorten_history();
        assert_eq!(made(&reader), 0);
        assert_eq!((frames(&reader, FrameKind::Left), made(&reader)), (left.clone(), bytes));
        (0..3).for_each(|_| compress(&reader));
        assert_eq!(made(&reader), 0);
        assert_eq!((frames(&reader, FrameKind::Left), frames(&reader, FrameKind::Modified)), (left, lines));
    }

    /// The store that has what is packed of another one.
    fn unpacked(reader: &Reader) -> (Writer, Reader) {
        let (state, schema) = (reader.snapshot(), Arc::new(Schema::new(Shape::Custom, Vec::new())));
        let runs = state.leaves().flat_map(|leaf| packed(leaf, &schema.shape).unwrap());
        let runs: Vec<_> = runs.map(|run| unpack(&run, &schema).unwrap()).collect();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 8 << 20 };
        store(schema, &Objects::of_runs(runs).unwrap(), state.version(), limits)
    }

    /// The items of a list, and those of one in gzip.
    fn lists(reader: &Reader) -> [Vec<u8>; 2] {
        let (mut plain, mut member, mut gzip) = (Vec::new(), GzipMember::default(), GzipMember::header().to_vec());
        for (number, leaf) in reader.snapshot().leaves().enumerate() {
            let separator = usize::from(number == 0);
            plain.extend_from_slice(
                &list::items(leaf.objects().iter(), &Shape::Custom, &mut Thaw::default())[separator..],
            );
            let items = Form::Whole(Shape::Custom).deflated_leaf_once(leaf).unwrap();
            gzip.extend_from_slice(&if number > 0 { member.next_item(&items) } else { member.first_item(&items) });
        }
        gzip.extend_from_slice(&member.end());
        let mut inflated = Vec::new();
        flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut inflated).unwrap();
        [plain, inflated]
    }

    #[test]
    fn a_state_that_was_packed_has_the_same_lists() {
        let (mut writer, reader) = filled();
        let at_first = lists(&reader);
        assert_eq!(at_first[0], at_first[1]);
        assert_eq!(lists(&unpacked(&reader).1), at_first, "of text");
        (0..2).for_each(|_| compress(&reader));
        let (_, again) = unpacked(&reader);
        assert_eq!(lists(&again), at_first);
        // It is compressed from the start, and stays so.
        assert_eq!(again.size().cold_bytes, again.size().object_bytes);
        assert!((0..2).all(|_| Settled::of(&again).is_empty()));
        // One that was changed lies over the block, which no list is spliced from then.
        change(&mut writer, 2..3, |_| "other".repeat(3_000));
        let changed = lists(&reader);
        let (mut writer, again) = unpacked(&reader);
        assert!(changed != at_first && lists(&again) == changed);
        assert_eq!(again.snapshot().leaves().count(), 1);
        change(&mut writer, 3..6, |at| at.to_string());
        assert_eq!(lists(&again)[0], lists(&again)[1]);
        // More than a block.
        change(&mut writer, 6..9, |at| at.to_string().repeat(BLOCK_MAX / 2));
        assert_eq!(unpacked(&again).1.snapshot().leaves().count(), 3);
        assert_eq!(lists(&unpacked(&again).1), lists(&again));
    }

    /// Whatever another process sends: it is refused, or its lists can be read and are those of the text.
    #[test]
    fn nothing_that_another_process_sends_is_believed_without_being_inflated() {
        let (_writer, reader) = filled();
        (0..2).for_each(|_| compress(&reader));
        let (state, schema) = (reader.snapshot(), reader.schema());
        let runs: Vec<_> = state.leaves().flat_map(|leaf| packed(leaf, &schema.shape).unwrap()).collect();
        let run = &runs[0];
        let whole: Vec<_> = runs.iter().map(|run| unpack_verified(run, schema).unwrap()).collect();
        assert_eq!(whole.iter().map(Vec::len).sum::<usize>(), state.len());
        let (mut refused, mut believed) = (0, 0);
        for at in 0..run.len() {
            for bit in [1, 16, 128] {
                let mut changed = run.clone();
                changed[at] ^= bit;
                let Ok(objects) = unpack_verified(&changed, schema) else {
                    refused += 1;
                    continue;
                };
                believed += 1;
                assert!(objects.iter().all(|object| object.has_hash_of(&object.metadata())), "byte {at}, bit {bit}");
                let text = list::items(objects.iter(), &Shape::Custom, &mut Thaw::default());
                let leaf = Leaf::of(objects);
                let items = Form::Whole(Shape::Custom).deflated_leaf_once(&leaf).unwrap();
                let mut member = GzipMember::default();
                let gzip = [&GzipMember::header()[..], &member.first_item(&items), &member.end()].concat();
                let mut inflated = Vec::new();
                flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut inflated).unwrap();
                assert!(text[1..] == inflated, "byte {at}, bit {bit}");
            }
        }
        // What is believed of it are keys, labels and the positions of metadata.
        assert!(refused > believed && believed > 0, "{refused} {believed}");
    }

    /// Each time anew would take a tenth of a core for nothing.
    #[test]
    fn what_is_not_worth_it_is_tried_once() {
        let (mut writer, reader) = filled();
        let noise = |at| {
            let mut rng = fastrand::Rng::with_seed(at);
            (0..1_000).map(|_| rng.alphanumeric()).collect()
        };
        change(&mut writer, 2..50, noise);
        (0..2).for_each(|_| compress(&reader));
        assert!(Settled::of(&reader).is_empty(), "{:?}", Settled::of(&reader));
    }
}
