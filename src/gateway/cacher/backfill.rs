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
use base::{
    apimachinery::ResourceVersion,
    fairness::ClientKey,
    telemetry::{Chain, limit_reached},
};
use engine::{
    reflector::{self, Failure, NoBackfill},
    store::{NotBefore, Reader},
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
/// The part of both that is made for the versions of one client, so that none alone uses them up.
const CLIENT_PART: usize = 2;
/// The time until the next attempt, if upstream could not be asked.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// What is wanted of the time before the fill of one store, from one fill to the next.
#[derive(Debug)]
pub(super) struct BackfillDemand {
    /// The versions from which clients wait to resume.
    wanted: Mutex<Vec<Want>>,
    state: watch::Sender<State>,
    /// Wakes the task that asks upstream.
    demand: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    version: ResourceVersion,
    /// `None` if clients are not told apart.
    client: Option<ClientKey>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The highest version that is known to be too old: forgotten, or followed by more than can be used or read in
    /// time. So are all lower ones.
    too_old: Option<ResourceVersion>,
    /// Those that are over.
    attempts: Vec<Attempt>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// One of those that wanted its version; `None` if clients are not told apart.
    client: Option<ClientKey>,
    /// Whether upstream was asked to list all objects.
    lists: bool,
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
pub(super) struct WantedVersion<'a> {
    backfill: &'a BackfillDemand,
    want: Want,
}

impl BackfillDemand {
    pub(super) fn new(demand: Arc<Notify>) -> Self {
        Self { wanted: Mutex::default(), state: watch::Sender::default(), demand }
    }

    /// Notes that a client waits to resume from `version`: upstream is asked what happened before the fill.
    pub(super) fn want(&self, version: ResourceVersion, client: Option<ClientKey>) -> WantedVersion<'_> {
        let want = Want { version, client };
        self.wanted().push(want);
        self.demand.notify_one();
        WantedVersion { backfill: self, want }
    }

    /// Ends all waits, because the gateway drains.
    pub(super) fn drain(&self) {
        self.state.send_modify(|state| state.end = Some(End::Draining));
    }

    /// Ends all waits: history will not begin earlier, or the instance has been replaced.
    pub(super) fn end(&self) {
        self.state.send_modify(|state| state.end = state.end.or(Some(End::Exhausted)));
    }

    /// The version from which upstream is asked next, and a client that wants it; `None` if no client waits for one
    /// that upstream may still know, or those that want one have used their part.
    fn next(&self, reader: &Reader) -> Option<(ResourceVersion, Option<ClientKey>)> {
        let state = self.state.borrow().clone();
        let beginning = reader.begins_after();
        let Some(beginning) = beginning.filter(|_| state.has_attempts(|_| true, 1)) else {
            if state.end.is_none() && !self.wanted().is_empty() {
                if beginning.is_some() {
                    limit_reached("history_extensions");
                }
                self.end();
            }
            return None;
        };
        if state.end.is_some() {
            return None;
        }
        let is_open = |want: &Want| {
            want.version < beginning && !state.is_too_old(want.version) && state.has_attempts_for(want.client)
        };
        let mut wants: Vec<_> = self.wanted().iter().copied().filter(is_open).collect();
        wants.sort_unstable_by_key(|want| want.version);
        wants.dedup_by_key(|want| want.version);
        // The oldest one serves all; once that is too old, halves are tried.
        let at = if state.too_old.is_none() { 0 } else { wants.len() / 2 };
        wants.get(at).map(|want| (want.version, want.client))
    }

    /// Counts an attempt, which may have found a version to be too old.
    fn over(&self, attempt: Attempt, too_old: Option<ResourceVersion>) {
        self.state.send_modify(|state| {
            state.attempts.push(attempt);
            state.too_old = state.too_old.max(too_old);
        });
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Want>> {
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

    /// Whether attempts are left of one `part` of all, of which those of the given clients are taken.
    fn has_attempts(&self, is_counted: impl Fn(Option<ClientKey>) -> bool, part: usize) -> bool {
        let counted = || self.attempts.iter().filter(|attempt| is_counted(attempt.client));
        counted().count() < ATTEMPTS_MAX / part && counted().filter(|attempt| attempt.lists).count() < LISTS_MAX / part
    }

    fn has_attempts_for(&self, client: Option<ClientKey>) -> bool {
        client.is_none() || self.has_attempts(|other| other == client, CLIENT_PART)
    }
}

impl WantedVersion<'_> {
    /// Resolves when history reaches back to the version, or is known never to: upstream is not asked for a client that
    /// has used its part of the attempts. The caller must set a timeout.
    pub(super) async fn resumed(&self, reader: &Reader) -> Resumed {
        let Self { backfill, want: Want { version, client } } = *self;
        let mut state = backfill.state.subscribe();
        let decided = |state: &State| match state.end {
            _ if reader.after(version).is_ok() => Some(Resumed::Yes),
            Some(End::Draining) => Some(Resumed::Draining),
            Some(End::Exhausted) => Some(Resumed::No),
            None if state.is_too_old(version) || !is_before_history(version, reader) => Some(Resumed::No),
            None if !state.has_attempts_for(client) => Some(Resumed::No),
            None => None,
        };
        // The sender lives as long as `backfill` does, so waiting cannot fail.
        let state = state.wait_for(|state| decided(state).is_some()).await;
        let resumed = state.ok().and_then(|state| decided(&state)).unwrap_or(Resumed::No);
        if resumed == Resumed::No && !backfill.state.borrow().has_attempts_for(client) {
            limit_reached("history_extensions");
        }
        resumed
    }
}

impl Drop for WantedVersion<'_> {
    fn drop(&mut self) {
        let mut wanted = self.backfill.wanted();
        if let Some(at) = wanted.iter().position(|want| *want == self.want) {
            wanted.swap_remove(at);
        }
    }
}

