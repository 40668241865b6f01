//! Whether a get or a list of the most recent state is answered from memory after a proof, or forwarded: a pure function of
//! what each would cost ([`crate::manual::consistency`]).

use std::time::Duration;

use super::ForwardReason;

/// What becomes of gets and lists of the most recent state (`reads.mostRecent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MostRecent {
    /// Always upstream's.
    Forward,
    /// Whichever is neither slower nor dearer.
    Auto,
    /// From memory if the proof succeeds.
    Prove,
}

/// Answers of no more bytes are always forwarded: the API server writes them in the time in which it tells its head version.
pub const SMALL_ANSWER: usize = 256 << 10;
/// What a byte of a list takes the API server at least: kube-apiserver 1.36 writes JSON in 9 ns a byte, protobuf in 6 (shared
/// machine, TLS on); an older one, which reads lists from etcd, takes several times as long.
const NANOSECONDS_A_BYTE: u64 = 6;
/// The longest that a list waits for a proof.
const WITHIN_MAX: Duration = Duration::from_secs(5);
/// The same for ten seconds after a proof that took longer: as long as reads wait for a version by default.
const WITHIN_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The same where memory is only the better answer: as long as an API server waits for its own cache.
const WITHIN_MAX_AUTO: Duration = Duration::from_secs(3);
/// What an attempt may take of the time that upstream would: it is tried whether memory can be proven soon.
const TRIAL_PART: u32 = 8;
/// The least that an attempt has: some round trips.
const TRIAL_MIN: Duration = Duration::from_millis(5);

/// What is known when a read is to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Situation {
    /// Of the answer's objects, as memory has them.
    pub(super) bytes: usize,
    /// Lists of the resource that came within the last second and are about as large, this one included.
    pub(super) asking: usize,
    /// How long proofs took lately.
    pub(super) recent: Option<Duration>,
    /// How often the resource changes, lately.
    pub(super) pace: Option<Duration>,
}

/// What is done, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Forward(ForwardReason),
    /// For at most that long.
    Prove(Worth, Duration),
}

/// Why a proof is worth its while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// The configuration wants it.
    Configured,
    /// Proofs took less lately than upstream would for the answer.
    Quick,
    /// The resource changes so often that its own watch will pass the head version soon.
    Busy,
    /// It takes longer than the one answer, and less than all the answers that are asked for.
    Shared,
    /// It is not known how long one takes; one is tried, for a small part of the time that upstream would take.
    Trial,
}

impl Worth {
    /// What a proof that failed, or was not there in time, is taken to take.
    pub(super) fn takes_if_failed(self, within: Duration) -> Duration {
        match self {
            Self::Trial => within.saturating_mul(TRIAL_PART),
            Self::Configured | Self::Quick | Self::Busy | Self::Shared => within.saturating_mul(2),
        }
    }
}

/// The choice for one read.
pub(super) fn choose(most_recent: MostRecent, situation: Situation) -> Choice {
    let Situation { bytes, asking, recent, pace } = situation;
    match most_recent {
        MostRecent::Forward => return Choice::Forward(ForwardReason::MostRecent),
        // After one that failed, the next ones are not waited for as long in vain.
        MostRecent::Prove if recent.is_some_and(|takes| takes > WITHIN_MAX) => {
            return Choice::Prove(Worth::Configured, WITHIN_AFTER_FAILURE);
        }
        MostRecent::Prove => return Choice::Prove(Worth::Configured, WITHIN_MAX),
        MostRecent::Auto if bytes <= SMALL_ANSWER => return Choice::Forward(ForwardReason::MostRecentSmall),
        MostRecent::Auto => {}
    }
    let one = Duration::from_nanos(bytes as u64 * NANOSECONDS_A_BYTE).min(WITHIN_MAX_AUTO);
    let all = one.saturating_mul(u32::try_from(asking).unwrap_or(u32::MAX)).min(WITHIN_MAX_AUTO);
    // Half of it: what a proof takes varies, and one that fails has been waited for in vain.
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
        choose(MostRecent::Auto, situation)
    }

    #[test]
    fn the_configuration_has_the_first_word() {
        let quick = Situation { recent: Some(Duration::ZERO), ..LARGE };
        assert_eq!(choose(MostRecent::Forward, quick), Choice::Forward(ForwardReason::MostRecent));
        let small = Situation { bytes: 0, ..LARGE };
        assert_eq!(choose(MostRecent::Prove, small), Choice::Prove(Worth::Configured, WITHIN_MAX));
        let failed = Situation { recent: Some(2 * WITHIN_MAX), ..small };
        assert_eq!(choose(MostRecent::Prove, failed), Choice::Prove(Worth::Configured, WITHIN_AFTER_FAILURE));
    }

    #[test]
    fn small_answers_are_forwarded_however_many_ask() {
        for asking in [1, 1000] {
            let small = Situation { bytes: SMALL_ANSWER, asking, recent: Some(Duration::ZERO), pace: None };
            assert_eq!(auto(small), Choice::Forward(ForwardReason::MostRecentSmall));
        }
    }

    #[test]
    fn a_proof_has_no_longer_than_upstream_would_take() {
        let of = |recent: u64, asking| auto(Situation { recent: Some(milliseconds(recent)), asking, ..LARGE });
        assert_eq!(of(2, 1), Choice::Prove(Worth::Quick, milliseconds(456)));
        assert_eq!(of(228, 1), Choice::Prove(Worth::Quick, milliseconds(456)));
        assert_eq!(of(229, 1), Choice::Forward(ForwardReason::MostRecentQuiet));
        // A small watch takes a second: worth it for those who would wait for each other at the API server.
        assert_eq!(of(1200, 5), Choice::Forward(ForwardReason::MostRecentQuiet));
        assert_eq!(of(1200, 6), Choice::Prove(Worth::Shared, milliseconds(2736)));
        assert_eq!(of(1200, 10_000), Choice::Prove(Worth::Shared, WITHIN_MAX_AUTO));
        assert_eq!(of(60_000, 10_000), Choice::Forward(ForwardReason::MostRecentQuiet));
    }

    #[test]
    fn without_recent_proofs_the_pace_of_changes_counts() {
        let of = |pace: Option<u64>| auto(Situation { pace: pace.map(milliseconds), ..LARGE });
        assert_eq!(of(Some(100)), Choice::Prove(Worth::Busy, milliseconds(456)));
        assert_eq!(of(Some(5000)), Choice::Prove(Worth::Trial, milliseconds(57)));
        assert_eq!(of(None), Choice::Prove(Worth::Trial, milliseconds(57)));
        // What has been seen says more than what is to be expected.
        let seen = Situation { recent: Some(milliseconds(60_000)), pace: Some(milliseconds(100)), ..LARGE };
        assert_eq!(auto(seen), Choice::Forward(ForwardReason::MostRecentQuiet));
    }

    #[test]
    fn no_number_is_too_large() {
        let most = Situation { bytes: 1 << 40, asking: usize::MAX, recent: Some(Duration::ZERO), pace: None };
        assert_eq!(auto(most), Choice::Prove(Worth::Quick, WITHIN_MAX_AUTO));
    }
}
