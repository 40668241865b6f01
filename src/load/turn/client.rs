//! Clients that send requests on a schedule.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::{
    channel::Channel,
    churn::Churn,
    endpoint::Endpoint,
    failure::{ErrorKind, Failure},
    profile::{Transport, Workload},
    read::{Counted, Reads},
    recorder::Recorder,
    schedule::Schedule,
};

/// The delay of a client without a schedule whose request reached no server: an immediate retry would show nothing new,
/// and a failure that needs no answer would keep a thread of this program busy.
const NO_SERVER_PAUSE: Duration = Duration::from_millis(100);

/// The requests of a workload's clients.
#[derive(Clone, Debug)]
pub(super) enum Requests {
    Reads(Arc<Reads>, Transport),
    Churn(Arc<Churn>),
}

/// A client that sends requests.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) channel: Arc<Channel>,
    pub(super) requests: Requests,
    pub(super) schedule: Arc<Schedule>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) timeout: Duration,
    pub(super) is_on_schedule: bool,
}

impl Client {
    /// Sends requests as long as the schedule has any. If the run is interrupted, the time that a request has waited so
    /// far is a lower bound of its latency.
    pub(super) async fn run(self) {
        while let Some(due) = self.schedule.next().await {
            let sent = tokio::select! {
                sent = timeout(self.timeout, self.send(due.number)) => sent,
                () = self.schedule.stopped() => {
                    let at = self.recorder.at();
                    return self.recorder.lock().latency(at, due.at.elapsed());
                }
            };
            let latency = due.at.elapsed();
            match sent.unwrap_or_else(|_| Err(Failure::timeout())) {
                Ok(Counted { first_byte, bytes }) => {
                    self.recorder.answered(latency, first_byte.duration_since(due.at), bytes);
                }
                Err(failure) => {
                    let has_server = !matches!(failure.kind, ErrorKind::Connect | ErrorKind::Handshake);
                    self.recorder.failed(failure, latency);
                    if !has_server && !self.is_on_schedule {
                        sleep(NO_SERVER_PAUSE).await;
                    }
                }
            }
            let mut recorded = self.recorder.lock();
            recorded.lag = recorded.lag.max(due.lag);
        }
    }

    async fn send(&self, number: u64) -> Result<Counted, Failure> {
        match &self.requests {
            Requests::Reads(reads, transport) => reads.send(&self.channel, *transport, self.number, number).await,
            Requests::Churn(churn) => churn.send(&self.channel, number).await,
        }
    }
}

/// The number of each client of a workload, and the connection that it uses.
pub(super) fn channels(endpoint: &Arc<Endpoint>, workload: &Workload) -> Vec<(usize, Arc<Channel>)> {
    let channel = |_| Arc::new(Channel::new(endpoint.clone(), workload.transport.http));
    let channels: Vec<_> = (0..workload.connections).map(channel).collect();
    (0..workload.clients).map(|client| (client, channels[client % channels.len()].clone())).collect()
}
