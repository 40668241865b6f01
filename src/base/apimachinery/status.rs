//! The error body of the API, for the few responses that the gateway words itself.
//!
//! The bytes follow read-path 2: the order of members, omitted members, and escaping.

use std::io::Write;

use bytes::Bytes;
use http::StatusCode;

use crate::apimachinery::go_json::write_string;
use crate::apimachinery::{GroupResource, ResourceVersion};

/// Kubernetes' Status of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: StatusCode,
    /// `None` for codes without a reason in Kubernetes.
    reason: Option<StatusReason>,
    message: String,
    details: Option<Details>,
}

/// The machine-readable reason that clients evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusReason {
    BadRequest,
    Expired,
    Forbidden,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Details {
    name: String,
    group: String,
    /// The plural word of the path, although the member is called `kind`.
    kind: String,
    causes: Vec<Cause>,
    /// 0 if the client is given no advice.
    retry_after_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause {
    reason: &'static str,
    message: String,
}

impl StatusReason {
    /// The value of `reason` in the body.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Expired => "Expired",
            Self::Forbidden => "Forbidden",
            Self::InternalError => "InternalError",
            Self::NotFound => "NotFound",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
        }
    }
}

impl Status {
    /// 404: the object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let details = Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        };
        Self {
            code: StatusCode::NOT_FOUND,
            reason: Some(StatusReason::NotFound),
            message: format!("{resource} \"{name}\" not found"),
            details: Some(details),
        }
    }

    /// 410: the version is not known any more.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::GONE, Some(StatusReason::Expired), message.into())
    }

    /// 410, as the ERROR event of a watch: history begins after `requested`. `oldest` is the oldest version after which
    /// a watch can still start.
    pub fn expired_watch(requested: ResourceVersion, oldest: ResourceVersion) -> Self {
        let message = format!("too old resource version: {requested} ({oldest})");
        Self::expired(message)
    }

    /// 504: the version is higher than `current`, the newest known one. Clients evaluate the cause in it.
    pub fn too_large_resource_version(requested: ResourceVersion, current: ResourceVersion) -> Self {
        let cause = Cause { reason: "ResourceVersionTooLarge", message: "Too large resource version".to_owned() };
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut status = Self::plain(StatusCode::GATEWAY_TIMEOUT, Some(StatusReason::Timeout), message);
        status.details = Some(Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() });
        status
    }

    /// The message of a Status in JSON; `None` if the text is no Status.
    pub fn message_in(json: &[u8]) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Body {
            message: String,
        }
        serde_json::from_slice(json).ok().map(|Body { message }| message)
    }

    /// 400: the request cannot be parsed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::BAD_REQUEST, Some(StatusReason::BadRequest), message.into())
    }

    /// 403: the request is refused, whatever it asks for.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::FORBIDDEN, Some(StatusReason::Forbidden), message.into())
    }

    /// 429: a limit is reached.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let code = StatusCode::TOO_MANY_REQUESTS;
        Self::plain(code, Some(StatusReason::TooManyRequests), message.into()).retry_after_seconds(retry_after_seconds)
    }

    /// 431: the header is larger than the gateway accepts. Kubernetes has no reason for it.
    pub fn header_too_large(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, None, message.into())
    }

    /// 508: the request came back to a server that it had already passed. Kubernetes has no reason for it.
    pub fn loop_detected(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::LOOP_DETECTED, None, message.into())
    }

    /// 500: a fault of the gateway.
    pub fn internal_error(message: impl Into<String>) -> Self {
        let message = message.into();
        let cause = Cause { reason: "", message: message.clone() };
        let text = format!("Internal error occurred: {message}");
        let mut status = Self::plain(StatusCode::INTERNAL_SERVER_ERROR, Some(StatusReason::InternalError), text);
        status.details = Some(Details { causes: vec![cause], ..Details::default() });
        status
    }

    /// 502: upstream broke the connection before it responded. Kubernetes has no reason for it.
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::BAD_GATEWAY, None, message.into())
    }

    /// 503: upstream cannot be reached, or the gateway is about to end. With `None`, the client
    /// decides whether and when to retry: client-go retries every response with a number here by itself, ten times.
    pub fn service_unavailable(message: impl Into<String>, retry_after_seconds: Option<u32>) -> Self {
        let status =
            Self::plain(StatusCode::SERVICE_UNAVAILABLE, Some(StatusReason::ServiceUnavailable), message.into());
        match retry_after_seconds {
            Some(seconds) => status.retry_after_seconds(seconds),
            None => status,
        }
    }

    /// 504: upstream did not respond in time.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::GATEWAY_TIMEOUT, Some(StatusReason::Timeout), message.into())
    }

    fn plain(code: StatusCode, reason: Option<StatusReason>, message: String) -> Self {
        Self { code, reason, message, details: None }
    }

    fn retry_after_seconds(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn code(&self) -> StatusCode {
        self.code
    }

    pub fn reason(&self) -> Option<StatusReason> {
        self.reason
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// The value of the `Retry-After` header in seconds; `None` if the details have none.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// The body of a response: one line.
    pub fn to_json(&self) -> Bytes {
        let mut out = Vec::with_capacity(256);
        self.write_json(&mut out);
        out.push(b'\n');
        out.into()
    }

    /// Appends the object without a newline, for the ERROR event of a watch.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure""#);
        let mut members = Members { out, empty: false };
        members.text("message", &self.message);
        members.text("reason", self.reason.map_or("", StatusReason::as_str));
        if let Some(details) = &self.details {
            details.write(members.value("details"));
        }
        members.number("code", u32::from(self.code.as_u16()));
        out.push(b'}');
    }
}

