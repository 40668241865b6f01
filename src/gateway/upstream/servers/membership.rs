//! Decides from the answers of several API servers which of them are of one cluster. Pure.
//!
//! Servers are of one cluster if they have the same `kube-system` namespace, by its uid, and the same storage. The
//! latter is judged by versions of most-recent reads, which an API server answers from the storage's newest state: of
//! two such reads, one of which began after the other had been answered, the later one must not show an older version,
//! whichever servers answered them. All reads of a round end before the next round begins.
//!
//! A version that only one member has shown counts against that member, not against the others ([`super::contest`]).
//! Once all members have shown it or a higher one, it counts against every server.

use std::{mem, time::Duration};

use tokio::time::Instant;

use super::{
    answer::{CheckResult, Said},
    contest::{Shown, odd},
};
use crate::connector::Finding;
use base::apimachinery::ResourceVersion;

/// How many rounds in a row a server may leave unanswered; then its connections are broken.
const SILENT_MAX: u32 = 3;
/// A server that is not of the cluster is asked again after one round, then two, and so on, doubled up to this number.
const REST_MAX: u32 = 64;
/// How long a member that is too busy to say who it is keeps the state that it had; then it is set aside.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// If none of the servers is of the known cluster, and some cannot be asked, the others are believed to be a new or
/// restored one after this time.
const ADOPT_AFTER: Duration = Duration::from_secs(60);

/// What is known of the cluster and its servers.
#[derive(Debug)]
pub(super) struct Membership {
    cluster: Option<Cluster>,
    /// When a server of the cluster last answered.
    seen: Instant,
    /// The server that the others are compared with.
    reference: Option<usize>,
    servers: Vec<Known>,
    /// Whether a server is to be compared with the others in the next round.
    is_open: bool,
}

#[derive(Clone, Debug)]
struct Cluster {
    /// Of the namespace `kube-system`.
    uid: String,
    /// A version that all members have reached.
    head: ResourceVersion,
}

#[derive(Clone, Debug, Default)]
struct Known {
    standing: Standing,
    /// The version that it showed in the round before, or in an earlier one.
    head: Option<ResourceVersion>,
    /// Consecutive rounds without an answer.
    silent: u32,
    /// Since when all its answers say that it is too busy.
    busy_since: Option<Instant>,
    /// For how many more rounds it is not asked.
    rest: u32,
    /// For how many rounds it was not asked the last time.
    rested: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Unknown,
    Member,
    Foreign,
}

/// The outcome of one round.
#[derive(Debug)]
pub(super) struct Judgement {
    /// `None` for servers of which nothing new is known.
    pub(super) findings: Vec<Option<Finding>>,
    /// A server is to be compared with the others: the next round should follow at once.
    pub(super) is_open: bool,
    /// None of the servers was of the cluster that was known before: they are believed to be of a new one.
    pub(super) is_another: bool,
    /// A member was found to be on another storage: what came from it since the round before may be of that one.
    pub(super) has_strayed: bool,
}

impl Membership {
    pub(super) fn new(servers: usize, now: Instant) -> Self {
        Self { cluster: None, seen: now, reference: None, servers: vec![Known::default(); servers], is_open: false }
    }

    /// Which servers are to be asked in the next round.
    pub(super) fn due(&mut self) -> Vec<bool> {
        let due = |known: &mut Known| {
            let is_due = known.rest == 0;
            known.rest = known.rest.saturating_sub(1);
            is_due
        };
        self.servers.iter_mut().map(due).collect()
    }

    /// Judges the answers of a round; `None` for servers that were not asked.
    pub(super) fn round(&mut self, answers: &[Option<CheckResult>], now: Instant) -> Judgement {
        let said: Vec<Option<&Said>> =
            answers.iter().map(|answer| answer.as_ref().and_then(CheckResult::said)).collect();
        let is_another = self.recognize(&said, now);
        let strayed = self.strayed(&said);
        self.reference = self.reference(&said, &strayed);
        self.is_open = false;
        let has_strayed = strayed.iter().any(Option::is_some);
        // First, since the others are not compared with these.
        let strayed = strayed.into_iter().enumerate();
        let mut findings: Vec<_> = strayed.map(|(index, error)| Some(self.foreign(index, error?))).collect();
        for (index, (answer, finding)) in answers.iter().zip(&mut findings).enumerate() {
            if let (Some(answer), None) = (answer, &finding) {
                *finding = self.finding(index, answer, &said, is_another, now);
            }
        }
        self.learn(&said);
        Judgement { findings, is_open: self.is_open, is_another, has_strayed }
    }

