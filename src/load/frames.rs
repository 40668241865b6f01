//! Reads the events of a watch, whose body arrives in pieces. Pure.

use memchr::memmem;

use crate::{splitter::Splitter, version};

/// The annotation of objects that the tool writes: [`stamp`].
pub(super) const SENT: &str = "load.kube-fanout.io/sent";
const SYNCED: &[u8] = b"k8s.io/initial-events-end";
/// The maximum number of bytes between the annotation's key and its digits: `":"`, or two bytes of protobuf.
const BETWEEN_MAX: usize = 3;
/// The number of digits of a timestamp, which is 19 until 2286.
const DIGITS: usize = 19;
/// The type of an event is looked for in this many bytes at its start.
const TYPE_WITHIN: usize = 32;

/// The parts of an event that matter to the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An object was added or modified, or existed at the start. `sent` is the time of its write, if the tool wrote it.
    Object {
        sent: Option<u64>,
    },
    /// Contains the last state of the object, whose timestamp is older.
    Deleted,
    Bookmark,
    /// The bookmark at the end of the initial objects.
    Synced,
    /// `code` is 0 if the event has none.
    Error {
        code: u16,
    },
}

/// The events of one watch.
#[derive(Debug)]
pub(super) struct Frames {
    splitter: Splitter,
    reader: Reader,
}

/// Reads single events.
#[derive(Debug)]
struct Reader {
    is_protobuf: bool,
    sent: memmem::Finder<'static>,
    /// What follows the time in timestamps that count.
    suffix: String,
    versions: Versions,
}

/// Whether the versions of events are read.
#[derive(Debug, Default)]
enum Versions {
    #[default]
    Unread,
    /// Only after the bookmark at the end of the initial objects: until then, the client has only a part of them.
    FromSynced,
    /// The version of the newest event, until it is taken.
    Read(Option<String>),
}

/// A timestamp: when a write was sent, in nanoseconds since 1970, and by which run.
pub(super) fn stamp(sent: u64, run: &str) -> String {
    format!("{sent}{}", suffix(run))
}

fn suffix(run: &str) -> String {
    format!("-{run}")
}

impl Frames {
    pub(super) fn new(is_protobuf: bool) -> Self {
        let sent = memmem::Finder::new(SENT);
        let reader = Reader { is_protobuf, sent, suffix: String::new(), versions: Versions::Unread };
        Self { splitter: Splitter::new(is_protobuf), reader }
    }

    /// Reads only the timestamps of that run: another one may have another clock.
    pub(super) fn of_run(self, run: &str) -> Self {
        Self { reader: Reader { suffix: suffix(run), ..self.reader }, ..self }
    }

    /// Also reads versions: from the first event on or, with `from_synced`, after the bookmark at the end of the
    /// initial objects.
    pub(super) fn with_versions(self, from_synced: bool) -> Self {
        let versions = if from_synced { Versions::FromSynced } else { Versions::Read(None) };
        Self { reader: Reader { versions, ..self.reader }, ..self }
    }

    /// The newest version since the last call; `None` if there is none.
    pub(super) fn version(&mut self) -> Option<String> {
        match &mut self.reader.versions {
            Versions::Read(version) => version.take(),
            Versions::Unread | Versions::FromSynced => None,
        }
    }

    /// Calls `each` for all events that end in `piece`.
    pub(super) fn push(&mut self, piece: &[u8], mut each: impl FnMut(Event)) {
        let Self { splitter, reader } = self;
        splitter.push(piece, |frame| {
            let event = reader.event(frame);
            reader.read_version(event, frame);
            each(event);
        });
    }
}

impl Reader {
    fn read_version(&mut self, event: Event, frame: &[u8]) {
        if event == Event::Synced && matches!(self.versions, Versions::FromSynced) {
            self.versions = Versions::Read(None);
        }
        if let Versions::Read(version) = &mut self.versions
            && !matches!(event, Event::Error { .. })
        {
            *version = version::of_event(frame, self.is_protobuf).or(version.take());
        }
    }

    fn event(&self, frame: &[u8]) -> Event {
        let head = &frame[..frame.len().min(TYPE_WITHIN)];
        let is = |kind: &[u8]| memmem::find(head, kind).is_some();
        if is(b"DELETED") {
            Event::Deleted
        } else if is(b"BOOKMARK") {
            if memmem::find(frame, SYNCED).is_some() { Event::Synced } else { Event::Bookmark }
        } else if is(b"ERROR") {
            Event::Error { code: version::error_code(frame, self.is_protobuf) }
        } else {
            Event::Object { sent: self.stamp(frame) }
        }
    }