impl Details {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut members = Members { out, empty: true };
        members.text("name", &self.name);
        members.text("group", &self.group);
        members.text("kind", &self.kind);
        for (index, cause) in self.causes.iter().enumerate() {
            let out = if index == 0 { members.value("causes") } else { &mut *members.out };
            out.push(if index == 0 { b'[' } else { b',' });
            cause.write(out);
        }
        if !self.causes.is_empty() {
            members.out.push(b']');
        }
        members.number("retryAfterSeconds", self.retry_after_seconds);
        out.push(b'}');
    }
}

impl Cause {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut members = Members { out, empty: true };
        members.text("reason", self.reason);
        members.text("message", &self.message);
        out.push(b'}');
    }
}

/// Writes the members of an object, omitting empty values.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl Members<'_> {
    /// Writes the name; the caller appends the value.
    fn value(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        write_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            write_string(self.value(name), text);
        }
    }

    fn number(&mut self, name: &str, number: u32) {
        if number != 0 {
            write!(self.value(name), "{number}").expect("writing to memory does not fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    fn json(status: &Status) -> String {
        String::from_utf8(status.to_json().to_vec()).unwrap()
    }

    const HEAD: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#;

    /// Recorded from a 1.36 server.
    #[test]
    fn bytes_equal_those_of_the_api_server() {
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        let deployments = GroupResource { group: "apps".into(), resource: "deployments".into() };
        let cases = [
            (
                Status::not_found(&pods, "nope"),
                r#""pods \"nope\" not found","reason":"NotFound","details":{"name":"nope","kind":"pods"},"code":404}"#,
            ),
            (
                Status::not_found(&deployments, "nope"),
                concat!(
                    r#""deployments.apps \"nope\" not found","reason":"NotFound","#,
                    r#""details":{"name":"nope","group":"apps","kind":"deployments"},"code":404}"#,
                ),
            ),
            (
                Status::too_large_resource_version(version(999_999_999), version(359)),
                concat!(
                    r#""Timeout: Too large resource version: 999999999, current: 359","reason":"Timeout","#,
                    r#""details":{"causes":[{"reason":"ResourceVersionTooLarge","#,
                    r#""message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
                ),
            ),
            (
                Status::bad_request("strconv.ParseInt: parsing \"abc\": invalid syntax"),
                r#""strconv.ParseInt: parsing \"abc\": invalid syntax","reason":"BadRequest","code":400}"#,
            ),
        ];
        for (status, rest) in cases {
            assert_eq!(json(&status), format!("{HEAD}{rest}\n"));
        }
    }

    #[test]
    fn errors_of_the_gateway_have_the_same_shape() {
        let cases = [
            (
                Status::expired_watch(version(5), version(9)),
                r#""too old resource version: 5 (9)","reason":"Expired","code":410}"#,
            ),
            (
                Status::service_unavailable("a<b", Some(1)),
                r#""a\u003cb","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503}"#,
            ),
            (
                Status::too_many_requests("full", 2),
                r#""full","reason":"TooManyRequests","details":{"retryAfterSeconds":2},"code":429}"#,
            ),
            (
                Status::internal_error("x"),
                concat!(
                    r#""Internal error occurred: x","reason":"InternalError","#,
                    r#""details":{"causes":[{"message":"x"}]},"code":500}"#,
                ),
            ),
            (Status::bad_gateway("cut"), r#""cut","code":502}"#),
            (Status::header_too_large("big"), r#""big","code":431}"#),
            (Status::timeout("late"), r#""late","reason":"Timeout","code":504}"#),
        ];
        for (status, rest) in cases {
            assert_eq!(json(&status), format!("{HEAD}{rest}\n"));
        }
    }

    #[test]
    fn retry_after_is_omitted_if_there_is_none() {
        assert_eq!(Status::service_unavailable("x", Some(3)).retry_after(), Some(3));
        assert_eq!(Status::service_unavailable("x", None).retry_after(), None);
        assert_eq!(Status::too_many_requests("x", 0).retry_after(), None);
        assert_eq!(Status::bad_gateway("x").retry_after(), None);
    }
}
