//! What the questions to one address have shown: whether the gateways behind it answer, since when they do not, and
//! why.
//!
//! The log has one warning for each cause, and a line when the address works again. Which outcomes are a trouble of the
//! address is decided here; all of them are counted elsewhere.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use uuid::Uuid;

use super::search::Heard;
use base::apimachinery::ElectionRank;
use engine::reflector::PeerOutcome;

/// The minimum time between two warnings of one cause: an address may lead to several gateways, of which one works.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// The number of questions in a row that have to lead back to this gateway until it counts as the only one behind the
/// address. If there were two, that would happen by chance once in 65,536 times (a gateway that fills many caches asks
/// often).
const ALONE_AFTER: u32 = 16;
/// How often such an address is asked: other gateways may have been added.
const ALONE_ASK_EVERY: Duration = Duration::from_secs(10);

/// The maximum bytes of an error: a part of it may be what a peer sent, such as the names of its certificate.
const ERROR_MAX: usize = 512;
/// The end of an error that was cut.
const CUT: &str = "…";

/// What is known of the gateways behind one address of `cache.peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Without credentials.
    pub address: String,
    /// When a question was last answered or failed; `None` before the first one.
    pub asked: Option<SystemTime>,
    /// When a cache was last filled with a state from there.
    pub used: Option<SystemTime>,
    /// What keeps the address from working, by the last question that shows it; `None` if it works.
    pub trouble: Option<PeerTrouble>,
    /// Whether the address leads to this gateway itself and, as far as its questions show, to no other: its own Service
    /// while there is one replica.
    pub is_itself: bool,
}

/// Why an address does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTrouble {
    pub kind: PeerTroubleKind,
    /// When it was first found to be of this kind.
    pub since: SystemTime,
    /// What was found the last time: an error with its causes, a status, two identities that differ. May be empty, and
    /// is cut at `ERROR_MAX`.
    pub error: String,
}

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTroubleKind {
    Unreachable,
    Unverified,
    TimedOut,
    Unauthorized,
    Refused,
    Foreign,
    Cluster,
    Ahead,
    Malformed,
    Broken,
}

impl PeerTroubleKind {
    const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::Unverified,
        Self::TimedOut,
        Self::Unauthorized,
        Self::Refused,
        Self::Foreign,
        Self::Cluster,
        Self::Ahead,
        Self::Malformed,
        Self::Broken,
    ];

    /// The state in `/status.json`. The outcomes in the metrics have the same names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Unverified => "unverified",
            Self::TimedOut => "timed_out",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::Foreign => "foreign",
            Self::Cluster => "cluster",
            Self::Ahead => "ahead",
            Self::Malformed => "malformed",
            Self::Broken => "broken",
        }
    }

    /// `None` for a state that is no trouble.
    pub fn of(state: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == state)
    }

    /// What is wrong.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Unreachable => "cannot connect to the peer",
            Self::Unverified => "the peer's certificate cannot be verified",
            Self::TimedOut => "the peer does not answer in time",
            Self::Unauthorized => "the peer refuses this gateway's credentials",
            Self::Refused => "the peer refuses the question",
            Self::Foreign => "what answers is not a gateway with cache.peers",
            Self::Cluster => "the peer belongs to another cluster",
            Self::Ahead => "the peer's state has a version that this gateway's API server has not reached",
            Self::Malformed => "the peer's state cannot be read, or contradicts itself or the API server",
            Self::Broken => "the peer's state breaks off, takes too long or is too large",
        }
    }

    /// What to check.
    const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => "check cache.peers.addresses and the network on the way",
            Self::Unverified => {
                "check that cache.peers.caFile has the authority of the certificates there, and that the address is \
                 one of their names"
            }
            Self::TimedOut | Self::Broken => "check the load of the gateways there, and the network on the way",
            Self::Unauthorized => {
                "check that the gateway there accepts the user of this gateway's kubeconfig (clients.authentication)"
            }
            Self::Refused => {
                "check that the address is that of gateways, and begins with https:// if they use TLS; else their \
                 limits"
            }
            Self::Foreign => "check cache.peers.addresses, and set cache.peers at the gateway there, too",
            Self::Cluster => "check cache.peers.addresses, and upstream in the configuration of the gateway there",
            Self::Ahead => "compare the API servers of both gateways; was etcd restored?",
            Self::Malformed => "run one version of the gateway",
        }
    }

    /// The trouble of a failed question to an address. The answers of a peer that works have none: it may have no
    /// state, or one that is not used this time.
    const fn behind(outcome: PeerOutcome) -> Option<Self> {
        match outcome {
            PeerOutcome::Unreachable => Some(Self::Unreachable),
            PeerOutcome::TimedOut => Some(Self::TimedOut),
            PeerOutcome::Refused => Some(Self::Refused),
            PeerOutcome::Foreign => Some(Self::Foreign),
            PeerOutcome::Cluster => Some(Self::Cluster),
            PeerOutcome::Ahead => Some(Self::Ahead),
            PeerOutcome::Malformed => Some(Self::Malformed),
            PeerOutcome::Broken => Some(Self::Broken),
            PeerOutcome::Used
            | PeerOutcome::Itself
            | PeerOutcome::NoState
            | PeerOutcome::Filling
            | PeerOutcome::Busy
            | PeerOutcome::Server
            | PeerOutcome::Definition
            | PeerOutcome::Old
            | PeerOutcome::Unconfirmed => None,
        }
    }
}

