//! The parameters of a watch.

use std::time::Duration;

use crate::apimachinery::options::{InvalidOptions, Match, Version, selectors, shards};
use crate::apimachinery::query::Query;
use crate::apimachinery::{FieldSelector, Freshness, LabelSelector, ResourceVersion, ShardSelector};

/// The parameters of a watch (read-path 1.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    pub start: WatchStart,
    /// Whether a bookmark must mark the end of the initial events.
    pub initial_events_end: bool,
    /// Whether the client sent `sendInitialEvents=true` itself, as opposed to the server's default.
    pub asked_send_initial_events: bool,
    /// Whether the client accepts bookmarks (`allowWatchBookmarks`).
    pub bookmarks: bool,
    /// `None` if the server decides.
    pub timeout: Option<Duration>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// Which upstream may ignore: see [`ShardSelector`].
    pub shards: Option<ShardSelector>,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// ADDED events for the objects of the current state, then all later changes. Never `Exact`.
    State(Freshness),
    /// Only the changes after the current state. `MostRecent` or `Any`.
    Now(Freshness),
    /// Every change after this version.
    After(ResourceVersion),
}

impl WatchOptions {
    /// `watch_path` is true for a path with the deprecated `/watch/` prefix.
    pub fn parse(query: Option<&str>, watch_path: bool) -> Result<Self, InvalidOptions> {
        let query = Query::parse(query)?;
        // Ignored together with a version, refused otherwise (read-path 1.4).
        if query.text("continue").is_some() {
            return Err(InvalidOptions::Unsupported("continue"));
        }
        // Ignored, but refused if it is not a number.
        query.integer("limit")?;
        let timeout = timeout(&query)?;
        let version = Version::parse(&query)?;
        let version_match = Match::parse(&query)?;
        let initial_events = query.flag("sendInitialEvents")?;
        let bookmarks = query.flag("allowWatchBookmarks")?.unwrap_or(false);
        let bare = watch_path && query.flag("watch")? != Some(true);
        let start = if bare {
            start_of_bare_path(version, version_match, initial_events)?
        } else {
            start(version, version_match, initial_events)?
        };
        let (labels, fields) = selectors(&query)?;
        let shards = shards(&query)?;
        Ok(Self {
            start,
            initial_events_end: bookmarks && !bare && matches!(start, WatchStart::State(_)),
            asked_send_initial_events: initial_events == Some(true),
            bookmarks,
            timeout,
            labels,
            fields,
            shards,
        })
    }
}

fn start(
    version: Version,
    version_match: Option<Match>,
    initial_events: Option<bool>,
) -> Result<WatchStart, InvalidOptions> {
    match (version, version_match, initial_events) {
        // Without a version, the server sets both parameters.
        (Version::Unset | Version::Zero, None, None) => Ok(WatchStart::State(version.freshness())),
        (Version::At(version), None, None) => Ok(WatchStart::After(version)),
        (_, Some(Match::NotOlderThan), Some(true)) => Ok(WatchStart::State(version.freshness())),
        (Version::At(version), Some(Match::NotOlderThan), Some(false)) => Ok(WatchStart::After(version)),
        (_, Some(Match::NotOlderThan), Some(false)) => Ok(WatchStart::Now(version.freshness())),
        (_, _, Some(_)) => Err(InvalidOptions::Unsupported("sendInitialEvents")),
        (_, Some(_), None) => Err(InvalidOptions::Unsupported("resourceVersionMatch")),
    }
}

/// The start for a path with the `/watch/` prefix but without `watch=1`: it is validated as a list, and its initial
/// events are not checked for freshness.
fn start_of_bare_path(
    version: Version,
    version_match: Option<Match>,
    initial_events: Option<bool>,
) -> Result<WatchStart, InvalidOptions> {
    match (version, version_match, initial_events) {
        (Version::Unset | Version::Zero, None, None) => Ok(WatchStart::State(Freshness::Any)),
        (Version::At(version), None, None) => Ok(WatchStart::After(version)),
        (_, _, Some(_)) => Err(InvalidOptions::Unsupported("sendInitialEvents")),
        (_, Some(_), None) => Err(InvalidOptions::Unsupported("resourceVersionMatch")),
    }
}

