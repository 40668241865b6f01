//! Follows a watch that is relayed from upstream, to know how far its client has come.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem};

use base::{
    apimachinery::{Encoding, ResourceVersion, WatchOptions, WatchStart},
    fairness::{ClientRoom, Room},
    json::{Members, text},
    telemetry::limit_reached,
};
use engine::{
    encode::{INITIAL_EVENTS_END, protobuf::WatchEvent},
    store::wire::Fields,
};

/// The largest event that is parsed, in bytes; larger than any object that etcd accepts in practice. A watch with a
/// larger event remains upstream's.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of a begun event that are kept without room for them: a stream often ends in the middle of one.
const FREE_BYTES: usize = 4 << 10;
/// The number of bytes of the big-endian length in front of each protobuf event.
const LENGTH_LEN: usize = 4;
/// Fields of an object's message and of its `ObjectMeta`.
const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;

/// How far a client has come with the bytes that were sent to it.
///
/// Invariant: a client that continues after [`Self::version`] misses no change and gets none twice.
#[derive(Debug)]
pub struct Told {
    encoding: Encoding,
    /// What ends the initial events, which are not in the order of their versions; `None` once they are over.
    initial: Option<InitialEnd>,
    version: Option<ResourceVersion>,
    /// The first part of an event that has not been sent completely.
    begun: BytesMut,
    /// The room for it: a client that does not read keeps it.
    rooms: Vec<Room>,
    /// The bytes that may be kept with it.
    kept_max: usize,
    room: ClientRoom,
    /// Whether parsing has ended, because something could not be parsed or [`Self::give_up`] was called.
    is_over: bool,
}

/// How the end of the initial events is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialEnd {
    /// By the bookmark for it, which the client waits for. Changes may come before it.
    ItsBookmark,
    /// By any event other than ADDED.
    AnythingElse,
}

/// The type of an event, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Added,
    Changed,
    Bookmark { ends_initial: bool },
}

impl Told {
    /// The state before any event of a watch with these options. Parsing ends where there is no `room` for an event
    /// that has not been sent completely.
    pub fn new(encoding: Encoding, options: &WatchOptions, room: ClientRoom) -> Self {
        let (initial, version) = match options.start {
            WatchStart::After(version) => (None, Some(version)),
            WatchStart::Now(_) => (None, None),
            WatchStart::State(_) if options.initial_events_end => (Some(InitialEnd::ItsBookmark), None),
            WatchStart::State(_) => (Some(InitialEnd::AnythingElse), None),
        };
        let (begun, rooms, kept_max) = (BytesMut::new(), Vec::new(), FREE_BYTES);
        Self { encoding, initial, version, begun, rooms, kept_max, room, is_over: false }
    }

