//! Places for connections: limits on their number, in all and per address.

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::listener::{
    activity::{Connections, GivesWay},
    in_flight::Addresses,
};
use base::{
    fairness::{ClientKey, Share, Shares},
    telemetry,
};

/// The requests that may be in flight from one address, for each connection that it may have: more than clients that
/// read their answers come to, as browsers, kubelets and controllers do, and far fewer than streams.
const IN_FLIGHT_PER_CONNECTION: usize = 4;

/// How often a connection that could give way is looked for while none does.
const PLACE_WAIT: Duration = Duration::from_millis(1500);

/// Limits on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum over all listeners. Further connections wait in the kernel's queue until one ends or gives way.
    pub connections: usize,
    /// Maximum from one IP address (of IPv6: one network of 64 bits, which is what a client has to itself). Further
    /// connections are closed, unless an address may have all connections. Unix sockets have no address.
    pub connections_per_address: usize,
    /// Which connection is closed when a new one waits for a place.
    pub gives_way: GivesWay,
    /// How long a finite answer may stay unread before its stream or connection is ended.
    pub answer_timeout: Duration,
}

/// The places of all connections. Cheap to clone; clones share the same places.
#[derive(Clone, Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    /// Number of taken places beyond the current limit. They are not returned when their connections end.
    excess: Arc<AtomicUsize>,
    by_address: Shares,
    pub(super) addresses: Addresses,
    pub(super) connections: Connections,
    limits: Arc<RwLock<Limits>>,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    /// `Some` until the drop takes it.
    permit: Option<OwnedSemaphorePermit>,
    excess: Arc<AtomicUsize>,
}

impl Limits {
    /// If one address may have all places, there is no limit per address: its connections wait as others do.
    const fn of_address(&self) -> usize {
        if self.connections_per_address < self.connections { self.connections_per_address } else { usize::MAX }
    }

    /// How many requests may be in flight from each address, and over all Unix sockets, which may have all connections.
    fn in_flight(&self) -> [usize; 2] {
        [self.connections_per_address, self.connections]
            .map(|connections| connections.saturating_mul(IN_FLIGHT_PER_CONNECTION))
    }
}

impl Places {
    /// Creates the places that `limits` allow.
    pub fn new(limits: Limits) -> Self {
        let (all, excess) = (Arc::new(Semaphore::new(limits.connections)), Arc::new(AtomicUsize::new(0)));
        let by_address = Shares::new(limits.of_address(), "connections_per_address");
        let [each, over_unix] = limits.in_flight();
        let addresses = Addresses::new(each, over_unix);
        let limits = Arc::new(RwLock::new(limits));
        Self { all, excess, by_address, addresses, connections: Connections::default(), limits }
    }

    /// Shows the number of taken places in the metrics.
    pub fn show(&self) {
        let (all, excess, limits) = (Arc::downgrade(&self.all), self.excess.clone(), self.limits.clone());
        telemetry::show_limit("connections", move || {
            let free = all.upgrade()?.available_permits();
            let most = limits.read().unwrap_or_else(PoisonError::into_inner).connections;
            let taken = (most + excess.load(Relaxed)).saturating_sub(free);
            Some((taken as u64, most as u64))
        });
    }

    /// Changes the limits for new connections; open ones stay.
    pub fn set(&self, limits: Limits) {
        let mut current = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        let fewer = current.connections.saturating_sub(limits.connections);
        self.excess.fetch_add(fewer - self.all.forget_permits(fewer), Relaxed);
        let more = limits.connections.saturating_sub(current.connections);
        self.all.add_permits(more - take(&self.excess, more));
        self.by_address.set(limits.of_address());
        let [each, over_unix] = limits.in_flight();
        self.addresses.set(each, over_unix);
        *current = limits;
    }

    /// How long a finite answer on a new connection may stay unread.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.limits().answer_timeout
    }

    /// Takes a place of the address's share. `None` if the share is used up; `Some(None)` for Unix sockets, which have
    /// no address.
    pub(super) fn share(&self, peer: Option<SocketAddr>) -> Option<Option<Share>> {
        match peer {
            Some(peer) => self.by_address.take(ClientKey::address(Some(peer.ip()))).map(Some),
            None => Some(None),
        }
    }

    /// Takes a place. If none is free, tells another connection to give way, if one can, and waits.
    pub(super) async fn place(&self) -> Place {
        let excess = self.excess.clone();
        if let Ok(permit) = self.all.clone().try_acquire_owned() {
            return Place { permit: Some(permit), excess };
        }
        telemetry::limit_reached("connections");
        let gives_way = self.limits().gives_way;
        // Tried repeatedly: a connection that is busy now may become idle, and would then stay.
        loop {
            if self.connections.one_gives_way(gives_way) {
                telemetry::limit_reached("idle_connections");
            }
            if let Ok(permit) = tokio::time::timeout(PLACE_WAIT, self.all.clone().acquire_owned()).await {
                return Place { permit: Some(permit.expect("the semaphore is never closed")), excess };
            }
        }
    }

    fn limits(&self) -> RwLockReadGuard<'_, Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if take(&self.excess, 1) == 1
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

/// Subtracts `most` from a count, or as much as there is. Returns the amount subtracted.
fn take(count: &AtomicUsize, most: usize) -> usize {
    let before = count.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(most)));
    before.unwrap_or_default().min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize) -> Limits {
        let answer_timeout = Duration::from_secs(60);
        Limits { connections, connections_per_address: connections, gives_way: GivesWay::Idle, answer_timeout }
    }

    #[tokio::test]
    async fn the_number_of_places_may_be_lowered_below_those_taken() {
        let places = Places::new(limits(3));
        let free = |expected: usize| assert_eq!(places.all.available_permits(), expected);
        let [first, second] = [places.place().await, places.place().await];
        places.set(limits(1));
        free(0);
        drop(first);
        free(0);
        let third = {
            // One of two places is taken.
            places.set(limits(2));
            free(1);
            places.place().await
        };
        places.set(limits(1));
        places.set(limits(3));
        free(1);
        drop((second, third));
        free(3);
    }
}