    /// The members that are on another storage than before, or than the other members, and how that was seen.
    fn strayed(&self, said: &[Option<&Said>]) -> Vec<Option<String>> {
        let mut errors = vec![None; said.len()];
        let Some(cluster) = &self.cluster else { return errors };
        let mut members = Vec::new();
        for (server, (known, said)) in self.servers.iter().zip(said).enumerate() {
            let (Standing::Member, Some(said)) = (known.standing, said) else { continue };
            errors[server] = cluster.contradiction(said).or_else(|| known.went_back(said));
            if let (None, Some(before)) = (&errors[server], known.head) {
                members.push(Shown { server, before, now: said.head });
            }
        }
        let odd = odd(&mut members, self.reference);
        for Shown { server, before, now } in odd {
            let reached = members.iter().map(|other| other.before).max().filter(|reached| *reached > now);
            errors[server] = Some(reached.map_or_else(|| ahead(before), |reached| behind(now, reached)));
        }
        errors
    }

    /// Learns which cluster it is: that of the first server, in the order of the configuration, that answers. Whether
    /// another one was known before.
    fn recognize(&mut self, said: &[Option<&Said>], now: Instant) -> bool {
        let Some(first) = said.iter().copied().flatten().next() else { return false };
        if let Some(cluster) = &self.cluster {
            let is_of_it = |(known, said): (&Known, &Option<&Said>)| {
                said.is_some_and(|said| {
                    cluster.has(said) && (known.standing == Standing::Foreign || known.went_back(said).is_none())
                })
            };
            if self.servers.iter().zip(said).any(is_of_it) {
                self.seen = now;
                return false;
            }
            let mut others = self.servers.iter().zip(said).filter(|(known, _)| known.standing != Standing::Foreign);
            let all_answered = others.all(|(_, said)| said.is_some());
            if !all_answered && now.duration_since(self.seen) < ADOPT_AFTER {
                return false;
            }
        }
        let is_another = self.cluster.is_some();
        // The answers of a round are not compared with each other.
        let heads = said.iter().flatten().filter(|said| said.uid == first.uid).map(|said| said.head);
        let head = heads.min().unwrap_or(first.head);
        self.cluster = Some(Cluster { uid: first.uid.clone(), head });
        (self.seen, self.reference) = (now, None);
        self.servers.iter_mut().for_each(|known| (known.standing, known.head) = (Standing::Unknown, None));
        is_another
    }

    /// The server to compare the others with: the one before, or else the first member. Before there is one, the first
    /// server of the cluster that answers.
    fn reference(&self, said: &[Option<&Said>], strayed: &[Option<String>]) -> Option<usize> {
        let cluster = self.cluster.as_ref()?;
        let with = |standing: Standing| {
            move |index: &usize| {
                self.servers[*index].standing == standing
                    && strayed[*index].is_none()
                    && said[*index].is_some_and(|said| cluster.has(said))
            }
        };
        let before = self.reference.filter(with(Standing::Member));
        let member = || (0..said.len()).find(with(Standing::Member));
        let has_members = self.servers.iter().any(Known::is_member);
        before
            .or_else(member)
            .or_else(|| if has_members { None } else { (0..said.len()).find(with(Standing::Unknown)) })
    }

    /// What an answer shows of a server; `None` if it is nothing new.
    fn finding(
        &mut self,
        index: usize,
        answer: &CheckResult,
        said: &[Option<&Said>],
        is_another: bool,
        now: Instant,
    ) -> Option<Finding> {
        let known = &mut self.servers[index];
        let busy_for = known.busy_for(answer, now);
        known.silent = if let CheckResult::Silent(_) = answer { known.silent + 1 } else { 0 };
        let is_member = known.standing == Standing::Member;
        match answer {
            // It may have been in use for the cluster before.
            CheckResult::Said(answer) => self.judge_said(index, answer, said).or_else(|| is_another.then(uncompared)),
            CheckResult::Busy { .. } | CheckResult::Untold(_) | CheckResult::Denied(..) | CheckResult::Silent(_)
                if known.standing == Standing::Foreign =>
            {
                known.rest = known.rested;
                None
            }
            CheckResult::Busy { unready: Some(error), .. } if is_member => {
                Some(Finding::Unwell { reason: "not_ready", error: error.clone() })
            }
            // Busy is not broken: others would only become busier without it. But it may be so for other reasons.
            CheckResult::Busy { .. } if is_member && busy_for < BUSY_MAX => None,
            CheckResult::Busy { error, .. } | CheckResult::Untold(error) | CheckResult::Denied(_, error)
                if is_member =>
            {
                Some(Finding::Unwell { reason: answer.reason(), error: error.clone() })
            }
            CheckResult::Silent(error) if is_member && known.silent < SILENT_MAX => {
                Some(Finding::Unwell { reason: "silent", error: error.clone() })
            }
            // It may be another one when it answers again.
            CheckResult::Denied(denial, error) => {
                self.forget(index);
                Some(Finding::Denied { denial: *denial, error: error.clone() })
            }
            CheckResult::Busy { error, .. }
            | CheckResult::Silent(error)
            | CheckResult::Untold(error)
            | CheckResult::Unreachable(error) => {
                self.forget(index);
                Some(Finding::Unknown { reason: answer.reason(), error: error.clone() })
            }
        }
    }

