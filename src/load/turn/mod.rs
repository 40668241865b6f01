//! One turn: all workloads of a profile on one endpoint for a while.

mod client;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    channel::Channel,
    churn::Churn,
    cut::Cutter,
    demand::{Demand, Due},
    endpoint::Endpoint,
    failure::{ErrorKind, Failure},
    informer::Informers,
    paths,
    processes::{Process, Usage},
    profile::{
        HttpVersion, Profile, ReadVersion, ReconnectWork, Selection, SlowReaderWork, SlowRequest, Start, WatchWork,
        Work, Workload,
    },
    progress::Progress,
    read::{self, Reads},
    recorder::Recorder,
    schedule::Schedule,
    side::Side,
    slow_reader::SlowReaders,
    watch::Watches,
};
use client::{Client, Requests, channels};

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

/// The clients that run during a whole turn.
#[derive(Debug, Default)]
struct Opened {
    clients: JoinSet<()>,
    /// Started with the requests.
    cutters: Vec<Cutter>,
}

impl Opened {
    fn clients<F>(&mut self, endpoint: &Arc<Endpoint>, workload: &Workload, keep: impl Fn(usize, Arc<Channel>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        for (client, channel) in channels(endpoint, workload) {
            self.clients.spawn(keep(client, channel));
        }
    }
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
        let due: Vec<_> = self.demands.iter().map(|demand| demand.due(&self.churns)).collect();
        self.settle(side, &due).await;
        // Neither what an interruption has cut short nor what the profile does not wait for is missing.
        if !self.stop.is_cancelled() && !self.profile.settle.is_zero() {
            side.recorders.iter().zip(&due).for_each(|(recorder, due)| recorder.give_up(due));
        }
        side.recorders.iter().for_each(|recorder| recorder.end());
        let end = self.usage().await;
        // The next turn does not begin with their ends.
        watchers.shutdown().await;
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

    /// Opens all watches, and returns once each of them is established, failed or timed out.
    async fn open(&self, side: &Side) -> Opened {
        let (mut opened, endpoint) = (Opened::default(), &side.endpoint);
        for (index, workload) in self.workloads() {
            let (recorder, standing) = (side.recorders[index].clone(), Arc::new(Semaphore::new(0)));
            let (transport, rate, timeout) = (workload.transport, workload.rate, self.profile.timeout);
            match &workload.work {
                Work::Watch(work) => {
                    let Some(newest) = self.start(side, &recorder, work).await else { continue };
                    let (work, standing) = (work.clone(), standing.clone());
                    let watches = Arc::new(Watches { work, transport, newest, timeout, recorder, rate, standing });
                    opened.clients(endpoint, workload, |client, channel| watches.clone().keep(channel, client));
                }
                Work::SlowReader(work) => {
                    let Some(newest) = self.slow_start(side, &recorder, work).await else { continue };
                    let (work, standing) = (work.clone(), standing.clone());
                    let readers = Arc::new(SlowReaders { work, transport, newest, timeout, recorder, rate, standing });
                    opened.clients(endpoint, workload, |client, channel| readers.clone().keep(channel, client));
                }
                Work::Informer(work) => {
                    let (work, standing) = (work.clone(), standing.clone());
                    let informers = Arc::new(Informers { work, transport, timeout, recorder, rate, standing });
                    opened.clients(endpoint, workload, |client, channel| informers.clone().keep(channel, client, None));
                }
                Work::Reconnect(ReconnectWork { informer, every, spread }) => {
                    let (work, standing, cutter) = (informer.clone(), standing.clone(), Cutter::new(*every));
                    let informers = Arc::new(Informers { work, transport, timeout, recorder, rate, standing });
                    opened.clients(endpoint, workload, |client, channel| {
                        let cuts = cutter.cuts(*spread, client % workload.connections, workload.connections);
                        informers.clone().keep(channel, client, Some(cuts))
                    });
                    opened.cutters.push(cutter);
                }
                Work::Get { .. } | Work::List(_) | Work::Churn(_) => continue,
            }
            let opening = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(workload.clients as f64 / rate));
            let all = u32::try_from(workload.clients).unwrap_or(u32::MAX);
            tokio::select! {
                _ = standing.acquire_many(all) => {}
                () = sleep(opening + self.profile.timeout) => {}
                () = self.stop.cancelled() => {}
            }
        }
        opened
    }

    /// The version at which watches start; empty if they need none, `None` if the server did not report it.
    async fn start(&self, side: &Side, recorder: &Recorder, work: &WatchWork) -> Option<String> {
        match work.start {
            Start::Now => self.newest(side, recorder, &work.selection).await,
            Start::Any | Start::MostRecent | Start::WatchList => Some(String::new()),
        }
    }

