//! The clients that run during a whole turn: watches, informers and slow readers.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Course, client::channels};
use crate::{
    channel::Channel,
    cut::Cutter,
    endpoint::Endpoint,
    informer::Informers,
    profile::{ReadVersion, ReconnectWork, SlowReaderWork, SlowRequest, Start, WatchWork, Work, Workload},
    recorder::Recorder,
    side::Side,
    slow_reader::SlowReaders,
    watch::Watches,
};

/// The clients that run during a whole turn.
#[derive(Debug, Default)]
pub(super) struct Opened {
    pub(super) clients: JoinSet<()>,
    /// Started with the requests.
    pub(super) cutters: Vec<Cutter>,
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
    /// Opens all watches, and returns once each of them is established, failed or timed out.
    pub(super) async fn open(&self, side: &Side) -> Opened {
        let (mut opened, endpoint) = (Opened::default(), &side.endpoint);
        for (index, workload) in self.workloads() {
            let (recorder, standing) = (side.recorders[index].clone(), Arc::new(Semaphore::new(0)));
            let (transport, rate, timeout) = (workload.transport, workload.rate, self.profile.timeout);
            match &workload.work {
                Work::Watch(work) => {
                    let newest = self.start(side, &recorder, work).await;
                    let (work, standing) = (work.clone(), standing.clone());
                    let watches = Arc::new(Watches { work, transport, newest, timeout, recorder, rate, standing });
                    opened.clients(endpoint, workload, |client, channel| watches.clone().keep(channel, client));
                }
                Work::SlowReader(work) => {
                    let newest = self.slow_start(side, &recorder, work).await;
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

    /// The version at which watches start; empty if they need none, `None` if the server did not report it: then each
    /// client asks for it.
    async fn start(&self, side: &Side, recorder: &Recorder, work: &WatchWork) -> Option<String> {
        match work.start {
            Start::Now => self.newest(side, recorder, &work.selection, Instant::now()).await.ok(),
            Start::Any | Start::MostRecent | Start::WatchList => Some(String::new()),
        }
    }

    /// The version at which slow readers start; see [`Self::start`].
    async fn slow_start(&self, side: &Side, recorder: &Recorder, work: &SlowReaderWork) -> Option<String> {
        match work.request {
            SlowRequest::Watch(Start::Now) | SlowRequest::List(ReadVersion::NotOlderThan) => {
                self.newest(side, recorder, &work.selection, Instant::now()).await.ok()
            }
            SlowRequest::Watch(_) | SlowRequest::List(_) => Some(String::new()),
        }
    }
}