    /// The first timestamp after the annotation's key. `managedFields` contains the key, too, but no value after it.
    fn stamp(&self, frame: &[u8]) -> Option<u64> {
        self.sent.find_iter(frame).find_map(|at| {
            let rest = &frame[at + SENT.len()..];
            let from = rest.iter().take(BETWEEN_MAX + 1).position(u8::is_ascii_digit)?;
            let is_own = rest.get(from + DIGITS..)?.starts_with(self.suffix.as_bytes());
            std::str::from_utf8(rest.get(from..from + DIGITS)?).ok()?.parse().ok().filter(|_| is_own)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: u64 = 1_763_811_471_000_000_123;

    fn events(is_protobuf: bool, body: &[u8], piece: usize) -> Vec<Event> {
        let (mut frames, mut events) = (Frames::new(is_protobuf), Vec::new());
        for piece in body.chunks(piece) {
            frames.push(piece, |event| events.push(event));
        }
        events
    }

    #[test]
    fn the_size_of_the_pieces_does_not_matter() {
        let body = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"annotations\":{{\"{SENT}\":\"{STAMP}\"}}}}}}}}\n\
             {{\"type\":\"MODIFIED\",\"object\":{{\"metadata\":{{\"managedFields\":[{{\"f:{SENT}\":{{}}}}]}}}}}}\n\
             {{\"type\":\"DELETED\",\"object\":{{\"metadata\":{{\"annotations\":{{\"{SENT}\":\"{STAMP}\"}}}}}}}}\n\
             {{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"5\"}}}}}}\n\
             {{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"annotations\":\
             {{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n\
             {{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"code\":410}}}}\n{{\"type\":\"ADD"
        );
        let expected = [
            Event::Object { sent: Some(STAMP) },
            Event::Object { sent: None },
            Event::Deleted,
            Event::Bookmark,
            Event::Synced,
            Event::Error { code: 410 },
        ];
        for piece in 1..body.len() {
            assert_eq!(events(false, body.as_bytes(), piece), expected, "{piece}");
        }
    }

    #[test]
    fn timestamps_of_another_run_do_not_count() {
        let sent = |stamp: &str, is_protobuf| {
            let length = u8::try_from(stamp.len()).unwrap();
            let value = if is_protobuf { [&[0x12, length][..], stamp.as_bytes()].concat() } else { stamp.into() };
            let between: &[u8] = if is_protobuf { b"" } else { b"\":\"" };
            let event = [&b"{\"type\":\"ADDED\","[..], SENT.as_bytes(), between, &value, b"\"}"].concat();
            Frames::new(is_protobuf).of_run("a1b2c3").reader.event(&event)
        };
        for is_protobuf in [false, true] {
            assert_eq!(sent(&stamp(STAMP, "a1b2c3"), is_protobuf), Event::Object { sent: Some(STAMP) });
            assert_eq!(sent(&stamp(STAMP, "ffffff"), is_protobuf), Event::Object { sent: None });
        }
    }

    #[test]
    fn versions_are_read_after_the_initial_objects() {
        let event = |kind: &str, version: u64, more: &str| {
            format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"{more}}}}}}}\n")
        };
        let end = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";
        let initial = event("ADDED", 3, "");
        let rest =
            [event("BOOKMARK", 7, end), event("DELETED", 8, ""), "{\"type\":\"ERROR\",\"object\":{}}\n".to_owned()];
        for (from_synced, first) in [(true, None), (false, Some("3"))] {
            let mut frames = Frames::new(false).with_versions(from_synced);
            frames.push(initial.as_bytes(), |_| {});
            assert_eq!(frames.version().as_deref(), first);
            frames.push(rest.concat().as_bytes(), |_| {});
            assert_eq!((frames.version().as_deref(), frames.version()), (Some("8"), None));
        }
    }

    #[test]
    fn protobuf_messages_are_split_by_their_lengths() {
        let message = |kind: &str, rest: &[u8]| {
            let mut message = vec![0x0a, u8::try_from(kind.len()).unwrap()];
            message.extend_from_slice(kind.as_bytes());
            message.extend_from_slice(rest);
            [&u32::try_from(message.len()).unwrap().to_be_bytes(), &message[..]].concat()
        };
        let annotation = [SENT.as_bytes(), &[0x12, 19], STAMP.to_string().as_bytes()].concat();
        let body = [
            message("ADDED", &annotation),
            message("MODIFIED", b"\n\n\n"),
            message("DELETED", &annotation),
            message("BOOKMARK", SYNCED),
            vec![0, 0],
        ]
        .concat();
        let expected =
            [Event::Object { sent: Some(STAMP) }, Event::Object { sent: None }, Event::Deleted, Event::Synced];
        for piece in 1..body.len() {
            assert_eq!(events(true, &body, piece), expected, "{piece}");
        }
    }
}
