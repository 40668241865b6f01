//! Idle connections.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Wake, Waker},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::connection::Connection;

/// Maximum number of unused connections that are kept: usually as many as there are brief requests at once.
const IDLE_MAX: usize = 64;
/// An idle connection is closed after this time. API servers close theirs after 90 seconds, and load balancers in front
/// of them sooner (35 seconds in kubeadm's guide): a write that is sent at that moment is lost, and must not be
/// repeated.
pub(in crate::connector) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Idle {
    connections: Mutex<Connections>,
    called: Arc<Called>,
    /// Of `called`.
    waker: Waker,
}

#[derive(Default)]
struct Connections {
    /// Each with the time since it has been idle; the most recently used is at the end.
    idle: VecDeque<(Instant, Box<Connection>)>,
    /// Whether a task closes those that are too old or have ended.
    are_watched: bool,
}

/// Tells the task that watches idle connections that something has happened on one of them: mostly its end.
#[derive(Default)]
struct Called(Notify);

impl Idle {
    pub(super) fn new() -> Self {
        let called = Arc::<Called>::default();
        Self { connections: Mutex::default(), waker: called.clone().into(), called }
    }

    /// Takes the most recently used connection, so that surplus ones expire.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let (since, connection) = self.connections().idle.pop_back()?;
        connection.rouse();
        (since.elapsed() < IDLE_TIMEOUT).then_some(connection)
    }

    /// Keeps a connection that can send another request, in place of the oldest if there are too many. Closes it in
    /// time, or when it ends: a connection to a server that is gone holds a socket, and counts as one to that server.
    /// If the runtime has ended, it is closed now.
    pub(super) fn put(self: &Arc<Self>, mut connection: Box<Connection>) {
        if !connection.rest(&Context::from_waker(&self.waker)) {
            return;
        }
        let mut connections = self.connections();
        if !connections.are_watched {
            let Ok(runtime) = Handle::try_current() else { return };
            // Not one of `lifecycle::Tasks`: it ends by itself, as the tasks of shared connections do.
            runtime.spawn(watch(Arc::downgrade(self), self.called.clone()));
            connections.are_watched = true;
        }
        if connection.is_called() {
            // Before the task could find it here.
            self.called.0.notify_one();
        }
        let surplus = if connections.idle.len() < IDLE_MAX { None } else { connections.idle.pop_front() };
        connections.idle.push_back((Instant::now(), connection));
        drop(connections);
        // Outside the lock.
        drop(surplus);
    }

    /// Closes all idle connections.
    pub(super) fn clear(&self) {
        let closed = mem::take(&mut self.connections().idle);
        drop(closed);
    }

    /// Number of idle connections.
    pub(super) fn len(&self) -> usize {
        self.connections().idle.len()
    }

    /// Closes the connections that are too old or have ended. When the next one is too old; `None` if there is none,
    /// which ends the task.
    fn close_ended(&self) -> Option<Instant> {
        let (now, context) = (Instant::now(), Context::from_waker(&self.waker));
        let mut closed = Vec::new();
        let mut connections = self.connections();
        for (since, mut connection) in mem::take(&mut connections.idle) {
            let is_open = now - since < IDLE_TIMEOUT && (!connection.is_called() || connection.rest(&context));
            if is_open {
                connections.idle.push_back((since, connection));
            } else {
                closed.push(connection);
            }
        }
        let next = connections.idle.front().map(|(since, _)| *since + IDLE_TIMEOUT);
        connections.are_watched = next.is_some();
        drop(connections);
        // Outside the lock.
        drop(closed);
        next
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Closes connections that are too old or have ended, until there are none.
async fn watch(idle: Weak<Idle>, called: Arc<Called>) {
    let next = || idle.upgrade().and_then(|idle| idle.close_ended());
    while let Some(next) = next() {
        // Until the first of both.
        timeout_at(next, called.0.notified()).await.ok();
    }
}
