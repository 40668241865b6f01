//! Status and headers of a response from memory (read-path 4.2), and how its objects are written.

use http::{HeaderName, HeaderValue, Response, StatusCode, header, response};
use uuid::Uuid;

use super::{Body, Downstream, ForwardReason, Read, gzip, table::Table};
use crate::connector::WRITTEN_BY;
use base::apimachinery::{Encoding, ResponseKind, View};
use engine::encode::Form;

/// Identifies a response in audit logs and to its client.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Maximum bytes of an audit ID that a client chooses; a UUID has 36. Kubernetes cuts longer ones in its own logs at as
/// many.
const AUDIT_ID_MAX: usize = 64;

/// Prefixes of user agents that get indented JSON without asking for it (read-path 4.1).
const PRETTY_AGENTS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Writes the objects of a response.
#[derive(Debug)]
pub(super) enum Writer {
    Objects(Form),
    Table(Table),
}

impl Read<'_> {
    /// The head of a response in the negotiated representation.
    pub(super) fn answer(&self, status: StatusCode, kind: ResponseKind) -> response::Builder {
        let mut builder = Response::builder()
            .status(status)
            .header(AUDIT_ID, new_audit_id(self.headers.get(AUDIT_ID).cloned()))
            .header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"))
            .header(header::CONTENT_TYPE, HeaderValue::from_static(self.representation.content_type(kind)));
        for warning in &self.instance.warnings {
            builder = builder.header(header::WARNING, warning);
        }
        if self.downstream != Downstream::Client
            && let Some(written_by) = &self.instance.written_by
        {
            builder = builder.header(WRITTEN_BY, written_by);
        }
        builder
    }

    /// A complete response, in gzip if the client accepts it and the body is large enough (read-path 4.3).
    pub(super) fn respond(&self, status: StatusCode, body: Body) -> Response<Body> {
        let mut answer = self.answer(status, ResponseKind::Object);
        let mut body = body;
        if gzip::is_accepted(self.headers) && body.is_worth_gzip() {
            answer = answer.header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer = answer.header(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            body = body.into_gzip();
        }
        answer.body(body).expect("headers are valid")
    }

    /// The form that writes the instance's objects in the negotiated representation.
    pub(super) fn form(&self) -> Result<Form, ForwardReason> {
        let shape = &self.instance.schema().shape;
        // API servers without watch-list had other fields in `ObjectMeta`, and the gateway converts metadata as current
        // servers do.
        if self.representation.encoding != shape.encoding() && !self.instance.has_watch_list() {
            return Err(ForwardReason::Representation);
        }
        let form = Form::new(self.representation, shape, &self.instance.resource.group_resource());
        form.ok_or(ForwardReason::Representation)
    }

    /// Whether the response is to be indented.
    ///
    /// # Errors
    /// The response is to be indented, but upstream may indent differently: before 1.23, `managedFields` were left on
    /// one line and empty objects spread over three. No such server has watch-list.
    pub(super) fn is_pretty(&self, asked: Option<bool>) -> Result<bool, ForwardReason> {
        let agent = || self.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let is_pretty = match self.representation.encoding {
            Encoding::Protobuf => false,
            Encoding::Json => asked.unwrap_or_else(|| PRETTY_AGENTS.iter().any(|pretty| agent().starts_with(pretty))),
        };
        if is_pretty && !self.instance.has_watch_list() { Err(ForwardReason::Representation) } else { Ok(is_pretty) }
    }
}

impl Writer {
    /// The writer for the negotiated representation.
    pub(super) fn of(read: &Read<'_>) -> Result<Self, ForwardReason> {
        match read.representation.view {
            View::Table(version) => Table::of(read, version).map(Self::Table),
            View::Whole | View::Partial(_) => read.form().map(Self::Objects),
        }
    }
}

/// The audit ID of a response.
pub fn audit_id<B>(answer: &Response<B>) -> &str {
    answer.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// The audit ID for a new response: the one that the client sent if it can be one, or a random one.
pub fn new_audit_id(asked: Option<HeaderValue>) -> HeaderValue {
    let new = || HeaderValue::try_from(Uuid::new_v4().to_string()).expect("a uuid is a header value");
    asked.filter(is_audit_id).unwrap_or_else(new)
}

/// Whether a value can be an audit ID: watches and events hold it. A client could otherwise send one that no event can
/// contain, and an empty one.
pub fn is_audit_id(value: &HeaderValue) -> bool {
    (1..=AUDIT_ID_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_chooses_an_audit_id_that_can_be_one() {
        let chosen = |value: &[u8]| new_audit_id(Some(HeaderValue::from_bytes(value).unwrap()));
        for value in [&b"of-the-client"[..], b"3b1e5f0c-0f5b-4a9e-8f0d-6d1f6a4f0c11", &[b'x'; AUDIT_ID_MAX]] {
            assert_eq!(chosen(value).as_bytes(), value);
        }
        for value in [&b""[..], b"two words", b"j\xc3\xbcrgen", b"tab\t", &[b'x'; AUDIT_ID_MAX + 1]] {
            assert!(Uuid::try_parse_ascii(chosen(value).as_bytes()).is_ok(), "{value:?}");
        }
        assert!(Uuid::try_parse_ascii(new_audit_id(None).as_bytes()).is_ok());
    }
}
