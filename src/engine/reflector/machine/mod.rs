//! Decides what a reflector does next, and derives the health of its store. Pure: inputs in, actions and a [`Health`]
//! out.
//!
//! There is one state machine per store. It owns the delays after failures, and knows how stale the store is, in which
//! epoch it is, what upstream supports, and which version of its program upstream runs.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use super::{Condition, Failure, Health};
use base::apimachinery::ResourceVersion;

/// The first and the longest delay after failures; each delay is twice the previous one (client-go's reflector: 0.8 s
/// to 30 s).
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A watch that lasted this long is healthy and resets the delays (client-go's reflector resets its back-off after the
/// same time).
const WELL_AFTER: Duration = Duration::from_secs(120);

/// A fill that was followed by a watch of this length was worth its cost: if the watch's version expires afterwards,
/// the store is filled again without a delay. So a store is filled at most six times a minute, even if an API server
/// restarts again and again, or is behind an address that cuts watches.
const USED_AFTER: Duration = Duration::from_secs(10);

/// After upstream broke off, this many consecutive checks may fail to find the resource. They take about ten seconds:
/// an API server that has just started does not know its custom resources yet.
const MISSING_MAX: u32 = 4;

/// For so long, stores are filled by lists after upstream has not ended the initial events of a watch-list.
const STALLED_FOR: Duration = Duration::from_secs(60 * 60);

/// How the whole state is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMode {
    WatchList,
    List,
}

/// Why the contents of the store must not be served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Upstream's versions went back: its storage was restored.
    #[error("upstream's versions went back; was its etcd restored or replaced?")]
    Backwards,
    /// The store differs from upstream's state at the same version.
    #[error("the cache differs from upstream's state at the same version")]
    Corrupt,
    /// Upstream sent an event that contradicts earlier ones, or cannot be parsed.
    #[error("upstream sent an event that contradicts earlier ones, or that cannot be read")]
    Inconsistent,
    /// The resource is gone.
    #[error("upstream no longer has the resource")]
    Gone,
    /// The resource has another definition, or another server answers for it: the last events of upstream's watch may
    /// be of the old one.
    #[error("the resource has another definition, or another server answers for it")]
    Replaced,
}

/// An event that ends the current action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Start,
    /// The store holds the whole state. If `watching`, a watch-list filled it and continues as a watch. `watch_list`:
    /// upstream was seen to end the initial events of one. `server` is what upstream reported as its version
    /// (`/version`), if it did.
    Filled {
        version: ResourceVersion,
        watching: bool,
        watch_list: bool,
        server: Option<String>,
    },
    /// The store was filled again and bridged to the new state, so it remains in use. Upstream is the same program as
    /// before.
    Bridged {
        version: ResourceVersion,
        watching: bool,
        watch_list: bool,
    },
    FillFailed(Failure),
    /// The watch ended, cleanly or not, after `lasted`; the store is complete up to `progress`.
    WatchEnded {
        failure: Option<Failure>,
        progress: ResourceVersion,
        lasted: Duration,
    },
    /// The head version of upstream, whether the resource is still the same, what upstream reports as its version, and
    /// whether it was seen to end the initial events of a watch-list. `progress` is the version up to which the store
    /// was complete before upstream was asked.
    Verified {
        progress: Option<ResourceVersion>,
        head: ResourceVersion,
        same_resource: bool,
        server: Option<String>,
        watch_list: bool,
    },
    VerifyFailed(Failure),
    /// A proof got a head version below what the store held by then: upstream's versions went back.
    RolledBack,
    /// The store was found to differ from upstream.
    Corrupt,
    /// The resource's definition, or the server that answers for it, is no longer the one for which the store was
    /// filled, or is being filled.
    Replaced,
}

/// An event that does not end the current action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The delay that precedes the action has ended.
    PauseOver,
    /// The same, because upstream can be used again. One that has just started may refuse the first requests, and must
    /// not be left alone for as long as it was gone: the delays begin anew.
    Recovered,
    /// A watch that keeps the store equal to upstream was opened.
    WatchOpened,
    Change,
    Bookmark,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Fill {
        mode: FillMode,
        not_older_than: Option<ResourceVersion>,
    },
    Watch {
        after: ResourceVersion,
    },
    /// Continue reading the watch-list that filled the store.
    GoOn,
    /// Ask for upstream's head version, and whether the resource and upstream itself are still the same.
    Verify,
    /// End the reflector.
    Stop,
}

/// The next action, the loss that must be reported before it, and the delay before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub loss: Option<Loss>,
    pub delay: Duration,
    pub action: Action,
}

