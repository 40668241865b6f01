//! The audit log on full disks and on pipes that are not read.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc as std_mpsc,
    },
};

use http::Request;

use super::*;
use crate::audit::{self, User, file::Lines};
use base::{
    apimachinery::{RequestInfo, Status},
    lifecycle::Drained,
    telemetry::recorder,
};

const DRAIN: Duration = Duration::from_secs(20);
/// In real time, since the writer is a thread.
const SOON: Duration = Duration::from_millis(1);

fn event(name: &str) -> Event {
    let request = Request::get(format!("/api/v1/nodes/{name}")).body(()).unwrap();
    let info = RequestInfo::parse(request.method(), request.uri().path(), None);
    Event::served(&audit::Request::of(&request, None), &info, User::default(), name.to_owned(), 200)
}

fn names(text: &str) -> Vec<String> {
    let name = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["auditID"].as_str().unwrap().to_owned();
    text.lines().map(name).collect()
}

/// A disk that is full, after a few bytes of each write, while `full` is set.
#[derive(Clone, Default)]
struct Disk(Arc<DiskState>);

#[derive(Default)]
struct DiskState {
    bytes: Mutex<Vec<u8>>,
    full: AtomicBool,
}

/// How many bytes of a write a full disk takes.
const CUT: usize = 10;

