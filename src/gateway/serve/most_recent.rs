//! Decides whether a get or a list of the most recent state is answered from memory after a proof, or forwarded: a pure
//! function of the cost of both (the manual's chapter `consistency`).

use std::time::Duration;

use super::ForwardReason;
use base::config::MostRecentReads;

/// Responses of at most this many bytes are always forwarded: the API server writes them with about as much CPU as it
/// takes to report its head version (`benches/diary.md`, *When a proof is cheaper than a list*).
pub const SMALL_ANSWER: usize = 64 << 10;
/// A lower bound for the time that the API server spends per byte of a list: kube-apiserver 1.36 takes 9 ns per byte of
/// JSON and 6 ns per byte of protobuf (shared machine, TLS on). Older servers, which read lists from etcd, take several
/// times as long.
const NANOSECONDS_A_BYTE: u64 = 6;
/// The maximum time that a list waits for a proof.
const WITHIN_MAX: Duration = Duration::from_secs(5);
/// The maximum wait for ten seconds after a proof that took longer than [`WITHIN_MAX`]: the default of the time that
/// reads wait for a version.
const WITHIN_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The maximum wait with [`MostRecentReads::Auto`], where forwarding is always possible: the time that an API server
/// waits for its own cache.
const WITHIN_MAX_AUTO: Duration = Duration::from_secs(3);
/// A trial may take this fraction of upstream's time for the response, to find out whether memory can be proven soon.
const TRIAL_PART: u32 = 8;
/// The minimum time for a trial: enough for a few round trips.
const TRIAL_MIN: Duration = Duration::from_millis(5);

/// The inputs of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Situation {
    /// The size of the response's objects in memory, in bytes.
    pub(super) bytes: usize,
    /// The number of lists of the resource within the last second that are about as large, including this one.
    pub(super) asking: usize,
    /// How long recent proofs took.
    pub(super) recent: Option<Duration>,
    /// The average time between recent changes of the resource.
    pub(super) pace: Option<Duration>,
}

/// The decision and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Forward(ForwardReason),
    /// Prove, and wait at most that long.
    Prove(Worth, Duration),
}

/// Why a proof is worthwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// The configuration requires it.
    Configured,
    /// Recent proofs took less time than upstream takes for the response.
    Quick,
    /// The resource changes so often that its own watch will soon pass the head version.
    Busy,
    /// A proof takes longer than this response, but less time than all the responses that are being requested.
    Shared,
    /// The duration of a proof is unknown; one is tried for a small fraction of the time that upstream would take.
    Trial,
}

impl Worth {
    /// The duration that is assumed for a proof that failed or took longer than `within`.
    pub(super) fn takes_if_failed(self, within: Duration) -> Duration {
        match self {
            Self::Trial => within.saturating_mul(TRIAL_PART),
            Self::Configured | Self::Quick | Self::Busy | Self::Shared => within.saturating_mul(2),
        }
    }
}

