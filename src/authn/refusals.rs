//! Refused credentials, counted for each address, so that a client that makes up tokens does not use up upstream.
//!
//! Upstream must verify every token that it has not seen recently: once for the review, and once more for the request,
//! which is forwarded so that upstream refuses it. Upstream cannot limit that, since its own fairness comes after
//! authentication. So the credentials of an address from which many were refused recently are not reviewed until
//! upstream has accepted them in a forwarded request, and such a request is delayed until they have been accepted.
//! No request is refused for it: addresses may be shared by many clients.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    fairness::ClientKey,
    memo::{Bound, TtlCache},
    telemetry::limit_reached,
};

/// One refusal is forgotten in this time, so that 40 refusals in a second have no effect.
const FORGOTTEN_IN: Duration = Duration::from_millis(25);
/// Refusals of one address that have no effect, if they come at once: those of a hundred tokens, which are refused by a
/// review and as requests.
const FREE: u32 = 200;
/// Maximum number of refusals that are counted: that many are forgotten in ten seconds.
const COUNTED_MAX: u32 = 400;
/// Maximum delay of a request. Delays are random, so that requests which arrive together go upstream evenly.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// Addresses with refusals; beyond the limit, some are forgotten early.
const ADDRESSES: Bound = Bound { most: 20_000, limit: "refused_addresses" };
const LIMIT: &str = "address_refusals";

/// When the refusals of each address will be forgotten.
#[derive(Debug)]
pub(super) struct Refusals(TtlCache<ClientKey, Instant>);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(TtlCache::new(ADDRESSES))
    }

    /// Counts a refusal. Of concurrent ones some may be missed.
    pub(super) fn count(&self, address: ClientKey) {
        let now = Instant::now();
        let before = self.0.get(&address, now).unwrap_or(now);
        let forgotten = (before + FORGOTTEN_IN).min(now + FORGOTTEN_IN * COUNTED_MAX);
        self.0.insert(address, forgotten, forgotten - now);
    }

    /// Whether more credentials of the address were refused than have no effect.
    pub(super) fn are_many(&self, address: ClientKey) -> bool {
        let now = Instant::now();
        self.0.get(&address, now).is_some_and(|forgotten| forgotten > now + FORGOTTEN_IN * FREE)
    }

    /// The delay of a request whose credentials are not known to be valid; `None` if there were few refusals.
    pub(super) fn delay(&self, address: ClientKey) -> Option<Duration> {
        if !self.are_many(address) {
            return None;
        }
        limit_reached(LIMIT);
        Some(DELAY_MAX.mul_f64(fastrand::f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn many_refusals_of_one_address_delay_it_for_a_while() {
        let refusals = Refusals::new();
        let [hostile, other] = ["hostile", "other"].map(|name| ClientKey::of(&name));
        for _ in 0..FREE {
            refusals.count(hostile);
            assert_eq!(refusals.delay(hostile), None);
        }
        for _ in 0..1000 {
            refusals.count(hostile);
            assert!(refusals.delay(hostile).is_some_and(|delay| delay <= DELAY_MAX));
        }
        assert_eq!(refusals.delay(other), None);
        advance(FORGOTTEN_IN * (COUNTED_MAX - FREE)).await;
        assert_eq!(refusals.delay(hostile), None);
        refusals.count(hostile);
        assert!(refusals.are_many(hostile), "the others are not forgotten yet");
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_at_a_low_rate_have_no_effect() {
        let refusals = Refusals::new();
        let address = ClientKey::of(&"address");
        for _ in 0..10 * COUNTED_MAX {
            refusals.count(address);
            assert!(!refusals.are_many(address));
            advance(FORGOTTEN_IN).await;
        }
    }
}
