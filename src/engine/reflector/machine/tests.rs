//! Tests the machine with scripted inputs, and its invariants with arbitrary inputs.

use proptest::prelude::*;

use super::*;

fn version(value: u64) -> ResourceVersion {
    ResourceVersion::new(value).expect("not zero")
}

/// A machine whose clock stands still.
struct Still(Machine, Instant);

impl Still {
    fn next(&mut self, input: Input) -> Next {
        self.0.on(input, self.1)
    }

    fn condition(&self) -> Condition {
        self.0.health().condition
    }
}

fn machine() -> Still {
    let now = Instant::now();
    Still(Machine::new(now), now)
}

fn server() -> Option<String> {
    Some("v1.36.0".to_owned())
}

fn filled_at(value: u64) -> Still {
    let mut machine = machine();
    machine.next(Input::Start);
    machine.next(Input::Filled { version: version(value), watching: true, watch_list: true, server: server() });
    machine
}

fn ended(failure: impl Into<Option<Failure>>, progress: u64, lasted: Duration) -> Input {
    Input::WatchEnded { failure: failure.into(), progress: version(progress), lasted }
}

#[test]
fn an_upstream_without_watch_list_is_listed_then_watched() {
    let mut machine = machine();
    let fill = |mode| Action::Fill { mode, not_older_than: None };
    assert_eq!(machine.next(Input::Start), Next::now(fill(FillMode::WatchList)));
    assert_eq!(machine.next(Input::FillFailed(Failure::Refused)), Next::now(fill(FillMode::List)));
    let filled = Input::Filled { version: version(5), watching: false, watch_list: false, server: server() };
    assert_eq!(machine.next(filled), Next::now(Action::Watch { after: version(5) }));
}

#[test]
fn a_clean_end_resumes_after_a_check_of_the_head() {
    let mut machine = filled_at(5);
    assert_eq!(machine.next(ended(None, 9, WELL_AFTER)), Next::now(Action::Verify));
    let verified = Input::Verified {
        progress: Some(version(9)),
        head: version(12),
        same_resource: true,
        server: server(),
        watch_list: false,
    };
    assert_eq!(machine.next(verified), Next::now(Action::Watch { after: version(9) }));
}

#[test]
fn an_expired_version_lists_again_and_never_goes_back() {
    let mut machine = filled_at(5);
    let fill = Action::Fill { mode: FillMode::WatchList, not_older_than: Some(version(9)) };
    assert_eq!(machine.next(ended(Failure::Expired, 9, Duration::ZERO)), Next::now(fill));
}

/// An upstream that was away long enough is not spared any more.
#[test]
fn the_delay_of_a_fill_counts_from_the_last_one() {
    let mut machine = filled_at(5);
    let mut delays = Vec::new();
    for waited in [0, 0, 0, 2, 100] {
        machine.1 += Duration::from_secs(waited);
        delays.push(machine.next(ended(Failure::Expired, 9, Duration::ZERO)).delay.as_millis());
        if waited > 0 {
            machine.next(Input::Filled { version: version(9), watching: true, watch_list: true, server: server() });
        }
    }
    assert_eq!(delays, [0, 1_600, 3_200, 4_400, 0]);
}

#[test]
fn a_restored_upstream_loses_the_store() {
    let mut machine = filled_at(50);
    machine.next(ended(Failure::Unavailable, 50, Duration::ZERO));
    let next = machine.next(Input::Verified {
        progress: Some(version(50)),
        head: version(20),
        same_resource: true,
        server: server(),
        watch_list: false,
    });
    assert_eq!(next.loss, Some(Loss::Backwards));
    assert_eq!(next.action, Action::Fill { mode: FillMode::WatchList, not_older_than: None });
}

#[test]
fn progress_from_proofs_after_the_end_of_the_watch_counts() {
    let mut machine = filled_at(50);
    machine.next(ended(Failure::Unavailable, 50, Duration::ZERO));
    let progress = Some(version(60));
    let verified =
        Input::Verified { progress, head: version(55), same_resource: true, server: server(), watch_list: false };
    assert_eq!(machine.next(verified).loss, Some(Loss::Backwards));
}

