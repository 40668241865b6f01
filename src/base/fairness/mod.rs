//! Fair shares: limits how much of a bounded resource one client may hold at once, so that no client takes it all.
//!
//! A client is identified by its user once that is known, and by its address before that. What a request merely claims
//! is never a key, since claims cost nothing to make up. One client gets at most a quarter of a pool ([`share_of`]).
//!
//! Invariant: a client is counted from its first [`Share`] to the drop of its last. There is one entry for each client
//! that holds something now, so that the limit on shares also limits the entries.

mod byte_budget;
mod concurrency_limit;
mod rate_limit;

use std::{
    hash::{BuildHasher, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use dashmap::{DashMap, Entry};

use crate::telemetry::limit_reached;

pub use byte_budget::{ByteBudget, ClientByteBudget, ReservedBytes};
pub use concurrency_limit::{ConcurrencyLimit, PacedConcurrencyLimit, PacedTurn, Turn};
pub use rate_limit::{Rate, RateLimit};

/// The client that something is counted for: a keyed hash that does not reveal the client, and has no meaning in
/// another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

/// How much each client holds of one resource. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    held: Arc<DashMap<ClientKey, usize>>,
    each: Arc<AtomicUsize>,
    limit: &'static str,
}

/// What one client holds of a resource, and may take. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientShares {
    shares: Shares,
    /// `None` if clients are not told apart: then nothing is counted.
    client: Option<ClientKey>,
}

/// The client's share is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedUp;

/// The places that a client has taken at once, released when dropped.
#[derive(Debug)]
pub struct Share {
    held: Arc<DashMap<ClientKey, usize>>,
    client: ClientKey,
    places: usize,
}

/// Number of shares that a pool is divided into.
const SHARES: usize = 4;

/// One client's share of a pool with this many places: a quarter, and at least one.
pub const fn share_of(pool: usize) -> usize {
    if pool < SHARES { 1 } else { pool / SHARES }
}

/// Whether three quarters of `most` places are taken: the others are for requests that cannot wait.
pub const fn is_scarce(taken: usize, most: usize) -> bool {
    taken >= most - most / SHARES
}

/// The address that a client is counted by: the address itself, or for IPv6 its network of 64 bits, which is what one
/// client has to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl ClientKey {
    /// The key of a user, however it authenticates: several tokens, certificates or front proxies are one client.
    pub fn user(name: &str) -> Self {
        Self::of(&("user", name))
    }

    /// The key of all requests from an address, or from its IPv6 network of 64 bits. Requests without an address, which
    /// come over Unix sockets, share one key.
    pub fn address(address: Option<IpAddr>) -> Self {
        Self::of(&("address", address.map(network)))
    }

    /// A key that is the same for equal identities.
    pub fn of(identity: &impl Hash) -> Self {
        static KEYS: OnceLock<RandomState> = OnceLock::new();
        Self(KEYS.get_or_init(RandomState::new).hash_one(identity))
    }
}

impl Shares {
    /// Each client may hold `each`; `limit` is the name of that limit in the metrics.
    pub fn new(each: usize, limit: &'static str) -> Self {
        Self { held: Arc::default(), each: Arc::new(AtomicUsize::new(each)), limit }
    }

    /// Changes what each client may hold; a client that holds more keeps it. Applies to all clones.
    pub fn set(&self, each: usize) {
        self.each.store(each, Relaxed);
    }

    /// Those of that client; `None` if clients are not told apart.
    pub fn of(&self, client: Option<ClientKey>) -> ClientShares {
        ClientShares { shares: self.clone(), client }
    }

    /// Whether `client` holds three quarters of its share or more.
    pub fn are_scarce_for(&self, client: ClientKey) -> bool {
        is_scarce(self.held(client), self.each.load(Relaxed))
    }

    /// The places that `client` holds.
    pub fn held(&self, client: ClientKey) -> usize {
        self.held.get(&client).map_or(0, |held| *held)
    }

    /// One place for `client`; `None` if its share is used up.
    pub fn take(&self, client: ClientKey) -> Option<Share> {
        self.take_places(client, 1)
    }

    /// That many places for `client`; `None` if its share has fewer left. What would need more than the whole share is
    /// given all of it.
    pub fn take_places(&self, client: ClientKey, places: usize) -> Option<Share> {
        let each = self.each.load(Relaxed);
        let places = places.min(each.max(1));
        let mut held = self.held.entry(client).or_insert(0);
        if held.saturating_add(places) > each {
            let is_new = *held == 0;
            drop(held);
            if is_new {
                self.held.remove_if(&client, |_, held| *held == 0);
            }
            limit_reached(self.limit);
            return None;
        }
        *held += places;
        drop(held);
        Some(Share { held: self.held.clone(), client, places })
    }
}

impl ClientShares {
    /// One place; `None` if nothing is counted.
    ///
    /// # Errors
    /// The client has no place left.
    pub fn take(&self) -> Result<Option<Share>, UsedUp> {
        self.client.map(|client| self.shares.take(client).ok_or(UsedUp)).transpose()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Entry::Occupied(mut held) = self.held.entry(self.client) {
            *held.get_mut() -= self.places;
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
    fn an_address_of_ipv6_counts_as_its_network() {
        for (address, expected) in
            [("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"), ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7")]
        {
            let [address, expected] = [address, expected].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(network(address), expected);
            assert_eq!(ClientKey::address(Some(address)), ClientKey::address(Some(expected)));
        }
        assert_ne!(ClientKey::address(None), ClientKey::address(Some([192, 0, 2, 7].into())));
    }

    #[test]
    fn a_share_is_a_quarter() {
        assert_eq!([1, 3, 4, 7, 1000].map(share_of), [1, 1, 1, 1, 250]);
    }

    #[test]
    fn places_are_scarce_once_three_quarters_are_taken() {
        for (most, scarce_from) in [(1, 1), (2, 2), (4, 3), (100, 75)] {
            let scarce = (0..=most).find(|taken| is_scarce(*taken, most));
            assert_eq!(scarce, Some(scarce_from), "{most}");
        }
        let (shares, [jane, john]) = (Shares::new(2, "test"), ["jane", "john"].map(|name| ClientKey::of(&name)));
        let _held = [shares.take(jane), shares.take(jane)];
        assert!(shares.are_scarce_for(jane) && !shares.are_scarce_for(john));
    }

    #[test]
    fn no_client_takes_the_share_of_another() {
        let shares = Shares::new(2, "test");
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let first = shares.take(jane).expect("one of two");
        let second = shares.take(jane).expect("two of two");
        assert!(shares.take(jane).is_none());
        assert!(shares.take(john).is_some());
        drop(first);
        let third = shares.take(jane).expect("one was given back");
        assert!(shares.take(jane).is_none());
        shares.set(3);
        drop(shares.take(jane).expect("three of three"));
        shares.set(2);
        assert!(shares.take(jane).is_none());
        drop((second, third));
        assert!(shares.held.is_empty());
        let whole = shares.take_places(jane, 5).expect("all of her share");
        assert!(shares.held(jane) == 2 && shares.take(jane).is_none());
        drop(whole);
        let one = shares.take(jane).expect("one of two");
        assert!(shares.take_places(jane, 2).is_none() && shares.held(jane) == 1);
        drop(one);
        assert!(shares.held.is_empty());
    }
}
