//! One turn: all workloads of a profile on one endpoint for a while.

mod client;
mod opening;
mod sending;

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    channel::Channel,
    churn::Churn,
    demand::{Demand, Due},
    failure::Failure,
    processes::{Process, Usage},
    profile::{HttpVersion, Profile, Selection, Work, Workload},
    progress::Progress,
    read,
    recorder::Recorder,
    schedule::retry_pause,
    side::Side,
};
use opening::Opened;

/// No more events are expected if none arrived for this long.
const QUIET: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all turns of a run share.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) profile: Profile,
    /// How long requests are sent in a turn.
    pub(super) duration: Duration,
    /// The objects of each workload that writes.
    pub(super) churns: Vec<Option<Arc<Churn>>>,
    /// What the clients of each workload have to receive of their writes.
    pub(super) demands: Vec<Demand>,
    pub(super) processes: Vec<Process>,
    pub(super) progress: Progress,
    pub(super) stop: CancellationToken,
}

/// The result of a turn.
#[derive(Debug)]
pub(super) struct Turned {
    /// How long requests were sent.
    pub(super) seconds: f64,
    /// The usage of each process before watches were opened, when requests began, and at the end; `None` if it cannot
    /// be determined.
    pub(super) usage: Vec<[Option<Usage>; 3]>,
}

/// Why a workload cannot send the requests of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unasked {
    /// The server refuses what they depend on, or there is nothing that they could ask for.
    Refused,
    /// It does not answer, or not in time.
    NoAnswer,
}

impl Course {
    pub(super) async fn turn(&self, side: &Side) -> Turned {
        let before = self.usage().await;
        self.progress.show(format!("{}: opening watches", side.endpoint.name));
        let Opened { clients: mut watchers, cutters } = self.open(side).await;
        let requests = self.requests(side).await;
        let begin = self.usage().await;
        self.churns.iter().flatten().for_each(|churn| churn.begin());
        side.recorders.iter().for_each(|recorder| recorder.begin());
        let began = Instant::now();
        let mut cutting = JoinSet::new();
        cutters.into_iter().for_each(|cutter| drop(cutting.spawn(cutter.run(began..began + self.duration))));
        self.send(side, requests, began).await;
        drop(cutting);
        let seconds = began.elapsed().as_secs_f64();
        side.recorders.iter().for_each(|recorder| recorder.sent());
        let due: Vec<_> = self.demands.iter().map(|demand| demand.due(&self.churns)).collect();
        self.settle(side, &due).await;
        // Before anything that takes time, such as reading metrics: what comes then is of no turn.
        watchers.shutdown().await;
        // Neither what an interruption has cut short nor what the profile does not wait for is missing.
        if !self.stop.is_cancelled() && !self.profile.settle.is_zero() {
            side.recorders.iter().zip(&due).for_each(|(recorder, due)| recorder.give_up(due));
        }
        side.recorders.iter().for_each(|recorder| recorder.end());
        let end = self.usage().await;
        let usage = before.into_iter().zip(begin).zip(end).map(|((before, begin), end)| [before, begin, end]);
        Turned { seconds, usage: usage.collect() }
    }

    async fn usage(&self) -> Vec<Option<Usage>> {
        let mut usage = Vec::new();
        for process in &self.processes {
            usage.push(process.usage().await);
        }
        usage
    }

    fn workloads(&self) -> impl Iterator<Item = (usize, &Workload)> {
        self.profile.workloads.iter().enumerate()
    }

    /// See [`Self::ask`].
    async fn newest(
        &self,
        side: &Side,
        recorder: &Recorder,
        selection: &Selection,
        until: Instant,
    ) -> Result<String, Unasked> {
        self.ask(side, recorder, until, async |channel| read::newest(channel, selection).await).await
    }

    /// Asks the endpoint something before the requests begin, and again until that time if it could not answer. Each
    /// failure is an error of the workload.
    async fn ask<T>(
        &self,
        side: &Side,
        recorder: &Recorder,
        until: Instant,
        ask: impl AsyncFn(&Channel) -> Result<T, Failure>,
    ) -> Result<T, Unasked> {
        let channel = Channel::new(side.endpoint.clone(), HttpVersion::Http1);
        let asking = async {
            loop {
                let answer = timeout(self.profile.timeout, ask(&channel)).await;
                let failure = match answer.unwrap_or_else(|_| Err(Failure::timeout())) {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => failure,
                };
                let pause = failure.retry_after.unwrap_or_else(retry_pause);
                let is_refusal = failure.kind.is_refusal();
                recorder.lock().failures.add(failure);
                if is_refusal {
                    return Err(Unasked::Refused);
                }
                if Instant::now() + pause >= until {
                    return Err(Unasked::NoAnswer);
                }
                sleep(pause).await;
            }
        };
        tokio::select! {
            answer = asking => answer,
            () = self.stop.cancelled() => Err(Unasked::NoAnswer),
        }
    }

    /// Waits for the events of the last writes, and for clients that have not all objects or are not back.
    async fn settle(&self, side: &Side, due: &[Due]) {
        let has = |wanted: fn(&Work) -> bool| self.workloads().any(|(_, workload)| wanted(&workload.work));
        let watches = |work: &Work| matches!(work, Work::Watch(_) | Work::Informer(_) | Work::Reconnect(_));
        if !has(watches) {
            return;
        }
        // Of some selectors it is not known which events match them, and those of deletions have no timestamp.
        let quiet_for = if has(|work| matches!(work, Work::Churn(_))) { QUIET } else { Duration::ZERO };
        let have_all = || side.recorders.iter().zip(due).all(|(recorder, due)| recorder.have_all(due));
        let came = || side.recorders.iter().map(|recorder| recorder.lock().delay.count()).sum::<u64>();
        let quiet = async {
            let (mut last, mut since) = (came(), Instant::now());
            while since.elapsed() < quiet_for || !have_all() {
                sleep(LOOK_EVERY).await;
                let now = came();
                if now != last {
                    (last, since) = (now, Instant::now());
                }
            }
        };
        tokio::select! {
            () = quiet => {}
            () = sleep(self.profile.settle) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests;
