//! The file of one state: what it is of, and a list of all objects in gzip.
//!
//! A line with the version of the format; the length of the description as four bytes, least significant first; the
//! description in JSON; its CRC-32; one gzip member up to the end of the file, which has a checksum itself. So a byte
//! that was damaged is noticed wherever it is.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
};

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use base::apimachinery::{Provenance, ResourceVersion};
use engine::{
    encode::{Form, GzipMember, ListEnvelope, ListPosition, stored},
    reflector::{ByteStream, Failure},
    store::Snapshot,
};

const FORMAT: &[u8] = b"kube-fanout state 2\n";
/// The maximum length of a description in bytes.
const DESCRIPTION_MAX: usize = 16 << 10;
/// The number of bytes that are inflated at a time.
const PIECE: usize = 512 << 10;
/// The maximum number of bytes of an inflated list: that of a list of upstream.
const BYTES_MAX: u64 = 4 << 30;

/// What a state is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The store, as the log names it.
    pub(super) store: String,
    /// In seconds since 1970.
    pub(super) written: u64,
    version: u64,
    cluster: Box<str>,
    server: Box<str>,
    definition: Option<Box<str>>,
}

impl Description {
    pub(super) fn new(store: String, written: u64, version: ResourceVersion, provenance: Provenance) -> Self {
        let Provenance { cluster, server, definition } = provenance;
        Self { store, written, version: version.value(), cluster, server, definition }
    }

    /// The version of the list, so that upstream can be asked what followed while the list is read. `None` if it is
    /// none.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::new(self.version)
    }

    pub(super) fn provenance(&self) -> Provenance {
        let Self { cluster, server, definition, .. } = self.clone();
        Provenance { cluster, server, definition }
    }

    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= DESCRIPTION_MAX);
        let length = length.ok_or_else(|| io::Error::other("the description is too long"))?;
        let checksum = crc32fast::hash(&text);
        file.write_all(&[FORMAT, &length.to_le_bytes(), &text, &checksum.to_le_bytes()].concat())
    }

    pub(super) fn read(file: &mut impl Read) -> io::Result<Self> {
        let mut format = [0; FORMAT.len()];
        file.read_exact(&mut format)?;
        if format != *FORMAT {
            return Err(damaged("it has another format"));
        }
        let mut number = [0; 4];
        file.read_exact(&mut number)?;
        let length = usize::try_from(u32::from_le_bytes(number)).unwrap_or(usize::MAX);
        if length > DESCRIPTION_MAX {
            return Err(damaged("its description is too long"));
        }
        let mut text = vec![0; length];
        file.read_exact(&mut text)?;
        file.read_exact(&mut number)?;
        if u32::from_le_bytes(number) != crc32fast::hash(&text) {
            return Err(damaged("its description is damaged"));
        }
        Ok(serde_json::from_slice(&text)?)
    }
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes a list of the whole state.
pub(super) fn write_list(file: &mut impl Write, state: &Snapshot, form: &Form, list: &ListEnvelope) -> io::Result<()> {
    let cannot = || io::Error::other("the objects cannot be written in their own form");
    let lengths = state.leaves().map(|leaf| form.leaf_items_len(leaf));
    let length = lengths.sum::<Option<usize>>().ok_or_else(cannot)?;
    let position = ListPosition::of(state.version());
    let mut member = GzipMember::default();
    file.write_all(&GzipMember::header())?;
    file.write_all(&member.append(&stored(&list.head(&position, length))))?;
    for (number, leaf) in state.leaves().enumerate() {
        let items = form.deflated_leaf_once(leaf).map_err(|_| cannot())?;
        let is_separated = number > 0 && form.separator_len() > 0;
        file.write_all(&if is_separated { member.next_item(&items) } else { member.first_item(&items) })?;
    }
    file.write_all(&member.append(&stored(&list.tail(&position, length))))?;
    file.write_all(&member.end())
}

/// A list, as it is inflated: a piece ahead of its reader.
#[derive(Debug)]
pub struct KeptList {
    /// `None` once it was read, or cannot be read.
    next: Option<JoinHandle<ReadPiece>>,
    left: u64,
}

/// What follows, if anything does, and the next bytes: none at the end.
type ReadPiece = (Option<GzDecoder<BufReader<File>>>, io::Result<Bytes>);

