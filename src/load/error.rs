//! Why a run has no report.

use crate::{EndpointError, cluster::TEST_CLUSTER, slo::API_RESPONSIVENESS};
use base::config::{NoKubeconfig, Redacted, UpstreamConfigError};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("no access to {0}")]
    Access(Redacted, #[source] UpstreamConfigError),
    #[error(
        "no access to {0}: {1}; name one, or a server without TLS, in one of these ways:\n  --kubeconfig FILE\n  \
         KUBECONFIG=FILE in the environment, as for kubectl\n  --url http://HOST:PORT"
    )]
    NoKubeconfig(Redacted, NoKubeconfig),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("{0} does not answer: {1}")]
    Unreachable(String, String),
    /// The server, the status and message of its answer, and what to do.
    #[error("{0} refuses GET /version: {1}; {2}")]
    Refused(String, String, &'static str),
    #[error(
        "{0} does not answer GET /version as an API server does: {1}; --url is the address of an API server or gateway"
    )]
    Foreign(String, String),
    #[error(
        "{0} does not look like a cluster for tests{1}, and load can take a cluster down. If it is one: \
         kubectl label namespace default {TEST_CLUSTER}=true, or --i-know-this-is-a-test-cluster"
    )]
    NotForTests(String, String),
    #[error(
        "{0} and {1} show different clusters: the uids of their namespaces kube-system differ. All servers of a run \
         have to show the same one; measure each cluster in a run of its own"
    )]
    OtherCluster(String, String),
    #[error("cannot create the objects of the run: {failure}{left}")]
    Seed {
        failure: String,
        left: String,
        /// Whether the server has answered, and so refuses them.
        has_answer: bool,
    },
    #[error(
        "cannot read the CPU and memory of the process {0:?}: --pid requires the id of a process on this machine, \
         --metrics a URL whose response contains process_cpu_seconds_total"
    )]
    NoUsage(String),
    #[error("two processes have the name {0:?}: --pid and --metrics take each name once")]
    SameProcess(String),
    #[error("no workload has the name {0:?} of --assert; there are: {1}")]
    NoWorkload(String, String),
    #[error("--assert {API_RESPONSIVENESS} is about gets, lists and writes, and the profile has none")]
    NoCalls,
    #[error(
        "interrupted again, so that objects of the run may be left, in a namespace with the label \
         app.kubernetes.io/managed-by=kube-fanout-load"
    )]
    InterruptedAgain,
    #[error(
        "nothing was measured at a server, which answered no request of any workload; the errors of the workloads say \
         why: its address, the credentials, or what the profile asks for"
    )]
    NothingMeasured,
}
