//! A gateway whose API server's address leads back to the gateway itself, at once or by way of others.
//!
//! Every request upstream names this process in `Via` (RFC 9110, 7.6.3), behind those that it has passed before. One that
//! comes in with that name has been here.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header::VIA};
use memchr::memmem;
use uuid::Uuid;

/// What this process is called among those that a request passes.
static NAME: LazyLock<String> = LazyLock::new(|| format!("kube-fanout-{}", Uuid::new_v4().simple()));
static VALUE: LazyLock<HeaderValue> =
    LazyLock::new(|| HeaderValue::try_from(format!("1.1 {}", *NAME)).expect("a UUID is a header value"));

/// Adds this process to those that the request has passed.
pub(super) fn add(headers: &mut HeaderMap) {
    headers.append(VIA, VALUE.clone());
}

/// Whether a request has been sent by this process before.
pub fn has_passed(headers: &HeaderMap) -> bool {
    headers.get_all(VIA).iter().any(|value| memmem::find(value.as_bytes(), NAME.as_bytes()).is_some())
}