impl KeptList {
    /// The list in the rest of a file. Within a runtime.
    pub(super) fn new(file: BufReader<File>) -> Self {
        let decoder = GzDecoder::new(file);
        Self { next: Some(spawn_blocking(move || read_piece(decoder))), left: BYTES_MAX }
    }
}

impl ByteStream for KeptList {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        let (decoder, piece) = self.next.take()?.await.unwrap_or_else(|_| (None, Err(broken())));
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                tracing::debug!(%error, "a kept state cannot be read");
                return Some(Err(Failure::Unavailable));
            }
        };
        let Some(left) = self.left.checked_sub(piece.len() as u64) else { return Some(Err(Failure::Unavailable)) };
        self.left = left;
        self.next = decoder.map(|decoder| spawn_blocking(move || read_piece(decoder)));
        Some(piece).filter(|piece| !piece.is_empty()).map(Ok)
    }
}

fn broken() -> io::Error {
    damaged("it is damaged")
}

fn read_piece(mut decoder: GzDecoder<BufReader<File>>) -> ReadPiece {
    let mut piece = Vec::with_capacity(PIECE);
    match decoder.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
        Ok(0) => match decoder.into_inner().fill_buf() {
            Ok([]) => (None, Ok(Bytes::new())),
            Ok(_) => (None, Err(damaged("something follows the list"))),
            Err(error) => (None, Err(error)),
        },
        Ok(_) => (Some(decoder), Ok(piece.into())),
        Err(error) => (None, Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Seek, SeekFrom},
        sync::Arc,
        time::Duration,
    };

    use base::apimachinery::GroupVersionResource;
    use engine::store::{HistoryLimits, Object, Objects, Schema, Shape, store};

    use super::*;

    fn description() -> Description {
        let provenance = Provenance { cluster: "c".into(), server: "v1.36.2 x".into(), definition: Some("d/1".into()) };
        Description::new("pods.v1 of a".into(), 1_700_000_000, ResourceVersion::new(200).unwrap(), provenance)
    }

    fn written(shape: Shape) -> Vec<u8> {
        let schema = Arc::new(Schema::new(shape.clone(), Vec::new()));
        let object = |number: u64| {
            let metadata = format!(r#"{{"name":"n{number:03}","resourceVersion":"{}"}}"#, number + 1);
            let json = format!(r#"{{"kind":"A","apiVersion":"b/v1","metadata":{metadata},"spec":"{number}"}}"#);
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        let objects = Objects::new((0..100).map(object).collect()).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 8 << 20 };
        let (_writer, reader) = store(schema.clone(), &objects, ResourceVersion::new(200).unwrap(), limits);
        let list = ListEnvelope::new("AList", &GroupVersionResource::new("b", "v1", "as"), &shape);
        let mut file = Vec::new();
        description().write(&mut file).unwrap();
        write_list(&mut file, &reader.snapshot(), &Form::Whole(shape), &list).unwrap();
        file
    }

    async fn read(bytes: &[u8]) -> Result<(Description, Vec<u8>), String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut file = BufReader::new(file);
        let description = Description::read(&mut file).map_err(|error| error.to_string())?;
        let (mut list, mut text) = (KeptList::new(file), Vec::new());
        while let Some(piece) = list.next().await {
            text.extend_from_slice(&piece.map_err(|failure| format!("{failure:?}"))?);
        }
        Ok((description, text))
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        for shape in [Shape::typed("A", "b/v1"), Shape::Custom] {
            let (read_of, text) = read(&written(shape)).await.unwrap();
            assert_eq!(read_of, description());
            let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!((&list["kind"], &list["metadata"]["resourceVersion"]), (&"AList".into(), &"200".into()));
            assert_eq!(list["items"].as_array().unwrap().len(), 100);
            assert_eq!(list["items"][99]["spec"], "99");
        }
    }

    #[tokio::test]
    async fn a_damaged_byte_changes_nothing_that_is_read() {
        let whole = written(Shape::Custom);
        let expected = read(&whole).await.unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(read) = read(&damaged).await {
                assert!(read == expected, "byte {at}");
            }
        }
        for length in (0..whole.len()).step_by(7) {
            assert!(read(&whole[..length]).await.is_err(), "{length} bytes");
        }
        assert!(read(&[&whole[..], b"x"].concat()).await.is_err());
    }
}
