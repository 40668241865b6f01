//! Connections that nobody uses now.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::connection::Connection;

/// Unused connections that are kept: as many brief requests as come at once, mostly.
const IDLE_MAX: usize = 64;
/// An unused connection is not used again after this time: API servers close theirs after 90 seconds. It is closed when the next
/// one comes to rest.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Since when each is idle; the one that was used last is at the end.
#[derive(Default)]
pub(super) struct Idle(Mutex<VecDeque<(Instant, Box<Connection>)>>);

impl Idle {
    /// The connection that was used last, so that those that are not needed grow old.
    pub(super) fn take(&self) -> Option<Box<Connection>> {
        let (since, connection) = self.connections().pop_back()?;
        (since.elapsed() < IDLE_TIMEOUT).then_some(connection)
    }

    /// Keeps a connection that is free, and closes those that are too old or too many.
    pub(super) fn put(&self, connection: Box<Connection>) {
        let now = Instant::now();
        let mut connections = self.connections();
        let aged = connections.partition_point(|(since, _)| now - *since >= IDLE_TIMEOUT);
        let surplus = (connections.len() + 1).saturating_sub(IDLE_MAX);
        let closed: Vec<_> = connections.drain(..aged.max(surplus)).collect();
        connections.push_back((now, connection));
        drop(connections);
        // Not while the others wait.
        drop(closed);
    }

    /// Closes all.
    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut *self.connections());
        drop(closed);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.connections().len()
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<(Instant, Box<Connection>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
