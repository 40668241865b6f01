//! Makes the spans of a finished request. The names of attributes come from OpenTelemetry's semantic conventions for
//! HTTP, from Kubernetes' own spans (`verb`, `resource`, `audit-id`) and from the access log (`outcome`, `reason`).

use http::{HeaderValue, Method};
use tokio::time::Instant;

use super::{
    SpanContext, Stage, Trace,
    message::{KeyValue, Link, Span, SpanKind, Status, StatusCode},
    trace::{Lineage, Passed},
};
use base::{
    apimachinery::{RequestInfo, Target},
    telemetry::{Finished, Outcome},
};

/// Maximum length of a path, and of any other text from a client, in bytes. Longer ones are cut.
const PATH_MAX: usize = 1_024;
const WORD_MAX: usize = 256;

/// Flags of a span: it is sampled; the next flag is valid; its parent belongs to another process.
const SAMPLED: u32 = 1;
const KNOWS_PARENT: u32 = 1 << 8;
const PARENT_IS_REMOTE: u32 = 1 << 9;

impl Trace {
    /// The spans of a request that was finished at `end`: its own and one for each stage.
    pub(super) fn spans(&self, lineage: Lineage, end: Instant, finished: &Finished<'_>) -> Vec<Span> {
        let (parent, link) = match lineage {
            Lineage::ChildOf(parent) => (Some(parent), None),
            Lineage::Root { link } => (None, link),
        };
        let request = Span {
            trace_id: self.trace_id(lineage).to_vec(),
            span_id: self.span_id.to_vec(),
            parent_span_id: parent.map(|parent| parent.span_id.to_vec()).unwrap_or_default(),
            name: name(finished),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: self.unix(self.began()),
            end_time_unix_nano: self.unix(end),
            attributes: self.attributes(finished),
            links: link.map(linked).into_iter().collect(),
            status: (finished.status >= 500).then(error),
            flags: SAMPLED | KNOWS_PARENT | if parent.is_some() { PARENT_IS_REMOTE } else { 0 },
        };
        let stages = self.stages.iter().map(|passed| self.stage(passed, &request, end, finished));
        let stages: Vec<_> = stages.collect();
        std::iter::once(request).chain(stages).collect()
    }

    fn stage(&self, passed: &Passed, request: &Span, end: Instant, finished: &Finished<'_>) -> Span {
        let is_forward = passed.stage == Stage::Forward;
        let failed = is_forward && finished.status >= 400;
        Span {
            trace_id: request.trace_id.clone(),
            span_id: passed.span_id.to_vec(),
            parent_span_id: request.span_id.clone(),
            name: passed.stage.as_str().to_owned(),
            kind: if is_forward { SpanKind::Client } else { SpanKind::Internal }.into(),
            start_time_unix_nano: self.unix(passed.began),
            end_time_unix_nano: self.unix(passed.ended.unwrap_or(end)),
            attributes: if is_forward { self.forward_attributes(finished) } else { Vec::new() },
            links: Vec::new(),
            status: failed.then(error),
            flags: SAMPLED | KNOWS_PARENT,
        }
    }

    fn attributes(&self, finished: &Finished<'_>) -> Vec<KeyValue> {
        let mut attributes = self.http(finished);
        attributes.extend([
            KeyValue::text("verb", finished.verb),
            KeyValue::text("outcome", finished.outcome.as_str()),
            KeyValue::number("http.response.status_code", finished.status),
        ]);
        // Long-running answers are reported when they begin.
        if finished.bytes > 0 {
            let bytes = i64::try_from(finished.bytes).unwrap_or(i64::MAX);
            attributes.push(KeyValue::number("http.response.body.size", bytes));
        }
        attributes.extend(finished.reason.map(|reason| KeyValue::text("reason", reason)));
        let text = |key, value: &Option<HeaderValue>| {
            let text = value.as_ref().and_then(|value| value.to_str().ok());
            text.map(|text| KeyValue::text(key, cut(text, WORD_MAX)))
        };
        attributes.extend(text("audit-id", &self.request.audit_id));
        attributes.extend(text("user_agent.original", &self.request.user_agent));
        // Parsed again rather than kept.
        let info = RequestInfo::parse(&Method::GET, self.path(), None);
        if let Target::Resource(target) = info.target {
            attributes.extend([
                KeyValue::text("api-group", cut(&target.resource.group, WORD_MAX)),
                KeyValue::text("api-version", cut(&target.resource.version, WORD_MAX)),
                KeyValue::text("resource", cut(&target.resource.resource, WORD_MAX)),
            ]);
            let text = |key, value: Option<String>| value.map(|text| KeyValue::text(key, cut(&text, WORD_MAX)));
            attributes.extend(text("subresource", target.subresource));
            attributes.extend(text("namespace", target.namespace));
            attributes.extend(text("name", target.name));
        }
        attributes.extend(self.request.client.map(|client| KeyValue::text("client.address", client.to_string())));
        attributes
    }

    fn forward_attributes(&self, finished: &Finished<'_>) -> Vec<KeyValue> {
        let mut attributes = self.http(finished);
        let upstream = &self.sampling.upstream;
        attributes.extend(upstream.host().map(|host| KeyValue::text("server.address", host.to_owned())));
        attributes.extend(upstream.port_u16().map(|port| KeyValue::number("server.port", port)));
        match finished.outcome {
            Outcome::Forwarded => attributes.push(KeyValue::number("http.response.status_code", finished.status)),
            Outcome::Served | Outcome::Rejected => {
                attributes.extend(finished.reason.map(|reason| KeyValue::text("error.type", reason)));
            }
        }
        attributes
    }

    fn http(&self, finished: &Finished<'_>) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::text("http.request.method", self.request.method.as_str().to_owned()),
            KeyValue::text("url.path", cut(self.path(), PATH_MAX)),
        ];
        if finished.status >= 500 {
            attributes.push(KeyValue::text("error.type", finished.status.to_string()));
        }
        attributes
    }

    /// Without the query.
    fn path(&self) -> &str {
        self.request.target.as_ref().map_or("", |target| target.path())
    }
}

/// The name of a span. It must be one of few, so it contains the resource only if upstream knows that: clients can make
/// up names.
fn name(finished: &Finished<'_>) -> String {
    match finished.resource.filter(|_| finished.resource_known) {
        Some(resource) => format!("{} {resource}", finished.verb),
        None => finished.verb.to_owned(),
    }
}

fn linked(span: SpanContext) -> Link {
    let flags = u32::from(span.is_sampled) | KNOWS_PARENT | PARENT_IS_REMOTE;
    Link { trace_id: span.trace_id.to_vec(), span_id: span.span_id.to_vec(), flags }
}

fn error() -> Status {
    Status { code: StatusCode::Error.into() }
}

/// The beginning of a text, cut between characters.
fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text[..end].to_owned()
}
