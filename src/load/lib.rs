//! `kube-fanout load`: puts load on an API server, or on two in turns, and reports the measurements.
//!
//! A [`Profile`] defines the requests. Each turn opens its watches, then sends requests on a schedule that does not
//! wait for responses. Latencies are measured from the time at which requests were due. Written objects contain the
//! time of the write, from which watches compute the delay of events; both times come from this machine's clock. The
//! manual's chapter `load` describes the formats.
//!
//! The tool is a client like any other: it uses nothing of the gateway, so that it measures what clients see.
//!
//! [`Connection`] and [`Splitter`] are also the client of measurements that no profile describes (`benches`), and
//! [`workload`] has the pods of both.

mod assertion;
mod channel;
mod churn;
mod cluster;
pub mod command;
mod connection;
mod cut;
mod demand;
mod endpoint;
mod error;
mod failure;
mod frames;
mod informer;
mod list;
mod objects;
mod page;
mod paths;
mod processes;
mod profile;
mod progress;
mod read;
mod recorder;
mod report;
mod rounds;
mod run;
mod same_cluster;
mod schedule;
mod scope;
mod seed;
mod servers;
mod side;
mod slo;
mod slow_reader;
mod splitter;
mod text;
mod timeline;
mod times;
mod turn;
mod version;
mod waits;
mod watch;
pub mod workload;

use std::time::Duration;

use base::config::DURATION;

pub use assertion::{Assertion, NotAnAssertion};
pub use cluster::TEST_CLUSTER;
pub use connection::{Connection, Tls};
pub use endpoint::{EndpointError, Fallback, NotAFallback};
pub use error::LoadError;
pub use failure::Failure;
pub use page::page;
pub use processes::{Named, NotNamed};
pub use profile::{BUILT_IN, HttpVersion, Profile, ProfileError};
pub use report::{
    AssertionReport, Bucket, EndReport, EndpointReport, ErrorReport, IntervalReport, ProcessReport, Report,
    TimelineReport, TimesReport, WorkloadReport,
};
pub use run::{LoadOptions, Server, load};
pub use slo::Condition;
pub use splitter::Splitter;
pub use text::text;

/// The maximum number of objects, in a profile and on the command line.
pub const OBJECTS_MAX: usize = 1_000_000;

/// Parses the duration of a profile, for example `30s` or `1h30m`.
///
/// # Errors
/// The text is not a duration that a profile may have; the error says what is allowed.
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    base::config::duration(text).filter(|duration| profile::DURATIONS.contains(duration)).ok_or(NotADuration)
}

/// The text is not a duration of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allowed: {DURATION}, from 1ms to 168h")]
pub struct NotADuration;
