//! What a reflector does next. Pure: inputs in, actions out.

use std::time::Duration;

use super::Failure;
use crate::apimachinery::ResourceVersion;

/// First and longest wait after a failure; doubled each time between (client-go's reflector: 0.8 s to 30 s).
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A watch that lasted so long shows that all is well again (client-go's reflector resets its waits after as long).
const WELL_AFTER: Duration = Duration::from_secs(120);

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
    /// Upstream sent what cannot follow from what it sent before.
    Inconsistent,
    /// The resource is gone, or is another one under the same name.
    Gone,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Start,
    /// The store holds the whole state. A watch-list goes on as a watch, a list does not.
    Filled {
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
    /// The head version of upstream, whether the resource is still the same, and whether upstream is the program that
    /// the store was filled from. `progress` is what the store was complete up to before upstream was asked.
    Verified {
        progress: Option<ResourceVersion>,
        head: ResourceVersion,
        same_resource: bool,
        same_server: bool,
    },
    VerifyFailed(Failure),
    /// A proof was told a head version below what the store had held by then: upstream's versions went back.
    RolledBack,
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
}

impl Default for Machine {
    fn default() -> Self {
        Self { mode: FillMode::WatchList, stalled: false, progress: None, failures: 0, wasted: 0 }
    }
}

impl Machine {
    /// Takes what has happened since the last action.
    pub fn on(&mut self, input: Input) -> Next {
        match input {
            Input::Start => self.fill(),
            Input::Filled { version, watching } => {
                self.progress = Some(version);
                self.failures = 0;
                self.stalled = false;
                if watching { Next::now(Action::GoOn) } else { Next::now(Action::Watch { after: version }) }
            }
            Input::FillFailed(failure) => self.fill_failed(failure),
            Input::WatchEnded { failure, progress, lasted } => {
                self.progress = Some(progress);
                if lasted >= WELL_AFTER {
                    (self.failures, self.wasted) = (0, 0);
                }
                self.watch_ended(failure)
            }
            Input::Verified { progress, head, same_resource, same_server } => {
                self.progress = progress;
                self.verified(head, same_resource, same_server)
            }
            Input::VerifyFailed(Failure::NotFound) => Next::stop(),
            Input::VerifyFailed(_) => self.later(Action::Verify),
            Input::RolledBack => self.lose(Loss::Backwards),
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
            Some(Failure::NotFound) => Next::stop(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn version(value: u64) -> ResourceVersion {
        ResourceVersion::new(value).expect("not zero")
    }

    fn filled_at(value: u64) -> Machine {
        let mut machine = Machine::default();
        machine.on(Input::Start);
        machine.on(Input::Filled { version: version(value), watching: true });
        machine
    }

    fn ended(failure: impl Into<Option<Failure>>, progress: u64, lasted: Duration) -> Input {
        Input::WatchEnded { failure: failure.into(), progress: version(progress), lasted }
    }

    #[test]
    fn an_upstream_without_watch_list_is_listed_then_watched() {
        let mut machine = Machine::default();
        let fill = |mode| Action::Fill { mode, not_older_than: None };
        assert_eq!(machine.on(Input::Start), Next::now(fill(FillMode::WatchList)));
        assert_eq!(machine.on(Input::FillFailed(Failure::Refused)), Next::now(fill(FillMode::List)));
        let filled = Input::Filled { version: version(5), watching: false };
        assert_eq!(machine.on(filled), Next::now(Action::Watch { after: version(5) }));
    }

    #[test]
    fn a_clean_end_resumes_after_a_check_of_the_head() {
        let mut machine = filled_at(5);
        assert_eq!(machine.on(ended(None, 9, WELL_AFTER)), Next::now(Action::Verify));
        let verified =
            Input::Verified { progress: Some(version(9)), head: version(12), same_resource: true, same_server: true };
        assert_eq!(machine.on(verified), Next::now(Action::Watch { after: version(9) }));
    }

    #[test]
    fn an_expired_version_lists_again_and_never_goes_back() {
        let mut machine = filled_at(5);
        let fill = Action::Fill { mode: FillMode::WatchList, not_older_than: Some(version(9)) };
        assert_eq!(machine.on(ended(Failure::Expired, 9, Duration::ZERO)), Next::now(fill));
    }

    #[test]
    fn a_restored_upstream_loses_the_store() {
        let mut machine = filled_at(50);
        machine.on(ended(Failure::Unavailable, 50, Duration::ZERO));
        let next = machine.on(Input::Verified {
            progress: Some(version(50)),
            head: version(20),
            same_resource: true,
            same_server: true,
        });
        assert_eq!(next.loss, Some(Loss::Backwards));
        assert_eq!(next.action, Action::Fill { mode: FillMode::WatchList, not_older_than: None });
    }

    #[test]
    fn what_proofs_have_advanced_since_the_watch_ended_counts() {
        let mut machine = filled_at(50);
        machine.on(ended(Failure::Unavailable, 50, Duration::ZERO));
        let progress = Some(version(60));
        let verified = Input::Verified { progress, head: version(55), same_resource: true, same_server: true };
        assert_eq!(machine.on(verified).loss, Some(Loss::Backwards));
    }

    #[test]
    fn another_resource_under_the_same_name_stops_the_reflector() {
        for input in [
            Input::Verified { progress: Some(version(50)), head: version(60), same_resource: false, same_server: true },
            Input::VerifyFailed(Failure::NotFound),
            Input::FillFailed(Failure::NotFound),
        ] {
            assert_eq!(filled_at(50).on(input), Next::stop(), "{input:?}");
        }
    }

    #[test]
    fn an_upgraded_upstream_fills_the_store_anew_and_time_does_not_go_back() {
        let mut machine = filled_at(50);
        machine.on(ended(None, 50, WELL_AFTER));
        let upgraded = |progress| Input::Verified {
            progress: Some(version(progress)),
            head: version(50),
            same_resource: true,
            same_server: false,
        };
        let fill = Action::Fill { mode: FillMode::WatchList, not_older_than: Some(version(50)) };
        assert_eq!(machine.on(upgraded(50)), Next::now(fill));
        machine.on(Input::Filled { version: version(51), watching: true });
        machine.on(ended(None, 51, Duration::ZERO));
        assert_eq!(machine.on(upgraded(51)).loss, Some(Loss::Backwards), "what went back is lost, upgraded or not");
    }

    #[test]
    fn waits_double_up_to_a_limit_and_start_over_after_a_success() {
        let mut machine = Machine::default();
        let waits: Vec<_> =
            (0..8).map(|_| machine.on(Input::FillFailed(Failure::Unavailable)).delay.as_millis()).collect();
        assert_eq!(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        machine.on(Input::Filled { version: version(1), watching: true });
        assert_eq!(machine.on(ended(Failure::Unavailable, 1, Duration::ZERO)).delay, BACKOFF_MIN);
    }

    #[test]
    fn a_watch_that_was_well_clears_the_waits() {
        let mut machine = filled_at(5);
        let mut fails_after = |lasted| machine.on(ended(Failure::Unavailable, 5, lasted)).delay.as_millis();
        assert_eq!([(); 4].map(|()| fails_after(Duration::from_secs(119))), [800, 1600, 3200, 6400]);
        assert_eq!([(); 2].map(|()| fails_after(WELL_AFTER)), [800, 800]);
    }

    #[test]
    fn fills_that_are_followed_by_what_cannot_be_read_come_ever_more_seldom() {
        for (failure, waits) in
            [(Failure::Malformed, [800, 1600, 3200, 6400]), (Failure::Expired, [0, 1600, 3200, 6400])]
        {
            let mut machine = filled_at(5);
            let mut poisoned = |lasted| {
                let next = machine.on(ended(failure, 6, lasted));
                assert!(matches!(next.action, Action::Fill { mode: FillMode::WatchList, .. }), "{failure:?}");
                machine.on(Input::Filled { version: version(7), watching: true });
                next.delay.as_millis()
            };
            assert_eq!([(); 4].map(|()| poisoned(Duration::from_secs(1))), waits, "{failure:?}");
            assert_eq!(poisoned(WELL_AFTER), waits[0], "{failure:?}");
        }
    }

    #[test]
    fn watch_list_is_tried_again_at_each_fill() {
        let mut machine = Machine::default();
        machine.on(Input::Start);
        let mode = |next: Next| {
            let Action::Fill { mode, .. } = next.action else { panic!("{next:?}") };
            mode
        };
        assert_eq!(mode(machine.on(Input::FillFailed(Failure::Refused))), FillMode::List);
        assert_eq!(mode(machine.on(Input::FillFailed(Failure::Unavailable))), FillMode::WatchList);
        assert_eq!(mode(machine.on(Input::FillFailed(Failure::Refused))), FillMode::List);
        machine.on(Input::Filled { version: version(5), watching: false });
        assert_eq!(mode(machine.on(ended(Failure::Expired, 5, WELL_AFTER))), FillMode::WatchList);
    }

    #[test]
    fn a_watch_list_that_falls_silent_is_tried_again_before_a_list_is() {
        let fill = |mode| Action::Fill { mode, not_older_than: None };
        for failure in [Failure::Silent, Failure::Stalled] {
            let mut machine = Machine::default();
            machine.on(Input::Start);
            let next = machine.on(Input::FillFailed(failure));
            assert_eq!((next.action, next.delay), (fill(FillMode::WatchList), BACKOFF_MIN));
            assert_eq!(machine.on(Input::FillFailed(failure)), Next::now(fill(FillMode::List)));
        }
    }
}
