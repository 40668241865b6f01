//! What a reflector does next, and how well its store is. Pure: inputs in, actions and a [`Health`] out.
//!
//! One state machine for one store owns back-off, staleness, what upstream is able to do, the program that it is, and the epoch.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use super::{Condition, Failure, Health};
use crate::apimachinery::ResourceVersion;

/// First and longest wait after a failure; doubled each time between (client-go's reflector: 0.8 s to 30 s).
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A watch that lasted so long shows that all is well again (client-go's reflector resets its waits after as long).
const WELL_AFTER: Duration = Duration::from_secs(120);

/// Looks that may find no such resource after upstream broke off, within some ten seconds: one that starts does not know at
/// first what custom resources there are.
const MISSING_MAX: u32 = 4;

/// How the whole state is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMode {
    WatchList,
    List,
}

/// Why what the store held may not be answered from any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Upstream's versions went back: its storage was restored.
    Backwards,
    /// It is not what upstream has at the same version.
    Corrupt,
    /// Upstream sent what cannot follow from what it sent before.
    Inconsistent,
    /// The resource is gone, or is another one under the same name.
    Gone,
}

/// What happened: the action that was to be done has ended, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Start,
    /// The store holds the whole state. A watch-list goes on as a watch, a list does not. `server` is what upstream said it
    /// was (`/version`), if it did.
    Filled {
        version: ResourceVersion,
        watching: bool,
        server: Option<String>,
    },
    /// The same, and what the store held was led to that state: it goes on. Upstream is the program that it was.
    Bridged {
        version: ResourceVersion,
        watching: bool,
    },
    FillFailed(Failure),
    /// The watch ended, cleanly or not, after it had lasted so long; the store is complete up to `progress`.
    WatchEnded {
        failure: Option<Failure>,
        progress: ResourceVersion,
        lasted: Duration,
    },
    /// The head version of upstream, whether the resource is still the same, what upstream says it is, and whether it was seen to
    /// take watch-lists. `progress` is what the store was complete up to before upstream was asked.
    Verified {
        progress: Option<ResourceVersion>,
        head: ResourceVersion,
        same_resource: bool,
        server: Option<String>,
        watch_list: bool,
    },
    VerifyFailed(Failure),
    /// A proof was told a head version below what the store had held by then: upstream's versions went back.
    RolledBack,
    /// The store was found to hold what upstream does not.
    Corrupt,
}

/// What is seen while an action is under way, which goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The pause before the action is over.
    PauseOver,
    /// A watch is open that keeps the store equal to upstream.
    WatchOpened,
    Change,
    Bookmark,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Fill {
        mode: FillMode,
        not_older_than: Option<ResourceVersion>,
    },
    Watch {
        after: ResourceVersion,
    },
    /// Read on from the watch-list that filled the store.
    GoOn,
    /// Ask for upstream's head version, and whether the resource and upstream itself are still the same.
    Verify,
    /// Nothing any more.
    Stop,
}

/// The action, what must be given up before it, and how long to wait before it.
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
    /// The last watch-list fell silent before the end of the initial events.
    stalled: bool,
    /// Up to where the store is complete; `None` while it holds nothing.
    progress: Option<ResourceVersion>,
    /// Failures since the last fill, or since the last watch that was well.
    failures: u32,
    /// Fills since the last watch that was well whose state could not be followed: a fill that is followed by what cannot
    /// be read is no success, and is not repeated at once for ever.
    wasted: u32,
    /// Upstream broke off, or could not be reached, since it was last seen to be well: it may have been started again.
    broke_off: bool,
    /// Looks in a row since then that have found no such resource.
    missing: u32,
    /// What upstream said it was when the store was filled, or as soon as it said so after that.
    server: Option<String>,
    /// When upstream last told something.
    heard: Instant,
    health: Health,
}

impl Machine {
    pub fn new(now: Instant) -> Self {
        Self {
            mode: FillMode::WatchList,
            stalled: false,
            progress: None,
            failures: 0,
            wasted: 0,
            broke_off: false,
            missing: 0,
            server: None,
            heard: now,
            health: Health::unknown(),
        }
    }

    /// How well the store is, as far as is known by now.
    pub fn health(&self) -> Health {
        self.health
    }

    /// What upstream was before, if it says to be another program than that. Another may write the same objects differently.
    pub fn other_server(&self, server: Option<&str>) -> Option<&str> {
        self.server.as_deref().filter(|before| server.is_some_and(|now| now != *before))
    }

    /// Whether upstream is certainly what it was when the store was filled, as far as it has ever said what it is.
    pub(super) fn is_known_server(&self, server: Option<&str>) -> bool {
        self.server.as_deref() == server
    }

    /// Takes what has happened since the last action.
    pub fn on(&mut self, input: Input, now: Instant) -> Next {
        let next = self.next(input, now);
        if next.action == Action::Stop {
            self.health.condition = Condition::Gone;
        } else if self.progress.is_none() {
            self.health.condition = if next.delay.is_zero() { Condition::Filling } else { Condition::Unfilled };
        }
        next
    }

    /// Takes what is seen while the action is under way.
    pub fn see(&mut self, seen: Seen, now: Instant) {
        match (seen, self.health.condition) {
            (Seen::PauseOver, Condition::Unfilled) => self.health.condition = Condition::Filling,
            (Seen::PauseOver, _) => {}
            (Seen::WatchOpened, _) => (self.heard, self.health.condition) = (now, Condition::Followed),
            (Seen::Change, _) => self.heard = now,
            (Seen::Bookmark, _) => (self.heard, self.health.bookmarks) = (now, true),
        }
    }

