//! An embedded Kubernetes API server in memory: the upstream of the demo and of the hermetic tests.
//!
//! Its reads and watches follow the same contract as the gateway's, the manual's chapter `read_path`, but share no code
//! with it beyond the parsing of selectors, so that testing one against the other is meaningful. Faults can be injected
//! through [`Sim`], and requests are counted.
//!
//! Its version, [`GIT_VERSION`], identifies it. Its limitations:
//! * no authentication, authorization or TLS: every client that reaches the port may do everything;
//! * only JSON, PartialObjectMetadata and small Tables; no protobuf (which `kubectl create configmap` sends; `create
//!   -f` does not), YAML, gzip or WebSockets; only the part of OpenAPI that makes kubectl leave validation to the
//!   server;
//! * no admission, no schemas, and no validation except of names; few defaults; unknown fields are kept; no conversion
//!   between versions of a custom resource: all versions have the same content;
//! * no controllers: a deployment creates no pods, nothing is scheduled, and dependents are not garbage-collected.
//!   Deleting a namespace deletes its objects at once;
//! * no server-side apply, field ownership or dry run; strategic merge only supports lists of named objects;
//! * no subresources except `status`, where an update changes only the status;
//! * one copy of the data instead of etcd and caches: a read that allows an older state gets the newest
//!   one ([`Sim::lag_caches`] changes that).

mod body;
mod census;
mod continue_token;
mod crd;
mod definition;
mod demo;
mod discovery;
mod failure;
mod faults;
mod handle;
mod history;
mod json;
mod key_order;
mod negotiate;
mod openapi;
mod options;
mod patch;
mod path;
mod read;
mod reply;
mod rest;
mod select;
mod server;
mod servers;
mod shapes;
mod shards;
mod storage;
mod stored;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

pub use body::Body;
pub use census::Counts;
pub use demo::Churn;
pub use faults::{Features, Refusal};
pub use server::SimServer;
pub use servers::Rewrite;
pub use watch::Cut;

use census::Census;
use faults::Faults;
use servers::Servers;
use storage::Storage;

/// The version in `/version`.
pub const GIT_VERSION: &str = "v1.36.0+kube-fanout-sim";

/// How long a read waits for a version that does not exist yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The embedded server. Cheap to clone; all clones are the same server.
#[derive(Clone, Debug)]
pub struct Sim(Arc<Simulation>);

#[derive(Debug)]
struct Simulation {
    storage: Storage,
    faults: Faults,
    servers: Servers,
    census: Arc<Census>,
}

/// A write from inside the process was refused; the text is the one that a client would get.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Simulation {
    /// Waits a while until a revision is reached. If it is not, returns the newest one as the error.
    async fn wait_for(&self, revision: u64) -> Result<(), u64> {
        let mut head = self.storage.head();
        let reached = head.wait_for(|head| *head >= revision);
        let reached = timeout(FRESHNESS_WAIT, reached).await.is_ok_and(|reached| reached.is_ok());
        if reached { Ok(()) } else { Err(self.storage.revision()) }
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}
