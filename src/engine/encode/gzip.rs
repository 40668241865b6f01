//! gzip (RFC 1952): one member assembled from parts that were compressed once, or compressed while it is sent.
//!
//! A part refers to nothing before it and ends on a byte boundary, so parts may be in any order and in any number of
//! members.

use std::{fmt, io::Write, mem};

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, write::GzEncoder};

use crate::store::{Deflated, FINAL_BLOCK, PartEnd, SEPARATOR_BLOCK};

/// The fastest level whose lists are about as small as the API server's. The API server uses level 1 (read-path 4.3) of
/// another implementation; level 1 of this one only looks for the nearest match, and does not compute Huffman codes.
///
/// Measured with 2,000 seeded pods (15.1 MB of JSON, 11.4 MB of protobuf; one core of a busy machine) in parts of 48
/// objects. kube-apiserver compresses them to 595 KB and 494 KB.
///
/// | level | JSON | protobuf | JSON a second |
/// |---|---|---|---|
/// | 1 | 1,209 KB | 904 KB | 235 MB |
/// | 2 | 804 KB | 713 KB | 171 MB |
/// | 3 | 761 KB | 677 KB | 148 MB |
/// | 4 | 664 KB | 598 KB | 144 MB |
/// | 5 | 609 KB | 561 KB | 116 MB |
/// | 6 | 578 KB | 525 KB | 102 MB |
///
/// The parts are not the reason for the difference: with all 2,000 pods in one part, level 1 takes 1,135 KB and level 4
/// 595 KB. Smaller parts take more (parts of 8 objects: 1,540 KB and 996 KB). libdeflate's level 1 compresses as well
/// and as fast as level 2 here.
const LEVEL: Compression = Compression::new(4);
/// The level for objects that are kept compressed, in parts that are read by themselves. Parts of 96 KiB at this level
/// take what whole leaves take at [`LEVEL`]: 8.1 MB for 91 MB of realistic pods.
const LEVEL_KEPT: Compression = Compression::new(6);

/// The header of a member: deflate, no name, no time, fastest level, unknown system.
const MEMBER_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// The number of bytes in front of the compressed text of [`deflated_items`].
pub(super) const PREFIX: usize = SEPARATOR_BLOCK.len();
/// The maximum number of bytes in one uncompressed block.
const STORED_MAX: usize = 0xffff;
/// The number of bytes by which the output buffer grows.
const OUTPUT_STEP: usize = 16 << 10;

/// A part with an uncompressed comma in front of it, which its checksum and length leave out.
/// [`GzipMember::first_item`] sends the first part of a list without the comma.
pub fn deflated_items(items: &[u8]) -> Deflated {
    deflated_behind(&SEPARATOR_BLOCK, items)
}

/// The same as [`deflated_items`], to be kept: `items` consists of parts that end at these positions, each of which can
/// be inflated by itself.
pub(super) fn packed_items(items: &[u8], ends: &[usize]) -> (Deflated, Vec<PartEnd>) {
    let mut compress = Compress::new(LEVEL_KEPT, false);
    let (mut blocks, mut parts, mut begin) = (SEPARATOR_BLOCK.to_vec(), Vec::with_capacity(ends.len()), 0);
    for end in ends {
        push(&mut compress, &items[begin..*end], &mut blocks, FlushCompress::Full);
        parts.push(PartEnd { text: *end, packed: blocks.len() });
        begin = *end;
    }
    (Deflated { blocks: exactly(&blocks), checksum: crc32fast::hash(items), length: compress.total_in() }, parts)
}

/// An uncompressed part, meant for a small number of bytes.
pub fn stored(bytes: &[u8]) -> Deflated {
    let mut blocks = Vec::with_capacity(bytes.len() + 5 * bytes.len().div_ceil(STORED_MAX));
    for chunk in bytes.chunks(STORED_MAX) {
        let length = u16::try_from(chunk.len()).expect("at most STORED_MAX");
        blocks.push(0);
        blocks.extend_from_slice(&length.to_le_bytes());
        blocks.extend_from_slice(&(!length).to_le_bytes());
        blocks.extend_from_slice(chunk);
    }
    Deflated { blocks: blocks.into(), checksum: crc32fast::hash(bytes), length: bytes.len() as u64 }
}