    /// The version up to which the client knows all changes. `None` if there is no such version, or if an event was
    /// sent only partly.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.version.filter(|_| self.begun.is_empty() && !self.is_over)
    }

    /// Whether parsing has ended: there will be no [`Self::version`] any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Stops parsing.
    pub fn give_up(&mut self) {
        self.is_over = true;
        self.begun = BytesMut::new();
        self.release();
    }

    fn release(&mut self) {
        self.rooms.clear();
        self.kept_max = FREE_BYTES;
    }

    /// Takes room for what is begun; doubled each time, as the memory for it is. `None` if there is none.
    fn keep_begun(&mut self) -> Option<()> {
        if self.begun.is_empty() {
            self.release();
        }
        let missing = self.begun.len().saturating_sub(self.kept_max);
        if missing > 0 {
            let bytes = missing.max(self.kept_max);
            self.rooms.push(self.room.take(bytes)?);
            self.kept_max += bytes;
        }
        Some(())
    }

    /// Processes bytes that were sent to the client, which may be cut at any place.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let understood = if self.begun.is_empty() {
            self.take(bytes).map(|rest| self.begun.extend_from_slice(rest))
        } else {
            self.begun.extend_from_slice(bytes);
            // The earlier bytes contain no complete event, so a large event is not scanned again for each piece.
            let is_whole = match self.encoding {
                Encoding::Json => memchr(b'\n', bytes).is_some(),
                Encoding::Protobuf => self.event_len(&self.begun).is_some(),
            };
            if is_whole { self.take_begun() } else { Some(()) }
        };
        if self.begun.len() > EVENT_BYTES_MAX {
            limit_reached("takeover_event_bytes");
            return self.give_up();
        }
        if understood.is_none() || self.keep_begun().is_none() {
            self.give_up();
        }
    }

    fn take_begun(&mut self) -> Option<()> {
        let begun = std::mem::take(&mut self.begun).freeze();
        self.release();
        let rest = self.take(&begun)?;
        self.begun.extend_from_slice(rest);
        Some(())
    }

    /// Processes all complete events, and returns the rest. `None` if one of them cannot be parsed.
    fn take<'a>(&mut self, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        while let Some(length) = self.event_len(bytes) {
            let (event, rest) = bytes.split_at(length);
            bytes = rest;
            let (kind, version) = match self.encoding {
                Encoding::Json => json_event(event, self.initial)?,
                Encoding::Protobuf => protobuf_event(event)?,
            };
            self.event(kind, version)?;
        }
        Some(bytes)
    }

    /// The length of the event at the start of the bytes, if it is complete.
    fn event_len(&self, bytes: &[u8]) -> Option<usize> {
        match self.encoding {
            Encoding::Json => memchr(b'\n', bytes).map(|at| at + 1),
            Encoding::Protobuf => {
                let length = u32::from_be_bytes(*bytes.first_chunk::<LENGTH_LEN>()?);
                usize::try_from(length).ok()?.checked_add(LENGTH_LEN).filter(|length| *length <= bytes.len())
            }
        }
    }

    fn event(&mut self, kind: Kind, version: Option<ResourceVersion>) -> Option<()> {
        let ends_initial = match (self.initial, kind) {
            (None, _) => true,
            (Some(InitialEnd::ItsBookmark), kind) => kind == Kind::Bookmark { ends_initial: true },
            (Some(InitialEnd::AnythingElse), kind) => kind != Kind::Added,
        };
        if !ends_initial {
            return Some(());
        }
        self.initial = None;
        // Versions rise; a bookmark may repeat the last one.
        let version = version.filter(|version| self.version.is_none_or(|told| told <= *version))?;
        self.version = Some(version);
        Some(())
    }
}

/// The type and the version of an event. The version is `None` where it does not matter.
fn json_event(line: &[u8], initial: Option<InitialEnd>) -> Option<(Kind, Option<ResourceVersion>)> {
    let (mut kind, mut version) = (None, None);
    for member in Members::of(line).ok()? {
        match member.ok()? {
            (name, value) if name == "type" => {
                kind = Some(text(value).ok()?);
                // There may be many initial events, so their objects are not parsed.
                if initial.is_some() && kind.as_deref() == Some("ADDED") {
                    return Some((Kind::Added, None));
                }
            }
            (name, value) if name == "object" => {
                let metadata = member_of(value, "metadata")?;
                version = Some((
                    ResourceVersion::parse(&text(member_of(metadata, "resourceVersion")?).ok()?).ok()?,
                    metadata,
                ));
            }
            _ => {}
        }
    }
    let (version, metadata) = version?;
    Some((kind_of(&kind?, metadata)?, Some(version)))
}

/// The last member of that name, which is the one that the store uses.
fn member_of<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut found = None;
    for member in Members::of(object).ok()? {
        let (name, value) = member.ok()?;
        if name == wanted {
            found = Some(value);
        }
    }
    found
}

