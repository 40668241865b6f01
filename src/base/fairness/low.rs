//! Low importance: what tasks that can wait for minutes may take of a pool, however free it is.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ClientKey, Share, Shares, share_of};
use crate::telemetry::limit_reached;

/// How important a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// A client waits for it.
    Usual,
    /// No client waits for it, and it can be tried again in some minutes.
    Low,
}

/// The part of a pool that tasks of low importance may take: a quarter of the pool, and of each client's share of it.
#[derive(Debug)]
pub struct LowPart {
    all: Arc<Semaphore>,
    each: Shares,
    limit: &'static str,
}

/// A place in that part, released when dropped.
#[derive(Debug)]
pub struct LowPlace {
    _all: OwnedSemaphorePermit,
    _each: Share,
}

impl LowPart {
    /// Of a pool of that many places, of which each client may have `each`. The limits are named `limit` in the
    /// metrics, and for one client `each_limit`.
    pub fn of(pool: usize, each: usize, limit: &'static str, each_limit: &'static str) -> Self {
        let all = Arc::new(Semaphore::new(share_of(pool)));
        Self { all, each: Shares::new(share_of(each), each_limit), limit }
    }

    /// A place for `client`; `None` if there is none.
    pub fn take(&self, client: ClientKey) -> Option<LowPlace> {
        let all = self.place()?;
        Some(LowPlace { _all: all, _each: self.each.take(client)? })
    }

    /// Whether there is a place, for `client` if it is known.
    pub fn has_room(&self, client: Option<ClientKey>) -> bool {
        match client {
            Some(client) => self.take(client).is_some(),
            None => self.place().is_some(),
        }
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.all.clone().try_acquire_owned().ok();
        if place.is_none() {
            limit_reached(self.limit);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_low_importance_leave_three_quarters_of_a_pool_and_of_each_share() {
        let part = LowPart::of(20, 8, "test", "test");
        let keys = ["jane", "john", "joe"].map(|name| ClientKey::of(&name));
        let [jane, john, joe] = keys;
        let hers: Vec<_> = std::iter::from_fn(|| part.take(jane)).collect();
        assert_eq!(hers.len(), 2);
        assert!(!part.has_room(Some(jane)) && part.has_room(Some(john)) && part.has_room(None));
        let others: Vec<_> = [john, john, joe].map(|client| part.take(client).expect("a place")).into();
        assert!(part.take(joe).is_none(), "five in all");
        assert!(!part.has_room(Some(joe)) && !part.has_room(None));
        drop(others);
        assert!(part.has_room(Some(joe)) && !part.has_room(Some(jane)));
        drop(hers);
        assert!(part.has_room(Some(jane)));
    }
}
