//! The search for a gateway that has a state: when another one is asked, and when upstream is asked instead. Only
//! decides; [`super::ResourcePeers`] asks.
//!
//! An address usually leads to several gateways, and each question reaches one of them by chance. Their answers tell
//! two situations apart. If they neither have the state nor fetch it, the search ends once most likely all of them
//! have been asked. If some of them fetch it or search for it, too, only one of all should ask upstream. To agree on
//! one, each gateway draws a rank and tells the others the lowest rank that it has heard of; it waits for the state
//! unless that rank is its own.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;
use uuid::Uuid;

use base::apimachinery::ElectionRank;

/// The maximum time of a search; varied, so that gateways that have waited in vain do not ask upstream all at once.
const SEARCH_MIN: Duration = Duration::from_secs(6);
pub(super) const SEARCH_MAX: Duration = Duration::from_secs(10);
/// The maximum number of questions of a search. There is time for fewer, unless pauses are cut short.
const QUESTIONS_MAX: usize = 250;
/// The pause between two questions while other gateways may have the state already; varied by half.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pause between two questions while one is known to fetch it, or to be the one that will; varied by half.
const WAIT_EVERY: Duration = Duration::from_millis(60);
/// All gateways count as asked once this many questions for each known gateway, and as many for one that may be
/// unknown, have led to no new one. By chance that happens in one of 150 searches (e^-5).
const QUESTIONS_PER_GATEWAY: usize = 5;
/// The maximum number of answers of other gateways until upstream is asked, if none is waited for.
const ANSWERS_MAX: usize = 64;
/// The number of answers after which a gateway knows the lowest rank, if others search, too. A rank that one gateway
/// has drawn is known to most of 20 gateways after six answers each, and to most of 50 after seven.
const ANSWERS_AMONG_SEARCHES: usize = 12;
/// The number of failed questions in a row after which a search no longer asks an address.
const FAILURES_MAX: u32 = 3;
/// The maximum number of gateways that a search remembers.
const KNOWN_MAX: usize = 64;

/// The search of one gateway for the state of one cache.
#[derive(Debug)]
pub(super) struct Search {
    /// Of this gateway.
    name: Uuid,
    own: ElectionRank,
    /// The lowest rank that this gateway has heard of, its own included.
    lowest: ElectionRank,
    until: Instant,
    addresses: Vec<Address>,
    /// The place of the next address to be asked.
    turn: usize,
    questions: usize,
    /// Answers of other gateways.
    answers: usize,
    /// The gateways that neither have the state nor fetch it nor search for it, and this one if questions have led back
    /// to it.
    known: HashSet<Uuid>,
    /// Questions since the last one that has led to a gateway which was not known before.
    led_to_known: usize,
    /// Whether another gateway searches for the state, or fetches it.
    is_one_of_several: bool,
}

/// What is known of one address in one search.
#[derive(Clone, Debug, Default)]
struct Address {
    /// Questions in a row that failed.
    failures: u32,
    has_answered: bool,
    is_given_up: bool,
}

/// What a question has led to, other than the state. A gateway's name is `None` if it has told none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// This gateway.
    Itself,
    /// A gateway that is not about to have the state.
    NoState(Option<Uuid>),
    /// A gateway that fetches the state, or searches for it; with the lowest rank that it has heard of.
    Filling(Option<Uuid>, ElectionRank),
    /// No gateway, or one whose answer cannot be used.
    Failed,
    TimedOut,
}

/// The next question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The place of the address.
    pub(super) address: usize,
    /// The pause before it, to be varied by half.
    pub(super) pause: Duration,
}

/// Why upstream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Most likely no other gateway has the state or is about to have it, or this one is the one to ask upstream.
    Nowhere,
    /// Behind no address is a gateway that answers, other than this one.
    Unanswered,
    /// A limit was reached.
    Late,
}

impl End {
    /// The value of the metric label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Nowhere => "nowhere",
            Self::Unanswered => "unanswered",
            Self::Late => "late",
        }
    }
}

impl Search {
    /// A search by the gateway of that name, which has drawn `own`. `patience` is from 0 to 1.
    pub(super) fn new(name: Uuid, own: ElectionRank, addresses: usize, patience: f64, now: Instant) -> Self {
        Self {
            name,
            own,
            lowest: own,
            until: now + SEARCH_MIN + (SEARCH_MAX - SEARCH_MIN).mul_f64(patience),
            addresses: vec![Address::default(); addresses],
            turn: 0,
            questions: 0,
            answers: 0,
            known: HashSet::new(),
            led_to_known: 0,
            is_one_of_several: false,
        }
    }

