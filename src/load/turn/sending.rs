//! The requests that are sent on a schedule, and those that were due and not sent.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Course, Unasked,
    client::{Client, Requests, channels},
};
use crate::{
    channel::Channel,
    failure::ErrorKind,
    profile::{ReadVersion, Work},
    read::{self, Reads},
    schedule::Schedule,
    side::Side,
};

/// Why requests were not sent.
const ALL_BUSY: &str = "all clients were busy";
const NO_ANSWER: &str = "the server did not answer what they depend on when the turn began: see the other errors";

impl Course {
    /// The requests of each workload that sends requests on a schedule. What they depend on, such as the names of
    /// objects, is asked for at most the profile's timeout, or once by each workload.
    pub(super) async fn requests(&self, side: &Side) -> Vec<(usize, Result<Requests, Unasked>)> {
        let (mut all, until) = (Vec::new(), Instant::now() + self.profile.timeout);
        for (index, workload) in self.workloads() {
            let recorder = &side.recorders[index];
            let requests = match &workload.work {
                Work::Watch(_) | Work::Informer(_) | Work::SlowReader(_) | Work::Reconnect(_) => continue,
                Work::Churn(_) => {
                    let Some(churn) = self.churns[index].clone() else { continue };
                    Ok(Requests::Churn(churn))
                }
                Work::Get { resource, namespace, version } => {
                    let names =
                        async |channel: &Channel| read::names(channel, resource, namespace.as_deref(), *version).await;
                    let paths = self.ask(side, recorder, until, names).await;
                    paths.map(|paths| Requests::Reads(Arc::new(Reads::Get(paths)), workload.transport))
                }
                Work::List(work) => {
                    let newest = match work.version {
                        ReadVersion::NotOlderThan => self.newest(side, recorder, &work.selection, until).await,
                        ReadVersion::Any | ReadVersion::MostRecent => Ok(String::new()),
                    };
                    let reads = newest.map(|newest| Arc::new(Reads::list(work, &newest)));
                    reads.map(|reads| Requests::Reads(reads, workload.transport))
                }
            };
            all.push((index, requests));
        }
        all
    }

    /// Sends requests until the time is over and all of them have a response or were given up.
    pub(super) async fn send(&self, side: &Side, requests: Vec<(usize, Result<Requests, Unasked>)>, began: Instant) {
        let (end, grace) = (began + self.duration, self.profile.timeout);
        let (mut clients, mut schedules) = (JoinSet::new(), Vec::new());
        for (index, requests) in requests {
            let workload = &self.profile.workloads[index];
            // What a server refuses is not due.
            let rate = workload.rate.filter(|_| !matches!(requests, Err(Unasked::Refused)));
            let schedule = Arc::new(Schedule::new(began..end, rate, grace, self.stop.clone()));
            schedules.push((index, schedule.clone(), requests.is_ok()));
            let Ok(requests) = requests else { continue };
            let endpoint = if matches!(requests, Requests::Churn(_)) { &side.writes } else { &side.endpoint };
            for (number, channel) in channels(endpoint, workload) {
                let client = Client {
                    number,
                    channel,
                    requests: requests.clone(),
                    schedule: schedule.clone(),
                    recorder: side.recorders[index].clone(),
                    timeout: self.profile.timeout,
                    is_on_schedule: workload.rate.is_some(),
                };
                clients.spawn(async move {
                    client.run().await;
                    index
                });
            }
        }
        // One client that waits for a response does not make the others slow, nor their rates low.
        let mut last = BTreeMap::new();
        let finished = async {
            tokio::select! {
                () = sleep_until(end) => {}
                () = self.stop.cancelled() => {}
            }
            // After an interruption, each of them ends at once.
            while let Some(ended) = clients.join_next().await {
                if let Ok(index) = ended {
                    last.insert(index, Instant::now());
                }
            }
        };
        tokio::select! {
            () = finished => {}
            () = self.progress.follow(&self.profile, side, began, self.duration) => {}
        }
        for (index, schedule, has_clients) in schedules {
            let now = Instant::now();
            // Without clients, no responses were awaited after the end.
            let (until, why) = if has_clients { (now, ALL_BUSY) } else { (now.min(end), NO_ANSWER) };
            let until = last.get(&index).copied().unwrap_or(until);
            let (at, mut recorded) = (side.recorders[index].at(), side.recorders[index].lock());
            recorded.sending += until.duration_since(began);
            let mut unsent = 0;
            for (count, late) in schedule.unsent() {
                recorded.latencies(at, late, count);
                unsent += count;
            }
            recorded.failures.add_many(ErrorKind::Unsent, unsent, why.to_owned());
        }
    }
}
