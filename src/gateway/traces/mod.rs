//! Traces of requests as OpenTelemetry spans, exported to a collector over OTLP.
//!
//! A traced request has a [`Trace`], which records when its stages begin. A finished trace becomes spans; these are
//! queued for the one task that exports them. A request that is not traced costs one check of an `Option`.
//!
//! Invariants: no request waits for the collector, and neither does the drain beyond a fixed time; spans that do not
//! fit into the queue are dropped and counted. Spans contain the access log's fields without the user: no query, and of
//! the headers only the user agent.
//!
//! The messages and the call are implemented here with prost and hyper, which the gateway depends on anyway.
//! OpenTelemetry's own crates would add 9 s of CPU (messages alone) to 28 s (with tonic) to the first build, and have
//! no metric of dropped spans.

mod collector;
mod context;
mod exporter;
mod message;
mod sampling;
mod spans;
mod trace;
mod tracer;

pub use context::SpanContext;
pub use trace::{Stage, Trace};
pub use tracer::{Config, Tracer};
