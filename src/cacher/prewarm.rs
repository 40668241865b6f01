//! Caches that are there before anybody asks.

use std::time::Duration;

use tokio::time::sleep;

use super::Cachers;
use crate::apimachinery::{Encoding, GroupResource, GroupVersionResource};

/// How often a resource to prewarm is looked after: one that comes late, or was gone for a while, is started then.
const EVERY: Duration = Duration::from_secs(30);

impl Cachers {
    /// Starts what the configuration wants warm, each in its group's preferred version, and keeps it so.
    pub fn prewarm(&self) {
        for wanted in &self.shared.config.prewarm {
            let (cachers, wanted) = (self.clone(), wanted.clone());
            self.shared.tasks.spawn("prewarm", async move {
                tokio::select! {
                    () = cachers.keep_warm(&wanted) => {}
                    () = cachers.shared.tasks.token().cancelled() => {}
                }
            });
        }
    }

    async fn keep_warm(&self, wanted: &GroupResource) {
        loop {
            match self.shared.upstream.preferred_version(&wanted.group).await {
                Ok(Some(version)) => {
                    let resource = GroupVersionResource::new(&wanted.group, &version, &wanted.resource);
                    drop(self.find(&resource, Encoding::Json));
                }
                Ok(None) => tracing::warn!(resource = %wanted, "upstream does not know the group to keep warm"),
                Err(error) => tracing::warn!(resource = %wanted, %error, "not warm yet"),
            }
            sleep(EVERY).await;
        }
    }
}
