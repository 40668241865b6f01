//! Reports a finished request: counts it in the metrics, and writes a line to the access log if one is due.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, uri::PathAndQuery};
use tokio::time::Instant;

use super::settings::Settings;
use crate::{
    serve,
    traces::{Stage, Trace, Tracer},
};
use base::{
    apimachinery::{GroupResource, RequestInfo, ResourceRequest, Target, UserInfo, Verb},
    telemetry::{
        AccessLines, AccessRecord, CLIENT_CLOSED, Client, Finished, OpenWatch, Outcome, RequestMetrics, TopClients,
        access_log,
    },
};

/// Where finished requests are reported. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    metrics: RequestMetrics,
    top_clients: TopClients,
    settings: Settings,
    tracer: Tracer,
}

/// Filled along the way; reported when dropped.
///
/// Nothing is copied for a line that may not be written: its content is shared with the request's head. A long-running
/// answer does not keep the head in memory, see [`Self::answered`].
#[derive(Debug)]
pub(super) struct RequestRecord {
    journal: Journal,
    lines: AccessLines,
    received: Instant,
    verb: &'static str,
    resource: Option<GroupResource>,
    /// The client decides when the answer ends, so its duration does not count as slowness.
    long_running: bool,
    /// `None` until the user is known.
    user: Option<Arc<UserInfo>>,
    /// `None` once the client is known.
    user_agent: Option<HeaderValue>,
    client: Option<Arc<Client>>,
    /// Set if the answer is a watch.
    watch: Option<OpenWatch>,
    /// `None` if there will be no line.
    line: Option<Line>,
    /// `None` if the request is not traced, or no longer.
    trace: Option<Box<Trace>>,
    /// `None` until there is a response; still `None` at the end if the client went away first.
    answered: Option<Answered>,
    bytes: u64,
}

/// The parts of the line that the metrics do not have.
#[derive(Debug)]
struct Line {
    target: Option<PathAndQuery>,
    user_agent: Option<HeaderValue>,
    client: Option<IpAddr>,
    audit_id: Option<HeaderValue>,
}

/// Maximum bytes of the path, and of the user agent, that are kept as long as an answer lasts. A path that leads to
/// something is shorter.
const LASTING_BYTES_MAX: usize = 1024;

#[derive(Debug)]
struct Answered {
    outcome: Outcome,
    reason: Option<&'static str>,
    status: StatusCode,
}

impl Journal {
    /// `top_clients` counts requests by client, `tracer` traces them; `settings` say which lines are written.
    pub fn new(settings: Settings, top_clients: TopClients, tracer: Tracer) -> Self {
        Self { metrics: RequestMetrics::new(), top_clients, settings, tracer }
    }

    /// The client that a request is counted for.
    pub(super) fn client(&self, user_agent: Option<&HeaderValue>, user: Option<&UserInfo>) -> Arc<Client> {
        let user_agent = user_agent.map_or(&b""[..], HeaderValue::as_bytes);
        self.top_clients.find(user_agent, user.map(|user| user.name.as_str()))
    }

    /// Starts the record of a request that comes now, from `client`.
    pub(super) fn record<B>(&self, request: &Request<B>, info: &RequestInfo, client: Option<IpAddr>) -> RequestRecord {
        let target = resource(info);
        let lines = self.settings.lines();
        let line = (lines != AccessLines::None).then(|| Line {
            target: request.uri().path_and_query().cloned(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            client,
            audit_id: None,
        });
        RequestRecord {
            journal: self.clone(),
            lines,
            received: Instant::now(),
            verb: info.verb.as_str(),
            resource: target.map(|target| target.resource.group_resource()),
            long_running: info.is_long_running(),
            user: None,
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            client: None,
            watch: None,
            line,
            trace: self.tracer.begin(request, client),
            answered: None,
            bytes: 0,
        }
    }
}

impl RequestRecord {
    pub(super) fn received(&self) -> Instant {
        self.received
    }

    /// Sets the request's user.
    pub(super) fn asked_by(&mut self, user: &Arc<UserInfo>) {
        self.user = Some(user.clone());
        if let Some(trace) = &mut self.trace {
            trace.asked_by(&user.groups);
        }
    }

    /// Leaves the request out of the log, unless all requests are logged.
    pub(super) fn omit_from_log(&mut self) {
        if self.lines == AccessLines::Notable {
            self.line = None;
        }
    }

    /// Notes in the trace that a stage begins.
    pub(super) fn enter(&mut self, stage: Stage) {
        if let Some(trace) = &mut self.trace {
            trace.enter(stage);
        }
    }

    /// Notes in the trace that the request is forwarded, and names its span to upstream.
    pub(super) fn forward(&mut self, headers: &mut HeaderMap) {
        if let Some(trace) = &mut self.trace {
            trace.forward(headers);
        }
    }

    pub(super) fn user(&self) -> Option<&Arc<UserInfo>> {
        self.user.as_ref()
    }

    /// The client that the request is counted for. If its user is to be counted, it has to be set by now.
    pub(super) fn client(&mut self) -> &Arc<Client> {
        let (journal, user) = (&self.journal, self.user.as_deref());
        // Taken, so that nothing of the head is kept.
        let user_agent = self.user_agent.take();
        self.client.get_or_insert_with(|| journal.client(user_agent.as_ref(), user))
    }

    /// Whether the request's line or trace depends on its user.
    pub(super) fn tells_user(&self) -> bool {
        self.line.is_some() || self.trace.is_some()
    }

