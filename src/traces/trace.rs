//! One request's trace, while the request is under way.

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
    tracer::Sampling,
};
use crate::telemetry::Finished;

/// Whose parent spans count where clients are not trusted: those that an API server trusts (KEP-647).
const TRUSTED_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];

/// What a request waits for: the parts of its time until its answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Who the client is and what it may: known, or asked for.
    Authorize,
    /// A cache that is being filled.
    Wait,
    /// The answer from memory, with waits for a version and proofs.
    Serve,
    /// The answer of upstream.
    Forward,
}

/// What is noted of a request that may be traced; whether it is can depend on its user.
#[derive(Debug)]
pub struct Trace {
    pub(super) sampling: Arc<Sampling>,
    /// The client's span.
    pub(super) parent: Option<SpanContext>,
    /// Chosen by the gateway's own rate.
    by_rate: bool,
    /// The client's word counts.
    trusted: bool,
    /// The trace, if it begins here.
    own_trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    began: Instant,
    /// Nanoseconds since 1970.
    began_unix: u64,
    pub(super) stages: Vec<Passed>,
    pub(super) request: Head,
}

/// A stage of a request.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) stage: Stage,
    pub(super) span_id: [u8; 8],
    pub(super) began: Instant,
    /// `None` while it goes on.
    pub(super) ended: Option<Instant>,
}

/// What spans tell of the heads of a request and its answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) target: Option<PathAndQuery>,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) client: Option<IpAddr>,
    pub(super) audit_id: Option<HeaderValue>,
}

/// Where a span belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lineage {
    /// It continues the client's trace.
    ChildOf(SpanContext),
    /// It begins a trace, to which the client's span may have led.
    Root { link: Option<SpanContext> },
}

impl Trace {
    pub(super) fn begin<B>(
        sampling: Arc<Sampling>,
        (parent, by_rate, trusted): (Option<SpanContext>, bool, bool),
        request: &http::Request<B>,
        client: Option<IpAddr>,
    ) -> Self {
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

    /// Sets the groups of the request's user: the client's span counts if one of them is privileged.
    pub fn asked_by(&mut self, groups: &[String]) {
        self.trusted |= groups.iter().any(|group| TRUSTED_GROUPS.contains(&group.as_str()));
    }

    /// Begins a stage; the one before it is over.
    pub fn enter(&mut self, stage: Stage) {
        let now = Instant::now();
        self.leave(now);
        self.stages.push(Passed { stage, span_id: new_span_id(), began: now, ended: None });
    }

    /// The stage is over: the answer begins.
    pub fn answered(&mut self, audit_id: Option<&HeaderValue>) {
        self.leave(Instant::now());
        self.request.audit_id = audit_id.cloned();
    }

    /// Begins the stage of a forwarded request, and names its span to upstream. The headers of a request that is not
    /// traced after all stay as they are: upstream decides by the client's span itself.
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

    /// `None` if the request is not traced. A parent that counts decides alone, as OpenTelemetry's parent-based samplers
    /// have it.
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

    /// Nanoseconds since 1970.
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