#[test]
fn another_resource_under_the_same_name_stops_the_reflector() {
    let verified = Input::Verified {
        progress: Some(version(50)),
        head: version(60),
        same_resource: false,
        server: server(),
        watch_list: false,
    };
    for (input, loss) in [
        (verified, Loss::Replaced),
        (Input::Replaced, Loss::Replaced),
        (Input::VerifyFailed(Failure::NotFound), Loss::Gone),
        (Input::FillFailed(Failure::NotFound), Loss::Gone),
    ] {
        assert_eq!(filled_at(50).next(input.clone()), Next::stop(loss), "{input:?}");
    }
}

#[test]
fn an_upstream_that_has_just_started_may_not_know_the_resource_yet() {
    let not_found = |machine: &mut Still| machine.next(Input::VerifyFailed(Failure::NotFound));
    let verified = |progress| Input::Verified {
        progress: Some(version(progress)),
        head: version(60),
        same_resource: true,
        server: server(),
        watch_list: false,
    };
    let mut machine = filled_at(50);
    machine.next(ended(Failure::Unavailable, 50, WELL_AFTER));
    for _ in 0..MISSING_MAX {
        let next = not_found(&mut machine);
        assert!(next.loss.is_none() && next.action == Action::Verify && !next.delay.is_zero(), "{next:?}");
    }
    assert_eq!(machine.next(verified(50)), Next::now(Action::Watch { after: version(50) }));
    // Upstream still does not know the resource.
    for _ in 0..MISSING_MAX {
        machine.next(ended(Failure::NotFound, 50, Duration::ZERO));
    }
    assert_eq!(not_found(&mut machine), Next::stop(Loss::Gone));
    // An upstream that ended the watch cleanly, and was never unreachable, is believed immediately.
    let mut machine = filled_at(50);
    machine.next(ended(None, 50, WELL_AFTER));
    assert_eq!(not_found(&mut machine), Next::stop(Loss::Gone));
    // So is one that has filled the store since it was unreachable.
    let mut machine = filled_at(50);
    machine.next(ended(Failure::Unavailable, 50, WELL_AFTER));
    machine.next(Input::Bridged { version: version(55), watching: true, watch_list: true });
    machine.next(ended(None, 55, WELL_AFTER));
    assert_eq!(not_found(&mut machine), Next::stop(Loss::Gone));
}

#[test]
fn an_upgraded_upstream_fills_the_store_anew_and_time_does_not_go_back() {
    let mut machine = filled_at(50);
    machine.next(ended(None, 50, WELL_AFTER));
    let upgraded = |progress| Input::Verified {
        progress: Some(version(progress)),
        head: version(50),
        same_resource: true,
        server: Some("v1.37.0".to_owned()),
        watch_list: false,
    };
    let fill = Action::Fill { mode: FillMode::WatchList, not_older_than: Some(version(50)) };
    assert_eq!(machine.next(upgraded(50)), Next::now(fill));
    machine.next(Input::Filled { version: version(51), watching: true, watch_list: true, server: server() });
    machine.next(ended(None, 51, Duration::ZERO));
    assert_eq!(machine.next(upgraded(51)).loss, Some(Loss::Backwards), "what went back is lost, upgraded or not");
}

