//! Keeps several API servers of one cluster checked: whether each is of the cluster, and well
//! (the manual's chapter `operations`, "Several API servers").

mod answer;
mod membership;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::Upstream;
use crate::connector::{ServerChecks, ServerState};
use answer::{CheckResult, ask};
use base::lifecycle::Tasks;
use membership::{Judgement, Membership};

/// The pause between two rounds of checks.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// The shortest pause, when a connection waits because no server can be used.
const CHECK_AGAIN: Duration = Duration::from_millis(200);

impl Upstream {
    /// Checks the servers in a task of `tasks` until the drain begins; does nothing if there is only one address.
    pub fn keep_servers_checked(&self, tasks: &Tasks) {
        let Some(checks) = self.shared.connector.server_checks() else { return };
        let (token, upstream) = (tasks.token().clone(), self.clone());
        tasks.spawn("upstream servers", async move {
            let _ended = token.run_until_cancelled(upstream.check(checks)).await;
        });
    }

    /// Checks the servers, those of the fallback too, so that they can be used; does nothing if there is only one
    /// address.
    pub async fn check_servers_once(&self) {
        let Some(checks) = self.shared.connector.server_checks() else { return };
        let mut membership = membership(&checks);
        let due = membership.due(|_| true);
        self.round(&checks, &mut membership, due).await;
    }

    /// The states of the servers, in the order of the configuration; empty if there is only one address.
    pub fn servers(&self) -> Vec<ServerState> {
        self.shared.connector.servers().map(|servers| servers.states()).unwrap_or_default()
    }

    async fn check(&self, checks: ServerChecks) {
        let mut membership = membership(&checks);
        loop {
            let due = membership.due(|index| checks.servers().is_checked(index));
            self.round(&checks, &mut membership, due).await;
            let wanted = async {
                sleep(CHECK_AGAIN).await;
                checks.servers().wanted().await;
            };
            tokio::select! {
                () = sleep(CHECK_EVERY) => {}
                () = wanted => {}
            }
        }
    }

    /// Asks all servers that are due.
    async fn round(&self, checks: &ServerChecks, membership: &mut Membership, due: Vec<bool>) {
        let asked = due.into_iter().enumerate().map(
            async |(index, is_due)| {
                if is_due { Some(ask(checks, index).await) } else { None }
            },
        );
        let answers = join_all(asked).await;
        let Judgement { findings, is_another, has_strayed } = membership.round(&answers, Instant::now());
        if is_another {
            tracing::warn!("the cluster of upstream.servers was replaced by another one; all caches are given up");
            self.shared.connector.break_all();
        }
        if let Some(cluster) = membership.cluster() {
            self.shared.cluster.is(cluster.clone());
            let mut reports = answers.iter().flatten().filter_map(CheckResult::report);
            if let Some(report) = reports.find(|report| report.cluster == *cluster) {
                self.note_gateways_above(report.gateways);
            }
        }
        checks.servers().found(findings);
        // At the end: what was asked for on a connection that was broken now, is from before.
        if is_another || has_strayed {
            self.storage().replaced();
        }
    }
}

fn membership(checks: &ServerChecks) -> Membership {
    let servers = checks.servers();
    Membership::new(servers.addresses().len(), servers.without_fallback(), Instant::now())
}
