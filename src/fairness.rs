//! Fair shares: how much of something bounded one client may hold at once, so that none takes all of it from the others.
//!
//! Invariant: a client is counted from its first [`Share`] to the drop of its last; there is one entry for each client that
//! holds something now, so that what bounds the shares bounds the entries.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, OnceLock},
};

use dashmap::{DashMap, Entry};

use crate::telemetry::limit_reached;

/// Whom something is counted for. Tells nothing of who that is, not even to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

/// What clients hold of one thing. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    held: Arc<DashMap<ClientKey, usize>>,
    each: usize,
    limit: &'static str,
}

/// One client's place, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    held: Arc<DashMap<ClientKey, usize>>,
    client: ClientKey,
    amount: usize,
}

impl ClientKey {
    /// The key of whoever is known by `identity`.
    pub fn of(identity: &impl Hash) -> Self {
        static KEYS: OnceLock<RandomState> = OnceLock::new();
        Self(KEYS.get_or_init(RandomState::new).hash_one(identity))
    }
}

impl Shares {
    /// `each` for every client; `limit` is the name of that in the metrics.
    pub fn new(each: usize, limit: &'static str) -> Self {
        Self { held: Arc::default(), each, limit }
    }

    /// A further place for `client`; `None` if it holds all that it may.
    pub fn take(&self, client: ClientKey) -> Option<Share> {
        self.take_many(client, 1)
    }

    /// `amount` places at once; `None` if that is more than `client` may still have.
    pub fn take_many(&self, client: ClientKey, amount: usize) -> Option<Share> {
        let mut held = self.held.entry(client).or_insert(0);
        if amount > self.each.saturating_sub(*held) {
            let is_new = *held == 0;
            drop(held);
            if is_new {
                self.held.remove_if(&client, |_, held| *held == 0);
            }
            limit_reached(self.limit);
            return None;
        }
        *held += amount;
        drop(held);
        Some(Share { held: self.held.clone(), client, amount })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Entry::Occupied(mut held) = self.held.entry(self.client) {
            *held.get_mut() -= self.amount;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_what_is_anothers() {
        let shares = Shares::new(2, "test");
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let first = shares.take(jane).expect("one of two");
        let second = shares.take(jane).expect("two of two");
        assert!(shares.take(jane).is_none());
        assert!(shares.take(john).is_some());
        drop(first);
        let third = shares.take(jane).expect("one was given back");
        assert!(shares.take(jane).is_none());
        drop((second, third));
        assert!(shares.take_many(jane, 3).is_none());
        let both = shares.take_many(jane, 2).expect("all of two");
        assert!(shares.take(jane).is_none());
        drop(both);
        assert!(shares.held.is_empty());
    }
}
