//! Injected faults, and features that older servers lack.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::StatusCode;
use tokio::sync::watch;

use crate::failure::Failure;

/// The features of the server. The default is a 1.36 server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `sendInitialEvents`, and the bookmark at the end of the initial events. Without it, `resourceVersionMatch` on a
    /// watch is answered with 422.
    pub watch_list: bool,
    /// Initial events end. Some agents and aggregated servers accept `sendInitialEvents`, and leave out the bookmark.
    pub initial_events_end: bool,
    /// Bookmarks that are sent periodically and before the deadline.
    pub bookmarks: bool,
    /// Bookmarks have the newest revision of all resources. Without it, they have the last change of their own
    /// resource, as in a cache that gets no progress notifications from etcd.
    pub progress: bool,
    /// Bookmarks have a field in their metadata that no current server writes.
    pub newer_bookmarks: bool,
    /// The storage can be asked for its progress. Without it, a watch-list is answered with 200 and an ERROR event, as
    /// 1.36 does in front of an old etcd.
    pub progress_requests: bool,
    /// The documents of `apidiscovery.k8s.io/v2`. Without it, only the older ones exist.
    pub aggregated_discovery: bool,
    /// `shardSelector` (`ShardedListAndWatch`). Without it, the parameter is ignored.
    pub shards: bool,
    /// `/api` and `/apis`, which a server with only custom resources lacks.
    pub root_discovery: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            watch_list: true,
            initial_events_end: true,
            bookmarks: true,
            progress: true,
            newer_bookmarks: false,
            progress_requests: true,
            aggregated_discovery: true,
            shards: false,
            root_discovery: true,
        }
    }
}

impl Features {
    /// An older server, without watch-list and aggregated discovery.
    pub fn old() -> Self {
        Self { watch_list: false, progress: false, aggregated_discovery: false, ..Self::default() }
    }
}

/// Requests that are answered with an error instead. `None` in a field matches every request.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    /// `list`, `watch`, `get`, …
    pub verb: Option<&'static str>,
    /// For example `pods` or `deployments.apps`.
    pub resource: Option<String>,
    /// How many requests are refused; `None` until [`crate::Sim::accept_all`].
    pub times: Option<u32>,
    /// 403, 404, 429, 500 or 503; any other value is treated as 500.
    pub status: u16,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    /// Verbs and resources whose requests get no response for now.
    held: watch::Sender<Vec<(&'static str, String)>>,
}

#[derive(Debug, Default)]
struct State {
    features: Features,
    refusals: Vec<Refusal>,
    /// Requests that are accepted and never answered.
    swallowed: Vec<Refusal>,
    event_delay: Duration,
    /// Whether initial events show an older state, and the changes since then are sent before the end of the initial
    /// events.
    early_changes: bool,
    /// The number of events that are still to be truncated.
    spoiled: u32,
    /// The namespaces that a Role grants; `None`: everything is allowed.
    granted: Option<Vec<String>>,
    /// Replaces the usual version in `/version`.
    git_version: Option<String>,
}

impl Faults {
    pub(crate) fn git_version(&self) -> String {
        self.state().git_version.clone().unwrap_or_else(|| crate::GIT_VERSION.to_owned())
    }

    pub(crate) fn set_git_version(&self, version: &str) {
        self.state().git_version = Some(version.to_owned());
    }

    pub(crate) fn features(&self) -> Features {
        self.state().features
    }

    pub(crate) fn set_features(&self, features: Features) {
        self.state().features = features;
    }

    pub(crate) fn grant_only(&self, namespaces: Option<Vec<String>>) {
        self.state().granted = namespaces;
    }

    /// The refusal of a request for resources of a namespace, or, if that is `None`, of the cluster.
    pub(crate) fn ungranted(&self, namespace: Option<&str>) -> Option<Failure> {
        let state = self.state();
        let granted = state.granted.as_ref()?;
        let is_granted = namespace.is_some_and(|namespace| granted.iter().any(|granted| granted == namespace));
        (!is_granted).then(|| refusal(403))
    }

