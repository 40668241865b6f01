//! Follows a watch that is relayed from upstream: where its events end, and how far its client has come.

use bytes::Bytes;
use memchr::{memchr, memmem};

use base::{
    apimachinery::{Encoding, ResourceVersion, WatchStart},
    json::{Members, text},
};
use engine::{
    encode::{INITIAL_EVENTS_END, protobuf::WatchEvent},
    store::wire::Fields,
};

/// Bytes of an event that are kept until the rest of it is relayed, so that its version can be read. A longer event
/// that comes in several pieces is not read: the next one, or a bookmark, has a later version anyway.
const BEGUN_MAX: usize = 4 << 10;
/// The number of bytes of the big-endian length in front of each protobuf event.
const LENGTH_LEN: usize = 4;
/// Fields of an object's message and of its `ObjectMeta`.
const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;

/// The position of a relayed watch in its stream of events.
#[derive(Debug)]
pub struct RelayedPosition {
    encoding: Encoding,
    /// The first bytes of an event that was relayed only in part, and how many there are in all.
    begun: Vec<u8>,
    relayed: usize,
    /// `None` if the versions do not matter, or cannot be told any more.
    versions: Option<Versions>,
}

/// How far the client has come.
///
/// Invariant: the client has received every change up to `version`, and will continue after it or after a later one.
#[derive(Clone, Copy, Debug)]
struct Versions {
    /// What ends the initial events, which are not in the order of their versions; `None` once they are over.
    initial: Option<InitialEnd>,
    version: Option<ResourceVersion>,
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

impl RelayedPosition {
    /// The position before any event, of which only the ends matter.
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, begun: Vec::new(), relayed: 0, versions: None }
    }

    /// The same for a watch that begins there, whose versions matter as well. `initial_events_end` says whether a
    /// bookmark ends its initial events.
    #[must_use]
    pub fn with_versions(self, start: WatchStart, initial_events_end: bool) -> Self {
        let (initial, version) = match start {
            WatchStart::After(version) => (None, Some(version)),
            WatchStart::Now(_) => (None, None),
            WatchStart::State(_) if initial_events_end => (Some(InitialEnd::ItsBookmark), None),
            WatchStart::State(_) => (Some(InitialEnd::AnythingElse), None),
        };
        Self { versions: Some(Versions { initial, version }), ..self }
    }

    /// Whether no event was relayed only in part.
    pub fn is_between_events(&self) -> bool {
        self.relayed == 0
    }

    /// A version up to which the client has received everything, and from which, or from a later one, it would continue
    /// the watch. `None` before there is one.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.versions?.version
    }

    /// Processes bytes that were relayed, which may be cut at any place.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = self.event_end(bytes) {
            let (last, rest) = bytes.split_at(end);
            bytes = rest;
            let is_known = self.begun.len() == self.relayed && self.relayed + last.len() <= BEGUN_MAX;
            let begun = std::mem::take(&mut self.begun);
            match std::mem::take(&mut self.relayed) {
                0 => self.read(last),
                _ if is_known => self.read(&[&begun, last].concat()),
                _ => {}
            }
        }
        if self.begun.len() == self.relayed {
            let most = if self.versions.is_some() { BEGUN_MAX } else { LENGTH_LEN };
            self.begun.extend_from_slice(&bytes[..bytes.len().min(most.saturating_sub(self.begun.len()))]);
        }
        self.relayed += bytes.len();
    }

    /// The number of these bytes with which the current event is complete.
    fn event_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.encoding {
            Encoding::Json => memchr(b'\n', bytes).map(|at| at + 1),
            Encoding::Protobuf => {
                let (mut length, mut relayed) = ([0; LENGTH_LEN], self.begun.iter().chain(bytes));
                for byte in &mut length {
                    *byte = *relayed.next()?;
                }
                let whole = usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(LENGTH_LEN)?;
                Some(whole.saturating_sub(self.relayed)).filter(|end| *end <= bytes.len())
            }
        }
    }

    /// Takes the version of a complete event. One that cannot be read ends that: the client may not go on from there.
    fn read(&mut self, event: &[u8]) {
        self.versions = self.versions.and_then(|versions| {
            let (kind, version) = match self.encoding {
                Encoding::Json => json_event(event, versions.initial)?,
                Encoding::Protobuf => protobuf_event(event)?,
            };
            versions.after(kind, version)
        });
    }
}

