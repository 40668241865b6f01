//! Idle connections.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use super::connection::Connection;

/// Maximum number of unused connections that are kept: usually as many as there are brief requests at once.
const IDLE_MAX: usize = 64;
/// An idle connection is closed after this time. API servers close theirs after 90 seconds, and load balancers in front
/// of them sooner (35 seconds in kubeadm's guide): a write that is sent at that moment is lost, and must not be
/// repeated.
pub(in crate::connector) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Idle(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    /// Each with the time since it has been idle; the most recently used is at the end.
    idle: VecDeque<(Instant, Box<Connection>)>,
    /// Whether a task closes those that are too old.
    are_watched: bool,
}

impl Idle {
    /// Takes the most recently used connection, so that surplus ones expire.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let (since, connection) = self.connections().idle.pop_back()?;
        (since.elapsed() < IDLE_TIMEOUT).then_some(connection)
    }

    /// Keeps an idle connection, in place of the oldest if there are too many. Closes it in time, unless the runtime
    /// has ended: then it is closed now.
    pub(super) fn put(self: &Arc<Self>, connection: Box<Connection>) {
        let mut connections = self.connections();
        if !connections.are_watched {
            let Ok(runtime) = Handle::try_current() else { return };
            // Not one of `lifecycle::Tasks`: it ends by itself, as the tasks of shared connections do.
            runtime.spawn(close_aged(Arc::downgrade(self)));
            connections.are_watched = true;
        }
        let surplus = if connections.idle.len() < IDLE_MAX { None } else { connections.idle.pop_front() };
        connections.idle.push_back((Instant::now(), connection));
        drop(connections);
        // Outside the lock.
        drop(surplus);
    }

    /// Closes all idle connections.
    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut self.connections().idle);
        drop(closed);
    }

    /// Number of idle connections.
    pub(super) fn len(&self) -> usize {
        self.connections().idle.len()
    }

    /// Closes the connections that are too old. When the next one is; `None` if there is none, which ends the task.
    fn close_aged(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut connections = self.connections();
        let aged = connections.idle.partition_point(|(since, _)| now - *since >= IDLE_TIMEOUT);
        let closed: Vec<_> = connections.idle.drain(..aged).collect();
        let next = connections.idle.front().map(|(since, _)| *since + IDLE_TIMEOUT);
        connections.are_watched = next.is_some();
        drop(connections);
        // Outside the lock.
        drop(closed);
        next
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that are too old, until there are none.
async fn close_aged(idle: Weak<Idle>) {
    let next = || idle.upgrade().and_then(|idle| idle.close_aged());
    while let Some(next) = next() {
        sleep_until(next).await;
    }
}
