//! What is told of a request when it is over: one line in the log, one count in the metrics.

use http::{HeaderMap, Request, StatusCode, header};
use tokio::time::Instant;

use crate::{
    apimachinery::{GroupResource, RequestInfo, Target},
    telemetry::{AccessRecord, Outcome, RequestMetrics, access_log},
};

/// Collected along the way; told when dropped.
#[derive(Debug)]
pub(super) struct Record {
    metrics: RequestMetrics,
    came: Instant,
    verb: &'static str,
    path: Box<str>,
    resource: Option<GroupResource>,
    namespace: Option<Box<str>>,
    user_agent: Box<str>,
    /// `None` until there is a response: the client went before.
    answered: Option<Answered>,
    bytes: u64,
}

#[derive(Debug)]
struct Answered {
    outcome: Outcome,
    reason: Option<&'static str>,
    status: StatusCode,
}

/// As nginx has it: the client closed the connection before there was an answer.
const CLIENT_CLOSED: u16 = 499;

impl Record {
    pub(super) fn start<B>(request: &Request<B>, info: &RequestInfo, metrics: RequestMetrics) -> Self {
        let target = match &info.target {
            Target::Resource(target) => Some(target),
            Target::NonResource | Target::Ambiguous => None,
        };
        Self {
            metrics,
            came: Instant::now(),
            verb: info.verb.as_str(),
            path: request.uri().path().into(),
            resource: target.map(|target| target.resource.group_resource()),
            namespace: target.and_then(|target| target.namespace.as_deref()).map(Into::into),
            user_agent: user_agent(request.headers()).into(),
            answered: None,
            bytes: 0,
        }
    }

    /// When the request came.
    pub(super) fn came(&self) -> Instant {
        self.came
    }

    /// What is answered, and why not from memory.
    pub(super) fn answered(&mut self, outcome: Outcome, reason: Option<&'static str>, status: StatusCode) {
        self.answered = Some(Answered { outcome, reason, status });
    }

    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (outcome, reason, status) = match &self.answered {
            Some(Answered { outcome, reason, status }) => (*outcome, *reason, status.as_u16()),
            None => (Outcome::Rejected, Some("client_gone"), CLIENT_CLOSED),
        };
        // Memory answers for what discovery knows; the rest upstream has to have found.
        let resource_known = outcome == Outcome::Served || outcome == Outcome::Forwarded && status < 400;
        let record = AccessRecord {
            verb: self.verb,
            path: &self.path,
            resource: self.resource.as_ref(),
            resource_known,
            namespace: self.namespace.as_deref(),
            outcome,
            reason,
            status,
            duration: self.came.elapsed(),
            bytes: self.bytes,
            user_agent: &self.user_agent,
        };
        self.metrics.finished(&record);
        access_log(&record);
    }
}

fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}
