//! The trace of one request while it is being answered.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, Method, header, uri::PathAndQuery};
use tokio::time::Instant;

use super::{
    SpanContext,
    context::{TRACEPARENT, TRACESTATE},
    sampling::Sampling,
};
use base::telemetry::Finished;

/// Groups whose parent spans are accepted where clients are not trusted: those that an API server accepts (KEP-647).
const TRUSTED_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];

/// The stages of a request until its answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Authentication and authorization, from memory or by review.
    Authorize,
    /// Waiting for a cache to be filled.
    Wait,
    /// Answering from memory, including waits for a version or a proof.
    Serve,
    /// Waiting for upstream's answer.
    Forward,
}

/// What is recorded of a request that may be traced. Whether it is traced can depend on its user, who is known later.
#[derive(Debug)]
pub struct Trace {
    pub(super) sampling: Arc<Sampling>,
    /// The client's span.
    pub(super) parent: Option<SpanContext>,
    /// Whether the gateway's own sampling rate selects the request.
    by_rate: bool,
    /// Whether the client's decision about sampling is accepted.
    trusted: bool,
    /// The trace ID, if the trace begins here.
    own_trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    began: Instant,
    /// `began` in nanoseconds since the Unix epoch.
    began_unix: u64,
    pub(super) stages: Vec<Passed>,
    pub(super) request: Head,
}

/// What is known about the sampling of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The client's span.
    pub(super) parent: Option<SpanContext>,
    /// Whether the gateway's own sampling rate selects the request.
    pub(super) by_rate: bool,
    /// Whether the client's decision about sampling is accepted, whatever its user.
    pub(super) trusted: bool,
}

/// A stage that a request has begun.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) stage: Stage,
    pub(super) span_id: [u8; 8],
    pub(super) began: Instant,
    /// `None` while the stage lasts.
    pub(super) ended: Option<Instant>,
}

/// The parts of the heads of a request and its answer that spans contain.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) target: Option<PathAndQuery>,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) client: Option<IpAddr>,
    pub(super) audit_id: Option<HeaderValue>,
}

/// The parent of a request's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lineage {
    /// It continues the client's trace.
    ChildOf(SpanContext),
    /// It begins a trace, with a link to the client's span if there is one.
    Root { link: Option<SpanContext> },
}

impl Trace {
    pub(super) fn begin<B>(
        sampling: Arc<Sampling>,
        arrival: Arrival,
        request: &http::Request<B>,
        client: Option<IpAddr>,
    ) -> Self {
        let Arrival { parent, by_rate, trusted } = arrival;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let request = Head {
            method: request.method().clone(),
            target: request.uri().path_and_query().cloned(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            client,
            audit_id: None,
        };
        Self {
            sampling,
            parent,
            by_rate,
            trusted,
            own_trace_id: fastrand::u128(1..).to_be_bytes(),
            span_id: new_span_id(),
            began: Instant::now(),
            began_unix: u64::try_from(since_1970.as_nanos()).unwrap_or_default(),
            stages: Vec::with_capacity(3),
            request,
        }
    }

    /// Sets the groups of the request's user: the client's span is accepted as the parent if one of them is privileged.
    pub fn asked_by(&mut self, groups: &[String]) {
        self.trusted |= groups.iter().any(|group| TRUSTED_GROUPS.contains(&group.as_str()));
    }

    /// Begins a stage, and ends the previous one.
    pub fn enter(&mut self, stage: Stage) {
        let now = Instant::now();
        self.leave(now);
        self.stages.push(Passed { stage, span_id: new_span_id(), began: now, ended: None });
    }

    /// Ends the stage, because the answer begins.
    pub fn answered(&mut self, audit_id: Option<&HeaderValue>) {
        self.leave(Instant::now());
        self.request.audit_id = audit_id.cloned();
    }

    /// Begins the stage of a forwarded request, and passes its span to upstream as the parent. The headers of a request
    /// that turns out not to be traced stay unchanged: upstream decides about the client's span itself.
    pub fn forward(&mut self, headers: &mut HeaderMap) {
        self.enter(Stage::Forward);
        let (Some(lineage), Some(forward)) = (self.lineage(), self.stages.last()) else { return };
        let (trace_id, span_id) = (self.trace_id(lineage), forward.span_id);
        headers.insert(TRACEPARENT, SpanContext { trace_id, span_id, is_sampled: true }.header());
        if matches!(lineage, Lineage::Root { .. }) {
            headers.remove(TRACESTATE);
        }
    }

    /// Exports the spans of a finished request, if it is traced.
    pub fn finish(mut self, finished: &Finished<'_>) {
        let now = Instant::now();
        self.leave(now);
        if let Some(lineage) = self.lineage() {
            self.sampling.export(self.spans(lineage, now, finished));
        }
    }

    /// `None` if the request is not traced. An accepted parent alone decides, as with OpenTelemetry's parent-based
    /// samplers.
    fn lineage(&self) -> Option<Lineage> {
        match self.parent {
            Some(parent) if self.trusted => parent.is_sampled.then_some(Lineage::ChildOf(parent)),
            link => self.by_rate.then_some(Lineage::Root { link }),
        }
    }

    pub(super) fn trace_id(&self, lineage: Lineage) -> [u8; 16] {
        match lineage {
            Lineage::ChildOf(parent) => parent.trace_id,
            Lineage::Root { .. } => self.own_trace_id,
        }
    }

    fn leave(&mut self, now: Instant) {
        if let Some(stage) = self.stages.last_mut() {
            stage.ended.get_or_insert(now);
        }
    }

    /// Converts to nanoseconds since the Unix epoch.
    pub(super) fn unix(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        self.began_unix.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }
}

impl Stage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Wait => "wait",
            Self::Serve => "serve",
            Self::Forward => "forward",
        }
    }
}

fn new_span_id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}
