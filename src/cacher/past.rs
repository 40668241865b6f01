//! Lets history begin before the fill, for watches that resume from earlier versions and find no place upstream.
//!
//! After a cold start, thousands of clients may resume from versions before the fill. Upstream could tell each of them
//! what it missed. Instead it is asked once: for the changes since the oldest of these versions, and for the state at
//! that version.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::instance::Instance;
use crate::{
    apimachinery::ResourceVersion,
    reflector::{self, Failure, NoPast},
    store::{NotBefore, Reader},
    telemetry::{Chain, limit_reached},
};

/// How long further clients are awaited before upstream is asked: after a restart they come together.
pub(super) const GATHERED_FOR: Duration = Duration::from_millis(500);
/// The maximum duration of one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(30);
/// Attempts from one fill to the next. Each that finds its version too old halves the number of versions in question,
/// so that old ones, which any client may send, do not keep others from being served.
const ATTEMPTS_MAX: usize = 16;
/// Those of the attempts for which upstream lists all objects.
const LISTS_MAX: usize = 4;
/// The time until the next attempt, if upstream could not be asked.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// What is wanted of the past of one store, from one fill to the next.
#[derive(Debug)]
pub(super) struct Past {
    wanted: Mutex<Wanted>,
    state: watch::Sender<State>,
    /// Wakes the task that asks upstream.
    demand: Arc<Notify>,
}

/// The versions from which clients resume.
#[derive(Debug, Default)]
struct Wanted {
    versions: Vec<ResourceVersion>,
    /// How many of them belong to clients that have nothing else meanwhile.
    waiting: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The highest version that is known to be too old: forgotten, or followed by more than can be used or read in
    /// time. So are all lower ones.
    too_old: Option<ResourceVersion>,
    attempts: usize,
    lists: usize,
    end: Option<End>,
}

/// Why upstream is not asked any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Too many attempts, attempts that are in vain, or history that does not begin with the fill any more.
    Exhausted,
    Draining,
}

/// Whether a watch can be resumed from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    Yes,
    No,
    /// The gateway drains.
    Draining,
}

/// The place of a client's version among those that are wanted; given up when dropped.
#[derive(Debug)]
pub struct WantedVersion<'a> {
    past: &'a Past,
    version: ResourceVersion,
    waits: bool,
}

impl Past {
    pub(super) fn new(demand: Arc<Notify>) -> Self {
        Self { wanted: Mutex::default(), state: watch::Sender::default(), demand }
    }

