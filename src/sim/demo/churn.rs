//! Changes like those of a busy cluster: most change the status of a pod, some its labels, and a few replace a pod.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::{
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval},
};

use base::apimachinery::GroupResource;

use super::{Application, SEED, Sim, pods};
use crate::write::now;

/// The interval between batches of changes.
const BATCH_PERIOD: Duration = Duration::from_millis(10);
/// After a stall, at most the changes of this time are caught up on: a machine that is too slow for the rate makes
/// fewer changes.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);

/// Changes the pods of a populated server.
#[derive(Debug)]
pub struct Churn {
    sim: Sim,
    rng: Rng,
    resource: GroupResource,
    /// The keys of the existing pods, as long as this is the only writer.
    pods: Vec<String>,
    nodes: usize,
    /// The number of pods that were deleted and have not been replaced yet.
    missing: usize,
}

impl Churn {
    /// Starts with the pods that exist now.
    pub fn new(sim: &Sim) -> Self {
        let core = |resource: &str| GroupResource { group: "".into(), resource: resource.into() };
        let objects = |resource: &str| sim.objects(&core(resource)).unwrap_or_default();
        let key = |pod: &Value| {
            let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        };
        Self {
            pods: objects("pods").iter().map(key).collect(),
            nodes: objects("nodes").len().max(1),
            rng: Rng::with_seed(SEED + 1),
            resource: core("pods"),
            sim: sim.clone(),
            missing: 0,
        }
    }

    /// Makes changes at this rate until the future is dropped.
    pub async fn run(mut self, changes_per_second: f64) {
        let mut ticks = interval(BATCH_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut due) = (Instant::now(), 0.0_f64);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            due += (now - last).min(CATCH_UP_MAX).as_secs_f64() * changes_per_second;
            last = now;
            while due >= 1.0 {
                due -= 1.0;
                self.change();
                yield_now().await;
            }
        }
    }

    /// Makes one change.
    pub fn change(&mut self) {
        let kind = self.rng.u8(..100);
        if self.pods.is_empty() || (self.missing > 0 && kind < 20) {
            self.create();
        } else if kind < 23 {
            self.delete();
        } else if kind < 35 {
            self.relabel();
        } else {
            self.report_status();
        }
    }

    fn create(&mut self) {
        let application = Application::new(self.rng.usize(..200));
        let pod = pods::pod(&application, self.nodes, &mut self.rng);
        // Fails if the name is taken, or the namespace was deleted: then there is no new pod.
        if let Ok(pod) = self.sim.insert(pod) {
            self.pods.push(pod.key.clone());
        }
        self.missing = self.missing.saturating_sub(1);
    }

    fn delete(&mut self) {
        let key = self.pods.swap_remove(self.rng.usize(..self.pods.len()));
        self.missing += 1;
        // Another client may have deleted it already.
        self.sim.delete(&self.resource, &key).ok();
    }

    /// Adds or removes the label `canary`, so that selectors on it have something to show.
    fn relabel(&mut self) {
        self.modify(|pod, _| {
            let labels = &mut pod["metadata"]["labels"];
            let removed = labels.as_object_mut().and_then(|labels| labels.shift_remove("canary"));
            if removed.is_none() {
                labels["canary"] = "yes".into();
            }
        });
    }

    /// Makes a ready container unready, or restarts an unready one.
    fn report_status(&mut self) {
        self.modify(|pod, rng| {
            let now = now();
            let status = &mut pod["status"];
            let count = status["containerStatuses"].as_array().map_or(0, Vec::len);
            if count == 0 {
                status["message"] = now.into();
                return;
            }
            let container = &mut status["containerStatuses"][rng.usize(..count)];
            let ready = container["ready"] == true;
            if !ready {
                container["restartCount"] = (container["restartCount"].as_u64().unwrap_or(0) + 1).into();
                container["state"] = json!({"running": {"startedAt": now}});
            }
            container["ready"] = (!ready).into();
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
                    condition["status"] = if ready { "False" } else { "True" }.into();
                    condition["lastTransitionTime"] = now.as_str().into();
                }
            }
        });
    }

    fn modify(&mut self, change: impl FnOnce(&mut Value, &mut Rng)) {
        let at = self.rng.usize(..self.pods.len());
        let rng = &mut self.rng;
        if self.sim.modify(&self.resource, &self.pods[at], |pod| change(pod, rng)).is_err() {
            // Another client deleted it.
            self.pods.swap_remove(at);
            self.missing += 1;
        }
    }
}
