//! Refused credentials, counted for each address, so that a client that makes up tokens does not use up upstream.
//!
//! Upstream must verify every token that it has not seen recently: once for the review, and once more for the request,
//! which is forwarded so that upstream refuses it. Upstream cannot limit that, since its own fairness comes after
//! authentication. So the credentials of an address from which many were refused recently are not reviewed until
//! upstream has accepted them in a forwarded request, and such a request is delayed until they have been accepted.
//! Addresses may be shared by many clients, so no request is refused for it, but those of which too many of one
//! connection are delayed already.
//!
//! If many are refused in all, one invented token of an address is enough: a client with fifty addresses would have
//! fifty times what is free.

use std::{sync::Arc, time::Duration};

use crate::listener::Connection;
use base::{
    fairness::{ClientKey, Rate, RateLimit},
    telemetry::limit_reached,
};

/// The refusals of one address that have no effect: at once those of thirty tokens, which are refused by a review and
/// as requests, and 40 in a second. As many are counted as are forgotten in five seconds.
const EACH: Rate = Rate { burst: 60, interval: Duration::from_millis(25), ahead: 140 };
/// The same of all addresses together, up to which each of them counts once. Beyond it, each counts for as many as have
/// no effect.
const IN_ALL: Rate = Rate { burst: 60, interval: Duration::from_millis(10), ahead: 60 };
/// Maximum delay of a request. Delays are random, so that requests which arrive together go upstream evenly.
const DELAY_MAX: Duration = Duration::from_secs(2);
const LIMIT: &str = "address_refusals";

/// Whether a request whose credentials are not known to be valid has to wait, because others of its address were
/// refused.
#[derive(Clone, Debug)]
pub struct UnverifiedSender {
    refusals: Arc<Refusals>,
    address: ClientKey,
    /// The request's connection. Clients that share an address have connections of their own.
    pub connection: ClientKey,
}

/// A request whose credentials upstream verifies. If it is dropped before there is an answer, its client has gone, and
/// the credentials count as refused: else a client that never waits would make up as many as it likes.
#[derive(Debug)]
pub struct PendingVerification<'a>(Option<&'a UnverifiedSender>);

/// The refusals of each address, and of all together.
#[derive(Debug)]
pub(super) struct Refusals(RateLimit);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(RateLimit::new(EACH, LIMIT).with_total(IN_ALL, 0, "refusals"))
    }

    /// Counts a refusal. Of concurrent ones some may be missed.
    pub(super) fn count(&self, address: ClientKey) {
        // Those of an address with many are no part of the total: by itself it would make every other one doubtful.
        let are_many_in_all = !self.are_many(address) && self.0.exceeds_total();
        self.0.count(address, if are_many_in_all { EACH.burst } else { 1 });
    }

    /// Counts credentials whose client has not waited for the answer. They always count once, and are no part of the
    /// total: where upstream is slow, clients give up that have done nothing wrong.
    fn count_unanswered(&self, address: ClientKey) {
        self.0.count(address, 1);
    }

    /// Whether more credentials of the address were refused than have no effect.
    pub(super) fn are_many(&self, address: ClientKey) -> bool {
        self.0.is_exceeded(address)
    }
}

impl UnverifiedSender {
    /// About a request on a connection.
    pub(super) fn of(refusals: &Arc<Refusals>, connection: &Connection) -> Self {
        let address = ClientKey::address(connection.peer.map(|peer| peer.ip()));
        Self { refusals: refusals.clone(), address, connection: ClientKey::of(&("connection", connection.number)) }
    }

    /// To be called when the request is sent.
    pub fn sent(&self) -> PendingVerification<'_> {
        PendingVerification(Some(self))
    }

    /// Whether many credentials of the address were refused recently.
    pub fn are_many(&self) -> bool {
        self.refusals.are_many(self.address)
    }

    /// How long the request has to wait before it is forwarded; `None` if few were refused.
    pub fn delay(&self) -> Option<Duration> {
        if !self.are_many() {
            return None;
        }
        limit_reached(LIMIT);
        Some(DELAY_MAX.mul_f64(fastrand::f64()))
    }
}

