//! Decides which requests are traced.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use http::Request;
use tokio::sync::mpsc;

use super::{SpanContext, Trace, exporter::Exporter, sampling::Sampling, trace::Arrival};
use base::{lifecycle::Tasks, telemetry::show_limit};

/// Maximum number of requests whose spans wait for export: usually 4 MiB, at most 20 MiB.
const QUEUE_MAX: usize = 4_096;
const QUEUE_LIMIT: &str = "trace_queue";
const MILLION: u32 = 1_000_000;

/// Which requests are traced, and where their spans go.
#[derive(Clone, Debug)]
pub struct Config {
    /// The collector's `host:port`.
    pub endpoint: String,
    /// How many of a million requests are traced, among those whose client has not decided.
    pub sampling_rate_per_million: u32,
    /// Whether every client may decide about the tracing of its requests; otherwise only privileged groups may.
    pub trusts_clients: bool,
    /// The API server's address, for spans of forwarded requests.
    pub upstream: http::Uri,
}

/// Begins traces; none if no collector is configured. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Sampling>>);

impl Tracer {
    /// Starts to export spans, in a task of `tasks` that ends with their drain.
    pub fn start(config: Config, tasks: &Tasks) -> Self {
        let Config { endpoint, sampling_rate_per_million, trusts_clients, upstream } = config;
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let shown = queue.downgrade();
        show_limit(QUEUE_LIMIT, move || {
            let queue = shown.upgrade()?;
            Some(((queue.max_capacity() - queue.capacity()) as u64, queue.max_capacity() as u64))
        });
        tasks.spawn("traces", Exporter::new(endpoint, spans).run(tasks.token().clone()));
        let rate_per_million = AtomicU32::new(sampling_rate_per_million);
        Self(Some(Arc::new(Sampling { rate_per_million, trusts_clients, upstream, queue })))
    }

    /// Sets the sampling rate of new requests.
    pub fn set_rate(&self, per_million: u32) {
        if let Some(sampling) = &self.0 {
            sampling.rate_per_million.store(per_million, Relaxed);
        }
    }

    /// Begins the trace of a request from `client` that has just arrived; `None` if it certainly is not traced.
    pub fn begin<B>(&self, request: &Request<B>, client: Option<IpAddr>) -> Option<Box<Trace>> {
        let sampling = self.0.as_ref()?;
        let parent = SpanContext::of(request.headers());
        let by_rate = fastrand::u32(..MILLION) < sampling.rate_per_million.load(Relaxed);
        let (asks, trusted) = (parent.is_some_and(|parent| parent.is_sampled), sampling.trusts_clients);
        let may_be_traced = if trusted && parent.is_some() { asks } else { by_rate || asks };
        let arrival = Arrival { parent, by_rate, trusted };
        may_be_traced.then(|| Box::new(Trace::begin(sampling.clone(), arrival, request, client)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use tokio::net::TcpListener;

    use super::*;
    use base::{
        lifecycle::Drained,
        telemetry::{Finished, Outcome},
    };

    fn tracer(endpoint: String, rate: u32, tasks: &Tasks) -> Tracer {
        let upstream = http::Uri::from_static("https://10.0.0.1:6443");
        Tracer::start(Config { endpoint, sampling_rate_per_million: rate, trusts_clients: true, upstream }, tasks)
    }

    fn request(traceparent: Option<&str>) -> Request<()> {
        let request = Request::get("/api/v1/pods");
        traceparent.map_or(Request::get("/api/v1/pods"), |value| request.header("traceparent", value)).body(()).unwrap()
    }

    #[tokio::test]
    async fn spans_that_find_no_room_are_dropped_at_once() {
        // It accepts connections, as far as the kernel does that, and reads nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tasks = Tasks::new();
        let tracer = tracer(silent.local_addr().unwrap().to_string(), MILLION, &tasks);
        let finished = Finished {
            verb: "list",
            resource: None,
            resource_known: false,
            outcome: Outcome::Served,
            reason: None,
            status: StatusCode::OK.as_u16(),
            duration: Duration::ZERO,
            bytes: 0,
        };
        for _ in 0..2 * QUEUE_MAX {
            tracer.begin(&request(None), None).unwrap().finish(&finished);
        }
        assert_eq!(tracer.0.as_ref().unwrap().queue.capacity(), 0);
        assert_eq!(tasks.drain(Duration::from_secs(60)).await, Drained::All);
    }

    #[tokio::test]
    async fn a_rate_is_of_a_million_and_can_change() {
        let tasks = Tasks::new();
        let tracer = tracer("127.0.0.1:1".to_owned(), 0, &tasks);
        let traced = |traceparent| (0..10_000).filter(|_| tracer.begin(&request(traceparent), None).is_some()).count();
        let sampled = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let unsampled = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        assert_eq!((traced(None), traced(sampled), traced(unsampled)), (0, 10_000, 0));
        tracer.set_rate(MILLION / 2);
        assert!((4_000..6_000).contains(&traced(None)));
        tracer.set_rate(MILLION);
        assert_eq!((traced(None), traced(unsampled)), (10_000, 0));
        assert!(Tracer::default().begin(&request(sampled), None).is_none());
    }
}
