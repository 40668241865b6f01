//! The process: its open files, its shutdown signal, its drain, and the tasks that the drain waits for.
//!
//! Invariants: every task of the process is spawned here, so that [`Tasks::drain`] knows when all have ended and can
//! abort those that do not. A long-lived task watches [`Tasks::token`]. Tasks of which there are many (connections,
//! watches) wait on a `child_token()` each, since waiters of one token share a lock.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::AbortHandle,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// All tasks of one gateway, and the token that asks them to end. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
    running: Arc<Running>,
}

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every task ended by itself.
    All,
    /// The limit passed; these tasks (name, how many) were aborted.
    Aborted(BTreeMap<&'static str, usize>),
}

impl Drained {
    /// Combines two drains.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, other) | (other, Self::All) => other,
            (Self::Aborted(mut tasks), Self::Aborted(more)) => {
                for (name, count) in more {
                    *tasks.entry(name).or_default() += count;
                }
                Self::Aborted(tasks)
            }
        }
    }
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Spawns a task. `name` appears in the log if a drain has to abort it.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns: it keeps what drain needs")]
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let entry = Entry::new(self.running.clone(), name);
        let id = entry.id;
        // Not an async block, which would reserve room for the task twice: there is one task per HTTP/2 stream.
        let handle = self.tracker.spawn(task.map(move |()| drop(entry)));
        // A task that has already ended has no entry left.
        if let Some(task) = self.running.lock().tasks.get_mut(&id) {
            task.abort = Some(handle.abort_handle());
        }
    }

    /// Cancelled when the drain begins.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Asks all tasks to end, waits up to `limit` for them, and aborts the rest.
    pub async fn drain(&self, limit: Duration) -> Drained {
        self.token.cancel();
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait()).await.is_ok() {
            return Drained::All;
        }
        let mut names = BTreeMap::new();
        for task in self.running.lock().tasks.values() {
            if let Some(abort) = &task.abort {
                abort.abort();
            }
            *names.entry(task.name).or_default() += 1;
        }
        Drained::Aborted(names)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tasks")
            .field("running", &self.tracker.len())
            .field("draining", &self.token.is_cancelled())
            .finish()
    }
}

/// Spreads the ends of watches over the time of a drain, so that their clients do not reconnect to the other gateways
/// all at once. Cheap to clone; all clones share the same drain.
#[derive(Clone, Debug, Default)]
pub struct Spread(Arc<OnceLock<ConcurrencyLimit>>);

#[derive(Debug)]
struct ConcurrencyLimit {
    began: Instant,
    /// How many turns fit into the available time; after that they start over.
    count: u32,
    next: AtomicU32,
}

/// Interval between turns. A few watches end at once; many end at a hundred per second, or faster if the time is short.
const TURN: Duration = Duration::from_millis(10);

impl Spread {
    /// Begins the drain: the last turn comes within `time`.
    pub fn begin(&self, time: Duration) {
        let count = u32::try_from(time.as_millis() / TURN.as_millis()).unwrap_or(u32::MAX).max(1);
        self.0.get_or_init(|| ConcurrencyLimit { began: Instant::now(), count, next: AtomicU32::new(0) });
    }

    /// When the next watch may end; `None` while there is no drain.
    pub fn turn(&self) -> Option<Instant> {
        let turns = self.0.get()?;
        Some(turns.began + TURN * (turns.next.fetch_add(1, Relaxed) % turns.count))
    }
}

/// The meaning of SIGHUP for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangup {
    /// It is a request to stop, for example because the terminal was closed: there is no file to read again.
    Stop,
    /// [`Hangups`] are listened to.
    Reload,
}

/// Returns a future that resolves when the process is asked to stop: by SIGTERM, by SIGINT from a terminal, or by
/// SIGHUP with [`OnHangup::Stop`]. From this call on, these signals no longer terminate the process by themselves.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn shutdown_signal(on_hangup: OnHangup) -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangups = match on_hangup {
        OnHangup::Stop => Some(Hangups::listen()?),
        OnHangup::Reload => None,
    };
    Ok(async move {
        let hangup = async {
            match &mut hangups {
                Some(hangups) => hangups.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = hangup => {}
        }
    })
}

/// Listens for SIGHUP, by which the process is asked to reload its configuration. From then on it no longer terminates
/// the process.
#[derive(Debug)]
pub struct Hangups(Signal);

impl Hangups {
    /// # Errors
    /// The signal handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next SIGHUP.
    pub async fn recv(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Raises the limit on open files to the maximum that the system allows: each connection is a file, and the usual 1,024
/// are kept for programs that cannot handle more. Returns the new limit; `None` is no limit.
///
/// # Errors
/// The system refuses.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum })?;
    Ok(limits.maximum)
}

/// The tasks that are running.
#[derive(Default)]
struct Running(Mutex<RunningTasks>);

#[derive(Default)]
struct RunningTasks {
    next: u64,
    tasks: HashMap<u64, Task>,
}

struct Task {
    name: &'static str,
    abort: Option<AbortHandle>,
}

impl Running {
    /// Poisoning is ignored: a panic cannot leave the map half-updated.
    fn lock(&self) -> MutexGuard<'_, RunningTasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a task in [`Running`], owned by the task's future, so that it is removed when the task ends, panics or
/// is aborted.
struct Entry {
    running: Arc<Running>,
    id: u64,
}

impl Entry {
    fn new(running: Arc<Running>, name: &'static str) -> Self {
        let id = {
            let mut running = running.lock();
            let id = running.next;
            running.next += 1;
            running.tasks.insert(id, Task { name, abort: None });
            id
        };
        Self { running, id }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.lock().tasks.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_tasks_that_follow_the_token() {
        let tasks = Tasks::new();
        let token = tasks.token().clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tasks.spawn("follower", async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            sender.send(()).unwrap();
        });
        assert_eq!(tasks.drain(Duration::from_secs(5)).await, Drained::All);
        receiver.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn drain_aborts_and_names_tasks_that_do_not_end() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", pending());
        tasks.spawn("deaf", pending());
        tasks.spawn("short", async {});
        let drained = tasks.drain(Duration::from_secs(5)).await;
        assert_eq!(drained, Drained::Aborted(BTreeMap::from([("deaf", 2)])));
        tasks.tracker.wait().await;
        assert!(tasks.running.lock().tasks.is_empty());
    }

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
        let limit = raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: limit, maximum: limit });
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_does_not_hold_up_the_drain() {
        let tasks = Tasks::new();
        tasks.spawn("broken", async { panic!("as the test wants it") });
        assert_eq!(tasks.drain(Duration::from_secs(5)).await, Drained::All);
        assert!(tasks.running.lock().tasks.is_empty());
    }
}