/// Decides one read.
pub(super) fn choose(most_recent: MostRecentReads, situation: Situation) -> Choice {
    let Situation { bytes, asking, recent, pace } = situation;
    match most_recent {
        MostRecentReads::Forward => return Choice::Forward(ForwardReason::MostRecent),
        // After a proof that failed, the next reads must not wait as long in vain.
        MostRecentReads::Prove if recent.is_some_and(|takes| takes > WITHIN_MAX) => {
            return Choice::Prove(Worth::Configured, WITHIN_AFTER_FAILURE);
        }
        MostRecentReads::Prove => return Choice::Prove(Worth::Configured, WITHIN_MAX),
        MostRecentReads::Auto if bytes <= SMALL_ANSWER => return Choice::Forward(ForwardReason::MostRecentSmall),
        MostRecentReads::Auto => {}
    }
    let one = Duration::from_nanos(bytes as u64 * NANOSECONDS_A_BYTE).min(WITHIN_MAX_AUTO);
    let all = one.saturating_mul(u32::try_from(asking).unwrap_or(u32::MAX)).min(WITHIN_MAX_AUTO);
    // Half of it, because the duration of proofs varies, and the wait for one that fails is wasted.
    let is_worth = |takes: Duration, than: Duration| takes <= than / 2;
    match (recent, pace) {
        (Some(recent), _) if is_worth(recent, one) => Choice::Prove(Worth::Quick, one),
        (Some(recent), _) if is_worth(recent, all) => Choice::Prove(Worth::Shared, all),
        (Some(_), _) => Choice::Forward(ForwardReason::MostRecentQuiet),
        (None, Some(pace)) if is_worth(pace, one) => Choice::Prove(Worth::Busy, one),
        (None, _) => Choice::Prove(Worth::Trial, (one / TRIAL_PART).max(TRIAL_MIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,000 pods in JSON: 456 ms.
    const LARGE: Situation = Situation { bytes: 76_000_000, asking: 1, recent: None, pace: None };

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn auto(situation: Situation) -> Choice {
        choose(MostRecentReads::Auto, situation)
    }

    #[test]
    fn forward_and_prove_are_chosen_without_an_estimate() {
        let quick = Situation { recent: Some(Duration::ZERO), ..LARGE };
        assert_eq!(choose(MostRecentReads::Forward, quick), Choice::Forward(ForwardReason::MostRecent));
        let small = Situation { bytes: 0, ..LARGE };
        assert_eq!(choose(MostRecentReads::Prove, small), Choice::Prove(Worth::Configured, WITHIN_MAX));
        let failed = Situation { recent: Some(2 * WITHIN_MAX), ..small };
        assert_eq!(choose(MostRecentReads::Prove, failed), Choice::Prove(Worth::Configured, WITHIN_AFTER_FAILURE));
    }

    #[test]
    fn small_answers_are_forwarded_at_any_request_rate() {
        for asking in [1, 1000] {
            let small = Situation { bytes: SMALL_ANSWER, asking, recent: Some(Duration::ZERO), pace: None };
            assert_eq!(auto(small), Choice::Forward(ForwardReason::MostRecentSmall));
        }
    }

    #[test]
    fn a_proof_may_take_as_long_as_upstreams_answer() {
        let of = |recent: u64, asking| auto(Situation { recent: Some(milliseconds(recent)), asking, ..LARGE });
        assert_eq!(of(2, 1), Choice::Prove(Worth::Quick, milliseconds(456)));
        assert_eq!(of(228, 1), Choice::Prove(Worth::Quick, milliseconds(456)));
        assert_eq!(of(229, 1), Choice::Forward(ForwardReason::MostRecentQuiet));
        // A progress probe takes a second: worthwhile for clients that would queue at the API server.
        assert_eq!(of(1200, 5), Choice::Forward(ForwardReason::MostRecentQuiet));
        assert_eq!(of(1200, 6), Choice::Prove(Worth::Shared, milliseconds(2736)));
        assert_eq!(of(1200, 10_000), Choice::Prove(Worth::Shared, WITHIN_MAX_AUTO));
        assert_eq!(of(60_000, 10_000), Choice::Forward(ForwardReason::MostRecentQuiet));
    }

    #[test]
    fn without_recent_proofs_the_pace_of_changes_decides() {
        let of = |pace: Option<u64>| auto(Situation { pace: pace.map(milliseconds), ..LARGE });
        assert_eq!(of(Some(100)), Choice::Prove(Worth::Busy, milliseconds(456)));
        assert_eq!(of(Some(5000)), Choice::Prove(Worth::Trial, milliseconds(57)));
        assert_eq!(of(None), Choice::Prove(Worth::Trial, milliseconds(57)));
        // A measured duration counts more than an expected one.
        let seen = Situation { recent: Some(milliseconds(60_000)), pace: Some(milliseconds(100)), ..LARGE };
        assert_eq!(auto(seen), Choice::Forward(ForwardReason::MostRecentQuiet));
    }

    #[test]
    fn the_estimate_does_not_overflow() {
        let most = Situation { bytes: 1 << 40, asking: usize::MAX, recent: Some(Duration::ZERO), pace: None };
        assert_eq!(auto(most), Choice::Prove(Worth::Quick, WITHIN_MAX_AUTO));
    }
}