    /// Notes that a client resumes from `version`. If it `waits`, upstream is asked for the past.
    pub(super) fn want(&self, version: ResourceVersion, waits: bool) -> WantedVersion<'_> {
        let mut wanted = self.wanted();
        wanted.versions.push(version);
        wanted.waiting += usize::from(waits);
        drop(wanted);
        if waits {
            self.demand.notify_one();
        }
        WantedVersion { past: self, version, waits }
    }

    /// Ends all waits, because the gateway drains.
    pub(super) fn drain(&self) {
        self.state.send_modify(|state| state.end = Some(End::Draining));
    }

    /// Ends all waits: history will not begin earlier, or the instance has been replaced.
    pub(super) fn end(&self) {
        self.state.send_modify(|state| state.end = state.end.or(Some(End::Exhausted)));
    }

    /// The version from which upstream is asked next; `None` if no client waits for one that it may still know.
    fn next(&self, reader: &Reader) -> Option<ResourceVersion> {
        let state = *self.state.borrow();
        let beginning = reader.begins_after();
        let Some(beginning) = beginning.filter(|_| state.attempts < ATTEMPTS_MAX && state.lists < LISTS_MAX) else {
            if state.end.is_none() && self.wanted().waiting > 0 {
                if beginning.is_some() {
                    limit_reached("history_extensions");
                }
                self.end();
            }
            return None;
        };
        let wanted = self.wanted();
        let is_open = |version: &ResourceVersion| *version < beginning && !state.is_too_old(*version);
        let mut versions: Vec<_> = wanted.versions.iter().copied().filter(is_open).collect();
        let is_wanted = wanted.waiting > 0 && state.end.is_none();
        drop(wanted);
        versions.sort_unstable();
        versions.dedup();
        // The oldest one serves all; once that is too old, halves are tried.
        let at = if state.too_old.is_none() { 0 } else { versions.len() / 2 };
        versions.get(at).copied().filter(|_| is_wanted)
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether history begins after `version`, and may be made to begin earlier: it has not been trimmed.
pub(super) fn is_before_history(version: ResourceVersion, reader: &Reader) -> bool {
    reader.begins_after().is_some_and(|beginning| version < beginning)
}

impl State {
    fn is_too_old(&self, version: ResourceVersion) -> bool {
        self.too_old.is_some_and(|too_old| version <= too_old)
    }
}

impl WantedVersion<'_> {
    /// Resolves when history reaches back to the version, or is known never to. For a client that upstream answers
    /// meanwhile also when no client waits any more: then upstream is not asked. The caller of one that waits must set
    /// a timeout.
    pub(super) async fn resumed(&self, reader: &Reader) -> Resumed {
        let Self { past, version, waits } = *self;
        let mut state = past.state.subscribe();
        let decided = |state: &State| match state.end {
            _ if reader.after(version).is_ok() => Some(Resumed::Yes),
            Some(End::Draining) => Some(Resumed::Draining),
            Some(End::Exhausted) => Some(Resumed::No),
            None if state.is_too_old(version) || !is_before_history(version, reader) => Some(Resumed::No),
            None if !waits && past.wanted().waiting == 0 => Some(Resumed::No),
            None => None,
        };
        // The sender lives as long as `past` does, so waiting cannot fail.
        let state = state.wait_for(|state| decided(state).is_some()).await;
        state.ok().and_then(|state| decided(&state)).unwrap_or(Resumed::No)
    }
}

impl Drop for WantedVersion<'_> {
    fn drop(&mut self) {
        let mut wanted = self.past.wanted();
        wanted.waiting -= usize::from(self.waits);
        if let Some(at) = wanted.versions.iter().position(|version| *version == self.version) {
            wanted.versions.swap_remove(at);
        }
        let was_last = self.waits && wanted.waiting == 0;
        drop(wanted);
        if was_last {
            // Those that do not wait themselves look again.
            self.past.state.send_modify(|_| {});
        }
    }
}

impl Instance {
    /// Lets history begin earlier, as long as clients wait for that.
    pub(super) async fn extend_history(&self) {
        while let Some(from) = self.past.next(&self.reader) {
            let until = self.reader.begins_after();
            self.past.state.send_modify(|state| state.attempts += 1);
            // Boxed: it is rare, and the task of every store would carry its size.
            let extended = timeout(ATTEMPT_MAX, Box::pin(self.extend_to(from))).await.unwrap_or(Err(NoPast::TooSlow));
            let outcome = match &extended {
                Ok(()) => "made",
                Err(NoPast::Upstream(Failure::Expired)) => "forgotten",
                Err(NoPast::Unusable(NotBefore::TooLarge)) => "too_large",
                Err(NoPast::Unusable(_)) => "contradiction",
                Err(NoPast::Unconfirmed) => "unconfirmed",
                Err(NoPast::Upstream(_) | NoPast::TooSlow) => "failed",
            };
            self.metrics.history_extended(outcome);
            match &extended {
                Ok(()) => tracing::info!(resource = %self.resource, version = %from, before = ?until,
                    "history begins earlier, for watches that resume from before the fill"),
                Err(error) => tracing::info!(resource = %self.resource, version = %from, error = %Chain(error),
                    "history cannot begin earlier; watches that resume from there are forwarded"),
            }
            match extended {
                // Wakes those that wait.
                Ok(()) => self.past.state.send_modify(|_| {}),
                Err(NoPast::Upstream(Failure::Expired) | NoPast::Unusable(_) | NoPast::TooSlow) => {
                    self.past.state.send_modify(|state| state.too_old = state.too_old.max(Some(from)));
                }
                Err(NoPast::Unconfirmed) => self.past.end(),
                Err(NoPast::Upstream(_)) => sleep(ASKED_AGAIN).await,
            }
        }
    }