    /// Notes the outcome, and the reason why memory did not answer. For a long-running answer, it is decided here
    /// whether there will be a line, which then gets its own copy: the head's bytes are part of the connection's
    /// buffer, which lives as long as any of them is held.
    pub(super) fn answered<B>(&mut self, outcome: Outcome, reason: Option<&'static str>, answer: &Response<B>) {
        let status = answer.status();
        self.answered = Some(Answered { outcome, reason, status });
        self.long_running |= status == StatusCode::SWITCHING_PROTOCOLS;
        let is_watch = self.verb == Verb::Watch.as_str() && status.is_success();
        let client = self.client();
        self.watch = is_watch.then(|| client.watches());
        let audit_id = answer.headers().get(serve::AUDIT_ID);
        self.trace_answer(audit_id);
        let Some(mut line) = self.line.take() else { return };
        line.audit_id = audit_id.filter(|id| serve::is_audit_id(id)).cloned();
        if !self.long_running {
            self.line = Some(line);
        } else if self.lines.include(outcome, status.as_u16(), self.received.elapsed()) {
            self.line = Some(line.detached());
        }
    }

    /// The trace of a long-running request ends when its answer begins: collectors wait for minutes, not hours.
    fn trace_answer(&mut self, audit_id: Option<&HeaderValue>) {
        if let Some(trace) = &mut self.trace {
            trace.answered(audit_id);
            if self.long_running {
                self.end_trace();
            }
        }
    }

    fn end_trace(&mut self) {
        if let Some(trace) = self.trace.take() {
            trace.finish(&self.finished(self.received.elapsed()));
        }
    }

    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    fn finished(&self, duration: Duration) -> Finished<'_> {
        let (outcome, reason, status) = match &self.answered {
            Some(Answered { outcome, reason, status }) => (*outcome, *reason, status.as_u16()),
            None => (Outcome::Rejected, Some("client_gone"), CLIENT_CLOSED),
        };
        // Memory answers only for resources known to discovery; other resources count as known if upstream has found
        // them. Redirects and answers to preflights are given for any name.
        let is_found = status < 300 && self.verb != Verb::Other.as_str();
        let resource_known = outcome == Outcome::Served || outcome == Outcome::Forwarded && is_found;
        let (verb, resource, bytes) = (self.verb, self.resource.as_ref(), self.bytes);
        Finished { verb, resource, resource_known, outcome, reason, status, duration, bytes }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.end_trace();
        let finished = self.finished(self.received.elapsed());
        self.journal.metrics.finished(&finished);
        if let Some(client) = &self.client {
            client.finished(finished.outcome, finished.bytes);
        }
        let Some(line) = &self.line else { return };
        let is_decided = self.long_running && self.answered.is_some();
        if is_decided || self.lines.include(finished.outcome, finished.status, finished.duration) {
            line.write(finished, self.user.as_deref());
        }
    }
}

impl Line {
    fn write(&self, finished: Finished<'_>, user: Option<&UserInfo>) {
        let (path, query) = self.target.as_ref().map_or(("", None), |target| (target.path(), target.query()));
        // Parsed again rather than kept for each request.
        let info = RequestInfo::parse(&Method::GET, path, query);
        access_log(&AccessRecord {
            finished,
            path,
            namespace: resource(&info).and_then(|target| target.namespace.as_deref()),
            user: user.map(|user| user.name.as_str()),
            address: self.client,
            audit_id: self.audit_id.as_ref().and_then(|id| id.to_str().ok()),
            user_agent: self.user_agent.as_ref().and_then(|agent| agent.to_str().ok()).unwrap_or_default(),
        });
    }

    /// The same line with its own copy of the bytes, cut, and without the query.
    fn detached(self) -> Self {
        let own = |value: HeaderValue| {
            let bytes = value.as_bytes();
            HeaderValue::from_bytes(&bytes[..bytes.len().min(LASTING_BYTES_MAX)]).ok()
        };
        let path = |target: PathAndQuery| {
            let path = target.path();
            let most = LASTING_BYTES_MAX.min(path.len());
            let end = (0..=most).rev().find(|&at| path.is_char_boundary(at)).unwrap_or_default();
            PathAndQuery::try_from(path[..end].to_owned()).ok()
        };
        Self {
            target: self.target.and_then(path),
            user_agent: self.user_agent.and_then(own),
            audit_id: self.audit_id.and_then(own),
            ..self
        }
    }
}

fn resource(info: &RequestInfo) -> Option<&ResourceRequest> {
    match &info.target {
        Target::Resource(target) => Some(target),
        Target::NonResource | Target::Ambiguous => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_known_after_a_successful_answer() {
        let known = |method: Method, outcome, status: u16| {
            let request = Request::builder().method(method).uri("/apis/x.io/v1/namespaces/a/made-up").body(()).unwrap();
            let info = RequestInfo::parse(request.method(), request.uri().path(), None);
            let mut record = Journal::new(Settings::silent(), TopClients::default(), Tracer::default())
                .record(&request, &info, None);
            record.answered(outcome, None, &Response::builder().status(status).body(()).unwrap());
            record.finished(Duration::ZERO).resource_known
        };
        assert!(known(Method::GET, Outcome::Served, 404), "an object that is not there");
        assert!(known(Method::GET, Outcome::Forwarded, 200) && known(Method::POST, Outcome::Forwarded, 201));
        assert!(!known(Method::GET, Outcome::Forwarded, 404) && !known(Method::GET, Outcome::Rejected, 200));
        // Given for any name.
        assert!(!known(Method::GET, Outcome::Forwarded, 301) && !known(Method::OPTIONS, Outcome::Forwarded, 204));
    }
}
