//! Who may read the metrics and the status: as with the API server's components, those who may `get` their paths.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::authn::{Authenticator, Unauthenticated};
use crate::authz;
use crate::fairness::{ClientKey, Shares, share_of};
use crate::listener::Connection;
use crate::telemetry;
use crate::upstream::Upstream;

/// Asks upstream whose a token is and what its user may. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MetricsAccess {
    authenticator: Authenticator,
    reviewer: Upstream,
    under_way: Arc<Semaphore>,
    /// Of these, for each address.
    shares: Shares,
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Nothing names a user, or not well.
    Unauthenticated,
    Forbidden {
        user: String,
        path: &'static str,
    },
    /// As many are asked about as may be.
    Busy,
    /// Upstream could not be asked, or did not say.
    NoVerdict,
}

/// What is authorized, and answered.
pub(super) const METRICS: &str = "/metrics";
/// What is authorized for the status as JSON and as a page: it names users, which metrics do not.
pub(super) const STATUS: &str = "/status.json";
/// Scrapes that are asked about at once: a few scrapers, each every few seconds.
const REVIEWS_MAX: usize = 20;

impl MetricsAccess {
    /// `authenticator` says who clients are; `reviewer` needs the right to create `subjectaccessreviews`.
    pub fn new(authenticator: Authenticator, reviewer: Upstream) -> Self {
        let under_way = Arc::new(Semaphore::new(REVIEWS_MAX));
        let shares = Shares::new(share_of(REVIEWS_MAX), "address_metrics_reviews");
        Self { authenticator, reviewer, under_way, shares }
    }

    /// Takes the client's credentials off its headers. No verdict is remembered: scrapes are rare.
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
            Unauthenticated::Impersonates | Unauthenticated::Nobody | Unauthenticated::Rejected => {
                Denied::Unauthenticated
            }
            Unauthenticated::Unavailable => Denied::NoVerdict,
        })?;
        match authz::may_get(&self.reviewer, &user, path).await {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(Denied::Forbidden { user: user.name.clone(), path }),
            Ok(None) => Err(Denied::NoVerdict),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, path, "access not reviewed");
                Err(Denied::NoVerdict)
            }
        }
    }
}
