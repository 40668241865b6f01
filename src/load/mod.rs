//! `kube-fanout load`: puts load on an API server, or on two in turns, and says what came of it.
//!
//! A [`Profile`] says what is asked. Each turn opens its watches, then sends requests on a schedule that does not wait for
//! answers, and takes down latencies from when requests were due. Objects that are written carry the time of
//! their writing, from which watches tell how late an event comes. Both ends of that are of this machine's clock.
//! The manual's chapter [`crate::manual::load`] has the formats.
//!
//! A client like any other: it uses nothing of the gateway, so that what it measures is what clients see.

mod assertion;
mod churn;
mod cluster;
mod connection;
mod endpoint;
mod failure;
mod frames;
mod objects;
mod page;
mod paths;
mod perf_data;
mod processes;
mod profile;
mod progress;
mod read;
mod recorder;
mod report;
mod run;
mod schedule;
mod seed;
mod slo;
mod text;
mod timeline;
mod turn;
mod watch;

use std::time::Duration;

use crate::config::DURATION;

pub use assertion::{Assertion, NotAnAssertion};
pub use cluster::TEST_CLUSTER;
pub use endpoint::EndpointError;
pub use page::page;
pub use perf_data::perf_data;
pub use processes::{Named, NotNamed};
pub use profile::{BUILT_IN, Profile, ProfileError};
pub use report::{
    AssertionReport, Bucket, EndpointReport, ErrorReport, IntervalReport, ProcessReport, Report, TimelineReport,
    TimesReport, WorkloadReport,
};
pub use run::{LoadError, LoadOptions, Server, load};
pub use slo::Condition;
pub use text::text;

/// A duration as profiles have it: `30s`, `1h30m`.
///
/// # Errors
/// The text is none; the error says what would be.
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    crate::config::duration(text).filter(|duration| !duration.is_zero()).ok_or(NotADuration)
}

/// The text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allowed: {DURATION} above 0")]
pub struct NotADuration;