/// What came of one question, with what is worth knowing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) outcome: PeerOutcome,
    pub(super) error: String,
    /// The trouble of the address; `None` if the peer works.
    pub(super) trouble: Option<PeerTroubleKind>,
    /// The name of the gateway that has answered, if it has told one.
    pub(super) gateway: Option<Uuid>,
    /// What the gateway has told of its own search for the state.
    pub(super) rank: Option<ElectionRank>,
}

impl Failed {
    pub(super) fn new(outcome: PeerOutcome, error: String) -> Self {
        Self { outcome, error: cut(error), trouble: PeerTroubleKind::behind(outcome), gateway: None, rank: None }
    }

    /// What it means for the search.
    pub(super) fn heard(&self) -> Heard {
        match self.outcome {
            PeerOutcome::Itself => Heard::Itself,
            PeerOutcome::NoState => Heard::NoState(self.gateway),
            // One that has too much to send is asked again, as is one that is about to have the state.
            PeerOutcome::Filling | PeerOutcome::Busy => {
                Heard::Filling(self.gateway, self.rank.unwrap_or(ElectionRank::FIRST))
            }
            PeerOutcome::TimedOut => Heard::TimedOut,
            PeerOutcome::Used
            | PeerOutcome::Refused
            | PeerOutcome::Unreachable
            | PeerOutcome::Foreign
            | PeerOutcome::Cluster
            | PeerOutcome::Server
            | PeerOutcome::Definition
            | PeerOutcome::Old
            | PeerOutcome::Ahead
            | PeerOutcome::Malformed
            | PeerOutcome::Broken
            | PeerOutcome::Unconfirmed => Heard::Failed,
        }
    }
}

/// At most `ERROR_MAX` bytes of the text, cut between characters.
fn cut(mut text: String) -> String {
    if text.len() > ERROR_MAX {
        let end = (0..=ERROR_MAX - CUT.len()).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        text.truncate(end);
        text.push_str(CUT);
        text.shrink_to_fit();
    }
    text
}

impl From<PeerOutcome> for Failed {
    fn from(outcome: PeerOutcome) -> Self {
        Self::new(outcome, String::new())
    }
}

/// The health of one address, which changes with each question.
#[derive(Debug)]
pub(super) struct PeerHealth {
    address: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    asked: Option<SystemTime>,
    used: Option<SystemTime>,
    trouble: Option<PeerTrouble>,
    /// Whether a question has reached another gateway since the address was last found to lead to this one alone.
    has_others: bool,
    /// How many questions in a row, up to the last one, led back to this gateway; and when that one did.
    led_back: u32,
    led_back_at: Option<Instant>,
    /// The last line of the log about this address was a warning.
    is_told: bool,
    /// When the log last had a warning of each kind, by its place in `ALL`.
    warned: [Option<Instant>; PeerTroubleKind::ALL.len()],
}