impl Instance {
    /// Lets history begin earlier, as long as clients wait for that.
    pub(super) async fn extend_history(&self) {
        while let Some((from, client)) = self.backfill.next(&self.reader) {
            let until = self.reader.begins_after();
            let mut lists = false;
            // Boxed: it is rare, and the task of every store would carry its size.
            let extended = timeout(ATTEMPT_MAX, Box::pin(self.extend_to(from, &mut lists))).await;
            let extended = extended.unwrap_or(Err(NoBackfill::TooSlow));
            let outcome = match &extended {
                Ok(()) => "made",
                Err(NoBackfill::Upstream(Failure::Expired)) => "forgotten",
                Err(NoBackfill::Unusable(NotBefore::TooLarge)) => "too_large",
                Err(NoBackfill::Unusable(_)) => "contradiction",
                Err(NoBackfill::Unconfirmed) => "unconfirmed",
                Err(NoBackfill::Upstream(_) | NoBackfill::TooSlow) => "failed",
            };
            self.metrics.history_extended(outcome);
            match &extended {
                Ok(()) => tracing::info!(resource = %self.resource, version = %from, before = ?until,
                    "history begins earlier, for watches that resume from before the fill"),
                Err(error) => tracing::info!(resource = %self.resource, version = %from, error = %Chain(error),
                    "cannot backfill history; watches that resume from before the fill are forwarded"),
            }
            let is_too_old = matches!(
                extended,
                Err(NoBackfill::Upstream(Failure::Expired) | NoBackfill::Unusable(_) | NoBackfill::TooSlow)
            );
            // Wakes those that wait, also for what has been made.
            self.backfill.over(Attempt { client, lists }, is_too_old.then_some(from));
            match extended {
                Err(NoBackfill::Unconfirmed) => self.backfill.end(),
                Err(NoBackfill::Upstream(_)) if !is_too_old => sleep(ASKED_AGAIN).await,
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Sets `lists` before upstream lists all objects.
    async fn extend_to(&self, from: ResourceVersion, lists: &mut bool) -> Result<(), NoBackfill> {
        let backfill = self.reader.backfill(from).ok_or(NotBefore::Trimmed)?;
        let backfill = reflector::backfill_events(&self.upstream, self.schema(), backfill).await?;
        *lists = true;
        let backfill = reflector::backfill_state(&self.upstream, self.schema(), backfill).await?;
        // What upstream said may be of another storage than the one of the fill.
        if self.was_rolled_back() {
            return Err(Failure::Unavailable.into());
        }
        Ok(self.reader.prepend(backfill)?)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use engine::store::{HistoryLimits, Objects, Schema, Shape, store};

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    /// Of a store that was filled at version 50.
    fn scene() -> (BackfillDemand, Reader) {
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
        let (_, reader) = store(schema, &Objects::default(), version(50), limits);
        (BackfillDemand::new(Arc::default()), reader)
    }

    fn forgotten(backfill: &BackfillDemand, up_to: u64) {
        backfill.over(Attempt { client: None, lists: false }, Some(version(up_to)));
    }

    fn next(backfill: &BackfillDemand, reader: &Reader) -> Option<u64> {
        backfill.next(reader).map(|(version, _)| version.value())
    }

    #[test]
    fn upstream_is_asked_for_all_clients_that_wait() {
        let (backfill, reader) = scene();
        assert_eq!(next(&backfill, &reader), None);
        let waiting: Vec<_> = [30, 10, 60].map(|wanted| backfill.want(version(wanted), None)).into();
        assert_eq!(next(&backfill, &reader), Some(10));
        drop(waiting);
        assert_eq!(next(&backfill, &reader), None);
        assert!(backfill.wanted().is_empty());
    }

    #[test]
    fn forgotten_versions_are_left_out_half_by_half() {
        let (backfill, reader) = scene();
        let _waiting: Vec<_> = (1..=40).map(|wanted| backfill.want(version(wanted), None)).collect();
        let mut asked = Vec::new();
        while let Some(next) = next(&backfill, &reader) {
            asked.push(next);
            forgotten(&backfill, next);
        }
        assert_eq!(asked, [1, 21, 31, 36, 39, 40]);
    }

    #[test]
    fn attempts_are_limited() {
        let (backfill, reader) = scene();
        let waiting: Vec<_> = (1..=49).map(|wanted| backfill.want(version(wanted), None)).collect();
        let attempts = |count: usize, lists: usize| {
            (0..count).map(|number| Attempt { client: None, lists: number < lists }).collect::<Vec<_>>()
        };
        for (made, wanted) in [
            (attempts(ATTEMPTS_MAX - 1, LISTS_MAX - 1), Some(1)),
            (attempts(LISTS_MAX, LISTS_MAX), None),
            (attempts(ATTEMPTS_MAX, 0), None),
        ] {
            backfill.state.send_replace(State { attempts: made, ..State::default() });
            assert_eq!(next(&backfill, &reader), wanted);
        }
        assert_eq!(waiting[0].resumed(&reader).now_or_never(), Some(Resumed::No));
    }

    /// A client that resumes from one version before another, each time when the one before has been answered.
    #[test]
    fn no_client_uses_up_the_attempts_alone() {
        let [hostile, jane] = ["hostile", "jane"].map(|name| Some(ClientKey::of(&name)));
        for lists in [true, false] {
            let (backfill, reader) = scene();
            let of_jane = backfill.want(version(49), jane);
            let mut most = 0;
            let mut waits = backfill.want(version(48), hostile);
            while let Some((from, client)) = backfill.next(&reader).filter(|(_, client)| *client == hostile) {
                assert_eq!(from, version(48 - most));
                assert_eq!(waits.resumed(&reader).now_or_never(), None);
                backfill.over(Attempt { client, lists }, None);
                most += 1;
                waits = backfill.want(version(48 - most), hostile);
            }
            assert_eq!(most, if lists { 2 } else { 8 });
            assert_eq!(waits.resumed(&reader).now_or_never(), Some(Resumed::No));
            let covered = backfill.want(version(50), hostile);
            assert_eq!(covered.resumed(&reader).now_or_never(), Some(Resumed::Yes));
            // Others are still served, from the oldest of their own versions.
            let mut resumed = Box::pin(of_jane.resumed(&reader));
            assert_eq!((&mut resumed).now_or_never(), None);
            let _older = backfill.want(version(40), jane);
            assert_eq!(backfill.next(&reader), Some((version(40), jane)));
        }
    }

    #[test]
    fn clients_that_are_not_told_apart_have_all_attempts() {
        let (backfill, reader) = scene();
        let _waits = backfill.want(version(10), None);
        (1..LISTS_MAX).for_each(|_| backfill.over(Attempt { client: None, lists: true }, None));
        assert_eq!(next(&backfill, &reader), Some(10));
    }

    #[test]
    fn waits_end_when_it_is_known_that_they_are_in_vain_and_when_the_gateway_drains() {
        let (backfill, reader) = scene();
        let [old, newer, covered] = [20, 30, 50].map(|wanted| backfill.want(version(wanted), None));
        let mut waits = Box::pin(newer.resumed(&reader));
        assert_eq!((&mut waits).now_or_never(), None);
        forgotten(&backfill, 20);
        assert_eq!((&mut waits).now_or_never(), None);
        assert_eq!(old.resumed(&reader).now_or_never(), Some(Resumed::No));
        assert_eq!(covered.resumed(&reader).now_or_never(), Some(Resumed::Yes));
        backfill.drain();
        assert_eq!(waits.now_or_never(), Some(Resumed::Draining));
    }
}
