//! Idle connections.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::connection::Connection;

/// Maximum number of unused connections that are kept: usually as many as there are brief requests at once.
const IDLE_MAX: usize = 64;
/// An idle connection is not used again after this time. API servers close theirs after 90 seconds, and load balancers
/// in front of them sooner (35 seconds in kubeadm's guide): a write that is sent at that moment is lost, and must not
/// be repeated. It is closed when the next one becomes idle.
pub(in crate::connector) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Each with the time since it has been idle; the most recently used is at the end.
#[derive(Default)]
pub(super) struct Idle(Mutex<VecDeque<(Instant, Box<Connection>)>>);

impl Idle {
    /// Takes the most recently used connection, so that surplus ones expire.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let (since, connection) = self.connections().pop_back()?;
        (since.elapsed() < IDLE_TIMEOUT).then_some(connection)
    }

    /// Keeps an idle connection, and closes those that are too old or too many.
    pub(super) fn put(&self, connection: Box<Connection>) {
        let now = Instant::now();
        let mut connections = self.connections();
        let aged = connections.partition_point(|(since, _)| now - *since >= IDLE_TIMEOUT);
        let surplus = (connections.len() + 1).saturating_sub(IDLE_MAX);
        let closed: Vec<_> = connections.drain(..aged.max(surplus)).collect();
        connections.push_back((now, connection));
        drop(connections);
        // Outside the lock.
        drop(closed);
    }

    /// Closes all idle connections.
    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut *self.connections());
        drop(closed);
    }

    /// Number of idle connections.
    pub(super) fn len(&self) -> usize {
        self.connections().len()
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<(Instant, Box<Connection>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
