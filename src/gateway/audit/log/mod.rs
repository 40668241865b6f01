//! The queue of events to be written.

use std::{io, path::Path, thread, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    Event,
    file::AuditFile,
    health::AuditHealth,
    writer::{Sink, Writer},
};
use base::{
    config::AuditMode,
    lifecycle::Tasks,
    telemetry::{self, AuditWrite},
};

/// Capacity of the queue: one second of a very busy gateway.
const QUEUE_MAX: usize = 10_000;
/// Part of the queue that refusals leave to answers, so that a client which is refused, however often, does not delay
/// others.
const REFUSALS_LEAVE: usize = QUEUE_MAX / 2;
/// How long an answer waits for room: longer than a busy disk takes to write a full queue.
const QUEUE_WAIT: Duration = Duration::from_secs(1);
/// Pause between two attempts to write the same events.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which a stalled write is looked for: it is noticed after this time, or at most twice that.
const STALL: Duration = Duration::from_secs(5);

/// The audit log cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {path}")]
pub struct AuditError {
    path: String,
    source: io::Error,
}

/// Events cannot be written, or not soon enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write the audit log")]
pub struct Unwritable;

/// The audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    queue: mpsc::Sender<Event>,
    health: AuditHealth,
    mode: AuditMode,
}

/// A reserved place in the queue for one event.
#[derive(Debug)]
pub struct Place(mpsc::OwnedPermit<Event>);

impl AuditLog {
    /// Opens the log. Appends to the file at `path`, or writes to standard output if that is `-`. A file that is moved
    /// away is created again. Events are written until the last clone of the log is dropped; the drain of `tasks` waits
    /// for that.
    ///
    /// # Errors
    /// The file cannot be opened, or the system allows no further thread.
    pub async fn open(path: &Path, mode: AuditMode, tasks: &Tasks) -> Result<Self, AuditError> {
        let failed = |source| AuditError { path: path.display().to_string(), source };
        let (path, (opened, opening)) = (path.to_owned(), oneshot::channel());
        let open = move || AuditFile::open(&path);
        // Opening a named pipe blocks until it has a reader; other tasks go on meanwhile.
        thread::Builder::new().name("audit open".to_owned()).spawn(move || opened.send(open())).map_err(failed)?;
        let file = opening.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed)?;
        Self::start(file, mode, RETRY, tasks).map_err(failed)
    }

    fn start(sink: impl Sink + Send + 'static, mode: AuditMode, retry: Duration, tasks: &Tasks) -> io::Result<Self> {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let shown = queue.downgrade();
        let waiting = move || shown.upgrade().map(|queue| ((QUEUE_MAX - queue.capacity()) as u64, QUEUE_MAX as u64));
        telemetry::show_limit("audit_queue", waiting);
        let ((ends, ended), health) = (oneshot::channel(), AuditHealth::default());
        let writer = Writer { sink, health: health.clone(), retry };
        thread::Builder::new().name("audit".to_owned()).spawn(move || {
            writer.run(events);
            // The drain may have given up waiting.
            ends.send(()).unwrap_or_default();
        })?;
        tasks.spawn("audit log", look_for_stalls(health.clone(), ended));
        Ok(Self { queue, health, mode })
    }

    /// Whether events can be written. `None` if answers do not depend on it.
    pub fn health(&self) -> Option<AuditHealth> {
        (self.mode == AuditMode::Blocking).then(|| self.health.clone())
    }

    /// Whether answers from memory may be given now, as far as that is known without a place in the queue.
    pub fn permits_answers(&self) -> bool {
        self.mode == AuditMode::BestEffort || self.health.is_writable()
    }

    /// Reserves a place for the event of an answer from memory. `None` if there is no room, but the answer may be given
    /// anyway.
    ///
    /// # Errors
    /// The answer may not be given.
    pub async fn place(&self) -> Result<Option<Place>, Unwritable> {
        match (self.mode, self.queue.clone().try_reserve_owned()) {
            (AuditMode::Blocking, _) if !self.health.is_writable() => Err(Unwritable),
            (_, Ok(place)) => Ok(Some(Place(place))),
            (AuditMode::BestEffort, Err(_)) => {
                lose();
                Ok(None)
            }
            (AuditMode::Blocking, Err(mpsc::error::TrySendError::Closed(_))) => Err(Unwritable),
            (AuditMode::Blocking, Err(mpsc::error::TrySendError::Full(queue))) => {
                telemetry::limit_reached("audit_queue");
                match timeout(QUEUE_WAIT, queue.reserve_owned()).await {
                    Ok(Ok(place)) => Ok(Some(Place(place))),
                    Ok(Err(_)) | Err(_) => Err(Unwritable),
                }
            }
        }
    }

    /// Queues an event if there is room at once; otherwise it is lost. For the end of a request whose beginning has
    /// been logged.
    pub fn offer(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            lose();
        }
    }

    /// Queues the event of a refusal if there is room to spare; `event` is called only then.
    pub fn offer_refusal(&self, event: impl FnOnce() -> Event) {
        if self.queue.capacity() > REFUSALS_LEAVE { self.offer(event()) } else { lose() }
    }
}

impl Place {
    /// Queues the event.
    pub fn fill(self, event: Event) {
        self.0.send(event);
    }
}

fn lose() {
    telemetry::limit_reached("audit_queue");
    telemetry::audit_lost(1);
}

/// Checks periodically for a stalled write, until the writer has ended. The log tells of each once, the metric for as
/// long as it lasts.
async fn look_for_stalls(health: AuditHealth, mut ended: oneshot::Receiver<()>) {
    let mut told = None;
    loop {
        let then = health.progress();
        tokio::select! {
            _ = &mut ended => return,
            () = sleep(STALL) => {}
        }
        if health.has_stalled_since(then) {
            telemetry::audit_write(AuditWrite::Stalled);
            if told.replace(then) != Some(then) {
                tracing::error!("audit log write stalled");
            }
        }
    }
}

#[cfg(test)]
mod tests;