    /// What this gateway tells others that search for the state.
    pub(super) fn lowest(&self) -> ElectionRank {
        self.lowest
    }

    /// The next question, if there is one. An address for which `is_due` is false is not asked in this search.
    pub(super) fn next(&mut self, now: Instant, is_due: impl Fn(usize) -> bool) -> Result<Question, End> {
        if now >= self.until || self.questions >= QUESTIONS_MAX {
            return Err(End::Late);
        }
        if !self.waits() && self.has_looked_everywhere() {
            return Err(End::Nowhere);
        }
        let address = self.due(is_due).ok_or(End::Unanswered)?;
        let pause = match self.questions {
            0 => Duration::ZERO,
            _ if self.waits() => WAIT_EVERY,
            _ => LOOK_EVERY,
        };
        (self.turn, self.questions) = (address + 1, self.questions + 1);
        Ok(Question { address, pause })
    }

    /// Records what a question to that address has led to.
    pub(super) fn heard(&mut self, address: usize, heard: Heard) {
        if let Some(address) = self.addresses.get_mut(address) {
            address.heard(heard);
        }
        match heard {
            Heard::Itself => self.led_to(Some(self.name)),
            Heard::NoState(name) => {
                self.answers += 1;
                self.led_to(name);
            }
            Heard::Filling(name, rank) => {
                self.answers += 1;
                self.led_to_known += 1;
                self.is_one_of_several = true;
                self.lowest = self.lowest.min(rank);
                // It may have been asked before it began.
                if let Some(name) = name {
                    self.known.remove(&name);
                }
            }
            Heard::Failed | Heard::TimedOut => {}
        }
    }

    /// Whether another gateway is the one to ask upstream, or has done so.
    fn waits(&self) -> bool {
        self.lowest < self.own
    }

    fn has_looked_everywhere(&self) -> bool {
        let is_likely = self.led_to_known >= QUESTIONS_PER_GATEWAY * (self.known.len() + 1);
        let enough = if self.is_one_of_several { ANSWERS_AMONG_SEARCHES } else { 0 };
        (is_likely || self.answers >= ANSWERS_MAX) && self.answers >= enough
    }

    fn led_to(&mut self, name: Option<Uuid>) {
        let is_new = name.is_some_and(|name| self.known.len() < KNOWN_MAX && self.known.insert(name));
        self.led_to_known = if is_new { 0 } else { self.led_to_known + 1 };
    }

    /// The place of the next address that is worth a question.
    fn due(&mut self, is_due: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.addresses.len();
        for place in (self.turn..self.turn + count).map(|place| place % count) {
            let address = &mut self.addresses[place];
            address.is_given_up |= !is_due(place);
            if !address.is_given_up {
                return Some(place);
            }
        }
        None
    }
}

impl Address {
    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Failed => self.failures += 1,
            // It took seconds, and most likely will again.
            Heard::TimedOut if !self.has_answered => self.failures = FAILURES_MAX,
            Heard::TimedOut => self.failures += 1,
            Heard::Itself | Heard::NoState(_) | Heard::Filling(..) => (self.failures, self.has_answered) = (0, true),
        }
        self.is_given_up |= self.failures >= FAILURES_MAX;
    }
}

/// The lowest rank that a gateway has heard of for one of its caches, told to others that ask for the state while the
/// cache is being filled.
#[derive(Debug)]
pub struct LowestRank(AtomicU64);

impl LowestRank {
    /// That of no rank: the number is one that no gateway draws, but for one in 2⁶⁴.
    const NONE: u64 = u64::MAX;

    pub(super) fn set(&self, rank: ElectionRank) {
        self.0.store(rank.number(), Relaxed);
    }

    /// `None` until the search has begun.
    pub fn get(&self) -> Option<ElectionRank> {
        let number = self.0.load(Relaxed);
        (number != Self::NONE).then(|| if number == 0 { ElectionRank::FIRST } else { ElectionRank::drawn(number) })
    }
}

impl Default for LowestRank {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }
}

#[cfg(test)]
mod tests;