impl PeerHealth {
    pub(super) fn new(address: String) -> Self {
        Self { address, known: Mutex::default() }
    }

    pub(super) fn now(&self) -> PeerStatus {
        let known = self.lock();
        PeerStatus {
            address: self.address.clone(),
            asked: known.asked,
            used: known.used,
            trouble: known.trouble.clone(),
            is_itself: known.is_itself(),
        }
    }

    /// Whether to ask there now: not if it would most likely be this gateway itself once more.
    pub(super) fn is_due(&self) -> bool {
        let known = self.lock();
        !known.is_alone() || known.led_back_at.is_none_or(|at| at.elapsed() >= ALONE_ASK_EVERY)
    }

    /// Records what came of a question about `resource`.
    pub(super) fn note(&self, resource: &str, failed: &Failed) {
        let Failed { outcome, error, trouble, .. } = failed;
        let mut known = self.lock();
        let now = SystemTime::now();
        known.asked = Some(now);
        if *outcome == PeerOutcome::Used {
            known.used = Some(now);
        }
        known.leads(*outcome);
        let Some(kind) = *trouble else {
            let is_itself = *outcome == PeerOutcome::Itself;
            // `Itself` shows nothing of the other gateways, as long as there may be any.
            let shows_nothing = *outcome == PeerOutcome::Unconfirmed || is_itself && !known.is_alone();
            let has_ended = !shows_nothing && known.ends();
            drop(known);
            if has_ended && is_itself {
                tracing::info!(
                    address = self.address,
                    "the peer address reaches only this gateway; there is no peer behind it"
                );
            } else if has_ended {
                tracing::info!(address = self.address, "the peer answers again");
            }
            return;
        };
        let is_to_be_told = known.begins(kind, now, error);
        drop(known);
        if is_to_be_told {
            let (words, advice) = (kind.in_words(), kind.advice());
            tracing::warn!(address = self.address, resource, error, "{words}; {advice}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes where the connection of a question led to.
    fn leads(&mut self, outcome: PeerOutcome) {
        if outcome == PeerOutcome::Itself {
            (self.led_back, self.led_back_at) = (self.led_back.saturating_add(1), Some(Instant::now()));
            self.has_others &= !self.is_alone();
        } else {
            (self.led_back, self.has_others) = (0, true);
        }
    }

    fn is_alone(&self) -> bool {
        self.led_back >= ALONE_AFTER
    }

    fn is_itself(&self) -> bool {
        self.led_back > 0 && !self.has_others && self.trouble.is_none()
    }

    /// Notes that there is a trouble of this kind. Whether to log it.
    fn begins(&mut self, kind: PeerTroubleKind, now: SystemTime, error: &str) -> bool {
        let before = self.trouble.take();
        let same = before.filter(|before| before.kind == kind);
        let is_new = same.is_none();
        let since = same.map_or(now, |same| same.since);
        self.trouble = Some(PeerTrouble { kind, since, error: error.to_owned() });
        let warned = &mut self.warned[kind as usize];
        if !is_new || warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return false;
        }
        (*warned, self.is_told) = (Some(Instant::now()), true);
        true
    }

    /// Notes that there is none. Whether to log that it is over.
    fn ends(&mut self) -> bool {
        self.trouble = None;
        std::mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn every_kind_has_its_place_and_is_found_by_its_name() {
        for (index, kind) in PeerTroubleKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, PeerTroubleKind::of(kind.as_str())), (index, Some(kind)));
        }
        assert_eq!(PeerTroubleKind::of("works"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_cause_is_told_once_and_again_when_it_has_changed() {
        use PeerTroubleKind::{Cluster, Unreachable};
        let mut known = Known::default();
        assert!(known.begins(Unreachable, AT, "a"));
        assert!(!known.begins(Unreachable, AT, "b"));
        assert!(known.begins(Cluster, AT, "c"));
        assert!(!known.begins(Unreachable, AT, "d"), "they alternate");
        tokio::time::advance(WARN_EVERY).await;
        assert!(known.begins(Cluster, AT, "e") && known.begins(Unreachable, AT, "f"));
        assert!(known.ends() && !known.ends());
        assert!(!known.begins(Unreachable, AT, "g"), "it comes and goes");
        assert!(!known.ends(), "that it is over is told if the trouble was");
    }

    #[test]
    fn an_answer_ends_the_trouble_and_a_connection_to_itself_does_not() {
        let health = PeerHealth::new("https://peer".to_owned());
        let trouble = |outcome| {
            health.note("pods", &Failed::from(outcome));
            health.now().trouble.map(|trouble| trouble.kind)
        };
        assert_eq!(trouble(PeerOutcome::Foreign), Some(PeerTroubleKind::Foreign));
        for outcome in [PeerOutcome::Itself, PeerOutcome::Unconfirmed] {
            assert_eq!(trouble(outcome), Some(PeerTroubleKind::Foreign));
        }
        for outcome in [PeerOutcome::NoState, PeerOutcome::Old, PeerOutcome::Server, PeerOutcome::Definition] {
            assert_eq!(trouble(PeerOutcome::Ahead), Some(PeerTroubleKind::Ahead));
            assert_eq!(trouble(outcome), None);
        }
        assert_eq!(health.now().used, None);
        assert_eq!(trouble(PeerOutcome::Used), None);
        assert!(health.now().used.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_leads_to_this_gateway_alone_is_seldom_asked_and_no_trouble() {
        let health = PeerHealth::new("https://peer".to_owned());
        let note = |outcome| {
            health.note("pods", &Failed::from(outcome));
            (health.now().is_itself, health.is_due())
        };
        assert_eq!(note(PeerOutcome::Itself), (true, true), "as far as the questions show");
        assert_eq!(note(PeerOutcome::NoState), (false, true), "another one is there");
        assert_eq!(note(PeerOutcome::Itself), (false, true));
        assert_eq!(note(PeerOutcome::Unreachable), (false, true));
        for _ in 1..ALONE_AFTER {
            assert_eq!(note(PeerOutcome::Itself), (false, true));
            assert!(health.now().trouble.is_some(), "the others may still be there");
        }
        assert_eq!(note(PeerOutcome::Itself), (true, false));
        assert_eq!(health.now().trouble, None);
        tokio::time::advance(ALONE_ASK_EVERY).await;
        assert!(health.is_due());
        assert_eq!(note(PeerOutcome::Itself), (true, false));
        assert_eq!(note(PeerOutcome::NoState), (false, true), "a replica was added");
    }

    #[test]
    fn an_error_is_cut_between_characters() {
        let kept = |error: String| {
            let health = PeerHealth::new("https://peer".to_owned());
            health.note("pods", &Failed::new(PeerOutcome::Unreachable, error));
            health.now().trouble.unwrap().error
        };
        let fits = "x".repeat(ERROR_MAX);
        assert_eq!(kept(fits.clone()), fits);
        assert_eq!(kept(format!("{fits}x")), format!("{}…", &fits[3..]));
        // 509 bytes would end within the 255th character of two bytes.
        assert_eq!(kept("é".repeat(ERROR_MAX)), format!("{}…", "é".repeat(254)));
    }

    #[test]
    fn a_trouble_lasts_since_its_first_time_with_the_last_error() {
        let health = PeerHealth::new("https://peer".to_owned());
        let refused = |error: &str| Failed::new(PeerOutcome::Refused, error.to_owned());
        health.note("pods", &refused("500"));
        let first = health.now().trouble.unwrap();
        health.note("pods", &refused("502"));
        assert_eq!(health.now().trouble, Some(PeerTrouble { error: "502".to_owned(), ..first }));
        let unauthorized = Failed { trouble: Some(PeerTroubleKind::Unauthorized), ..refused("401") };
        health.note("pods", &unauthorized);
        assert_eq!(health.now().trouble.unwrap().kind, PeerTroubleKind::Unauthorized);
    }
}