    fn next(&mut self, input: Input, now: Instant) -> Next {
        match input {
            Input::Start => self.fill(),
            Input::Filled { version, watching, server } => {
                self.server = server;
                self.health.epoch += 1;
                self.follow(version, watching, now)
            }
            Input::Bridged { version, watching } => self.follow(version, watching, now),
            // What it has held is known to have been there.
            Input::FillFailed(Failure::NotFound) if self.progress.is_some() => self.not_found(),
            Input::FillFailed(failure) => self.fill_failed(failure),
            Input::WatchEnded { failure, progress, lasted } => {
                self.progress = Some(progress);
                if lasted >= WELL_AFTER {
                    (self.failures, self.wasted) = (0, 0);
                }
                self.unfollowed(failure, now);
                self.broke_off |= failure.is_some_and(|failure| failure != Failure::NotFound);
                self.watch_ended(failure)
            }
            Input::Verified { progress, head, same_resource, server, watch_list } => {
                (self.progress, self.missing) = (progress, 0);
                self.health.watch_list |= watch_list;
                let same_server = self.other_server(server.as_deref()).is_none();
                self.server = self.server.take().or(server);
                self.verified(head, same_resource, same_server)
            }
            Input::VerifyFailed(Failure::NotFound) => self.not_found(),
            Input::VerifyFailed(_) => {
                self.broke_off = true;
                self.later(Action::Verify)
            }
            Input::RolledBack => self.lose(Loss::Backwards),
            Input::Corrupt => self.lose(Loss::Corrupt),
        }
    }

    fn follow(&mut self, version: ResourceVersion, watching: bool, now: Instant) -> Next {
        (self.progress, self.heard) = (Some(version), now);
        (self.failures, self.stalled) = (0, false);
        (self.broke_off, self.missing) = (false, 0);
        (self.health.condition, self.health.watch_list) = (Condition::Followed, watching);
        if watching { Next::now(Action::GoOn) } else { Next::now(Action::Watch { after: version }) }
    }

    /// The state was right until the watch ended; of one that was silent that is known only of when it last told something.
    fn unfollowed(&mut self, failure: Option<Failure>, now: Instant) {
        if self.health.is_followed() {
            let was_silent = matches!(failure, Some(Failure::Silent | Failure::Stuck));
            let since = if was_silent { self.heard } else { now };
            self.health.condition = Condition::Unfollowed { since };
        }
    }

    /// Tries watch-list each time: what kept it from working may have been one slow server, or an old one.
    fn fill(&mut self) -> Next {
        self.mode = FillMode::WatchList;
        self.fill_again()
    }

    fn list(&mut self) -> Next {
        self.mode = FillMode::List;
        self.fill_again()
    }

    fn fill_again(&self) -> Next {
        Next::now(Action::Fill { mode: self.mode, not_older_than: self.progress })
    }

    fn fill_failed(&mut self, failure: Failure) -> Next {
        match failure {
            Failure::NotFound => Next::stop(),
            Failure::Refused if self.mode == FillMode::WatchList => self.list(),
            // Once is unavailability. A storage that tells nothing of its progress never ends the initial events.
            Failure::Silent | Failure::Stalled if self.mode == FillMode::WatchList && self.stalled => self.list(),
            Failure::Silent | Failure::Stalled => {
                self.stalled = self.mode == FillMode::WatchList;
                self.refill_later()
            }
            // Either upstream is behind another that was asked before, or its versions went back.
            Failure::TooLarge if self.progress.is_some() => self.later(Action::Verify),
            Failure::Expired
            | Failure::TooLarge
            | Failure::Refused
            | Failure::Denied
            | Failure::Unavailable
            | Failure::Malformed
            | Failure::Stuck => self.refill_later(),
        }
    }

    fn watch_ended(&mut self, failure: Option<Failure>) -> Next {
        match failure {
            None => Next::now(Action::Verify),
            Some(Failure::NotFound) => self.not_found(),
            // A version that expires is nothing unusual, one that has expired right after a fill is.
            Some(Failure::Expired) => self.replace(),
            // Seconds have passed that show it, and upstream answers: waiting only makes the store older.
            Some(Failure::Stuck) => Next::now(Action::Verify),
            Some(Failure::Malformed) => self.lose(Loss::Inconsistent),
            Some(
                Failure::TooLarge
                | Failure::Refused
                | Failure::Denied
                | Failure::Unavailable
                | Failure::Silent
                | Failure::Stalled,
            ) => self.later(Action::Verify),
        }
    }

    /// Upstream knows no such resource: it is gone, unless upstream has just been started and does not know yet.
    fn not_found(&mut self) -> Next {
        if !self.broke_off || self.missing >= MISSING_MAX {
            return Next::stop();
        }
        self.missing += 1;
        self.later(Action::Verify)
    }

    fn verified(&mut self, head: ResourceVersion, same_resource: bool, same_server: bool) -> Next {
        match self.progress {
            _ if !same_resource => Next::stop(),
            Some(progress) if head < progress => self.lose(Loss::Backwards),
            // What an older program wrote would stay until the objects are changed.
            Some(_) if !same_server => self.replace(),
            Some(progress) => Next::now(Action::Watch { after: progress }),
            None => self.fill(),
        }
    }

    fn lose(&mut self, loss: Loss) -> Next {
        self.progress = None;
        Next { loss: Some(loss), ..self.waste() }
    }

    /// Fills anew what is still answered from until then: at once, unless the last fill was not followed by a watch that
    /// was well.
    fn replace(&mut self) -> Next {
        let is_first = self.wasted == 0;
        let next = self.waste();
        if is_first { Next { delay: Duration::ZERO, ..next } } else { next }
    }

    /// Fills anew what could not be followed.
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

    fn stop() -> Self {
        Self { loss: Some(Loss::Gone), ..Self::now(Action::Stop) }
    }
}