    async fn extend_to(&self, from: ResourceVersion) -> Result<(), NoPast> {
        let past = self.reader.past(from).ok_or(NotBefore::Trimmed)?;
        let past = reflector::past_events(&self.upstream, self.schema(), past).await?;
        self.past.state.send_modify(|state| state.lists += 1);
        let past = reflector::past_state(&self.upstream, self.schema(), past).await?;
        // What upstream said may be of another storage than the one of the fill.
        if self.was_rolled_back() {
            return Err(Failure::Unavailable.into());
        }
        Ok(self.reader.prepend(past)?)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::store::{HistoryLimits, Objects, Schema, Shape, store};

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    /// Of a store that was filled at version 50.
    fn scene() -> (Past, Reader) {
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
        let (_, reader) = store(schema, &Objects::default(), version(50), limits);
        (Past::new(Arc::default()), reader)
    }

    fn forgotten(past: &Past, up_to: u64) {
        past.state.send_modify(|state| {
            state.attempts += 1;
            state.too_old = Some(version(up_to));
        });
    }

    #[test]
    fn upstream_is_asked_only_while_a_client_waits_and_then_for_all() {
        let (past, reader) = scene();
        let others: Vec<_> = [10, 20, 60].map(|other| past.want(version(other), false)).into();
        assert_eq!(past.next(&reader), None);
        let waits = past.want(version(30), true);
        assert_eq!(past.next(&reader), Some(version(10)));
        drop(others);
        assert_eq!(past.next(&reader), Some(version(30)));
        drop(waits);
        assert_eq!(past.next(&reader), None);
        assert!(past.wanted().versions.is_empty());
    }

    #[test]
    fn forgotten_versions_are_left_out_half_by_half() {
        let (past, reader) = scene();
        let _waiting: Vec<_> = (1..=40).map(|wanted| past.want(version(wanted), true)).collect();
        let mut asked = Vec::new();
        while let Some(next) = past.next(&reader) {
            asked.push(next.value());
            forgotten(&past, next.value());
        }
        assert_eq!(asked, [1, 21, 31, 36, 39, 40]);
    }

    #[test]
    fn attempts_are_limited() {
        let (past, reader) = scene();
        let waiting: Vec<_> = (1..=49).map(|wanted| past.want(version(wanted), true)).collect();
        let mut state = State { attempts: ATTEMPTS_MAX - 1, lists: LISTS_MAX - 1, ..State::default() };
        past.state.send_replace(state);
        assert_eq!(past.next(&reader), Some(version(1)));
        state.attempts += 1;
        past.state.send_replace(state);
        assert_eq!(past.next(&reader), None);
        assert_eq!(waiting[0].resumed(&reader).now_or_never(), Some(Resumed::No));
        past.state.send_replace(State { attempts: 0, lists: LISTS_MAX, ..state });
        assert_eq!(past.next(&reader), None);
    }

    #[test]
    fn waits_end_when_it_is_known_that_they_are_in_vain_and_when_the_gateway_drains() {
        let (past, reader) = scene();
        let [old, newer, covered] = [20, 30, 50].map(|wanted| past.want(version(wanted), true));
        let mut waits = Box::pin(newer.resumed(&reader));
        assert_eq!((&mut waits).now_or_never(), None);
        forgotten(&past, 20);
        assert_eq!((&mut waits).now_or_never(), None);
        assert_eq!(old.resumed(&reader).now_or_never(), Some(Resumed::No));
        assert_eq!(covered.resumed(&reader).now_or_never(), Some(Resumed::Yes));
        past.drain();
        assert_eq!(waits.now_or_never(), Some(Resumed::Draining));
    }

    #[test]
    fn clients_that_upstream_answers_do_not_wait_for_what_no_other_waits_for() {
        let (past, reader) = scene();
        let (waiting, answered) = (past.want(version(20), true), past.want(version(30), false));
        let mut resumed = Box::pin(answered.resumed(&reader));
        assert_eq!((&mut resumed).now_or_never(), None);
        // The attempt from 20 fails, and its client gives up.
        forgotten(&past, 20);
        assert_eq!((&mut resumed).now_or_never(), None);
        drop(waiting);
        assert_eq!(resumed.now_or_never(), Some(Resumed::No));
    }
}
