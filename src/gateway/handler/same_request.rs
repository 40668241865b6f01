//! Checks a whole request, for the tests and the fuzz target: the objects that memory may answer it with are those that
//! were authorized, and those that the API server would read.

use std::{collections::HashSet, time::Duration};

use http::{HeaderMap, Method, Request, header};

use super::{cache_lookup, route};
use crate::{authn::Authenticator, authz::oracle, listener};
use base::{
    apimachinery::{ObjectKey, RequestInfo},
    config::{MostRecentReads, MostRecentWatch, ReadsConfig, Shards},
};

pub(super) const CONFIG: ReadsConfig = ReadsConfig {
    freshness_wait: Duration::from_millis(100),
    fill_wait: Duration::from_secs(30),
    most_recent_watch: MostRecentWatch::Prove,
    most_recent: MostRecentReads::Prove,
    shards: Shards::Upstream,
};

/// Panics if the request can be read in two ways. Returns the objects that memory may answer it with, of a namespaced
/// and of a cluster-scoped resource.
pub fn check(mut request: Request<()>) -> Vec<ObjectKey> {
    if listener::check_well_formed(&request).is_err() {
        return Vec::new();
    }
    let uri = request.uri().clone();
    let info = RequestInfo::parse(request.method(), uri.path(), uri.query());
    let given = request.headers().clone();
    let credentials = Authenticator::trusted().credentials(request.headers_mut(), None);
    check_identity(&given, request.headers(), credentials.impersonates());
    let Ok(route) = route::decide(&request, &info, &HashSet::new()) else { return Vec::new() };
    // The result does not matter, only that it does not panic.
    cache_lookup::wait(&route.options, CONFIG);
    if credentials.impersonates() {
        return Vec::new();
    }
    assert_eq!(request.method(), Method::GET);
    assert_eq!(route.target.subresource, None);
    oracle::check_both(request.method(), uri.path(), uri.query().unwrap_or_default())
}

/// Checks that no identity claimed by the request is left after authentication, and that impersonation is noticed.
fn check_identity(given: &HeaderMap, left: &HeaderMap, impersonates: bool) {
    let starts = |headers: &HeaderMap, prefix| headers.keys().any(|name| name.as_str().starts_with(prefix));
    assert_eq!(impersonates, starts(given, "impersonate-"));
    assert!(!left.contains_key(header::AUTHORIZATION));
    for asserted in ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-"] {
        assert!(!starts(left, asserted), "{asserted}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of objects that may be read by a request to that URL with these headers.
    fn readable(url: &str, headers: &[(&str, &str)]) -> usize {
        let mut request = Request::get(url).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut keys = check(request.body(()).unwrap());
        keys.sort();
        keys.dedup();
        keys.len()
    }

    #[test]
    fn headers_never_change_which_objects_are_answered() {
        let one = "/api/v1/namespaces/a/pods/b";
        for (headers, expected) in [
            (&[][..], 1),
            (&[("accept", "application/json"), ("authorization", "Bearer t"), ("x-remote-user", "admin")], 1),
            (&[("x-http-method-override", "DELETE"), ("x-original-url", "/api/v1/secrets")], 1),
            (&[("impersonate-user", "jane")], 0),
            (&[("impersonate-", "")], 0),
            (&[("accept", "application/yaml")], 0),
            (&[("connection", "upgrade"), ("upgrade", "websocket")], 0),
            (&[("host", "localhost")], 0),
        ] {
            assert_eq!(readable(one, headers), expected, "{headers:?}");
        }
        assert_eq!(readable("/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Db", &[]), 1);
        // A term without a label, which upstream refuses: permission is for the name of the other one.
        assert_eq!(readable("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db,%3Dc", &[]), 1);
        assert!(readable("/api/v1/pods", &[]) > 1);
    }
}