    /// The version at which slow readers start; see [`Self::start`].
    async fn slow_start(&self, side: &Side, recorder: &Recorder, work: &SlowReaderWork) -> Option<String> {
        match work.request {
            SlowRequest::Watch(Start::Now) | SlowRequest::List(ReadVersion::NotOlderThan) => {
                self.newest(side, recorder, &work.selection).await
            }
            SlowRequest::Watch(_) | SlowRequest::List(_) => Some(String::new()),
        }
    }

    async fn newest(&self, side: &Side, recorder: &Recorder, selection: &Selection) -> Option<String> {
        let namespace = selection.namespace.as_deref();
        self.ask(side, recorder, async |channel| read::newest(channel, &selection.resource, namespace).await).await
    }

    /// The requests of each workload that sends requests on a schedule. Leaves out workloads for which the server did
    /// not list the objects.
    async fn requests(&self, side: &Side) -> Vec<(usize, Requests)> {
        let mut all = Vec::new();
        for (index, workload) in self.workloads() {
            let recorder = &side.recorders[index];
            let requests = match &workload.work {
                Work::Watch(_) | Work::Informer(_) | Work::SlowReader(_) | Work::Reconnect(_) => None,
                Work::Churn(_) => self.churns[index].clone().map(Requests::Churn),
                Work::Get { resource, namespace, name: Some(name), version } => {
                    // kperf's gets have none of the versions that are relative to the newest.
                    let path = paths::object(resource, namespace.as_deref(), name);
                    let path = paths::with_query(&path, &[&paths::version(*version, "")]);
                    Some(Requests::Reads(Arc::new(Reads::Get(vec![path])), workload.transport))
                }
                Work::Get { resource, namespace, name: None, version } => {
                    let names =
                        async |channel: &Channel| read::names(channel, resource, namespace.as_deref(), *version).await;
                    let paths = self.ask(side, recorder, names).await;
                    paths.map(|paths| Requests::Reads(Arc::new(Reads::Get(paths)), workload.transport))
                }
                Work::List(work) => {
                    let newest = match work.version {
                        ReadVersion::NotOlderThan => self.newest(side, recorder, &work.selection).await,
                        ReadVersion::Any | ReadVersion::MostRecent => Some(String::new()),
                    };
                    let reads = newest.map(|newest| Arc::new(Reads::list(work, &newest)));
                    reads.map(|reads| Requests::Reads(reads, workload.transport))
                }
            };
            all.extend(requests.map(|requests| (index, requests)));
        }
        all
    }

    /// Asks the endpoint something before the requests begin. If that fails, the error counts for the workload, which
    /// sends no requests in this turn.
    async fn ask<T>(
        &self,
        side: &Side,
        recorder: &Recorder,
        ask: impl AsyncFnOnce(&Channel) -> Result<T, Failure>,
    ) -> Option<T> {
        let channel = Channel::new(side.endpoint.clone(), HttpVersion::Http1);
        let answer = tokio::select! {
            answer = timeout(self.profile.timeout, ask(&channel)) => answer.unwrap_or_else(|_| Err(Failure::timeout())),
            () = self.stop.cancelled() => return None,
        };
        answer.map_err(|failure| recorder.lock().failures.add(failure)).ok()
    }

    /// Sends requests until the time is over and all of them have a response or were given up.
    async fn send(&self, side: &Side, requests: Vec<(usize, Requests)>, began: Instant) {
        let (end, grace) = (began + self.duration, self.profile.timeout);
        let (mut clients, mut schedules) = (JoinSet::new(), Vec::new());
        for (index, requests) in requests {
            let workload = &self.profile.workloads[index];
            let schedule = Arc::new(Schedule::new(began..end, workload.rate, grace, self.stop.clone()));
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
            schedules.push((index, schedule));
        }
        // One client that waits for a response does not make the others slow, nor their rates low.
        let mut last = BTreeMap::new();
        let finished = async {
            sleep_until(end).await;
            while let Some(ended) = clients.join_next().await {
                if let Ok(index) = ended {
                    last.insert(index, Instant::now());
                }
            }
        };
        tokio::select! {
            () = finished => {}
            () = self.stop.cancelled() => {}
            () = self.progress.follow(&self.profile, side, began, self.duration) => {}
        }
        for (index, schedule) in schedules {
            let until = last.get(&index).filter(|_| !self.stop.is_cancelled()).copied().unwrap_or_else(Instant::now);
            let (at, mut recorded) = (side.recorders[index].at(), side.recorders[index].lock());
            recorded.sending += until.duration_since(began);
            let mut unsent = 0;
            for late in schedule.unsent() {
                recorded.latency(at, late);
                unsent += 1;
            }
            recorded.failures.add_many(ErrorKind::Unsent, unsent, "all clients were busy".to_owned());
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