    /// Forgets a server that cannot be asked. What the last member has shown still counts.
    fn forget(&mut self, index: usize) {
        let silent = self.servers[index].silent;
        let Known { standing, head, .. } = mem::replace(&mut self.servers[index], Known { silent, ..Known::default() });
        if standing == Standing::Member && !self.servers.iter().any(Known::is_member) {
            self.raise(head);
        }
    }

    fn judge_said(&mut self, index: usize, now: &Said, all: &[Option<&Said>]) -> Option<Finding> {
        if let Some(error) = self.cluster.as_ref()?.contradiction(now) {
            return Some(self.foreign(index, error));
        }
        // It was asked in this round, and so after everything that was said in earlier ones.
        let reference = self.reference.and_then(|reference| all[reference]);
        let others = self.servers.iter().zip(all).filter(|(known, said)| known.is_member() && said.is_some());
        let reached = others.filter_map(|(known, _)| known.head).max().filter(|reached| *reached > now.head);
        if let (Standing::Unknown | Standing::Foreign, Some(reached)) = (self.servers[index].standing, reached) {
            return Some(self.foreign(index, behind(now.head, reached)));
        }
        let known = &mut self.servers[index];
        match (known.standing, known.head, reference) {
            _ if self.reference == Some(index) => Some(self.member(index, now)),
            (Standing::Unknown, Some(head), Some(reference)) if reference.head < head => {
                Some(self.foreign(index, ahead(head)))
            }
            (Standing::Unknown, None, Some(_)) | (Standing::Foreign, _, Some(_)) => {
                (known.standing, known.rest, self.is_open) = (Standing::Unknown, 0, true);
                None
            }
            (Standing::Foreign, _, None) => {
                known.rest = known.rested;
                None
            }
            // Compared, or none of the others can be asked.
            (Standing::Member | Standing::Unknown, ..) => Some(self.member(index, now)),
        }
    }

    fn member(&mut self, index: usize, said: &Said) -> Finding {
        let known = &mut self.servers[index];
        (known.standing, known.rest, known.rested) = (Standing::Member, 0, 0);
        match &said.unready {
            None => Finding::Ready { version: said.version.clone() },
            Some(error) => Finding::Unwell { reason: "not_ready", error: error.clone() },
        }
    }

    fn foreign(&mut self, index: usize, error: String) -> Finding {
        let known = &mut self.servers[index];
        known.standing = Standing::Foreign;
        known.rested = (known.rested * 2).clamp(1, REST_MAX);
        known.rest = known.rested;
        if self.reference == Some(index) {
            self.reference = None;
        }
        Finding::Foreign { error }
    }

    /// Keeps what the servers have said for the next round.
    fn learn(&mut self, said: &[Option<&Said>]) {
        let members = || self.servers.iter().zip(said).filter(|(known, _)| known.is_member());
        // A member that does not answer now may still contradict the others.
        if members().all(|(_, said)| said.is_some()) {
            let reached = members().filter_map(|(known, _)| known.head).max();
            self.raise(reached);
        }
        for (known, said) in self.servers.iter_mut().zip(said) {
            known.head = said.map(|said| said.head).or(known.head);
        }
    }

    fn raise(&mut self, reached: Option<ResourceVersion>) {
        if let (Some(cluster), Some(reached)) = (&mut self.cluster, reached) {
            cluster.head = cluster.head.max(reached);
        }
    }
}

impl Known {
    fn is_member(&self) -> bool {
        self.standing == Standing::Member
    }

    /// How long its answers have said that it is too busy, this one included.
    fn busy_for(&mut self, answer: &CheckResult, now: Instant) -> Duration {
        let is_busy = matches!(answer, CheckResult::Busy { .. });
        self.busy_since = is_busy.then(|| self.busy_since.unwrap_or(now));
        self.busy_since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Why its storage is another one than before.
    fn went_back(&self, said: &Said) -> Option<String> {
        self.head.filter(|before| said.head < *before).map(|before| {
            let now = said.head;
            format!("its storage is at version {now}, and was at {before} before: it is another one, or was restored")
        })
    }
}

fn ahead(head: ResourceVersion) -> String {
    format!("its storage was at version {head}, which that of the others had not reached: it is another one")
}

fn behind(head: ResourceVersion, reached: ResourceVersion) -> String {
    format!(
        "its storage is at version {head}, behind {reached}, which the others had reached: it is another one, or was \
         restored"
    )
}

fn uncompared() -> Finding {
    let error = "the cluster was replaced or restored, and it is to be compared with the others".to_owned();
    Finding::Unknown { reason: "unchecked", error }
}

impl Cluster {
    fn has(&self, said: &Said) -> bool {
        self.contradiction(said).is_none()
    }

    /// Why a server that says this is not of the cluster.
    fn contradiction(&self, said: &Said) -> Option<String> {
        let Said { uid, head, .. } = said;
        if *uid != self.uid {
            return Some(format!(
                "it is of another cluster: its namespace kube-system has the uid {uid}, that of the others {}",
                self.uid
            ));
        }
        (*head < self.head).then(|| behind(*head, self.head))
    }
}
