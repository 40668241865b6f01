//! The file of one state: what it is of, and all objects, packed ([`engine::store::unpack`]).
//!
//! A line with the version of the format; the length of the description as four bytes, least significant first; the
//! description in JSON; its CRC-32; and records up to the end of the file, each behind its [`RecordHead`]. The first
//! one says how many objects follow. So a byte that was damaged, or is missing, is noticed wherever it is.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
};

use bytes::Bytes;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use base::apimachinery::{Provenance, ResourceVersion};
use engine::{
    encode::packed,
    reflector::{ByteStream, Failure},
    store::{PACKED_FORMAT, PackedHead, RecordHead, Schema, Snapshot},
};

/// The maximum length of a description in bytes.
const DESCRIPTION_MAX: usize = 16 << 10;
/// The number of bytes that are read at a time.
const AHEAD: usize = 512 << 10;

/// The first line.
fn format() -> Vec<u8> {
    format!("kube-fanout state {PACKED_FORMAT}\n").into_bytes()
}

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
        file.write_all(&[&format()[..], &length.to_le_bytes(), &text, &checksum.to_le_bytes()].concat())
    }

    pub(super) fn read(file: &mut impl Read) -> io::Result<Self> {
        let mut first = format();
        file.read_exact(&mut first)?;
        if first != format() {
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

/// Writes the whole state: a record of its head, and one of each run of objects.
pub(super) fn write_state(file: &mut impl Write, state: &Snapshot, schema: &Schema) -> io::Result<()> {
    write_record(file, &PackedHead::new(state.version(), state.len(), schema).encode_to_vec())?;
    for leaf in state.leaves() {
        let runs = packed(leaf, &schema.shape).ok_or_else(|| io::Error::other("an object is too large"))?;
        runs.iter().try_for_each(|run| write_record(file, run))?;
    }
    Ok(())
}

fn write_record(file: &mut impl Write, record: &[u8]) -> io::Result<()> {
    let record = RecordHead::before(record).ok_or_else(|| io::Error::other("an object is too large"))?;
    file.write_all(&record)
}

/// The records of a state, as they are read: some ahead of their reader.
#[derive(Debug)]
pub struct KeptState {
    records: VecDeque<Bytes>,
    /// `None` once it was read, or cannot be read.
    next: Option<JoinHandle<ReadAhead>>,
}

/// What follows, if anything does, and the next records: none at the end.
type ReadAhead = (Option<BufReader<File>>, io::Result<VecDeque<Bytes>>);

impl KeptState {
    /// The state in the rest of a file. Within a runtime.
    pub(super) fn new(file: BufReader<File>) -> Self {
        Self { records: VecDeque::new(), next: Some(spawn_blocking(move || read_ahead(file))) }
    }
}

impl ByteStream for KeptState {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        if let Some(record) = self.records.pop_front() {
            return Some(Ok(record));
        }
        let (file, records) = self.next.take()?.await.unwrap_or_else(|_| (None, Err(damaged("it cannot be read"))));
        self.next = file.map(|file| spawn_blocking(move || read_ahead(file)));
        match records {
            Ok(records) => self.records = records,
            Err(error) => {
                tracing::debug!(%error, "a kept state cannot be read");
                return Some(Err(Failure::Unavailable));
            }
        }
        self.records.pop_front().map(Ok)
    }
}

fn read_ahead(mut file: BufReader<File>) -> ReadAhead {
    let (mut records, mut bytes) = (VecDeque::new(), 0);
    while bytes < AHEAD {
        match read_record(&mut file) {
            Ok(Some(record)) => {
                bytes += record.len();
                records.push_back(record);
            }
            Ok(None) => return (None, Ok(records)),
            Err(error) => return (None, Err(error)),
        }
    }
    (Some(file), Ok(records))
}

/// `None` at the end of the file.
fn read_record(file: &mut impl BufRead) -> io::Result<Option<Bytes>> {
    if file.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = [0; RecordHead::LEN];
    file.read_exact(&mut head)?;
    let head = RecordHead::read(&head).ok_or_else(|| damaged("a record is too long"))?;
    let mut record = Vec::new();
    file.take(head.record_len() as u64).read_to_end(&mut record)?;
    if head.is_of(&record) { Ok(Some(record.into())) } else { Err(damaged("a record is damaged")) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Seek, SeekFrom},
        sync::Arc,
        time::Duration,
    };

    use base::apimachinery::{FieldSource, SelectableField};
    use engine::{
        encode::compress,
        store::{HistoryLimits, Object, Objects, Shape, store, unpack},
    };

    use super::*;

    fn description() -> Description {
        let provenance = Provenance { cluster: "c".into(), server: "v1.36.2 x".into(), definition: Some("d/1".into()) };
        Description::new("pods.v1 of a".into(), 1_700_000_000, ResourceVersion::new(200).unwrap(), provenance)
    }

    fn schema(shape: &Shape) -> Arc<Schema> {
        let source = FieldSource::Path { path: ["spec".into()].into(), absent: "" };
        Arc::new(Schema::new(shape.clone(), vec![SelectableField { label: "spec".into(), source }]))
    }

    /// Some of the leaves are compressed already.
    fn written(schema: &Arc<Schema>) -> Vec<u8> {
        let object = |number: u64| {
            let labels = format!(r#"{{"app":"a{}"}}"#, number % 7);
            let version = number + 1;
            let metadata = format!(r#"{{"labels":{labels},"name":"n{number:03}","resourceVersion":"{version}"}}"#);
            let json = format!(r#"{{"kind":"A","apiVersion":"b/v1","metadata":{metadata},"spec":"{number}"}}"#);
            Arc::new(Object::from_event(json.into(), schema).unwrap())
        };
        let objects = Objects::new((0..100).map(object).collect()).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 8 << 20 };
        let (_writer, reader) = store(schema.clone(), &objects, ResourceVersion::new(200).unwrap(), limits);
        let state = reader.snapshot();
        state.leaves().step_by(2).for_each(|leaf| compress(leaf, &schema.shape));
        let mut file = Vec::new();
        description().write(&mut file).unwrap();
        write_state(&mut file, &state, schema).unwrap();
        file
    }

    /// What the file is of, and each object with what selectors compare.
    async fn read(bytes: &[u8], schema: &Schema) -> Result<(Description, Vec<String>), String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut file = BufReader::new(file);
        let description = Description::read(&mut file).map_err(|error| error.to_string())?;
        let (mut state, mut records) = (KeptState::new(file), Vec::new());
        while let Some(record) = state.next().await {
            records.push(record.map_err(|failure| format!("{failure:?}"))?);
        }
        let (head, runs) = records.split_first().ok_or("no head")?;
        let head = PackedHead::read(head).map_err(|error| error.to_string())?;
        let runs: Result<Vec<_>, _> = runs.iter().map(|run| unpack(run, schema)).collect();
        let objects: Vec<_> = runs.map_err(|error| error.to_string())?.into_iter().flatten().collect();
        if !head.is_of(schema) || head.objects() != objects.len() as u64 || head.version() != description.version() {
            return Err("another state".to_owned());
        }
        let place = schema.place("spec").unwrap();
        let text = |object: Arc<Object>| {
            let (key, labels, field) = (object.key.as_str(), object.labels(), object.field(place));
            format!("{key} {} {labels:?} {field} {}", object.version, String::from_utf8_lossy(&object.tail()))
        };
        Ok((description, objects.into_iter().map(text).collect()))
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        for shape in [Shape::typed("A", "b/v1"), Shape::Custom] {
            let schema = schema(&shape);
            let (read_of, objects) = read(&written(&schema), &schema).await.unwrap();
            assert_eq!((read_of, objects.len()), (description(), 100));
            let last = &objects[99];
            assert!(last.starts_with("n099 100 ") && last.contains(r#"("app", "a1")"#), "{last}");
            assert!(last.contains(" 99 ") && last.ends_with(r#","spec":"99"}"#), "{last}");
        }
        let [one, other] = [Shape::Custom, Shape::typed("A", "b/v1")].map(|shape| schema(&shape));
        assert!(read(&written(&one), &other).await.is_err());
    }

    #[tokio::test]
    async fn a_damaged_byte_changes_nothing_that_is_read() {
        let schema = schema(&Shape::Custom);
        let whole = written(&schema);
        let expected = read(&whole, &schema).await.unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(read) = read(&damaged, &schema).await {
                assert!(read == expected, "byte {at}");
            }
        }
        for length in (0..whole.len()).step_by(7) {
            assert!(read(&whole[..length], &schema).await.is_err(), "{length} bytes");
        }
        assert!(read(&[&whole[..], b"x"].concat(), &schema).await.is_err());
    }
}