    pub(crate) fn event_delay(&self) -> Duration {
        self.state().event_delay
    }

    pub(crate) fn set_event_delay(&self, delay: Duration) {
        self.state().event_delay = delay;
    }

    pub(crate) fn early_changes(&self) -> bool {
        self.state().early_changes
    }

    pub(crate) fn set_early_changes(&self, early: bool) {
        self.state().early_changes = early;
    }

    pub(crate) fn spoil(&self, events: u32) {
        self.state().spoiled = events;
    }

    /// Whether this event must be truncated; if so, it is counted.
    pub(crate) fn is_spoiled(&self) -> bool {
        let mut state = self.state();
        let is_spoiled = state.spoiled > 0;
        state.spoiled = state.spoiled.saturating_sub(1);
        is_spoiled
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.state().refusals.push(refusal);
    }

    pub(crate) fn accept_all(&self) {
        let mut state = self.state();
        state.refusals.clear();
        state.swallowed.clear();
    }

    pub(crate) fn swallow(&self, swallowed: Refusal) {
        self.state().swallowed.push(swallowed);
    }

    /// Whether this request must stay unanswered; if so, it is counted.
    pub(crate) fn is_swallowed(&self, verb: &str, resource: &str) -> bool {
        take(&mut self.state().swallowed, verb, resource).is_some()
    }

    /// The error for this request if it is to be refused. `verb` and `resource` are empty for paths that are not
    /// resources.
    pub(crate) fn refused(&self, verb: &str, resource: &str) -> Option<Failure> {
        take(&mut self.state().refusals, verb, resource).map(refusal)
    }

    pub(crate) fn hold(&self, verb: &'static str, resource: &str) {
        self.held.send_modify(|held| held.push((verb, resource.to_owned())));
    }

    pub(crate) fn release_all(&self) {
        self.held.send_modify(Vec::clear);
    }

    /// Waits until requests of this kind are answered again.
    pub(crate) async fn released(&self, verb: &str, resource: &str) {
        let mut held = self.held.subscribe();
        let is_held = |held: &Vec<(&str, String)>| held.iter().any(|(held, of)| *held == verb && of == resource);
        // The sender lives as long as this does, so waiting cannot fail.
        held.wait_for(|held| !is_held(held)).await.map(drop).unwrap_or_default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the request against the first matching entry of `refusals`, and returns its status.
fn take(refusals: &mut Vec<Refusal>, verb: &str, resource: &str) -> Option<u16> {
    let at = refusals.iter().position(|refusal| {
        refusal.verb.is_none_or(|refused| refused == verb)
            && refusal.resource.as_ref().is_none_or(|refused| refused == resource)
    })?;
    let status = refusals[at].status;
    let left = refusals[at].times.map(|times| times.saturating_sub(1));
    refusals[at].times = left;
    if left == Some(0) {
        refusals.remove(at);
    }
    Some(status)
}

fn refusal(status: u16) -> Failure {
    let retry = serde_json::json!({"retryAfterSeconds": 1});
    match status {
        503 => Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "refused on purpose")
            .with_details(retry),
        429 => Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "storage is (re)initializing")
            .with_details(retry),
        404 => Failure::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
        403 => Failure::new(StatusCode::FORBIDDEN, "Forbidden", "refused on purpose"),
        _ => Failure::internal("refused on purpose"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_after_its_number_of_requests() {
        let faults = Faults::default();
        faults.refuse(Refusal { verb: Some("list"), times: Some(2), status: 503, ..Refusal::default() });
        let refused = |verb| faults.refused(verb, "pods").map(|failure| failure.code.as_u16());
        assert_eq!(
            [refused("watch"), refused("list"), refused("list"), refused("list")],
            [None, Some(503), Some(503), None]
        );
    }
}
