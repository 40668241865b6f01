//! Decides from the answers of several API servers which of them are of the cluster. Pure.
//!
//! A server is of the cluster if it is the cluster of the first one that answered ([`ClusterName`]). That the
//! versions of its storage go back is noticed as for a single address: by the stores.

use std::time::Duration;

use tokio::time::Instant;

use super::answer::{CheckResult, ServerReport};
use crate::{connector::Finding, upstream::introduction::ClusterName};

/// How many rounds in a row a server may leave unanswered; then its connections are broken.
const SILENT_MAX: u32 = 3;
/// A server that has answered nothing at all for this long is gone: as long as a single one (`SendError::is_gone`).
const MUTE_MAX: Duration = Duration::from_secs(12);
/// A server that is not of the cluster is asked again after one round, then two, and so on, doubled up to this number.
const REST_MAX: u32 = 64;
/// How long a member that is too busy to say who it is keeps the state that it had; then it is set aside.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// If none of the servers is of the known cluster, and some cannot be asked, the others are believed to be a new one
/// after this time.
const ADOPT_AFTER: Duration = Duration::from_secs(60);

/// What is known of the cluster and its servers.
#[derive(Debug)]
pub(super) struct Membership {
    /// `None` before the first answer.
    cluster: Option<ClusterName>,
    /// When a server of the cluster last answered.
    seen: Instant,
    /// Whether a server of the fallback has told it, and no other one yet.
    is_of_fallback: bool,
    /// The number of servers, the first ones, that may be believed to be of a new cluster: not those of the fallback,
    /// which are asked only in an outage.
    believed: usize,
    servers: Vec<Server>,
}

#[derive(Clone, Debug, Default)]
struct Server {
    /// Whether it is of the cluster; `None` if that is not known.
    is_member: Option<bool>,
    /// Consecutive rounds without an answer.
    silent: u32,
    /// Since when it has answered nothing at all.
    mute_since: Option<Instant>,
    /// Since when all its answers say that it is too busy.
    busy_since: Option<Instant>,
    /// For how many more rounds it is not asked.
    rest: u32,
    /// For how many rounds it was not asked the last time.
    rested: u32,
}

/// The outcome of one round.
#[derive(Debug)]
pub(super) struct Judgement {
    /// `None` for servers of which nothing new is known.
    pub(super) findings: Vec<Option<Finding>>,
    /// None of the servers was of the cluster that was known before: they are believed to be of a new one.
    pub(super) is_another: bool,
    /// A member was found to be of another cluster: what came from it since the round before may be of that one.
    pub(super) has_strayed: bool,
}

impl Membership {
    pub(super) fn new(servers: usize, believed: usize, now: Instant) -> Self {
        Self { cluster: None, seen: now, is_of_fallback: false, believed, servers: vec![Server::default(); servers] }
    }

    /// Which servers are to be asked in the next round, of those that `is_checked`. What was known of the others is
    /// forgotten: it may be long ago when they are asked again.
    pub(super) fn due(&mut self, is_checked: impl Fn(usize) -> bool) -> Vec<bool> {
        let due = |(index, server): (usize, &mut Server)| {
            if !is_checked(index) {
                *server = Server::default();
                return false;
            }
            let is_due = server.rest == 0;
            server.rest = server.rest.saturating_sub(1);
            is_due
        };
        self.servers.iter_mut().enumerate().map(due).collect()
    }

    /// Judges the answers of a round; `None` for servers that were not asked.
    pub(super) fn round(&mut self, answers: &[Option<CheckResult>], now: Instant) -> Judgement {
        let is_another = self.recognize(answers, now);
        let cluster = self.cluster.clone();
        let mut has_strayed = false;
        let judged = self.servers.iter_mut().zip(answers).map(|(server, answer)| {
            let was_member = server.is_member == Some(true);
            let finding = server.judge(answer.as_ref()?, cluster.as_ref(), now);
            has_strayed |= was_member && server.is_member == Some(false);
            finding
        });
        Judgement { findings: judged.collect(), is_another, has_strayed }
    }

    /// The cluster; `None` before the first answer.
    pub(super) fn cluster(&self) -> Option<&ClusterName> {
        self.cluster.as_ref()
    }