fn deflated_behind(prefix: &[u8], bytes: &[u8]) -> Deflated {
    let mut compress = Compress::new(LEVEL, false);
    let mut blocks = prefix.to_vec();
    push(&mut compress, bytes, &mut blocks, FlushCompress::Sync);
    Deflated { blocks: exactly(&blocks), checksum: crc32fast::hash(bytes), length: compress.total_in() }
}

/// A copy: an allocator may leave a vector that is shrunk to half its capacity where it is, with all of its memory.
fn exactly(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn push(compress: &mut Compress, mut input: &[u8], blocks: &mut Vec<u8>, flush: FlushCompress) {
    loop {
        if blocks.len() == blocks.capacity() {
            blocks.reserve(OUTPUT_STEP);
        }
        let before = compress.total_in();
        compress.compress_vec(input, blocks, flush).expect("no dictionary is missing, and it is not finished");
        let taken = usize::try_from(compress.total_in() - before).expect("at most the input");
        input = &input[taken..];
        // Unused capacity means that the flush is complete.
        if input.is_empty() && blocks.len() < blocks.capacity() {
            return;
        }
    }
}

/// A member under construction: tracks the checksum and length of its parts, and returns the bytes to send.
#[derive(Clone, Default)]
pub struct GzipMember {
    /// The checksum and length of everything so far.
    checksum: Hasher,
}

impl GzipMember {
    /// The first bytes of every member.
    pub fn header() -> Bytes {
        Bytes::from_static(&MEMBER_HEADER)
    }

    /// Adds the next part.
    pub fn append(&mut self, part: &Deflated) -> Bytes {
        self.count(part);
        part.blocks.clone()
    }

    /// Adds the first of [`deflated_items`], without its comma.
    pub fn first_item(&mut self, items: &Deflated) -> Bytes {
        self.count(items);
        items.blocks.slice(SEPARATOR_BLOCK.len()..)
    }

    /// Adds further [`deflated_items`], with their comma.
    pub fn next_item(&mut self, items: &Deflated) -> Bytes {
        self.checksum.update(b",");
        self.append(items)
    }

    /// The last bytes of the member.
    pub fn end(self) -> Bytes {
        let length = u32::try_from(self.checksum.total_len() & u64::from(u32::MAX)).expect("masked");
        [&FINAL_BLOCK[..], &self.checksum.finalize().to_le_bytes(), &length.to_le_bytes()].concat().into()
    }

    fn count(&mut self, part: &Deflated) {
        self.checksum.combine(&Hasher::new_with_initial_len(part.checksum, part.length));
    }
}

impl fmt::Debug for GzipMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GzipMember").field("length", &self.checksum.total_len()).finish()
    }
}

/// A member that is compressed while it is sent.
#[derive(Debug)]
pub struct GzipStream(GzEncoder<Vec<u8>>);

impl GzipStream {
    pub fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), LEVEL))
    }

    /// Compresses the next bytes, and returns what can be sent by now: often nothing.
    pub fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.0.write_all(bytes).expect("a vector takes everything");
        mem::take(self.0.get_mut()).into()
    }

    /// The rest of the member.
    pub fn end(self) -> Bytes {
        self.0.finish().expect("a vector takes everything").into()
    }
}

