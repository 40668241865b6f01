//! Places of connections: how many there may be, in all and from one address.

use std::{
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    fairness::{ClientKey, Share, Shares},
    listener::{
        activity::{Connections, GivesWay},
        bind::Stream,
    },
    telemetry,
};

/// How often a connection that could give way is looked for while none has.
const PLACE_WAIT: Duration = Duration::from_millis(1500);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all listeners together. The rest wait in the kernel's queue until one ends or gives way.
    pub connections: usize,
    /// From one IP address (of IPv6: one network of 64 bits, which is what a client has to itself). The rest are
    /// closed, unless an address may have all connections. Unix sockets have no address.
    pub connections_per_address: usize,
    /// Which connection is closed for one that waits.
    pub gives_way: GivesWay,
    /// How long an answer that ends by itself may stay unread; then its stream or connection is ended.
    pub answer_timeout: Duration,
}

/// What connections take up. Cheap to clone; all clones are the same places.
#[derive(Clone, Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    /// Places that are taken and will not be given back: there are fewer now.
    excess: Arc<AtomicUsize>,
    by_address: Shares,
    pub(super) connections: Connections,
    limits: Arc<RwLock<Limits>>,
}

/// One connection's place.
#[derive(Debug)]
pub(super) struct Place {
    /// Taken by the drop alone.
    permit: Option<OwnedSemaphorePermit>,
    excess: Arc<AtomicUsize>,
}

impl Limits {
    /// Where an address may have all places, none is refused for its address: it waits as the others do.
    const fn of_address(&self) -> usize {
        if self.connections_per_address < self.connections { self.connections_per_address } else { usize::MAX }
    }
}

impl Places {
    /// As many as `limits` say.
    pub fn new(limits: Limits) -> Self {
        let (all, excess) = (Arc::new(Semaphore::new(limits.connections)), Arc::new(AtomicUsize::new(0)));
        let by_address = Shares::new(limits.of_address(), "connections_per_address");
        let limits = Arc::new(RwLock::new(limits));
        Self { all, excess, by_address, connections: Connections::default(), limits }
    }

    /// Shows in the metrics how many are taken.
    pub fn show(&self) {
        let (all, excess, limits) = (Arc::downgrade(&self.all), self.excess.clone(), self.limits.clone());
        telemetry::show_limit("connections", move || {
            let free = all.upgrade()?.available_permits();
            let most = limits.read().unwrap_or_else(PoisonError::into_inner).connections;
            let taken = (most + excess.load(Relaxed)).saturating_sub(free);
            Some((taken as u64, most as u64))
        });
    }

    /// For connections that come from now on; those that are open stay.
    pub fn set(&self, limits: Limits) {
        let mut current = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        let fewer = current.connections.saturating_sub(limits.connections);
        self.excess.fetch_add(fewer - self.all.forget_permits(fewer), Relaxed);
        let more = limits.connections.saturating_sub(current.connections);
        self.all.add_permits(more - take(&self.excess, more));
        self.by_address.set(limits.of_address());
        *current = limits;
    }

    /// How long an answer of a connection that comes now may stay unread.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.limits().answer_timeout
    }

    /// The address's share of the places. None if there is nothing left of it; Unix sockets have no address.
    pub(super) fn share(&self, stream: &Stream) -> Option<Option<Share>> {
        match stream {
            Stream::Tcp(_, peer) => self.by_address.take(ClientKey::address(Some(peer.ip()))).map(Some),
            Stream::Unix(_) => Some(None),
        }
    }

    /// One of all places. If there is none, another connection makes room where one may.
    pub(super) async fn place(&self) -> Place {
        let excess = self.excess.clone();
        if let Ok(permit) = self.all.clone().try_acquire_owned() {
            return Place { permit: Some(permit), excess };
        }
        telemetry::limit_reached("connections");
        let gives_way = self.limits().gives_way;
        // Looked for again and again: a connection that is busy now may be idle soon, and stay.
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

/// Takes `most` off a count, or all that there is of it. Gives how much.
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
    async fn there_may_be_fewer_places_than_are_taken() {
        let places = Places::new(limits(3));
        let free = |expected: usize| assert_eq!(places.all.available_permits(), expected);
        let [first, second] = [places.place().await, places.place().await];
        places.set(limits(1));
        free(0);
        drop(first);
        free(0);
        let third = {
            // One of one is taken; one more makes room for another.
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
