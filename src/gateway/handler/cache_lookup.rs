//! Reads that find their cache being filled: which of them wait, and for how long.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::route::{ReadOptions, Route, is_table};
use crate::{
    cacher::{Cachers, Instance, NotCached},
    serve::{self, ForwardReason},
};
use base::{
    apimachinery::{
        ElectionRank, Encoding, FieldSelector, Freshness, Representation, ResourceRequest, ResourceVersion, View,
        WatchOptions, WatchStart,
    },
    config::{MostRecentReads, MostRecentWatch, ReadsConfig},
};

/// The longest time that a read may wait; `None` where memory could not answer it even with a filled cache, or where
/// forwarding costs upstream no more than answering it.
pub(super) fn wait(options: &ReadOptions, config: ReadsConfig) -> Option<Duration> {
    let wait = match options {
        // A single object: upstream reads no more than that.
        ReadOptions::Get(_) => return None,
        ReadOptions::List(options) => {
            // A continue token belongs to a version before the fill.
            let is_recent = match options.freshness {
                Freshness::Any | Freshness::NotOlderThan(_) => true,
                Freshness::MostRecent => config.most_recent == MostRecentReads::Prove,
                Freshness::Exact(_) => false,
            };
            (is_recent && options.continue_token.is_none()).then_some(config.fill_wait)?
        }
        ReadOptions::Watch(options) => {
            let waits = match options.start {
                WatchStart::State(Freshness::MostRecent) => config.most_recent_watch == MostRecentWatch::Prove,
                WatchStart::State(_) | WatchStart::Now(Freshness::Any) => true,
                // The version may be older than the fill, and upstream may still know the changes in between. See also
                // `wait_resumed`.
                WatchStart::Now(_) | WatchStart::After(_) => false,
            };
            waits.then_some(within(config.fill_wait, options.timeout))?
        }
    };
    Some(wait).filter(|wait| !wait.is_zero())
}

/// The version from which a watch resumes.
pub(super) fn resumed_from(options: &ReadOptions) -> Option<ResourceVersion> {
    match options {
        ReadOptions::Watch(WatchOptions { start: WatchStart::After(version), .. }) => Some(*version),
        ReadOptions::Watch(_) | ReadOptions::Get(_) | ReadOptions::List(_) => None,
    }
}

/// A watch that may wait less than this does not wait for what happened before the fill: it would be in vain.
const RESUME_MIN: Duration = Duration::from_secs(3);

/// The longest time that a watch may wait that resumes from a version, if upstream has few places left for it:
/// otherwise it would be refused.
pub(super) fn wait_resumed(options: &ReadOptions, config: ReadsConfig) -> Option<Duration> {
    let ReadOptions::Watch(WatchOptions { start: WatchStart::After(_), timeout, .. }) = options else { return None };
    Some(within(config.fill_wait, *timeout)).filter(|wait| *wait >= RESUME_MIN)
}

/// A watch with a timeout no longer than the wait would be over before it began.
fn within(wait: Duration, timeout: Option<Duration>) -> Duration {
    wait.min(timeout.map_or(Duration::MAX, |timeout| timeout / 2))
}

/// What a read needs of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) target: &'a ResourceRequest,
    /// `None` for a get.
    pub(super) fields: Option<&'a FieldSelector>,
    /// Best first.
    pub(super) representations: &'a [Representation],
}

impl Route<'_> {
    pub(super) fn wanted(&self) -> Wanted<'_> {
        let Self { target, options, representations, .. } = self;
        Wanted { target, fields: options.selectors().map(|(_, fields)| fields), representations }
    }
}