impl Sink for Disk {
    fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        let Self(disk) = self;
        let full = disk.full.load(SeqCst);
        let length = if full { CUT.min(lines.rest().len()) } else { lines.rest().len() };
        disk.bytes.lock().unwrap().extend_from_slice(&lines.rest()[..length]);
        lines.advance(length);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk {
    fn names(&self) -> Vec<String> {
        names(str::from_utf8(&self.0.bytes.lock().unwrap()).unwrap())
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(SOON).await;
    }
}

async fn fill(log: &AuditLog, name: &str) {
    log.place().await.unwrap().unwrap().fill(event(name));
}

#[tokio::test]
async fn events_are_appended_in_order_and_all_written_before_the_drain_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    for round in 0..2 {
        let tasks = Tasks::new();
        let log = AuditLog::open(&path, AuditMode::Blocking, &tasks).await.unwrap();
        for number in 0..300 {
            fill(&log, &format!("{round}-{number}")).await;
        }
        log.offer(event("end"));
        drop(log);
        assert_eq!(tasks.drain(DRAIN).await, Drained::All);
    }
    let expected =
        (0..2).flat_map(|round| (0..300).map(move |number| format!("{round}-{number}")).chain(["end".to_owned()]));
    assert_eq!(names(&std::fs::read_to_string(&path).unwrap()), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_disk_refuses_answers_until_there_is_room_and_loses_no_event() {
    let (disk, tasks) = (Disk::default(), Tasks::new());
    let log = AuditLog::start(disk.clone(), AuditMode::Blocking, SOON, &tasks).unwrap();
    let health = log.health().unwrap();
    fill(&log, "before").await;
    let early = log.place().await.unwrap().unwrap();
    disk.0.full.store(true, SeqCst);
    fill(&log, "cut").await;
    until(|| !health.is_writable()).await;
    assert_eq!(log.place().await.unwrap_err(), Unwritable);
    // For an answer that began before.
    early.fill(event("early"));
    log.offer(event("end-of-a-watch"));
    assert!(!health.is_writable());
    disk.0.full.store(false, SeqCst);
    until(|| health.is_writable()).await;
    fill(&log, "after").await;
    drop(log);
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
    assert_eq!(disk.names(), ["before", "cut", "early", "end-of-a-watch", "after"]);
}

#[tokio::test]
async fn a_disk_that_stays_full_does_not_block_the_drain() {
    let tasks = Tasks::new();
    let log = AuditLog::open(Path::new("/dev/full"), AuditMode::Blocking, &tasks).await.unwrap();
    let health = log.health().unwrap();
    fill(&log, "lost").await;
    until(|| !health.is_writable()).await;
    drop(log);
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
}

#[tokio::test]
async fn best_effort_answers_despite_a_full_disk() {
    let (disk, tasks) = (Disk::default(), Tasks::new());
    disk.0.full.store(true, SeqCst);
    let log = AuditLog::start(disk.clone(), AuditMode::BestEffort, SOON, &tasks).unwrap();
    assert!(log.health().is_none());
    // Once the writer has taken an event and cannot write it, it takes no other.
    fill(&log, "x").await;
    until(|| !disk.0.bytes.lock().unwrap().is_empty()).await;
    let mut places = 1;
    while let Some(place) = log.place().await.unwrap() {
        places += 1;
        place.fill(event("x"));
    }
    assert_eq!(places, 1 + QUEUE_MAX);
    assert!(log.place().await.unwrap().is_none());
    disk.0.full.store(false, SeqCst);
    until(|| disk.0.bytes.lock().unwrap().len() > 1_000).await;
    drop(log);
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
    assert_eq!(disk.names().len(), places);
}

/// A pipe without a reader.
struct Pipe(std_mpsc::Receiver<()>);

impl Sink for Pipe {
    fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        // The other end is dropped when the test is over.
        self.0.recv().unwrap_or_default();
        lines.advance(lines.rest().len());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipe_without_a_reader_refuses_answers_without_blocking() {
    let ((reads, pipe), tasks) = (std_mpsc::channel(), Tasks::new());
    let log = AuditLog::start(Pipe(pipe), AuditMode::Blocking, SOON, &tasks).unwrap();
    let health = log.health().unwrap();
    // Paused time passes as fast as the test waits, so that the first call may already find the pipe stalled.
    while let Ok(place) = log.place().await {
        place.unwrap().fill(event("x"));
    }
    until(|| !health.is_writable()).await;
    assert_eq!(log.place().await.unwrap_err(), Unwritable);
    reads.send(()).unwrap();
    while !health.is_writable() {
        thread::yield_now();
    }
    drop(reads);
    drop(log);
}

/// So that an alert on the increase of the metric lasts as long.
#[tokio::test(start_paused = true)]
async fn a_stalled_write_is_counted_again_until_it_ends() {
    let recorder = recorder();
    let _counts = metrics::set_default_local_recorder(&recorder);
    let counted = || {
        let (text, series) = (recorder.handle().render(), r#"kube_fanout_audit_writes_total{outcome="stalled"} "#);
        text.lines().find_map(|line| line.strip_prefix(series)).map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let ((reads, pipe), tasks) = (std_mpsc::channel(), Tasks::new());
    let log = AuditLog::start(Pipe(pipe), AuditMode::BestEffort, SOON, &tasks).unwrap();
    let progress_after = |before| {
        while log.health.progress() == before {
            thread::yield_now();
        }
        log.health.progress()
    };
    let before = log.health.progress();
    fill(&log, "x").await;
    let begun = progress_after(before);
    let mut last = 0;
    for _ in 0..2 {
        sleep(3 * STALL).await;
        assert!(counted() > last, "{last}");
        last = counted();
    }
    reads.send(()).unwrap();
    progress_after(begun);
    sleep(3 * STALL).await;
    assert_eq!(counted(), last);
    drop((reads, log));
}

#[tokio::test]
async fn refusals_leave_room_for_answers() {
    let ((reads, pipe), tasks) = (std_mpsc::channel(), Tasks::new());
    let log = AuditLog::start(Pipe(pipe), AuditMode::Blocking, SOON, &tasks).unwrap();
    let request = Request::get("/api/v1/nodes").body(()).unwrap();
    let info = RequestInfo::parse(request.method(), request.uri().path(), None);
    let asked = audit::Request::of(&request, None);
    let refusal =
        || Event::refused(&asked, &info, User::default(), String::new(), &Status::too_many_requests("too many", 1));
    for _ in 0..2 * QUEUE_MAX {
        log.offer_refusal(refusal);
    }
    assert!(log.queue.capacity() >= QUEUE_MAX / 2, "{}", log.queue.capacity());
    assert!(log.place().await.unwrap().is_some());
    drop((reads, log));
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named() {
    let path = PathBuf::from("/nowhere/audit.log");
    let error = AuditLog::open(&path, AuditMode::Blocking, &Tasks::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot open the audit log /nowhere/audit.log");
}