impl PendingVerification<'_> {
    /// Upstream's answer says whether it has accepted the credentials, or there is none.
    pub fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for PendingVerification<'_> {
    fn drop(&mut self) {
        if let Some(UnverifiedSender { refusals, address, .. }) = self.0 {
            refusals.count_unanswered(*address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;
    use tokio_util::sync::CancellationToken;

    #[tokio::test(start_paused = true)]
    async fn many_refusals_of_one_address_delay_it_for_a_while() {
        let refusals = Arc::new(Refusals::new());
        let of = |address: [u8; 4]| {
            let (peer, draining) = (Some((address, 1024).into()), CancellationToken::new());
            UnverifiedSender::of(
                &refusals,
                &Connection { number: 0, peer, tls: false, client_certificate: None, draining },
            )
        };
        let (hostile, other) = (of([192, 0, 2, 7]), of([192, 0, 2, 8]));
        for _ in 0..EACH.burst {
            refusals.count(hostile.address);
            assert_eq!(hostile.delay(), None);
        }
        for _ in 0..1000 {
            refusals.count(hostile.address);
            assert!(hostile.delay().is_some_and(|delay| delay <= DELAY_MAX));
        }
        assert_eq!(other.delay(), None);
        advance(EACH.interval * EACH.ahead).await;
        assert_eq!(hostile.delay(), None);
        refusals.count(hostile.address);
        assert!(hostile.are_many(), "the others are not forgotten yet");
    }

    #[tokio::test(start_paused = true)]
    async fn many_refusals_in_all_leave_each_address_one() {
        let refusals = Refusals::new();
        let address = |number: u32| ClientKey::of(&("address", number));
        // One of each: in a surge they use up what is free, and no more.
        for number in 0..2 * IN_ALL.burst {
            refusals.count(address(number));
            assert!(!refusals.are_many(address(number)));
        }
        refusals.count(address(0));
        refusals.count(address(2 * IN_ALL.burst - 1));
        assert!(!refusals.are_many(address(IN_ALL.burst - 1)), "its only one was before the surge");
        assert!(refusals.are_many(address(0)) && refusals.are_many(address(2 * IN_ALL.burst - 1)));
        assert!(!refusals.are_many(address(1000)), "one with none");
        advance(EACH.interval * EACH.burst).await;
        assert!(!refusals.are_many(address(2 * IN_ALL.burst - 1)));
        // The surge is over.
        for _ in 0..EACH.burst / 2 {
            refusals.count(address(1000));
        }
        assert!(!refusals.are_many(address(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_one_address_nor_clients_that_give_up_make_others_doubtful() {
        let refusals = Arc::new(Refusals::new());
        let [hostile, other] = ["hostile", "other"].map(|name| ClientKey::of(&name));
        let draining = CancellationToken::new();
        let unverified = |number: u8| {
            let (peer, draining) = (Some(([192, 0, 2, number], 1024).into()), draining.clone());
            UnverifiedSender::of(
                &refusals,
                &Connection { number: 0, peer, tls: false, client_certificate: None, draining },
            )
        };
        for second in 0..10 {
            for _ in 0..1000 {
                refusals.count(hostile);
            }
            for number in 0..200 {
                drop(unverified(number).sent());
            }
            advance(Duration::from_secs(1)).await;
            // One surge at the beginning, of the refusals that are free of the address.
            if second > 2 {
                (0..EACH.burst / 3).for_each(|_| refusals.count(other));
                assert!(!refusals.are_many(other));
            }
        }
        assert!(refusals.are_many(hostile) && !unverified(7).are_many());
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_whose_client_does_not_wait_for_the_answer_count() {
        let refusals = Arc::new(Refusals::new());
        let draining = CancellationToken::new();
        let connection = Connection { number: 0, peer: None, tls: false, client_certificate: None, draining };
        let unverified = UnverifiedSender::of(&refusals, &connection);
        (0..=EACH.burst).for_each(|_| unverified.sent().answered());
        assert!(!unverified.are_many(), "the answer is counted, not the request");
        (0..=EACH.burst).for_each(|_| drop(unverified.sent()));
        assert!(unverified.are_many());
        let another = UnverifiedSender::of(&refusals, &Connection { number: 1, ..connection });
        assert!(another.are_many() && another.connection != unverified.connection, "of one Unix socket");
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_at_a_low_rate_have_no_effect() {
        let refusals = Refusals::new();
        let address = ClientKey::of(&"address");
        for _ in 0..10 * (EACH.burst + EACH.ahead) {
            refusals.count(address);
            assert!(!refusals.are_many(address));
            advance(EACH.interval).await;
        }
    }
}
