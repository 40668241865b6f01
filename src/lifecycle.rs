//! The process: its open files, its shutdown signal, its drain and the task tracker that drain waits for.
//!
//! Invariants: every task of the process is spawned here, so that [`Tasks::drain`] knows when all have ended and can
//! end those that do not. A task that lives long watches [`Tasks::token`]. Tasks that are many (connections, watches)
//! wait on a `child_token()` each: waiters of one token share a lock.

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
    /// Both drains as one.
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

    /// Starts a task. `name` appears in the log if a drain has to abort it.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns: it keeps what drain needs")]
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let entry = Entry::new(self.running.clone(), name);
        let id = entry.id;
        // Not an async block, which would have room for the task twice: there is one for every stream of HTTP/2.
        let handle = self.tracker.spawn(task.map(move |()| drop(entry)));
        // A task that has ended already has no entry left.
        if let Some(task) = self.running.lock().tasks.get_mut(&id) {
            task.abort = Some(handle.abort_handle());
        }
    }

    /// Cancelled when the drain begins.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Asks every task to end, waits for them up to `limit`, aborts the rest.
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

/// Gives those that end with the gateway their turns, so that not all of their clients come to the other gateways at once.
/// Cheap to clone; all clones are of the same drain.
#[derive(Clone, Debug, Default)]
pub struct Spread(Arc<OnceLock<Turns>>);

#[derive(Debug)]
struct Turns {
    began: Instant,
    /// How many fit into the time that there is; then it is the first one's turn again.
    count: u32,
    next: AtomicU32,
}

/// A few watches end at once; of many, a hundred a second, or more if the time is short.
const TURN: Duration = Duration::from_millis(10);

impl Spread {
    /// The drain begins: the last turn comes within `time`.
    pub fn begin(&self, time: Duration) {
        let count = u32::try_from(time.as_millis() / TURN.as_millis()).unwrap_or(u32::MAX).max(1);
        self.0.get_or_init(|| Turns { began: Instant::now(), count, next: AtomicU32::new(0) });
    }

    /// When it is the next one's turn to end; None while there is no drain.
    pub fn turn(&self) -> Option<Instant> {
        let turns = self.0.get()?;
        Some(turns.began + TURN * (turns.next.fetch_add(1, Relaxed) % turns.count))
    }
}

/// A future that ends when the process is asked to stop: SIGTERM, or SIGINT from a terminal. From this call on, these
/// signals no longer end the process by themselves.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Signals that ask a process to read its configuration again: SIGHUP, which no longer ends the process from here on.
#[derive(Debug)]
pub struct Hangups(Signal);

impl Hangups {
    /// # Errors
    /// The signal handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// The next one.
    pub async fn recv(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Lets the process open as many files as the system allows it: a connection is one, and the usual 1,024 are kept for
/// programs that know no more. Returns the new limit; `None` is no limit.
///
/// # Errors
/// The system refuses.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum })?;
    Ok(limits.maximum)
}

/// The tasks that run now.
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
    /// The map holds no invariant that a panic could break half-way.
    fn lock(&self) -> MutexGuard<'_, RunningTasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's line in [`Running`], owned by the task's future: gone when the task ends, panics or is aborted.
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
    async fn drain_aborts_and_names_what_does_not_end() {
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
    fn open_files_are_raised_to_what_the_system_allows() {
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
