//! Bookmarks: one of upstream's own, with another version in it.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::protobuf;
use crate::apimachinery::ResourceVersion;

/// The annotation of the bookmark that ends the initial events (read-path 3.4).
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

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

/// The bookmark of one resource in JSON as upstream writes it: a zero value with odd mandatory fields
/// (read-path, appendix A), which is why it is recorded and not composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonBookmark {
    plain: AroundVersion,
    initial_events_end: AroundVersion,
}

/// A whole event, cut where the digits of the version stand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AroundVersion {
    head: Bytes,
    tail: Bytes,
}

/// What upstream calls a bookmark does not look like one.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBookmark {
    #[error("not the JSON of a bookmark")]
    Json(#[source] serde_json::Error),
    #[error("the bookmark's resourceVersion is not a number above zero")]
    Version,
}

#[derive(serde::Deserialize)]
struct BookmarkObject<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Only what a bookmark's metadata has been seen to hold: with anything else it is not recorded.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BookmarkMetadata<'a> {
    resource_version: &'a str,
    #[serde(borrow, default)]
    annotations: BTreeMap<Cow<'a, str>, &'a RawValue>,
    /// Servers before 1.36 print it, as null.
    #[serde(borrow, default, deserialize_with = "even_null")]
    creation_timestamp: Option<&'a RawValue>,
}

fn even_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    serde::Deserialize::deserialize(deserializer).map(Some)
}

impl JsonBookmark {
    /// Records the object of a bookmark of upstream; gives the version it had, too.
    pub fn record(object: &[u8]) -> Result<(Self, ResourceVersion), InvalidBookmark> {
        let object = object.trim_ascii();
        let parsed: BookmarkObject<'_> = serde_json::from_slice(object).map_err(InvalidBookmark::Json)?;
        let metadata = parsed.metadata.get();
        let fields: BookmarkMetadata<'_> = serde_json::from_str(metadata).map_err(InvalidBookmark::Json)?;
        let version = ResourceVersion::parse(fields.resource_version).map_err(|_| InvalidBookmark::Version)?;
        let start = metadata.as_ptr() as usize - object.as_ptr() as usize;
        let around = (&object[..start], &object[start + metadata.len()..]);
        let alphabetical = object.starts_with(b"{\"apiVersion\"");
        let cut = |end: bool| AroundVersion::new(around, &fields, alphabetical, end);
        Ok((Self { plain: cut(false), initial_events_end: cut(true) }, version))
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

impl AroundVersion {
    fn new(around: (&[u8], &[u8]), fields: &BookmarkMetadata<'_>, alphabetical: bool, end: bool) -> Self {
        let mut annotations: BTreeMap<&str, &str> = fields
            .annotations
            .iter()
            .filter(|(name, _)| *name != INITIAL_EVENTS_END)
            .map(|(name, value)| (&**name, value.get()))
            .collect();
        if end {
            annotations.insert(INITIAL_EVENTS_END, "\"true\"");
        }
        let annotations: Vec<_> = annotations.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let annotations = match annotations.as_slice() {
            [] => String::new(),
            some => format!("\"annotations\":{{{}}}", some.join(",")),
        };
        let created = fields.creation_timestamp.map_or(String::new(), |value| format!("\"creationTimestamp\":{value}"));
        let version = "\"resourceVersion\":\"".to_owned();
        // Custom resources are written in alphabetical order, built-in types in that of the Go struct.
        let (before, behind) =
            if alphabetical { (vec![annotations, created], vec![]) } else { (vec![], vec![created, annotations]) };
        let present = |members: Vec<String>| members.into_iter().filter(|member| !member.is_empty());
        let before: String = present(before).map(|member| member + ",").collect();
        let behind: String = present(behind).map(|member| ",".to_owned() + &member).collect();
        let head =
            [b"{\"type\":\"BOOKMARK\",\"object\":", around.0, b"{", before.as_bytes(), version.as_bytes()].concat();
        let tail = [b"\"", behind.as_bytes(), b"}", around.1, b"}\n"].concat();
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
        let end = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"347","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#;
        let template = recorded(end);
        let version = ResourceVersion::new(9).expect("not zero");
        assert_eq!(
            text(&template.event(version)),
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"},\"spec\":{\"containers\":null},\"status\":{}}}\n"
        );
        let again = template.initial_events_end(ResourceVersion::new(347).expect("not zero"));
        assert_eq!(text(&again), format!("{{\"type\":\"BOOKMARK\",\"object\":{end}}}\n"));
    }

    #[test]
    fn custom_resources_write_annotations_first() {
        let end = r#"{"apiVersion":"x.io/v1","kind":"W","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"356"}}"#;
        let template = recorded(end);
        let again = template.initial_events_end(ResourceVersion::new(356).expect("not zero"));
        assert_eq!(text(&again), format!("{{\"type\":\"BOOKMARK\",\"object\":{end}}}\n"));
        assert!(
            text(&template.event(ResourceVersion::new(1).expect("not zero")))
                .contains(r#""metadata":{"resourceVersion":"1"}"#)
        );
    }

    #[test]
    fn annotations_of_the_type_and_null_timestamps_of_old_servers_stay() {
        let daemon_set = recorded(
            r#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"5","creationTimestamp":null,"annotations":{"deprecated.daemonset.template.generation":"0"}},"spec":{}}"#,
        );
        let version = ResourceVersion::new(6).expect("not zero");
        assert!(text(&daemon_set.event(version)).contains(
            r#"{"resourceVersion":"6","creationTimestamp":null,"annotations":{"deprecated.daemonset.template.generation":"0"}}"#
        ));
        assert!(
            text(&daemon_set.initial_events_end(version))
                .contains(r#"{"deprecated.daemonset.template.generation":"0","k8s.io/initial-events-end":"true"}"#)
        );
    }

    #[test]
    fn what_is_not_a_bookmark_is_refused() {
        for object in
            ["", "{}", r#"{"metadata":{"resourceVersion":"x"}}"#, r#"{"metadata":{"resourceVersion":"1","name":"a"}}"#]
        {
            assert!(JsonBookmark::record(object.as_bytes()).is_err(), "{object}");
        }
    }
}