/// The store for the first of the requested representations that the resource has. Waits until `limit` for one that is
/// being filled.
pub(super) async fn find(
    cachers: &Cachers,
    Wanted { target, fields, representations }: Wanted<'_>,
    limit: Option<Instant>,
) -> Result<(Arc<Instance>, Representation), ForwardReason> {
    let find = async |encoding| match limit {
        Some(limit) => cachers.filled(target, fields, encoding, limit).await,
        None => cachers.find(target, fields, encoding),
    };
    let version = || cachers.upstream_version();
    if representations.iter().any(is_table) && !serve::may_print(&target.resource, version().as_deref()) {
        return Err(ForwardReason::Unprintable);
    }
    for &representation in representations {
        match find(representation.encoding).await {
            Ok(instance) => return Ok((instance, representation)),
            // Their metadata has, and it is made from JSON.
            Err(NotCached::NotInProtobuf) if representation.view != View::Whole => {
                return Ok((find(Encoding::Json).await?, representation));
            }
            Err(NotCached::NotInProtobuf) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(ForwardReason::Representation)
}

/// The filled store for the first of the requested representations. Starts nothing and waits for nothing.
pub(super) fn held(
    cachers: &Cachers,
    Route { target, representations, .. }: &Route<'_>,
) -> Option<(Arc<Instance>, Representation)> {
    let held = |&representation: &Representation| {
        Some((cachers.held(&target.resource, representation.encoding)?, representation))
    };
    representations.iter().find_map(held)
}

/// The rank for a peer that asks for a store that is not filled; `None` unless the store for the first of the
/// representations is being filled.
pub(super) fn rank(cachers: &Cachers, Route { target, representations, .. }: &Route<'_>) -> Option<ElectionRank> {
    cachers.rank(&target.resource, representations.first()?.encoding)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http::{Method, Request};

    use super::*;
    use base::{apimachinery::RequestInfo, config::Shards};

    #[test]
    fn only_reads_that_a_filled_cache_answers_wait_for_the_fill() {
        let config = |proves| ReadsConfig {
            freshness_wait: Duration::from_millis(100),
            fill_wait: Duration::from_secs(30),
            most_recent_watch: if proves { MostRecentWatch::Prove } else { MostRecentWatch::Forward },
            most_recent: if proves { MostRecentReads::Prove } else { MostRecentReads::Auto },
            shards: Shards::Upstream,
        };
        let waited = |path: &str, prove| {
            let request = Request::get(path).body(()).unwrap();
            let info = RequestInfo::parse(&Method::GET, request.uri().path(), request.uri().query());
            let route = super::super::route::decide(&request, &info, &HashSet::new()).unwrap();
            wait(&route.options, config(prove)).map(|wait| wait.as_secs())
        };
        const WATCH_LIST: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        for (path, expected) in [
            ("pods?resourceVersion=0", Some(30)),
            ("pods?resourceVersion=0&limit=500", Some(30)),
            ("pods?resourceVersion=7", Some(30)),
            ("pods?resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5", Some(30)),
            ("pods", Some(30)),
            ("pods?limit=500", Some(30)),
            ("pods?resourceVersion=7&limit=5", None),
            ("pods?resourceVersion=7&resourceVersionMatch=Exact", None),
            ("pods?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzYyLCJzdGFydCI6Ii9wb2QtMDRcdTAwMDAifQ", None),
            ("namespaces/a/pods/b?resourceVersion=0", None),
            ("pods?watch=1&resourceVersion=0", Some(30)),
            ("pods?watch=1&resourceVersion=0&timeoutSeconds=600", Some(30)),
            ("pods?watch=1&resourceVersion=0&timeoutSeconds=10", Some(5)),
            ("pods?watch=1", Some(30)),
            (&format!("pods?{WATCH_LIST}"), Some(30)),
            (&format!("pods?{WATCH_LIST}&resourceVersion=7"), Some(30)),
            ("pods?watch=1&resourceVersion=7", None),
            ("pods?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Some(30)),
            ("pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", None),
        ] {
            assert_eq!(waited(&format!("/api/v1/{path}"), true), expected, "{path}");
        }
        assert_eq!(waited(&format!("/api/v1/pods?{WATCH_LIST}"), false), None);
        assert_eq!(waited("/api/v1/pods", false), None);
        assert_eq!(waited("/api/v1/pods?watch=1&resourceVersion=0", false), Some(30));
    }
}
