//! The machine by scripts of inputs, and what holds whatever the inputs are.

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
    let waits: Vec<_> = (0..8).map(|_| machine.on(Input::FillFailed(Failure::Unavailable)).delay.as_millis()).collect();
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
    for (failure, waits) in [(Failure::Malformed, [800, 1600, 3200, 6400]), (Failure::Expired, [0, 1600, 3200, 6400])] {
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
