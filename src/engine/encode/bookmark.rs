//! Bookmarks: a recorded bookmark of upstream, with another version in it.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{INITIAL_EVENTS_END, protobuf};
use base::{
    apimachinery::ResourceVersion,
    json::{InvalidJson, Members},
};

/// The bookmark of one resource, recorded from upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BookmarkTemplate {
    Json(JsonBookmark),
    Protobuf(protobuf::BookmarkTemplate),
}

impl BookmarkTemplate {
    /// A bookmark at `version`, as an event.
    pub fn event(&self, version: ResourceVersion) -> Bytes {
        match self {
            Self::Json(bookmark) => bookmark.event(version),
            Self::Protobuf(bookmark) => bookmark.event(version),
        }
    }

    /// The bookmark that ends the initial events, as an event.
    pub fn initial_events_end(&self, version: ResourceVersion) -> Bytes {
        match self {
            Self::Json(bookmark) => bookmark.initial_events_end(version),
            Self::Protobuf(bookmark) => bookmark.initial_events_end(version),
        }
    }
}

/// The bookmark of one resource in JSON as upstream writes it. Its object is a zero value with unusual mandatory fields
/// (read-path, appendix A), which is why it is recorded and not composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonBookmark {
    plain: AroundVersion,
    initial_events_end: AroundVersion,
}

/// A whole event, split at the digits of the version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AroundVersion {
    head: Bytes,
    tail: Bytes,
}

