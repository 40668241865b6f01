//! What gateways in a row tell each other in headers.
//!
//! Detects requests that come back because upstream's address leads to the gateway itself, directly or through others.
//! Every request to upstream has this process's name in `Via` (RFC 9110, 7.6.3), after the names of the proxies that it
//! has passed. An incoming request with that name was sent by this process.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::VIA};
use memchr::memmem;
use uuid::Uuid;

/// The most gateways that a request passes. More than any tree needs: they are in a circle that this process is not in.
const GATEWAYS_MAX: usize = 8;
/// Prefix of every gateway's name.
const PREFIX: &str = "kube-fanout-";
/// The name of this process in `Via`.
static NAME: LazyLock<String> = LazyLock::new(|| format!("{PREFIX}{}", Uuid::new_v4().simple()));
static VALUE: LazyLock<HeaderValue> =
    LazyLock::new(|| HeaderValue::try_from(format!("1.1 {}", *NAME)).expect("a UUID is a header value"));

/// In a watch of a gateway: whether it may begin with a bridge, which the gateway takes for one (the manual's chapter
/// `consistency`, "The bridge").
pub const BRIDGE: HeaderName = HeaderName::from_static("kube-fanout-bridge");
pub const ACCEPTS_BRIDGE: HeaderValue = HeaderValue::from_static("accept");

/// In a 503 to a gateway: this one was given no answer, because what is in front of it is gone
/// ([`SendError::is_gone`](super::SendError::is_gone)).
const UPSTREAM: HeaderName = HeaderName::from_static("kube-fanout-upstream");
const GONE: HeaderValue = HeaderValue::from_static("gone");

/// In an answer from memory to a gateway: the version of the program that wrote the objects. Upstream may run another
/// one by now, which `/version` tells.
pub const WRITTEN_BY: HeaderName = HeaderName::from_static("kube-fanout-version");

/// What a gateway above tells of who wrote the objects of its answer.
pub fn written_by<B>(answer: &Response<B>) -> Option<String> {
    answer.headers().get(WRITTEN_BY)?.to_str().ok().map(str::to_owned)
}

/// Tells the gateway below that upstream is gone.
pub fn tell_gone(headers: &mut HeaderMap) {
    headers.insert(UPSTREAM, GONE);
}

/// Whether a gateway above tells that what is in front of it is gone.
pub(super) fn says_gone<B>(answer: &Response<B>) -> bool {
    answer.status() == StatusCode::SERVICE_UNAVAILABLE && answer.headers().get(UPSTREAM) == Some(&GONE)
}

/// Adds this process to `Via`.
pub(super) fn add(headers: &mut HeaderMap) {
    headers.append(VIA, VALUE.clone());
}

/// Whether another gateway sent the request, or passed it on.
pub fn comes_from_gateway(headers: &HeaderMap) -> bool {
    names(headers, PREFIX)
}

/// Whether a gateway sent the request that takes a bridge for one, rather than for all changes that happened.
pub fn accepts_bridge(headers: &HeaderMap) -> bool {
    headers.get(BRIDGE) == Some(&ACCEPTS_BRIDGE)
}

fn names(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(VIA).iter().any(|value| memmem::find(value.as_bytes(), name.as_bytes()).is_some())
}

/// Whether a request has passed as many gateways as it may.
pub fn has_passed_too_many(headers: &HeaderMap) -> bool {
    let passed = headers.get_all(VIA).iter().map(|value| memmem::find_iter(value.as_bytes(), PREFIX).count());
    passed.sum::<usize>() >= GATEWAYS_MAX
}

/// Whether this process has already sent the request.
pub fn has_passed(headers: &HeaderMap) -> bool {
    names(headers, &NAME)
}