impl Versions {
    fn after(self, kind: Kind, version: Option<ResourceVersion>) -> Option<Self> {
        let ends_initial = match (self.initial, kind) {
            (None, _) => true,
            (Some(InitialEnd::ItsBookmark), kind) => kind == Kind::Bookmark { ends_initial: true },
            (Some(InitialEnd::AnythingElse), kind) => kind != Kind::Added,
        };
        if !ends_initial {
            return Some(self);
        }
        // Versions rise; a bookmark may repeat the last one.
        let version = version.filter(|version| self.version.is_none_or(|before| before <= *version))?;
        Some(Self { initial: None, version: Some(version) })
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
    use base::apimachinery::WatchOptions;

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

    fn followed(encoding: Encoding, query: &str) -> RelayedPosition {
        let options = WatchOptions::parse(Some(query), false).unwrap();
        RelayedPosition::new(encoding).with_versions(options.start, options.initial_events_end)
    }

    /// The known version before the first piece and after each piece.
    fn versions(encoding: Encoding, query: &str, pieces: &[&[u8]]) -> Vec<Option<u64>> {
        let mut position = followed(encoding, query);
        let version = |position: &RelayedPosition| position.version().map(ResourceVersion::value);
        let first = version(&position);
        let rest = pieces.iter().map(|piece| {
            position.push(piece);
            version(&position)
        });
        [first].into_iter().chain(rest.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn the_version_is_that_of_the_last_complete_event() {
        let [five, six] = [event("ADDED", "5"), event("MODIFIED", "6")];
        let (half, rest) = six.as_bytes().split_at(20);
        let pieces = [five.as_bytes(), half, rest, b"{\"type\""];
        let known = versions(Encoding::Json, "watch=1&resourceVersion=4", &pieces);
        assert_eq!(known, [Some(4), Some(5), Some(5), Some(6), Some(6)]);
        let together = [five.clone() + &six + "{"].concat();
        let known = versions(Encoding::Json, "watch=1&resourceVersion=4", &[together.as_bytes(), &six.as_bytes()[1..]]);
        assert_eq!(known, [Some(4), Some(6), Some(6)]);
    }

    #[test]
    fn initial_events_have_no_version_before_their_end() {
        let (added, changed, bookmark, end) =
            (event("ADDED", "9"), event("MODIFIED", "11"), event("BOOKMARK", "12"), end("13"));
        let (deleted, live) = (event("DELETED", "14"), event("ADDED", "12"));
        let pieces = [&added, &changed, &bookmark, &end, &deleted].map(|event| event.as_bytes());
        assert_eq!(versions(Encoding::Json, WATCH_LIST, &pieces), [None, None, None, None, Some(13), Some(14)]);
        let plain = [&added, &added, &changed, &live].map(|event| event.as_bytes());
        assert_eq!(
            versions(Encoding::Json, "watch=1&resourceVersion=0", &plain),
            [None, None, None, Some(11), Some(12)]
        );
        let now = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(versions(Encoding::Json, now, &plain[..1]), [None, Some(9)]);
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
            let pieces = pieces.each_ref().map(|piece| piece.as_bytes());
            let known = versions(Encoding::Json, "watch=1&resourceVersion=4", &pieces);
            assert_eq!(known, [Some(4), Some(5), None, None], "{strange}");
        }
    }

    #[test]
    fn a_long_event_that_comes_in_pieces_is_not_kept_and_not_read() {
        let mut position = followed(Encoding::Json, "watch=1&resourceVersion=4");
        let long = event("MODIFIED", "5").replace("\"a\"", &format!("\"{}\"", "a".repeat(2 * BEGUN_MAX)));
        for piece in long.as_bytes().chunks(1000) {
            position.push(piece);
            assert!(position.begun.len() <= BEGUN_MAX);
        }
        assert_eq!((position.version(), position.is_between_events()), (ResourceVersion::new(4), true));
        position.push(long.as_bytes());
        assert_eq!(position.version(), ResourceVersion::new(5), "whole, it need not be kept");
        position.push(event("BOOKMARK", "6").as_bytes());
        assert_eq!(position.version(), ResourceVersion::new(6));
    }

    /// After each piece, with and without versions.
    #[test]
    fn the_ends_of_events_are_known() {
        let framed = |event: &[u8]| [&u32::try_from(event.len()).unwrap().to_be_bytes(), event].concat();
        for (encoding, events) in [
            (Encoding::Json, vec![b"{}\n".to_vec(), b"{\"a\":1}\n".to_vec()]),
            (Encoding::Protobuf, vec![framed(b"first"), framed(b""), framed(&[b'x'; 2 * BEGUN_MAX])]),
        ] {
            let stream = events.concat();
            let ends = events.iter().scan(0, |at, event| {
                *at += event.len();
                Some(*at)
            });
            let ends = Vec::from_iter(std::iter::once(0).chain(ends));
            for (piece, is_followed) in [(1, false), (3, false), (7, true), (5000, true), (stream.len(), false)] {
                let plain = RelayedPosition::new(encoding);
                let mut read = if is_followed { followed(encoding, "watch=1&resourceVersion=4") } else { plain };
                let mut at = 0;
                for bytes in stream.chunks(piece) {
                    assert_eq!(read.is_between_events(), ends.contains(&at), "{encoding:?} at {at}");
                    read.push(bytes);
                    at += bytes.len();
                }
                assert!(read.is_between_events());
            }
        }
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
            let whole = versions(encoding, query, &[stream]);
            assert!(whole[1].is_some_and(|version| version > 1), "{encoding:?} {query}: {whole:?}");
            for size in [1, 7, 1000] {
                let cut = versions(encoding, query, &stream.chunks(size).collect::<Vec<_>>());
                assert_eq!(cut.last(), whole.last(), "{encoding:?} {query} in pieces of {size}");
                let known: Vec<_> = cut.iter().flatten().collect();
                assert!(known.is_sorted(), "{encoding:?} {query} in pieces of {size}");
            }
        }
    }
}