/// What upstream sent as a bookmark does not have the form of one.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBookmark {
    #[error("not a bookmark in JSON")]
    Json(#[source] serde_json::Error),
    #[error("cannot read the bookmark's metadata")]
    Metadata(#[source] InvalidJson),
    #[error("the bookmark's resourceVersion is not a number above zero")]
    Version,
    #[error("a bookmark must not have a name")]
    Named,
}

#[derive(serde::Deserialize)]
struct BookmarkObject<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// The members of a bookmark's metadata in their order. Members that are not known here, which a newer server may
/// write, are kept unchanged.
struct BookmarkMetadata<'a> {
    members: Vec<(Cow<'a, str>, &'a str)>,
    version: ResourceVersion,
    /// All annotations except the one that ends the initial events.
    annotations: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

/// The members in front of `annotations` in the Go struct and that a bookmark may have.
const BEFORE_ANNOTATIONS: [&str; 4] = ["resourceVersion", "generation", "creationTimestamp", "labels"];

impl JsonBookmark {
    /// Records the object of one of upstream's bookmarks. Also returns the bookmark's version.
    pub fn record(object: &[u8]) -> Result<(Self, ResourceVersion), InvalidBookmark> {
        let object = object.trim_ascii();
        let parsed: BookmarkObject<'_> = serde_json::from_slice(object).map_err(InvalidBookmark::Json)?;
        let metadata = parsed.metadata.get();
        let fields = BookmarkMetadata::read(metadata)?;
        let start = metadata.as_ptr() as usize - object.as_ptr() as usize;
        let (before, after) = (&object[..start], &object[start + metadata.len()..]);
        let alphabetical = object.starts_with(b"{\"apiVersion\"");
        let cut = |end: bool| AroundVersion::new(before, after, &fields, alphabetical, end);
        Ok((Self { plain: cut(false), initial_events_end: cut(true) }, fields.version))
    }

    /// A bookmark at `version`, as an event.
    pub fn event(&self, version: ResourceVersion) -> Bytes {
        self.plain.with(version)
    }

    /// The bookmark that ends the initial events, as an event.
    pub fn initial_events_end(&self, version: ResourceVersion) -> Bytes {
        self.initial_events_end.with(version)
    }
}

impl<'a> BookmarkMetadata<'a> {
    /// `text` must be valid JSON.
    fn read(text: &'a str) -> Result<Self, InvalidBookmark> {
        let (mut members, mut version, mut annotations) = (Vec::new(), None, BTreeMap::new());
        for member in Members::of(text.as_bytes()).map_err(InvalidBookmark::Metadata)? {
            let (name, value) = member.map_err(InvalidBookmark::Metadata)?;
            // Values are split at the boundaries of their JSON, which are never within a character.
            let value = std::str::from_utf8(value).map_err(|_| InvalidBookmark::Version)?;
            match &*name {
                "name" => return Err(InvalidBookmark::Named),
                "resourceVersion" => {
                    let digits: &str = serde_json::from_str(value).map_err(InvalidBookmark::Json)?;
                    version = Some(ResourceVersion::parse(digits).map_err(|_| InvalidBookmark::Version)?);
                }
                "annotations" => {
                    let all: Option<BTreeMap<_, _>> = serde_json::from_str(value).map_err(InvalidBookmark::Json)?;
                    annotations = all.unwrap_or_default();
                }
                _ => {}
            }
            members.push((name, value));
        }
        annotations.remove(INITIAL_EVENTS_END);
        Ok(Self { members, version: version.ok_or(InvalidBookmark::Version)?, annotations })
    }

    /// The position of `annotations` among the members if the recorded bookmark had none.
    fn place_of_annotations(&self, alphabetical: bool) -> usize {
        let is_before = |name: &str| {
            if alphabetical { name < "annotations" } else { BEFORE_ANNOTATIONS.contains(&name) }
        };
        self.members.iter().rposition(|(name, _)| is_before(name)).map_or(0, |last| last + 1)
    }
}

impl AroundVersion {
    fn new(
        before_metadata: &[u8],
        after_metadata: &[u8],
        fields: &BookmarkMetadata<'_>,
        alphabetical: bool,
        end: bool,
    ) -> Self {
        let mut annotations: BTreeMap<&str, &str> =
            fields.annotations.iter().map(|(name, value)| (&**name, value.get())).collect();
        if end {
            annotations.insert(INITIAL_EVENTS_END, "\"true\"");
        }
        let annotations: Vec<_> = annotations.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let annotations = format!("{{{}}}", annotations.join(","));
        let mut members: Vec<(&str, &str)> = fields.members.iter().map(|(name, value)| (&**name, *value)).collect();
        if !members.iter().any(|(name, _)| *name == "annotations") {
            members.insert(fields.place_of_annotations(alphabetical), ("annotations", ""));
        }
        let (mut head, mut tail) = (String::new(), None);
        for (name, value) in members {
            let text = tail.as_mut().unwrap_or(&mut head);
            let comma = if text.is_empty() { "" } else { "," };
            match name {
                "resourceVersion" => {
                    *text += &format!("{comma}\"resourceVersion\":\"");
                    tail = Some("\"".to_owned());
                }
                "annotations" if annotations == "{}" => {}
                "annotations" => *text += &format!("{comma}\"annotations\":{annotations}"),
                _ => *text += &format!("{comma}\"{name}\":{value}"),
            }
        }
        let head = [b"{\"type\":\"BOOKMARK\",\"object\":", before_metadata, b"{", head.as_bytes()].concat();
        let tail = [tail.unwrap_or_default().as_bytes(), b"}", after_metadata, b"}\n"].concat();
        Self { head: head.into(), tail: tail.into() }
    }

    fn with(&self, version: ResourceVersion) -> Bytes {
        [&*self.head, version.to_string().as_bytes(), &*self.tail].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(object: &str) -> JsonBookmark {
        JsonBookmark::record(object.as_bytes()).expect("a bookmark").0
    }

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).expect("utf-8")
    }

    #[test]
    fn built_in_types_keep_their_odd_zero_fields() {
        let end = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"347","#,
            r#""annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#,
        );
        let template = recorded(end);
        let version = ResourceVersion::new(9).expect("not zero");
        assert_eq!(
            text(&template.event(version)),
            concat!(
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"},"#,
                r#""spec":{"containers":null},"status":{}}}"#,
                "\n"
            )
        );
        let again = template.initial_events_end(ResourceVersion::new(347).expect("not zero"));
        assert_eq!(text(&again), format!("{{\"type\":\"BOOKMARK\",\"object\":{end}}}\n"));
    }

    #[test]
    fn custom_resources_write_annotations_first() {
        let end = concat!(
            r#"{"apiVersion":"x.io/v1","kind":"W","metadata":"#,
            r#"{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"356"}}"#,
        );
        let template = recorded(end);
        let again = template.initial_events_end(ResourceVersion::new(356).expect("not zero"));
        assert_eq!(text(&again), format!("{{\"type\":\"BOOKMARK\",\"object\":{end}}}\n"));
        assert!(
            text(&template.event(ResourceVersion::new(1).expect("not zero")))
                .contains(r#""metadata":{"resourceVersion":"1"}"#)
        );
    }

    #[test]
    fn annotations_of_the_type_and_null_timestamps_of_old_servers_are_kept() {
        let daemon_set = recorded(concat!(
            r#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"5","creationTimestamp":null,"#,
            r#""annotations":{"deprecated.daemonset.template.generation":"0"}},"spec":{}}"#,
        ));
        let version = ResourceVersion::new(6).expect("not zero");
        assert!(text(&daemon_set.event(version)).contains(concat!(
            r#"{"resourceVersion":"6","creationTimestamp":null,"#,
            r#""annotations":{"deprecated.daemonset.template.generation":"0"}}"#,
        )));
        assert!(
            text(&daemon_set.initial_events_end(version))
                .contains(r#"{"deprecated.daemonset.template.generation":"0","k8s.io/initial-events-end":"true"}"#)
        );
    }

    #[test]
    fn fields_of_newer_servers_keep_their_place() {
        let version = ResourceVersion::new(6).expect("not zero");
        for (object, plain, end) in [
            (
                concat!(
                    r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5","generation":1,"#,
                    r#""shard":{"a":[1,"}"]}}}"#,
                ),
                r#""metadata":{"resourceVersion":"6","generation":1,"shard":{"a":[1,"}"]}}"#,
                concat!(
                    r#"{"resourceVersion":"6","generation":1,"annotations":{"k8s.io/initial-events-end":"true"},"#,
                    r#""shard":{"a":[1,"}"]}}"#,
                ),
            ),
            (
                r#"{"apiVersion":"x.io/v1","kind":"W","metadata":{"actor":null,"resourceVersion":"5","shard":"b"}}"#,
                r#""metadata":{"actor":null,"resourceVersion":"6","shard":"b"}"#,
                concat!(
                    r#"{"actor":null,"annotations":{"k8s.io/initial-events-end":"true"},"#,
                    r#""resourceVersion":"6","shard":"b"}"#,
                ),
            ),
        ] {
            let template = recorded(object);
            assert!(text(&template.event(version)).contains(plain), "{}", text(&template.event(version)));
            let ended = template.initial_events_end(version);
            assert!(text(&ended).contains(end), "{}", text(&ended));
            for event in [&template.event(version), &ended] {
                serde_json::from_str::<serde_json::Value>(text(event)).expect("JSON");
            }
        }
    }

    #[test]
    fn invalid_bookmarks_are_refused() {
        for object in
            ["", "{}", r#"{"metadata":{"resourceVersion":"x"}}"#, r#"{"metadata":{"resourceVersion":"1","name":"a"}}"#]
        {
            assert!(JsonBookmark::record(object.as_bytes()).is_err(), "{object}");
        }
    }
}
