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
use crate::telemetry::{Chain, SpansDropped, spans_dropped, spans_exported};

/// Requests whose spans go in one message, of 2 MiB at most: collectors take 4 MiB.
const BATCH_MAX: usize = 512;
/// How long spans wait for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The first pause after spans were not accepted; each one is twice as long as the one before.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a batch is tried for, as OpenTelemetry's exporters have it. Later ones wait in the queue meanwhile.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long the drain waits for the last spans to be accepted.
const FLUSH_MAX: Duration = Duration::from_millis(500);
/// The version of the semantic conventions that attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The end of the queue.
#[derive(Debug)]
pub(super) struct Exporter {
    endpoint: String,
    queue: mpsc::Receiver<Vec<Span>>,
    resource: Resource,
    /// Taken from the queue, neither accepted nor given up; those of a request each.
    batch: Vec<Vec<Span>>,
    /// The collector did not accept the last batch.
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

    /// Until the drain begins; what is there then is sent once more, as far as that takes no time.
    pub(super) async fn run(mut self, draining: CancellationToken) {
        let ended = draining.run_until_cancelled(self.follow()).await;
        if ended.is_none() && timeout(FLUSH_MAX, self.flush()).await.is_err() {
            while let Ok(spans) = self.queue.try_recv() {
                self.batch.push(spans);
            }
            self.give_up();
        }
    }

    /// Until nothing is left that could send more.
    async fn follow(&mut self) {
        while self.fill().await {
            self.deliver().await;
        }
    }

    /// Waits for spans, and a moment longer for more of them. `false` if there will be none.
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

    /// Sends the batch until it is accepted or given up.
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

    /// Everything that waits, once.
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
            tracing::debug!(rejected, message = error_message, "the collector did not accept some spans");
        }
        if mem::take(&mut self.is_failing) {
            tracing::info!(endpoint = self.endpoint, "spans are exported again");
        }
    }

    /// Told once until it works again.
    fn failed(&mut self, error: &ExportError) {
        if !mem::replace(&mut self.is_failing, true) {
            tracing::warn!(endpoint = self.endpoint, error = %Chain(error), "spans are not exported");
        }
    }

    fn give_up(&mut self) {
        let unsent = self.forget();
        spans_dropped(SpansDropped::Unsent, unsent);
    }

    /// How many spans the batch had.
    fn forget(&mut self) -> usize {
        mem::take(&mut self.batch).iter().map(Vec::len).sum()
    }
}