impl Default for GzipStream {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        process::{Command, Stdio},
        thread,
    };

    use flate2::read::GzDecoder;

    use super::*;

    fn member(parts: &[Deflated]) -> Vec<u8> {
        let mut member = GzipMember::default();
        let mut bytes = GzipMember::header().to_vec();
        for part in parts {
            bytes.extend_from_slice(&member.append(part));
        }
        bytes.extend_from_slice(&member.end());
        bytes
    }

    /// Decompresses the only member of `gzip`.
    fn inflated(gzip: &[u8]) -> Vec<u8> {
        let (mut plain, mut decoder) = (Vec::new(), GzDecoder::new(gzip));
        decoder.read_to_end(&mut plain).expect("gzip");
        assert!(decoder.into_inner().is_empty(), "something follows the member");
        plain
    }

    fn one(piece: &[u8]) -> Deflated {
        deflated_behind(&[], piece)
    }

    /// Text that compresses well, except for every seventh piece.
    fn pieces(count: usize) -> Vec<Vec<u8>> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut piece = |at: usize| match at % 7 {
            0 => Vec::new(),
            1 => (0..rng.usize(..5_000)).map(|_| rng.u8(..)).collect(),
            _ => format!("{{\"name\":\"pod-{at}\"}}").repeat(rng.usize(..200)).into_bytes(),
        };
        (0..count).map(&mut piece).collect()
    }

    /// The output of another program; `None` if it is not installed.
    fn piped(command: &mut Command, input: &[u8]) -> Option<Vec<u8>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{command:?}");
        Some(output.stdout)
    }

    #[test]
    fn every_decoder_reads_the_parts_as_one_member() {
        let lots = pieces(1_000);
        let parts: Vec<_> = lots.iter().map(|piece| one(piece)).collect();
        for count in [0, 1, 2, 8, 1_000] {
            let (plain, gzip) = (lots[..count].concat(), member(&parts[..count]));
            assert!(inflated(&gzip) == plain, "{count} parts");
            // These programs are not needed for the build and may be missing.
            let script = "import gzip,sys,zlib; data = sys.stdin.buffer.read(); one = zlib.decompressobj(31); \
                plain = one.decompress(data); assert one.eof and not one.unused_data; \
                assert gzip.decompress(data) == plain; sys.stdout.buffer.write(plain)";
            for command in [Command::new("gzip").arg("-dc"), Command::new("python3").args(["-c", script])] {
                let output = piped(command, &gzip);
                assert!(output.is_none_or(|output| output == plain), "{command:?} of {count} parts");
            }
        }
    }

    #[test]
    fn a_part_may_be_anywhere_in_a_member() {
        let text = pieces(40).concat();
        let part = one(&text);
        let gzip = member(&[part.clone(), stored(b"between"), part]);
        assert!(inflated(&gzip) == [&text, &b"between"[..], &text].concat());
    }

    #[test]
    fn output_of_every_length_is_flushed_to_the_end() {
        let mut rng = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = (0..2 * OUTPUT_STEP).map(|_| rng.u8(..)).collect();
        // Each length makes the output exceed the buffer by one more byte.
        for length in OUTPUT_STEP - 100..OUTPUT_STEP + 20 {
            let part = one(&noise[..length]);
            assert!(part.blocks.ends_with(&[0, 0, 0xff, 0xff]), "{length}");
            assert!(inflated(&member(&[part])) == noise[..length], "{length}");
        }
    }

    #[test]
    fn any_number_of_bytes_can_be_stored() {
        for length in [0, 1, STORED_MAX, STORED_MAX + 1, 3 * STORED_MAX] {
            let bytes = vec![b'x'; length];
            assert!(inflated(&member(&[stored(&bytes)])) == bytes, "{length}");
        }
    }

    #[test]
    fn items_follow_each_other_with_commas() {
        let items: Vec<_> = [&b"{}"[..], b"[]", b""].map(deflated_items).into();
        let mut member = GzipMember::default();
        let mut gzip = GzipMember::header().to_vec();
        gzip.extend_from_slice(&member.first_item(&items[1]));
        for item in &items {
            gzip.extend_from_slice(&member.next_item(item));
        }
        gzip.extend_from_slice(&member.end());
        assert_eq!(inflated(&gzip), b"[],{},[],");
    }

    #[test]
    fn parts_of_kept_items_are_read_by_themselves_and_together() {
        let lots = pieces(300);
        let text = lots.concat();
        let mut end = 0;
        let ends: Vec<_> = lots.chunks(7).map(|lots| (end += lots.concat().len(), end).1).collect();
        let (items, parts) = packed_items(&text, &ends);
        let mut member = GzipMember::default();
        let gzip = [&GzipMember::header()[..], &member.next_item(&items), &member.end()].concat();
        assert!(inflated(&gzip) == [b",", &text[..]].concat());
        let mut begin = PartEnd { text: 0, packed: PREFIX };
        for end in parts {
            let part = [&MEMBER_HEADER[..], &items.blocks[begin.packed..end.packed], &FINAL_BLOCK].concat();
            let mut plain = Vec::new();
            // Its checksum and length are missing.
            GzDecoder::new(&part[..]).read_to_end(&mut plain).unwrap_err();
            assert!(plain == text[begin.text..end.text], "{end:?}");
            begin = end;
        }
    }

    #[test]
    fn a_stream_is_a_member_too() {
        for count in [0, 1, 300] {
            let pieces = pieces(count);
            let mut stream = GzipStream::new();
            let mut gzip: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
            gzip.extend_from_slice(&stream.end());
            assert!(inflated(&gzip) == pieces.concat(), "{count} pieces");
        }
    }
}