/// Zero lets the server decide. A negative or overflowing value ends the watch at once in ways that depend on other
/// parameters (read-path 2.1, 3.5), so it is refused.
fn timeout(query: &Query<'_>) -> Result<Option<Duration>, InvalidOptions> {
    let Some(seconds) = query.integer("timeoutSeconds")? else { return Ok(None) };
    match u64::try_from(seconds) {
        Ok(0) => Ok(None),
        Ok(seconds) if seconds <= TIMEOUT_SECONDS_MAX => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(InvalidOptions::Unsupported("timeoutSeconds")),
    }
}

/// Go counts a duration in nanoseconds, in a signed 64-bit integer.
const TIMEOUT_SECONDS_MAX: u64 = i64::MAX as u64 / 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    const SIE: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    const NO_SIE: &str = "sendInitialEvents=0&resourceVersionMatch=NotOlderThan";

    #[test]
    fn starts_follow_the_table() {
        let cases = [
            ("watch=1".to_owned(), WatchStart::State(Freshness::MostRecent)),
            ("watch=1&resourceVersion=0".to_owned(), WatchStart::State(Freshness::Any)),
            (format!("watch=1&{SIE}"), WatchStart::State(Freshness::MostRecent)),
            (format!("watch=1&{SIE}&resourceVersion=0"), WatchStart::State(Freshness::Any)),
            (format!("watch=1&{SIE}&resourceVersion=7"), WatchStart::State(Freshness::NotOlderThan(version(7)))),
            (format!("watch=1&{NO_SIE}"), WatchStart::Now(Freshness::MostRecent)),
            (format!("watch=1&{NO_SIE}&resourceVersion=0"), WatchStart::Now(Freshness::Any)),
            (format!("watch=1&{NO_SIE}&resourceVersion=7"), WatchStart::After(version(7))),
            ("watch=1&resourceVersion=7&limit=2".to_owned(), WatchStart::After(version(7))),
        ];
        for (query, start) in cases {
            let plain = WatchOptions::parse(Some(&query), false).unwrap();
            assert_eq!((plain.start, plain.initial_events_end), (start, false), "{query}");
            assert_eq!(plain.asked_send_initial_events, query.contains(SIE), "{query}");
            let marked = WatchOptions::parse(Some(&format!("{query}&allowWatchBookmarks")), true).unwrap();
            let state = matches!(start, WatchStart::State(_));
            assert_eq!((marked.start, marked.bookmarks, marked.initial_events_end), (start, true, state), "{query}");
        }
    }

    #[test]
    fn a_bare_watch_path_has_no_bookmark_after_its_initial_events() {
        let cases = [
            ("allowWatchBookmarks=1", WatchStart::State(Freshness::Any)),
            ("allowWatchBookmarks=1&watch=0&resourceVersion=0", WatchStart::State(Freshness::Any)),
            ("allowWatchBookmarks=1&resourceVersion=7", WatchStart::After(version(7))),
        ];
        for (query, start) in cases {
            let options = WatchOptions::parse(Some(query), true).unwrap();
            assert_eq!((options.start, options.bookmarks, options.initial_events_end), (start, true, false), "{query}");
        }
        for query in [SIE, NO_SIE, "resourceVersion=7&resourceVersionMatch=NotOlderThan"] {
            assert!(WatchOptions::parse(Some(query), true).is_err(), "{query}");
        }
    }

    #[test]
    fn parameters_that_the_server_refuses_are_refused() {
        let queries = [
            "sendInitialEvents=true",
            "sendInitialEvents=false&resourceVersion=7",
            "sendInitialEvents=1&resourceVersionMatch=Exact",
            "resourceVersion=7&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch=Exact",
            "resourceVersion=abc",
            "continue=x",
            "continue=x&resourceVersion=7",
            "limit=abc",
            "timeoutSeconds=abc",
            "timeoutSeconds=-1",
            "timeoutSeconds=9223372037",
            "timeoutSeconds=9223372036854775808",
            "labelSelector=a%3D%3D%3Db",
            "fieldSelector=x",
            "shardSelector=x",
            "%",
        ];
        for query in queries {
            assert!(WatchOptions::parse(Some(&format!("{query}&watch=1")), false).is_err(), "{query}");
        }
    }

    #[test]
    fn timeouts_are_seconds() {
        let timeout = |text: &str| WatchOptions::parse(Some(text), false).unwrap().timeout;
        assert_eq!(timeout("timeoutSeconds=300&timeout=abc"), Some(Duration::from_secs(300)));
        assert_eq!((timeout("timeoutSeconds=0"), timeout("")), (None, None));
        assert_eq!(timeout("timeoutSeconds=9223372036"), Some(Duration::from_secs(9_223_372_036)));
    }
}