    /// Learns which cluster it is: that of the first server, in the order of the configuration, that answers. Whether
    /// another one was known before.
    fn recognize(&mut self, answers: &[Option<CheckResult>], now: Instant) -> bool {
        let reports = || answers.iter().map(|answer| answer.as_ref().and_then(CheckResult::report));
        if self.is_of_fallback && reports().take(self.believed).any(|report| report.is_some()) {
            // Only now it is known what upstream is.
            self.is_of_fallback = false;
            let told = reports().take(self.believed).flatten().map(|report| &report.cluster);
            if !self.cluster.iter().any(|cluster| told.clone().any(|told| told == cluster)) {
                self.servers.iter_mut().for_each(|server| server.is_member = None);
                self.cluster = told.clone().next().cloned();
                return true;
            }
        }
        if let Some(cluster) = &self.cluster
            && reports().flatten().any(|report| report.cluster == *cluster)
        {
            self.seen = now;
            return false;
        }
        let believed = if self.cluster.is_some() { self.believed } else { answers.len() };
        let Some(first) = reports().take(believed).flatten().next() else { return false };
        if self.cluster.is_some() {
            let mut others =
                self.servers.iter().zip(reports()).take(believed).filter(|(server, _)| server.is_member != Some(false));
            if !others.all(|(_, report)| report.is_some()) && now.duration_since(self.seen) < ADOPT_AFTER {
                return false;
            }
        }
        self.servers.iter_mut().for_each(|server| server.is_member = None);
        self.seen = now;
        self.is_of_fallback = !reports().take(self.believed).any(|report| report.is_some());
        self.cluster.replace(first.cluster.clone()).is_some()
    }
}

impl Server {
    /// What an answer shows; `None` if it is nothing new.
    fn judge(&mut self, answer: &CheckResult, cluster: Option<&ClusterName>, now: Instant) -> Option<Finding> {
        let busy_for = self.busy_for(answer, now);
        let is_mute = matches!(answer, CheckResult::Mute(_));
        self.silent = if is_mute || matches!(answer, CheckResult::Silent(_)) { self.silent + 1 } else { 0 };
        self.mute_since = is_mute.then(|| self.mute_since.unwrap_or(now));
        let unwell = |error: &str| Some(Finding::Unwell { reason: answer.reason(), error: error.to_owned() });
        match (self.is_member, answer) {
            (_, CheckResult::Report(report)) => Some(self.judge_report(report, cluster)),
            (Some(false), CheckResult::Unreachable(_) | CheckResult::Gone(_)) => self.unknown(answer, now),
            (Some(false), _) => {
                self.rest = self.rested;
                None
            }
            (Some(true), CheckResult::Busy { unready: Some(error), .. }) => Some(not_ready(error)),
            // Busy is not broken: others would only become busier without it. But it may be so for other reasons.
            (Some(true), CheckResult::Busy { .. }) if busy_for < BUSY_MAX => None,
            (Some(true), CheckResult::Busy { error, .. } | CheckResult::Untold(error)) => unwell(error),
            (Some(true), CheckResult::Denied(_, error)) => unwell(error),
            (Some(true), CheckResult::Silent(error) | CheckResult::Mute(error)) if self.silent < SILENT_MAX => {
                unwell(error)
            }
            // It may be another one when it answers again.
            (_, _) => self.unknown(answer, now),
        }
    }

    fn judge_report(&mut self, report: &ServerReport, cluster: Option<&ClusterName>) -> Finding {
        let ServerReport { cluster: told, version, unready, .. } = report;
        if let Some(cluster) = cluster.filter(|cluster| *cluster != told) {
            self.is_member = Some(false);
            self.rested = (self.rested * 2).clamp(1, REST_MAX);
            self.rest = self.rested;
            let error = format!(
                "it is of another cluster: its namespace kube-system has the uid {told}, that of the others {cluster}"
            );
            return Finding::Foreign { error };
        }
        (self.is_member, self.rest, self.rested) = (Some(true), 0, 0);
        match unready {
            None => Finding::Ready { version: version.clone() },
            Some(error) => not_ready(error),
        }
    }

    /// Forgets a server that cannot be asked.
    fn unknown(&mut self, answer: &CheckResult, now: Instant) -> Option<Finding> {
        *self = Self { silent: self.silent, mute_since: self.mute_since, ..Self::default() };
        let is_gone = self.mute_since.is_some_and(|since| now.duration_since(since) >= MUTE_MAX);
        let reason = answer.reason();
        Some(match answer {
            CheckResult::Report(_) => return None,
            CheckResult::Denied(denial, error) => Finding::Denied { denial: *denial, error: error.clone() },
            CheckResult::Gone(error) => Finding::Gone { reason, error: error.clone() },
            CheckResult::Mute(error) if is_gone => Finding::Gone { reason, error: error.clone() },
            CheckResult::Busy { error, .. }
            | CheckResult::Silent(error)
            | CheckResult::Mute(error)
            | CheckResult::Untold(error)
            | CheckResult::Unreachable(error) => Finding::Unknown { reason, error: error.clone() },
        })
    }

    /// How long its answers have said that it is too busy, this one included.
    fn busy_for(&mut self, answer: &CheckResult, now: Instant) -> Duration {
        let is_busy = matches!(answer, CheckResult::Busy { .. });
        self.busy_since = is_busy.then(|| self.busy_since.unwrap_or(now));
        self.busy_since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }
}

fn not_ready(error: &str) -> Finding {
    Finding::Unwell { reason: "not_ready", error: error.to_owned() }
}
