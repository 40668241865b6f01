//! Sends spans to the collector, in batches.

use std::{mem, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    collector::{ExportError, export, framed},
    message::{ExportRequest, KeyValue, PartialSuccess, Resource, ResourceSpans, Scope, ScopeSpans, Span},
};
use base::telemetry::{Chain, SpansDropped, spans_dropped, spans_exported};

/// Maximum number of requests whose spans are sent in one message. That is 2 MiB at most; collectors accept 4 MiB.
const BATCH_MAX: usize = 512;
/// How long a batch waits for further spans.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The first pause after a failed export; each further pause is twice as long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long the export of a batch is retried: the default of OpenTelemetry's exporters. Meanwhile spans wait in the
/// queue.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long a drain waits for the export of the last spans.
const FLUSH_MAX: Duration = Duration::from_millis(500);
/// The version of the semantic conventions used for attributes.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Reads the queue, and exports its spans in batches.
#[derive(Debug)]
pub(super) struct Exporter {
    endpoint: String,
    queue: mpsc::Receiver<Vec<Span>>,
    resource: Resource,
    /// Taken from the queue and not yet exported or dropped. Each element holds the spans of one request.
    batch: Vec<Vec<Span>>,
    /// Whether the last export failed.
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(endpoint: String, queue: mpsc::Receiver<Vec<Span>>) -> Self {
        let resource = Resource {
            attributes: vec![
                KeyValue::text("service.name", "kube-fanout"),
                KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::text("service.instance.id", Uuid::new_v4().to_string()),
            ],
        };
        Self { endpoint, queue, resource, batch: Vec::new(), is_failing: false }
    }

    /// Exports until the drain begins, then tries once to export what is left, within a time limit.
    pub(super) async fn run(mut self, draining: CancellationToken) {
        let ended = draining.run_until_cancelled(self.follow()).await;
        if ended.is_none() && timeout(FLUSH_MAX, self.flush()).await.is_err() {
            while let Ok(spans) = self.queue.try_recv() {
                self.batch.push(spans);
            }
            self.give_up();
        }
    }

    /// Exports until all senders of the queue are gone.
    async fn follow(&mut self) {
        while self.fill().await {
            self.deliver().await;
        }
    }

    /// Fills the batch: waits for the first spans, then briefly for more. `false` if the queue is closed and empty.
    async fn fill(&mut self) -> bool {
        if self.batch.is_empty() {
            self.batch.extend(self.queue.recv().await);
        }
        let until = Instant::now() + BATCH_DELAY;
        while !self.batch.is_empty() && self.batch.len() < BATCH_MAX {
            let room = BATCH_MAX - self.batch.len();
            if matches!(timeout_at(until, self.queue.recv_many(&mut self.batch, room)).await, Ok(0) | Err(_)) {
                break;
            }
        }
        !self.batch.is_empty()
    }

    /// Sends the batch, with retries, until it is accepted or dropped.
    async fn deliver(&mut self) {
        let (began, framed) = (Instant::now(), self.framed());
        let mut pause = RETRY_AFTER;
        loop {
            match export(&self.endpoint, framed.clone()).await {
                Ok(partial) => return self.accepted(&partial),
                Err(error) => {
                    self.failed(&error);
                    if !error.is_passing() || began.elapsed() + pause > RETRY_MAX {
                        return self.give_up();
                    }
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Sends everything that is queued, once.
    async fn flush(&mut self) {
        loop {
            while self.batch.len() < BATCH_MAX
                && let Ok(spans) = self.queue.try_recv()
            {
                self.batch.push(spans);
            }
            if self.batch.is_empty() {
                return;
            }
            match export(&self.endpoint, self.framed()).await {
                Ok(partial) => self.accepted(&partial),
                Err(error) => {
                    self.failed(&error);
                    self.give_up();
                }
            }
        }
    }

    fn framed(&self) -> Bytes {
        let scope = Scope { name: "kube_fanout".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans = self.batch.iter().flatten().cloned().collect();
        framed(&ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
                schema_url: SCHEMA_URL.to_owned(),
            }],
        })
    }

    fn accepted(&mut self, PartialSuccess { rejected_spans, error_message }: &PartialSuccess) {
        let sent = self.forget();
        let rejected = usize::try_from(*rejected_spans).unwrap_or_default().min(sent);
        spans_exported(sent - rejected);
        if rejected > 0 {
            spans_dropped(SpansDropped::Rejected, rejected);
            tracing::debug!(rejected, message = error_message, "the collector rejected some spans");
        }
        if mem::take(&mut self.is_failing) {
            tracing::info!(endpoint = self.endpoint, "span exports succeed again");
        }
    }

    /// Logs a failure once, until an export succeeds again.
    fn failed(&mut self, error: &ExportError) {
        if !mem::replace(&mut self.is_failing, true) {
            tracing::warn!(endpoint = self.endpoint, error = %Chain(error), "cannot export spans");
        }
    }

    fn give_up(&mut self) {
        let unsent = self.forget();
        spans_dropped(SpansDropped::Unsent, unsent);
    }

    /// Empties the batch; returns its number of spans.
    fn forget(&mut self) -> usize {
        mem::take(&mut self.batch).iter().map(Vec::len).sum()
    }
}