#[test]
fn waits_double_up_to_a_limit_and_start_over_after_a_success() {
    let mut machine = machine();
    let waits: Vec<_> =
        (0..8).map(|_| machine.next(Input::FillFailed(Failure::Unavailable)).delay.as_millis()).collect();
    assert_eq!(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    machine.next(Input::Filled { version: version(1), watching: true, watch_list: true, server: server() });
    assert_eq!(machine.next(ended(Failure::Unavailable, 1, Duration::ZERO)).delay, BACKOFF_MIN);
}

#[test]
fn a_healthy_watch_resets_the_delays() {
    let mut machine = filled_at(5);
    let mut fails_after = |lasted| machine.next(ended(Failure::Unavailable, 5, lasted)).delay.as_millis();
    assert_eq!([(); 4].map(|()| fails_after(Duration::from_secs(119))), [800, 1600, 3200, 6400]);
    assert_eq!([(); 2].map(|()| fails_after(WELL_AFTER)), [800, 800]);
}

#[test]
fn fills_followed_by_unreadable_events_back_off() {
    for (failure, waits) in [(Failure::Malformed, [800, 1600, 3200, 6400]), (Failure::Expired, [0, 1600, 3200, 6400])] {
        let mut machine = filled_at(5);
        let mut poisoned = |lasted| {
            let next = machine.next(ended(failure, 6, lasted));
            assert!(matches!(next.action, Action::Fill { mode: FillMode::WatchList, .. }), "{failure:?}");
            machine.next(Input::Filled { version: version(7), watching: true, watch_list: true, server: server() });
            next.delay.as_millis()
        };
        assert_eq!([(); 4].map(|()| poisoned(Duration::from_secs(1))), waits, "{failure:?}");
        assert_eq!(poisoned(WELL_AFTER), waits[0], "{failure:?}");
    }
}

#[test]
fn a_fill_that_was_followed_for_a_while_is_not_wasted() {
    for (breaks, waits) in [(Failure::Unavailable, [0, 0, 0, 0]), (Failure::Malformed, [800, 1600, 3200, 6400])] {
        let mut machine = filled_at(5);
        let mut refilled = || {
            // An API server that was started again, or what cannot be read.
            let mut next = machine.next(ended(breaks, 6, USED_AFTER));
            if breaks != Failure::Malformed {
                assert_eq!(next.action, Action::Verify);
                next = machine.next(ended(Failure::Expired, 6, Duration::ZERO));
            }
            assert!(matches!(next.action, Action::Fill { .. }), "{next:?}");
            machine.next(Input::Bridged { version: version(7), watching: true, watch_list: true });
            next.delay.as_millis()
        };
        assert_eq!([(); 4].map(|()| refilled()), waits, "{breaks:?}");
    }
}

fn mode(next: Next) -> FillMode {
    let Action::Fill { mode, .. } = next.action else { panic!("{next:?}") };
    mode
}

#[test]
fn watch_list_is_tried_again_at_each_fill() {
    for refused in [Failure::Refused, Failure::InternalError] {
        let mut machine = machine();
        machine.next(Input::Start);
        assert_eq!(mode(machine.next(Input::FillFailed(refused))), FillMode::List);
        for failure in [Failure::Unavailable, Failure::InternalError] {
            assert_eq!(mode(machine.next(Input::FillFailed(failure))), FillMode::WatchList);
            assert_eq!(mode(machine.next(Input::FillFailed(refused))), FillMode::List);
        }
        machine.next(Input::Filled { version: version(5), watching: false, watch_list: false, server: server() });
        assert_eq!(mode(machine.next(ended(Failure::Expired, 5, WELL_AFTER))), FillMode::WatchList);
    }
}

#[test]
fn lists_fill_for_an_hour_where_watch_lists_do_not_end() {
    let (now, filled) = (Instant::now(), |watch_list| Input::Filled {
        version: version(5),
        watching: false,
        watch_list,
        server: server(),
    });
    // A list was faster than a watch-list, and may have shown that upstream was merely slow.
    for (watch_list, expected) in [(true, FillMode::WatchList), (false, FillMode::List)] {
        let mut machine = Machine::new(now);
        machine.on(Input::Start, now);
        machine.on(filled(watch_list), now);
        assert_eq!(mode(machine.on(Input::Corrupt, now)), expected);
        machine.on(filled(false), now);
        assert_eq!(mode(machine.on(Input::Corrupt, now + STALLED_FOR)), FillMode::WatchList);
    }
    let mut machine = Machine::new(now);
    machine.on(Input::Start, now);
    machine.on(filled(false), now);
    let other = Input::Verified {
        progress: Some(version(5)),
        head: version(5),
        same_resource: true,
        server: Some("another".to_owned()),
        watch_list: false,
    };
    assert_eq!(mode(machine.on(other, now)), FillMode::WatchList);
}

#[test]
fn a_list_without_room_beside_a_watch_list_takes_its_turn() {
    let mut machine = machine();
    machine.next(Input::Start);
    let next = machine.next(Input::FillFailed(Failure::Stalled));
    let fill = Action::Fill { mode: FillMode::List, not_older_than: None };
    assert_eq!((next.action, next.delay), (fill, BACKOFF_MIN));
}

#[test]
fn the_age_of_a_store_counts_from_the_last_message_of_upstream() {
    let seconds = Duration::from_secs;
    for (failure, age) in
        [(None, 0), (Some(Failure::Unavailable), 0), (Some(Failure::Silent), 40), (Some(Failure::Stuck), 40)]
    {
        let Still(mut machine, start) = filled_at(5);
        machine.see(Seen::WatchOpened, start);
        machine.see(Seen::Change, start + seconds(10));
        let ended_at = start + seconds(50);
        assert_eq!(machine.health().age(ended_at), Duration::ZERO, "a quiet watch is not stale");
        machine.on(ended(failure, 6, seconds(50)), ended_at);
        assert_eq!(machine.health().age(ended_at), seconds(age), "{failure:?}");
        // Later failures do not make the state younger, until a watch is open again.
        machine.on(Input::VerifyFailed(Failure::Unavailable), ended_at + seconds(30));
        assert_eq!(machine.health().age(ended_at + seconds(60)), seconds(age + 60), "{failure:?}");
        machine.see(Seen::WatchOpened, ended_at + seconds(60));
        assert_eq!(machine.health().age(ended_at + seconds(90)), Duration::ZERO, "{failure:?}");
    }
}

#[test]
fn a_store_is_served_while_it_is_filled_again() {
    let mut machine = filled_at(5);
    machine.next(ended(Failure::Expired, 9, Duration::ZERO));
    assert!(matches!(machine.condition(), Condition::Unfollowed { .. }));
    machine.next(Input::FillFailed(Failure::Unavailable));
    assert!(matches!(machine.condition(), Condition::Unfollowed { .. }));
    machine.next(Input::Filled { version: version(10), watching: true, watch_list: true, server: server() });
    assert_eq!((machine.condition(), machine.0.health().epoch), (Condition::Followed, 2));
}

#[test]
fn a_store_that_is_lost_is_filled_after_a_pause() {
    let mut machine = filled_at(5);
    machine.next(Input::RolledBack);
    assert_eq!(machine.condition(), Condition::Unfilled);
    let now = machine.1;
    machine.0.see(Seen::PauseOver, now);
    assert_eq!(machine.condition(), Condition::Filling);
}

#[test]
fn watch_list_is_known_as_soon_as_it_is_seen_and_anew_with_each_fill() {
    let mut machine = machine();
    let mut knows = |input| {
        machine.next(input);
        machine.0.health().watch_list
    };
    let filled = |watch_list| Input::Filled { version: version(5), watching: false, watch_list, server: server() };
    let verified = |watch_list| Input::Verified {
        progress: Some(version(5)),
        head: version(5),
        same_resource: true,
        server: server(),
        watch_list,
    };
    let inputs = [filled(false), verified(false), verified(true), verified(false), filled(false), filled(true)];
    assert_eq!(inputs.map(&mut knows), [false, false, true, true, false, true]);
}

#[test]
fn a_watch_that_had_bookmarks_may_be_silent_for_less_long() {
    let Still(mut machine, now) = filled_at(5);
    let before = machine.health().silence_max();
    machine.see(Seen::Bookmark, now);
    assert!(machine.health().silence_max() < before);
}

fn any_failure() -> impl Strategy<Value = Failure> {
    use Failure::*;
    prop::sample::select(vec![
        Expired,
        TooLarge,
        Refused,
        NotFound,
        Unauthorized,
        Denied,
        Unavailable,
        Malformed,
        Silent,
        Stalled,
        Stuck,
    ])
}

/// The possible results of an action, with rollbacks found by proofs at any time, and what is seen meanwhile.
#[derive(Clone, Debug)]
struct Step {
    fails: Option<Failure>,
    rolled_back: bool,
    version: u64,
    seconds: u64,
    flags: [bool; 4],
    seen: Vec<Seen>,
}

fn any_step() -> impl Strategy<Value = Step> {
    let seen = prop::collection::vec(prop::sample::select(vec![Seen::Change, Seen::Bookmark]), 0..3);
    let rolled_back = prop::bool::weighted(0.05);
    (prop::option::of(any_failure()), rolled_back, 1..100_u64, 0..300_u64, any::<[bool; 4]>(), seen).prop_map(
        |(fails, rolled_back, version, seconds, flags, seen)| Step {
            fails,
            rolled_back,
            version,
            seconds,
            flags,
            seen,
        },
    )
}

/// The input that ends an action.
fn outcome(action: Action, step: &Step, held: Option<u64>) -> Input {
    let [watching, same_resource, watch_list, bridged] = step.flags;
    let lasted = Duration::from_secs(step.seconds);
    match (action, step.fails) {
        _ if step.rolled_back && held.is_some() => Input::RolledBack,
        (Action::Fill { .. }, Some(failure)) => Input::FillFailed(failure),
        (Action::Fill { not_older_than: Some(held), .. }, None) if bridged => {
            Input::Bridged { version: version(step.version).max(held), watching, watch_list }
        }
        (Action::Fill { not_older_than, .. }, None) => Input::Filled {
            version: version(step.version).max(not_older_than.unwrap_or(version(1))),
            watching,
            watch_list,
            server: server(),
        },
        (Action::Watch { after }, failure) => Input::WatchEnded { failure, progress: after, lasted },
        (Action::GoOn, failure) => Input::WatchEnded { failure, progress: version(held.unwrap_or(1)), lasted },
        (Action::Verify, Some(failure)) => Input::VerifyFailed(failure),
        (Action::Verify | Action::Stop, None) => Input::Verified {
            progress: held.map(version),
            head: version(step.version),
            same_resource: same_resource || !step.version.is_multiple_of(8),
            server: server(),
            watch_list,
        },
        (Action::Stop, Some(_)) => Input::Start,
    }
}

proptest! {
    #[test]
    fn any_input_keeps_versions_rising_and_health_truthful(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut now = Instant::now();
        let mut machine = Machine::new(now);
        let (mut next, mut held, mut fills, mut heard) = (machine.on(Input::Start, now), None, 0, now);
        for step in steps {
            prop_assert!(next.delay <= BACKOFF_MAX);
            if next.loss.is_some() {
                held = None;
            }
            let health = machine.health();
            prop_assert_eq!(health.epoch, fills);
            let holds = matches!(health.condition, Condition::Followed | Condition::Unfollowed { .. });
            prop_assert_eq!(holds, held.is_some(), "{:?}", health);
            match next.action {
                Action::Stop => {
                    prop_assert_eq!(health.condition, Condition::Gone);
                    break;
                }
                // A fill never goes back behind the state that is still served.
                Action::Fill { not_older_than, .. } => {
                    prop_assert_eq!(not_older_than.map(ResourceVersion::value), held);
                }
                Action::Watch { after } => prop_assert_eq!(Some(after.value()), held),
                Action::GoOn | Action::Verify => prop_assert!(held.is_some()),
            }
            if let Condition::Unfollowed { since } = health.condition {
                prop_assert!(heard <= since && since <= now, "between upstream's last sign of life and now");
            }
            machine.see(Seen::PauseOver, now);
            if matches!(next.action, Action::Watch { .. } | Action::GoOn) {
                for seen in [Seen::WatchOpened].iter().chain(&step.seen) {
                    now += Duration::from_secs(1);
                    machine.see(*seen, now);
                    heard = now;
                }
            }
            now += Duration::from_secs(step.seconds);
            let input = outcome(next.action, &step, held);
            if let Input::Filled { version, .. } = &input {
                (held, fills, heard) = (Some(version.value()), fills + 1, now);
            }
            // A store that is bridged stays the same store.
            if let Input::Bridged { version, .. } = &input {
                (held, heard) = (Some(version.value()), now);
            }
            next = machine.on(input, now);
        }
    }
}
