//! The file that events go to.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
    sync::mpsc,
};

use super::Event;
use crate::{lifecycle::Tasks, telemetry};

/// Events that wait to be written: a second of a very busy gateway. Beyond it readers wait.
const QUEUE_MAX: usize = 10_000;
/// Events that are written in one piece.
const BATCH_MAX: usize = 256;
/// The path that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// The audit log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {path}")]
pub struct AuditError {
    path: String,
    source: io::Error,
}

/// Where events go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    queue: mpsc::Sender<Event>,
}

/// Room for one event.
#[derive(Debug)]
pub struct Place(mpsc::OwnedPermit<Event>);

impl AuditLog {
    /// Appends to the file at `path`, or writes to standard output if that is `-`. A file that is moved away is made anew.
    /// Written until the last clone of the log is gone, or the drain of `tasks` aborts it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub async fn open(path: &Path, tasks: &Tasks) -> Result<Self, AuditError> {
        let sink = Sink::open(path).await.map_err(|source| AuditError { path: path.display().to_string(), source })?;
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        tasks.spawn("audit log", write(events, sink));
        Ok(Self { queue })
    }

    /// Room for one event; waits for it. `None` if nothing is written any more.
    pub async fn place(&self) -> Option<Place> {
        if self.queue.capacity() == 0 {
            telemetry::limit_reached("audit_queue");
        }
        self.queue.clone().reserve_owned().await.ok().map(Place)
    }

    /// Writes an event if there is room at once: what is told of the end of something whose beginning is logged.
    pub fn offer(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            telemetry::limit_reached("audit_queue");
        }
    }
}

impl Place {
    /// Writes the event.
    pub fn fill(self, event: Event) {
        self.0.send(event);
    }
}

async fn write(mut events: mpsc::Receiver<Event>, mut sink: Sink) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while events.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let lines: Vec<u8> = batch.drain(..).flat_map(|event| event.line()).collect();
        let written = sink.write(&lines).await;
        telemetry::audit_written(written.is_ok());
        if let Err(error) = written {
            tracing::error!(error = &error as &dyn std::error::Error, "audit events not written");
        }
    }
}

/// Standard output, or a file and where it should be.
enum Sink {
    Output(tokio::io::Stdout),
    File { path: PathBuf, file: File },
}

impl Sink {
    async fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new(STANDARD_OUTPUT) {
            return Ok(Self::Output(tokio::io::stdout()));
        }
        Ok(Self::File { path: path.to_owned(), file: append(path).await? })
    }

    async fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Output(output) => {
                output.write_all(lines).await?;
                output.flush().await
            }
            Self::File { path, file } => {
                // Whoever rotates logs moves the file away.
                if !is_at(file, path).await? {
                    *file = append(path).await?;
                }
                file.write_all(lines).await?;
                file.flush().await
            }
        }
    }
}

/// Names and groups are nobody's business but the operator's.
async fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).await
}

async fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata().await?;
    Ok(tokio::fs::metadata(path).await.is_ok_and(|there| (there.dev(), there.ino()) == (open.dev(), open.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        apimachinery::RequestInfo,
        audit::event::{Request, User},
        lifecycle::Drained,
    };
    use http::{HeaderMap, Method, Uri};
    use std::time::Duration;

    fn event(name: &str) -> Event {
        let uri: Uri = format!("/api/v1/nodes/{name}").parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, uri.path(), None);
        let request = Request { info: &info, uri: &uri, headers: &HeaderMap::new(), client: None };
        Event::new(request, User::default(), name.to_owned(), 200, jiff::Timestamp::UNIX_EPOCH)
    }

    fn names(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let name =
            |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["auditID"].as_str().unwrap().to_owned();
        text.lines().map(name).collect()
    }

    #[tokio::test]
    async fn events_are_appended_in_order_and_all_written_before_the_drain_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for round in 0..2 {
            let tasks = Tasks::new();
            let log = AuditLog::open(&path, &tasks).await.unwrap();
            for number in 0..300 {
                log.place().await.unwrap().fill(event(&format!("{round}-{number}")));
            }
            log.offer(event("end"));
            drop(log);
            assert_eq!(tasks.drain(Duration::from_secs(20)).await, Drained::All);
        }
        let expected =
            (0..2).flat_map(|round| (0..300).map(move |number| format!("{round}-{number}")).chain(["end".to_owned()]));
        assert_eq!(names(&path), expected.collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["audit.log", "audit.log.1"].map(|name| folder.path().join(name));
        let mut sink = Sink::open(&path).await.unwrap();
        sink.write(&event("first").line()).await.unwrap();
        std::fs::rename(&path, &moved).unwrap();
        sink.write(&event("second").line()).await.unwrap();
        assert_eq!((names(&moved), names(&path)), (vec!["first".to_owned()], vec!["second".to_owned()]));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_named() {
        let error = AuditLog::open(Path::new("/nowhere/audit.log"), &Tasks::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot open the audit log /nowhere/audit.log");
    }
}
