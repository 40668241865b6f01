//! Detects requests that come back because upstream's address leads to the gateway itself, directly or through others.
//!
//! Every request to upstream names this process in `Via` (RFC 9110, 7.6.3), after those that it has passed. An incoming
//! request with that name has been here before.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header::VIA};
use memchr::memmem;
use uuid::Uuid;

/// What the name of every gateway begins with.
const PREFIX: &str = "kube-fanout-";
/// The name of this process in `Via`.
static NAME: LazyLock<String> = LazyLock::new(|| format!("{PREFIX}{}", Uuid::new_v4().simple()));
static VALUE: LazyLock<HeaderValue> =
    LazyLock::new(|| HeaderValue::try_from(format!("1.1 {}", *NAME)).expect("a UUID is a header value"));

/// Adds this process to `Via`.
pub(super) fn add(headers: &mut HeaderMap) {
    headers.append(VIA, VALUE.clone());
}

/// Whether another gateway sent the request, or passed it on.
pub fn comes_from_gateway(headers: &HeaderMap) -> bool {
    names(headers, PREFIX)
}

fn names(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(VIA).iter().any(|value| memmem::find(value.as_bytes(), name.as_bytes()).is_some())
}

/// Whether this process has already sent the request.
pub fn has_passed(headers: &HeaderMap) -> bool {
    names(headers, &NAME)
}