fn protobuf_event(frame: &[u8]) -> Option<(Kind, Option<ResourceVersion>)> {
    let event = WatchEvent::parse(&Bytes::copy_from_slice(frame)).ok()?;
    let metadata = field_of(&event.message, METADATA)?;
    let version = std::str::from_utf8(field_of(metadata, RESOURCE_VERSION)?).ok()?;
    Some((kind_of(&event.r#type, metadata)?, Some(ResourceVersion::parse(version).ok()?)))
}

/// The last field of that number.
fn field_of(message: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut found = None;
    for field in Fields::of(message) {
        let field = field.ok()?;
        if field.number == wanted {
            found = Some(field.value.bytes().ok()?);
        }
    }
    found
}

/// `None` for ERROR, which ends the watch, and for types that upstream does not send today.
fn kind_of(word: &str, metadata: &[u8]) -> Option<Kind> {
    match word {
        "ADDED" => Some(Kind::Added),
        "MODIFIED" | "DELETED" => Some(Kind::Changed),
        "BOOKMARK" => {
            Some(Kind::Bookmark { ends_initial: memmem::find(metadata, INITIAL_EVENTS_END.as_bytes()).is_some() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::fairness::AnswerRoom;

    fn ample() -> ClientRoom {
        AnswerRoom::undivided(1 << 30).of(None)
    }

    const WATCH_LIST: &str =
        "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

    fn event(kind: &str, version: &str) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"kind":"Pod","metadata":{{"name":"a","resourceVersion":"{version}"}}}}}}"#
        ) + "\n"
    }

    fn end(version: &str) -> String {
        let annotations = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
        event("BOOKMARK", version).replace("\"}}}", &format!("\"{annotations}}}}}}}"))
    }

    /// The known version before the first piece and after each piece.
    fn told(encoding: Encoding, query: &str, pieces: &[&[u8]]) -> Vec<Option<u64>> {
        let mut told = Told::new(encoding, &WatchOptions::parse(Some(query), false).unwrap(), ample());
        let version = |told: &Told| told.version().map(ResourceVersion::value);
        let first = version(&told);
        let rest = pieces.iter().map(|piece| {
            told.push(piece);
            version(&told)
        });
        [first].into_iter().chain(rest.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn the_version_is_that_of_the_last_complete_event() {
        let [five, six] = [event("ADDED", "5"), event("MODIFIED", "6")];
        let (half, rest) = six.as_bytes().split_at(20);
        let pieces = [five.as_bytes(), half, rest, b"{\"type\""];
        assert_eq!(told(Encoding::Json, "watch=1&resourceVersion=4", &pieces), [Some(4), Some(5), None, Some(6), None]);
        let together = [five.clone() + &six + "{"].concat();
        assert_eq!(
            told(Encoding::Json, "watch=1&resourceVersion=4", &[together.as_bytes(), &six.as_bytes()[1..]]),
            [Some(4), None, Some(6)]
        );
    }

    #[test]
    fn initial_events_have_no_version_before_their_end() {
        let (added, changed, bookmark, end) =
            (event("ADDED", "9"), event("MODIFIED", "11"), event("BOOKMARK", "12"), end("13"));
        let (deleted, live) = (event("DELETED", "14"), event("ADDED", "12"));
        let pieces = [&added, &changed, &bookmark, &end, &deleted].map(|event| event.as_bytes());
        assert_eq!(told(Encoding::Json, WATCH_LIST, &pieces), [None, None, None, None, Some(13), Some(14)]);
        let plain = [&added, &added, &changed, &live].map(|event| event.as_bytes());
        assert_eq!(told(Encoding::Json, "watch=1&resourceVersion=0", &plain), [None, None, None, Some(11), Some(12)]);
        let now = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(told(Encoding::Json, now, &plain[..1]), [None, Some(9)]);
    }

    #[test]
    fn an_unreadable_event_ends_the_tracking() {
        for strange in [
            "\n".to_owned(),
            "{}\n".to_owned(),
            event("ERROR", "6"),
            event("STRANGE", "6"),
            event("MODIFIED", "x"),
            event("MODIFIED", "4"),
            event("MODIFIED", "6").replace("resourceVersion", "version"),
        ] {
            let pieces = [event("ADDED", "5"), strange.clone(), event("MODIFIED", "7")];
            let told =
                told(Encoding::Json, "watch=1&resourceVersion=4", &pieces.each_ref().map(|piece| piece.as_bytes()));
            assert_eq!(told, [Some(4), Some(5), None, None], "{strange}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        let piece = vec![b' '; EVENT_BYTES_MAX];
        let mut told =
            Told::new(Encoding::Json, &WatchOptions::parse(Some("watch=1&resourceVersion=4"), false).unwrap(), ample());
        told.push(&piece);
        assert_eq!(told.begun.len(), EVENT_BYTES_MAX);
        told.push(b" ");
        assert!(told.is_over && told.begun.is_empty());
        let length = u32::MAX.to_be_bytes();
        let mut told = Told::new(Encoding::Protobuf, &WatchOptions::parse(Some("watch=1"), false).unwrap(), ample());
        told.push(&length);
        told.push(&piece);
        assert!(told.is_over && told.begun.is_empty());
    }

    #[test]
    fn an_event_is_kept_only_where_there_is_room() {
        let of = |room: &AnswerRoom| {
            let options = WatchOptions::parse(Some("watch=1&resourceVersion=4"), false).unwrap();
            Told::new(Encoding::Json, &options, room.of(None))
        };
        let room = AnswerRoom::undivided(64 << 10);
        let (mut first, mut second, piece) = (of(&room), of(&room), [b' '; 1000]);
        (0..50).for_each(|_| first.push(&piece));
        assert!(!first.is_over && first.begun.len() == 50_000);
        (0..4).for_each(|_| second.push(&piece));
        assert!(!second.is_over, "a small part needs no room");
        (0..10).for_each(|_| second.push(&piece));
        assert!(second.is_over && second.begun.is_empty(), "the first one holds it");
        first.push(b"{}\n");
        assert!(first.is_over, "that is no event");
        let mut third = of(&room);
        (0..50).for_each(|_| third.push(&piece));
        third.push(event("MODIFIED", "5").as_bytes());
        assert_eq!(third.version(), ResourceVersion::new(5));
        assert!(room.of(None).take(64 << 10).is_some(), "all of it is free again");
    }

    /// The streams of a real server in both encodings, cut at any place.
    #[test]
    fn recorded_streams_are_read_however_they_are_cut() {
        let json = include_bytes!("../../../tests/data/golden/live/pods.jsonl");
        let protobuf = include_bytes!("../../../tests/data/golden/live/all.pb");
        let live = "watch=1&allowWatchBookmarks=true&resourceVersion=1";
        for (encoding, query, stream) in [
            (Encoding::Json, live, &json[..]),
            (Encoding::Json, live, include_bytes!("../../../tests/data/golden/live/pom.jsonl")),
            (Encoding::Protobuf, live, &protobuf[..]),
            (Encoding::Json, WATCH_LIST, include_bytes!("../../../tests/data/golden/upstream/pods.watchlist.json")),
            (Encoding::Protobuf, WATCH_LIST, include_bytes!("../../../tests/data/golden/upstream/pods.watchlist.pb")),
        ] {
            let whole = told(encoding, query, &[stream]);
            assert!(whole[1].is_some_and(|version| version > 1), "{encoding:?} {query}: {whole:?}");
            for size in [1, 7, 1000] {
                let cut = told(encoding, query, &stream.chunks(size).collect::<Vec<_>>());
                assert_eq!(cut.last(), whole.last(), "{encoding:?} {query} in pieces of {size}");
                let known: Vec<_> = cut.iter().flatten().collect();
                assert!(known.is_sorted(), "{encoding:?} {query} in pieces of {size}");
            }
        }
    }
}