/// The state machine of one reflector.
#[derive(Debug)]
pub struct Machine {
    mode: FillMode,
    /// When upstream last accepted a watch-list and did not end its initial events, within [`STALLED_FOR`].
    stalled: Option<Instant>,
    /// The version up to which the store is complete; `None` while it is empty.
    progress: Option<ResourceVersion>,
    /// Failures since the last fill or the last healthy watch.
    failures: u32,
    /// Fills since a watch last stayed open for [`USED_AFTER`]; each further one is delayed longer. Otherwise fills
    /// would repeat for ever without a pause if an unreadable event followed each of them.
    wasted: u32,
    /// When the store was last filled. That delay counts from then.
    filled: Instant,
    /// Whether upstream broke off a watch, or could not be reached, since it was last known to be healthy: it may have
    /// been restarted.
    broke_off: bool,
    /// Consecutive checks, after upstream broke off, that did not find the resource.
    missing: u32,
    /// The version that upstream reported when the store was filled, or the first one that it reported afterwards.
    server: Option<String>,
    /// When upstream last sent an event or a bookmark.
    heard: Instant,
    health: Health,
}

impl Machine {
    pub fn new(now: Instant) -> Self {
        Self {
            mode: FillMode::WatchList,
            stalled: None,
            progress: None,
            failures: 0,
            wasted: 0,
            filled: now,
            broke_off: false,
            missing: 0,
            server: None,
            heard: now,
            health: Health::unknown(),
        }
    }

    /// The health of the store, as far as it is known.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The version that upstream reported before, if `server` is a different one. Another program may write the same
    /// objects differently.
    pub fn other_server(&self, server: Option<&str>) -> Option<&str> {
        self.server.as_deref().filter(|before| server.is_some_and(|now| now != *before))
    }

    /// Whether upstream is known to accept watch-lists and not to end their initial events.
    fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Whether upstream reports the same version as when the store was filled. `None` equals `None`: an upstream that
    /// has never reported its version counts as unchanged.
    pub(super) fn is_known_server(&self, server: Option<&str>) -> bool {
        self.server.as_deref() == server
    }

    /// Processes the event that ended the last action, and returns the next action.
    pub fn on(&mut self, input: Input, now: Instant) -> Next {
        let next = self.next(input, now);
        if next.action == Action::Stop {
            self.health.condition = Condition::Gone;
        } else if self.progress.is_none() {
            self.health.condition = if next.delay.is_zero() { Condition::Filling } else { Condition::Unfilled };
        }
        next
    }

    /// Processes an event while the action continues.
    pub fn see(&mut self, seen: Seen, now: Instant) {
        match (seen, self.health.condition) {
            (Seen::PauseOver, condition) => self.pause_over(condition),
            (Seen::Recovered, condition) => {
                self.failures = 0;
                self.pause_over(condition);
            }
            (Seen::WatchOpened, _) => (self.heard, self.health.condition) = (now, Condition::Followed),
            (Seen::Change, _) => self.heard = now,
            (Seen::Bookmark, _) => (self.heard, self.health.bookmarks) = (now, true),
        }
    }

    fn pause_over(&mut self, condition: Condition) {
        if condition == Condition::Unfilled {
            self.health.condition = Condition::Filling;
        }
    }

    fn next(&mut self, input: Input, now: Instant) -> Next {
        self.stalled = self.stalled.filter(|since| now.duration_since(*since) < STALLED_FOR);
        match input {
            Input::Start => self.fill(),
            Input::Filled { version, watching, watch_list, server } => {
                self.server = server;
                self.health.epoch += 1;
                self.follow(version, (watching, watch_list), now)
            }
            Input::Bridged { version, watching, watch_list } => self.follow(version, (watching, watch_list), now),
            // The store was filled before, so the resource is known to have existed.
            Input::FillFailed(Failure::NotFound) if self.progress.is_some() => self.not_found(),
            Input::FillFailed(failure) => self.fill_failed(failure, now),
            Input::WatchEnded { failure, progress, lasted } => {
                self.progress = Some(progress);
                if lasted >= WELL_AFTER {
                    (self.failures, self.wasted) = (0, 0);
                }
                // An event that cannot be parsed may arrive at any time, and arrives again after each fill.
                if lasted >= USED_AFTER && failure != Some(Failure::Malformed) {
                    self.wasted = 0;
                }
                self.unfollowed(failure, now);
                self.broke_off |= failure.is_some_and(|failure| failure != Failure::NotFound);
                self.watch_ended(failure, now)
            }
            Input::Verified { progress, head, same_resource, server, watch_list } => {
                (self.progress, self.missing) = (progress, 0);
                self.health.watch_list |= watch_list;
                let same_server = self.other_server(server.as_deref()).is_none();
                self.stalled = self.stalled.filter(|_| same_server && !watch_list);
                self.server = self.server.take().or(server);
                self.verified(head, same_resource, same_server, now)
            }
            Input::VerifyFailed(Failure::NotFound) => self.not_found(),
            Input::VerifyFailed(_) => {
                self.broke_off = true;
                self.later(Action::Verify)
            }
            Input::RolledBack => self.lose(Loss::Backwards),
            Input::Corrupt => self.lose(Loss::Corrupt),
            Input::Replaced => Next::stop(Loss::Replaced),
        }
    }

    fn follow(&mut self, version: ResourceVersion, (watching, watch_list): (bool, bool), now: Instant) -> Next {
        (self.progress, self.heard, self.filled, self.failures) = (Some(version), now, now, 0);
        (self.broke_off, self.missing) = (false, 0);
        (self.health.condition, self.health.watch_list) = (Condition::Followed, watch_list);
        if self.mode == FillMode::WatchList {
            self.stalled = (!watch_list).then_some(now);
        }
        if watching { Next::now(Action::GoOn) } else { Next::now(Action::Watch { after: version }) }
    }

