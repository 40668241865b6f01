//! Authorizes access to metrics and status: as with the API server's components, a user needs the right to `get` their
//! paths.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::authn::{Authenticator, Unauthenticated};
use crate::authz;
use crate::listener::Connection;
use crate::upstream::Upstream;
use base::fairness::{ClientKey, Shares, share_of};
use base::telemetry::{self, Chain};

/// Authenticates clients and authorizes their scrapes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MetricsAccess {
    authenticator: Authenticator,
    reviewer: Upstream,
    under_way: Arc<Semaphore>,
    /// Limits the reviews in flight per address.
    shares: Shares,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// No credentials name a user, or they are invalid.
    Unauthenticated,
    Forbidden {
        user: String,
        path: &'static str,
    },
    /// Too many reviews are in flight, in total or for this address.
    Busy,
    /// Upstream could not be asked, or gave no verdict.
    NoVerdict,
}

/// The path of the metrics, which is also the one that is authorized.
pub(super) const METRICS: &str = "/metrics";
/// The path that is authorized for the status, as JSON and as a page: unlike the metrics, it names users.
pub(super) const STATUS: &str = "/status.json";
/// Reviews in flight: enough for a few scrapers, each every few seconds.
const REVIEWS_MAX: usize = 20;

impl MetricsAccess {
    /// `authenticator` identifies clients; `reviewer` needs the right to create `subjectaccessreviews`.
    pub fn new(authenticator: Authenticator, reviewer: Upstream) -> Self {
        let under_way = Arc::new(Semaphore::new(REVIEWS_MAX));
        let shares = Shares::new(share_of(REVIEWS_MAX), "address_metrics_reviews");
        Self { authenticator, reviewer, under_way, shares }
    }

    /// Removes the credentials from the headers and checks whether the client may get `path`. No verdict is cached,
    /// since scrapes are rare.
    pub(super) async fn check(
        &self,
        path: &'static str,
        headers: &mut HeaderMap,
        connection: &Connection,
    ) -> Result<(), Denied> {
        let credentials = self.authenticator.credentials(headers, connection.client_certificate.as_deref());
        let address = connection.peer.map(|peer| peer.ip());
        let Some(_share) = self.shares.take(ClientKey::address(address)) else { return Err(Denied::Busy) };
        let Ok(_place) = self.under_way.try_acquire() else {
            telemetry::limit_reached("metrics_reviews");
            return Err(Denied::Busy);
        };
        let user = self.authenticator.user(&credentials, address).await.map_err(|why| match why {
            Unauthenticated::Impersonates | Unauthenticated::NoCredentials | Unauthenticated::Rejected => {
                Denied::Unauthenticated
            }
            Unauthenticated::Unavailable => Denied::NoVerdict,
        })?;
        match authz::may_get(&self.reviewer, &user, path).await {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(Denied::Forbidden { user: user.name.clone(), path }),
            Ok(None) => Err(Denied::NoVerdict),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), path, "cannot review access");
                Err(Denied::NoVerdict)
            }
        }
    }
}
