//! Asks upstream for its version at the start, and for as long as there is trouble: that its address is wrong, or that it
//! does not accept the gateway's credentials, is known before the first client comes, and is no longer told of when it
//! has passed.

use std::time::Duration;

use tokio::time::sleep;

use super::{FetchError, Upstream, server_version};
use crate::{lifecycle::Tasks, telemetry::Chain};

/// The pause between two looks at what requests have found out. Nothing is requested while there is no trouble.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Upstream {
    /// Probes upstream in a task of `tasks` until the drain begins. The log says what is wrong, once.
    pub fn keep_probed(&self, tasks: &Tasks) {
        let (upstream, token) = (self.clone(), tasks.token().clone());
        tasks.spawn("upstream probe", async move {
            let _ended = token.run_until_cancelled(upstream.probe_while_in_trouble()).await;
        });
    }

    async fn probe_while_in_trouble(&self) {
        let address = self.address();
        match self.probe().await {
            // The log has a line about these.
            Err(FetchError::Send { source, .. }) if source.is_unreachable() => {}
            Err(FetchError::Status { .. }) if self.shared.connector.is_unauthorized() => {}
            Err(error) => {
                tracing::warn!(%address, error = %Chain(&error), "the API server does not say its version; check its \
                    address in the kubeconfig, and whether the gateway's identity may get /version");
            }
            Ok(false) => {
                tracing::warn!(%address, error = "/version is not that of an API server", "this does not look like an API \
                    server; check its address in the kubeconfig");
            }
            Ok(true) => tracing::debug!(%address, "the API server answers"),
        }
        loop {
            sleep(LOOK_EVERY).await;
            if self.shared.connector.is_in_trouble() {
                // What comes of it is noted.
                self.probe().await.ok();
            }
        }
    }

    /// Whether upstream says its version, as an API server does.
    async fn probe(&self) -> Result<bool, FetchError> {
        let document = self.fetch(server_version::PATH, "application/json").await?;
        let version = document.and_then(|document| server_version::parse(&document));
        if let Some(version) = &version {
            self.note_version(version);
        }
        Ok(version.is_some())
    }
}
