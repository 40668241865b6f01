//! Where events are handed in.

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
use crate::{lifecycle::Tasks, telemetry};

/// Events that wait to be written: a second of a very busy gateway.
const QUEUE_MAX: usize = 10_000;
/// What refusals leave of it to answers: a client that is refused, however often, does not delay others.
const REFUSALS_LEAVE: usize = QUEUE_MAX / 2;
/// How long an answer waits for room: longer than a disk that is busy takes for as many events.
const QUEUE_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts to write the same events.
const RETRY: Duration = Duration::from_secs(1);
/// A write that takes so long, twice that at most, has stalled.
const STALL: Duration = Duration::from_secs(5);

/// The audit log cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {path}")]
pub struct AuditError {
    path: String,
    source: io::Error,
}

/// What becomes of an answer from memory whose event cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// There is none.
    #[default]
    Blocking,
    /// It is given all the same; the event may be lost, and is counted then.
    BestEffort,
}

/// Events cannot be written, or not soon enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct Unwritable;

/// Where events go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    queue: mpsc::Sender<Event>,
    health: AuditHealth,
    mode: Mode,
}

/// Room for one event.
#[derive(Debug)]
pub struct Place(mpsc::OwnedPermit<Event>);

impl AuditLog {
    /// Appends to the file at `path`, or writes to standard output if that is `-`. A file that is moved away is made anew.
    /// Written until the last clone of the log is gone; the drain of `tasks` waits for that.
    ///
    /// # Errors
    /// The file cannot be opened, or the system allows no further thread.
    pub async fn open(path: &Path, mode: Mode, tasks: &Tasks) -> Result<Self, AuditError> {
        let failed = |source| AuditError { path: path.display().to_string(), source };
        let (path, (opened, opening)) = (path.to_owned(), oneshot::channel());
        let open = move || AuditFile::open(&path);
        // A named pipe is open when it has a reader: other tasks go on meanwhile.
        thread::Builder::new().name("audit open".to_owned()).spawn(move || opened.send(open())).map_err(failed)?;
        let file = opening.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed)?;
        Self::start(file, mode, RETRY, tasks).map_err(failed)
    }

    fn start(sink: impl Sink + Send + 'static, mode: Mode, retry: Duration, tasks: &Tasks) -> io::Result<Self> {
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

    /// Whether events can be written; only told where answers depend on it.
    pub fn health(&self) -> Option<AuditHealth> {
        (self.mode == Mode::Blocking).then(|| self.health.clone())
    }

    /// Room for the event of an answer from memory. `None` if there is none and the answer may be given all the same.
    ///
    /// # Errors
    /// The answer may not be given.
    pub async fn place(&self) -> Result<Option<Place>, Unwritable> {
        match (self.mode, self.queue.clone().try_reserve_owned()) {
            (Mode::Blocking, _) if !self.health.is_writable() => Err(Unwritable),
            (_, Ok(place)) => Ok(Some(Place(place))),
            (Mode::BestEffort, Err(_)) => {
                lose();
                Ok(None)
            }
            (Mode::Blocking, Err(mpsc::error::TrySendError::Closed(_))) => Err(Unwritable),
            (Mode::Blocking, Err(mpsc::error::TrySendError::Full(queue))) => {
                telemetry::limit_reached("audit_queue");
                match timeout(QUEUE_WAIT, queue.reserve_owned()).await {
                    Ok(Ok(place)) => Ok(Some(Place(place))),
                    Ok(Err(_)) | Err(_) => Err(Unwritable),
                }
            }
        }
    }

    /// Writes an event if there is room at once: what is told of the end of something whose beginning is logged.
    pub fn offer(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            lose();
        }
    }

    /// Writes the event of a refusal, if there is room to spare. It is only asked for then.
    pub fn offer_refusal(&self, event: impl FnOnce() -> Event) {
        if self.queue.capacity() > REFUSALS_LEAVE { self.offer(event()) } else { lose() }
    }
}

impl Place {
    /// Writes the event.
    pub fn fill(self, event: Event) {
        self.0.send(event);
    }
}

fn lose() {
    telemetry::limit_reached("audit_queue");
    telemetry::audit_lost(1);
}

/// Looks at the writer from time to time, until it has ended.
async fn look_for_stalls(health: AuditHealth, mut ended: oneshot::Receiver<()>) {
    loop {
        let then = health.progress();
        tokio::select! {
            _ = &mut ended => return,
            () = sleep(STALL) => {}
        }
        if health.has_stalled_since(then) {
            tracing::error!("audit events are not written: the write does not end");
        }
    }
}

#[cfg(test)]
mod tests;