    /// The state was current until the watch ended. After a silent watch, it is only known to have been current when
    /// upstream last sent something.
    fn unfollowed(&mut self, failure: Option<Failure>, now: Instant) {
        if self.health.is_followed() {
            let was_silent = matches!(failure, Some(Failure::Silent | Failure::Stuck));
            let since = if was_silent { self.heard } else { now };
            self.health.condition = Condition::Unfollowed { since };
        }
    }

    /// Tries watch-list again each time, unless that would take seconds: a single old server may have refused it.
    fn fill(&mut self) -> Next {
        self.mode = if self.is_stalled() { FillMode::List } else { FillMode::WatchList };
        self.fill_again()
    }

    fn list(&mut self) -> Next {
        self.mode = FillMode::List;
        self.fill_again()
    }

    fn fill_again(&self) -> Next {
        Next::now(Action::Fill { mode: self.mode, not_older_than: self.progress })
    }

    fn fill_failed(&mut self, failure: Failure, now: Instant) -> Next {
        match failure {
            Failure::NotFound => Next::stop(Loss::Gone),
            Failure::Refused | Failure::InternalError if self.mode == FillMode::WatchList => self.list(),
            // There was no room for a list beside it.
            Failure::Stalled => {
                self.stalled = Some(now);
                self.refill_later()
            }
            // Either this API server lags behind one that was asked before, or upstream's versions went back.
            Failure::TooLarge if self.progress.is_some() => self.later(Action::Verify),
            Failure::Expired
            | Failure::TooLarge
            | Failure::Refused
            | Failure::Unauthorized
            | Failure::Denied
            | Failure::InternalError
            | Failure::Unavailable
            | Failure::Malformed
            | Failure::Silent
            | Failure::Stuck
            | Failure::OverBudget(_) => self.refill_later(),
        }
    }

    fn watch_ended(&mut self, failure: Option<Failure>, now: Instant) -> Next {
        match failure {
            None => Next::now(Action::Verify),
            Some(Failure::NotFound) => self.not_found(),
            // It is normal that a version expires, unless this happens right after a fill.
            Some(Failure::Expired) => self.replace(now),
            // It took seconds to find this out, and upstream answers: a delay would only make the store older.
            Some(Failure::Stuck) => Next::now(Action::Verify),
            Some(Failure::Malformed) => self.lose(Loss::Inconsistent),
            Some(
                Failure::TooLarge
                | Failure::Refused
                | Failure::Unauthorized
                | Failure::Denied
                | Failure::InternalError
                | Failure::Unavailable
                | Failure::Silent
                | Failure::Stalled
                | Failure::OverBudget(_),
            ) => self.later(Action::Verify),
        }
    }

    /// Upstream does not know the resource: the resource is gone, unless upstream has just been started and does not
    /// know it yet.
    fn not_found(&mut self) -> Next {
        if !self.broke_off || self.missing >= MISSING_MAX {
            return Next::stop(Loss::Gone);
        }
        self.missing += 1;
        self.later(Action::Verify)
    }

    fn verified(&mut self, head: ResourceVersion, same_resource: bool, same_server: bool, now: Instant) -> Next {
        match self.progress {
            _ if !same_resource => Next::stop(Loss::Replaced),
            Some(progress) if head < progress => self.lose(Loss::Backwards),
            // Otherwise objects in the older program's format would stay until they change.
            Some(_) if !same_server => self.replace(now),
            Some(progress) => Next::now(Action::Watch { after: progress }),
            None => self.fill(),
        }
    }

    fn lose(&mut self, loss: Loss) -> Next {
        self.progress = None;
        Next { loss: Some(loss), ..self.waste() }
    }

    /// Fills again while the current state is still served: without a delay, unless no healthy watch followed the last
    /// fill.
    fn replace(&mut self, now: Instant) -> Next {
        let is_first = self.wasted == 0;
        let next = self.waste();
        // What has passed since the last fill need not pass again: upstream may have been away meanwhile.
        let left = next.delay.saturating_sub(now.duration_since(self.filled));
        Next { delay: if is_first { Duration::ZERO } else { left }, ..next }
    }

    /// Fills again, because the last fill could not be followed by a watch.
    fn waste(&mut self) -> Next {
        let delay = backoff(self.wasted);
        self.wasted += 1;
        Next { delay, ..self.fill() }
    }

    fn refill_later(&mut self) -> Next {
        let action = self.fill().action;
        self.later(action)
    }

    fn later(&mut self, action: Action) -> Next {
        let delay = backoff(self.failures);
        self.failures += 1;
        Next { loss: None, delay, action }
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << failures.min(6)).min(BACKOFF_MAX)
}

impl Next {
    fn now(action: Action) -> Self {
        Self { loss: None, delay: Duration::ZERO, action }
    }

    fn stop(loss: Loss) -> Self {
        Self { loss: Some(loss), ..Self::now(Action::Stop) }
    }
}
