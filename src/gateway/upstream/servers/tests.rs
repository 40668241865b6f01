//! Judgements of scripted answers.

use proptest::prelude::*;

use super::{answer::Said, *};
use crate::connector::Finding;
use answer::CheckResult;
use base::apimachinery::ResourceVersion;

fn said(uid: &str, head: u64) -> Option<CheckResult> {
    let head = ResourceVersion::new(head).unwrap();
    Some(CheckResult::Said(Said { uid: uid.to_owned(), head, version: Some("v1".to_owned()), unready: None }))
}

fn away() -> Option<CheckResult> {
    Some(CheckResult::Unreachable("refused".to_owned()))
}

fn silent() -> Option<CheckResult> {
    Some(CheckResult::Silent("silent".to_owned()))
}

fn busy(is_ready: bool) -> Option<CheckResult> {
    let unready = (!is_ready).then(|| "it ends".to_owned());
    Some(CheckResult::Busy { error: "429".to_owned(), unready })
}

/// A membership and its time. Servers that it does not ask get no answer.
struct Court {
    membership: Membership,
    now: Instant,
    states: Vec<char>,
}

impl Court {
    fn of(servers: usize) -> Self {
        let now = Instant::now();
        Self { membership: Membership::new(servers, now), now, states: vec!['u'; servers] }
    }

    /// The state of each server after a round: `r`eady, un`w`ell, `u`nknown, `f`oreign.
    fn round(&mut self, answers: &[Option<CheckResult>]) -> String {
        let due = self.membership.due();
        let asked = answers.iter().zip(due).map(|(answer, due)| answer.clone().filter(|_| due));
        self.now += CHECK_EVERY;
        let judgement = self.membership.round(&asked.collect::<Vec<_>>(), self.now);
        for (state, finding) in self.states.iter_mut().zip(judgement.findings) {
            *state = match finding {
                None => *state,
                Some(Finding::Ready { .. }) => 'r',
                Some(Finding::Unwell { .. }) => 'w',
                Some(Finding::Unknown { .. } | Finding::Denied { .. }) => 'u',
                Some(Finding::Foreign { .. }) => 'f',
            };
        }
        self.states.iter().collect()
    }
}

#[test]
fn the_first_server_that_answers_is_used_at_once_and_others_after_comparison() {
    let mut court = Court::of(3);
    assert_eq!(court.round(&[away(), said("a", 5), said("a", 6)]), "uru");
    assert_eq!(court.round(&[said("a", 6), said("a", 6), said("a", 6)]), "urr");
    assert_eq!(court.round(&[said("a", 7), said("a", 7), said("a", 8)]), "rrr");
}

#[test]
fn a_busy_member_stays_in_use_and_others_have_to_say_who_they_are() {
    let mut court = Court::of(3);
    assert_eq!(court.round(&[said("a", 5), said("a", 5), busy(true)]), "ruu");
    assert_eq!(court.round(&[said("a", 5), said("a", 5), busy(true)]), "rru");
    for _ in 0..5 {
        assert_eq!(court.round(&[busy(true), busy(true), busy(true)]), "rru");
    }
    assert_eq!(court.round(&[busy(false), busy(true), busy(true)]), "wru", "it is about to end");
    assert_eq!(court.round(&[busy(true), said("b", 9), busy(true)]), "wfu", "another cluster's");
    assert_eq!(court.round(&[said("a", 6), busy(true), said("a", 6)]), "rfu");
    assert_eq!(court.round(&[said("a", 6), busy(true), said("a", 6)]), "rfr");
}

#[test]
fn a_member_that_stays_busy_is_set_aside_until_it_says_who_it_is() {
    let mut court = Court::of(2);
    let beside = |answer| [said("a", 5), answer];
    court.round(&beside(said("a", 5)));
    assert_eq!(court.round(&beside(said("a", 5))), "rr");
    let mut rounds = 0;
    while court.round(&beside(busy(true))) == "rr" {
        rounds += 1;
        assert!(rounds < 20, "{rounds} rounds");
    }
    assert_eq!((CHECK_EVERY * rounds, court.states.as_slice()), (Duration::from_secs(60), &['r', 'w'][..]));
    assert_eq!(court.round(&beside(busy(true))), "rw");
    assert_eq!(court.round(&beside(said("a", 5))), "rr");
    assert_eq!(court.round(&beside(busy(true))), "rr", "a new minute");
}

#[test]
fn a_server_of_another_cluster_is_never_used() {
    let mut court = Court::of(2);
    assert_eq!(court.round(&[said("a", 5), said("b", 5)]), "rf");
    for _ in 0..100 {
        assert_eq!(court.round(&[said("a", 5), said("b", 5)]), "rf");
    }
    // Nor if it is the only one that answers, before that lasts.
    assert_eq!(court.round(&[away(), said("b", 5)]), "uf");
}

#[test]
fn a_server_on_a_restored_storage_is_not_used_until_it_is_on_that_of_the_others() {
    let mut court = Court::of(2);
    court.round(&[said("a", 50), said("a", 50)]);
    assert_eq!(court.round(&[said("a", 51), said("a", 50)]), "rr");
    // Behind what was known before it was asked.
    assert_eq!(court.round(&[said("a", 51), said("a", 40)]), "rf");
    assert_eq!(court.round(&[said("a", 52), said("a", 41)]), "rf");
    let mut rounds = 0;
    while court.round(&[said("a", 52), said("a", 52)]) != "rr" {
        rounds += 1;
        assert!(rounds < 5, "it is asked again");
    }
}

#[test]
fn a_copy_of_the_storage_that_is_ahead_is_found_when_the_others_are_asked_again() {
    let mut court = Court::of(2);
    assert_eq!(court.round(&[said("a", 50), said("a", 90)]), "ru");
    assert_eq!(court.round(&[said("a", 51), said("a", 91)]), "rf");
    for round in 0..200 {
        assert_eq!(court.round(&[said("a", 52 + round), said("a", 2_000 + round)]), "rf");
    }
    // While none of the others can be asked, it is still another one.
    assert_eq!(court.round(&[away(), said("a", 3_000)]).chars().last(), Some('f'));
}

#[test]
fn a_server_whose_storage_diverges_is_removed() {
    let mut court = Court::of(3);
    court.round(&[said("a", 50), said("a", 50), said("a", 50)]);
    assert_eq!(court.round(&[said("a", 50), said("a", 50), said("a", 50)]), "rrr");
    // The one that the others are compared with is restored.
    assert_eq!(court.round(&[said("a", 10), said("a", 51), said("a", 51)]), "frr");
}

#[test]
fn a_cluster_that_is_restored_as_a_whole_is_believed() {
    let mut court = Court::of(2);
    court.round(&[said("a", 50), said("a", 50)]);
    assert_eq!(court.round(&[said("a", 50), said("a", 50)]), "rr");
    assert_eq!(court.round(&[away(), away()]), "uu");
    // The other one might still be on the storage that was known.
    assert_eq!(court.round(&[said("a", 10), away()]), "fu");
    // It is not, and so there is none.
    assert_eq!(court.round(&[said("a", 10), said("a", 11)]), "fr");
    let mut rounds = 0;
    while court.round(&[said("a", 12), said("a", 12)]) != "rr" {
        rounds += 1;
        assert!(rounds < 5, "it is asked again");
    }
}

#[test]
fn a_new_cluster_is_believed_at_once_if_all_answer_and_later_if_some_do_not() {
    let mut court = Court::of(2);
    court.round(&[said("a", 50), said("a", 50)]);
    court.round(&[said("a", 50), said("a", 50)]);
    assert_eq!(court.round(&[said("b", 5), said("b", 5)]).chars().next(), Some('r'));
    assert_eq!(court.round(&[said("b", 5), said("b", 5)]), "rr");
    assert_eq!(court.round(&[away(), said("c", 5)]), "uf");
    let mut rounds = 1;
    while court.round(&[away(), said("c", 5)]) != "ur" {
        rounds += 1;
        assert!(rounds < 40, "it is believed after a minute");
    }
    assert!(rounds > 10, "{rounds}: not before");
}

#[test]
fn a_silent_server_is_set_aside_and_then_unknown() {
    let mut court = Court::of(2);
    court.round(&[said("a", 5), said("a", 5)]);
    assert_eq!(court.round(&[said("a", 5), said("a", 5)]), "rr");
    assert_eq!(court.round(&[silent(), said("a", 5)]), "wr");
    assert_eq!(court.round(&[silent(), said("a", 5)]), "wr");
    assert_eq!(court.round(&[silent(), said("a", 5)]), "ur");
    // It may be another one now.
    assert_eq!(court.round(&[said("a", 4), said("a", 5)]), "fr");
}

#[test]
fn a_server_that_reports_no_identity_keeps_its_state() {
    let mut court = Court::of(2);
    let untold = || Some(CheckResult::Untold("403".to_owned()));
    assert_eq!(court.round(&[said("a", 5), untold()]), "ru");
    assert_eq!(court.round(&[untold(), untold()]), "wu");
    assert_eq!(court.round(&[said("a", 5), untold()]), "ru");
}

#[test]
fn a_server_that_is_not_ready_is_set_aside() {
    let mut court = Court::of(1);
    let mut answer = said("a", 5);
    if let Some(CheckResult::Said(said)) = &mut answer {
        said.unready = Some("500".to_owned());
    }
    assert_eq!(court.round(&[answer]), "w");
    assert_eq!(court.round(&[said("a", 5)]), "r");
}

/// Rounds of answers with these versions, `0` for none; the states after each.
fn rounds(servers: usize, rounds: &[(&[u64], &str)]) {
    let mut court = Court::of(servers);
    for (number, (heads, expected)) in rounds.iter().enumerate() {
        let answers: Vec<_> = heads.iter().map(|head| if *head == 0 { silent() } else { said("a", *head) }).collect();
        assert_eq!(court.round(&answers), *expected, "round {number}: {heads:?}");
    }
}

#[test]
fn a_version_that_only_one_member_has_shown_counts_against_that_member() {
    rounds(
        3,
        &[
            (&[50, 50, 50], "ruu"),
            (&[50, 50, 50], "rrr"),
            (&[51, 51, 9_000], "rrr"),
            (&[52, 52, 9_001], "rrf"),
            (&[53, 53, 9_002], "rrf"),
        ],
    );
    // While the others are silent, it is the only one to ask, and they are not refused for that.
    rounds(
        3,
        &[
            (&[50, 50, 50], "ruu"),
            (&[50, 50, 50], "rrr"),
            (&[51, 51, 9_000], "rrr"),
            (&[0, 0, 9_001], "wwr"),
            (&[53, 53, 9_002], "rrf"),
        ],
    );
}

#[test]
fn a_reference_that_jumps_is_refused_if_all_others_agree() {
    rounds(3, &[(&[50, 50, 50], "ruu"), (&[50, 50, 50], "rrr"), (&[9_000, 51, 51], "rrr"), (&[9_001, 52, 52], "frr")]);
    rounds(
        5,
        &[
            (&[50; 5], "ruuuu"),
            (&[50; 5], "rrrrr"),
            (&[9_000, 51, 51, 51, 51], "rrrrr"),
            (&[9_001, 52, 52, 52, 52], "frrrr"),
            (&[9_002, 53, 53, 53, 53], "frrrr"),
        ],
    );
}

#[test]
fn a_tie_keeps_the_reference() {
    rounds(2, &[(&[50, 50], "ru"), (&[50, 50], "rr"), (&[9_000, 51], "rr"), (&[9_001, 52], "rf")]);
    rounds(2, &[(&[50, 50], "ru"), (&[50, 50], "rr"), (&[51, 9_000], "rr"), (&[52, 9_001], "rf")]);
    rounds(
        4,
        &[(&[50; 4], "ruuu"), (&[50; 4], "rrrr"), (&[51, 51, 9_000, 9_000], "rrrr"), (&[52, 52, 9_001, 9_001], "rrff")],
    );
}

#[test]
fn the_majority_of_the_members_stays() {
    rounds(
        5,
        &[
            (&[50; 5], "ruuuu"),
            (&[50; 5], "rrrrr"),
            (&[9_000, 9_000, 51, 51, 51], "rrrrr"),
            (&[9_001, 9_001, 52, 52, 52], "ffrrr"),
        ],
    );
}

#[test]
fn a_jump_of_all_members_refuses_none() {
    // Answers of one round may be from before and after it.
    rounds(
        3,
        &[
            (&[50, 50, 50], "ruu"),
            (&[50, 50, 50], "rrr"),
            (&[51, 9_000, 51], "rrr"),
            (&[9_000, 9_001, 0], "rrw"),
            (&[9_002, 9_002, 9_002], "rrr"),
        ],
    );
}

#[test]
fn a_member_that_falls_behind_itself_is_refused_even_if_it_is_the_reference_of_two() {
    rounds(2, &[(&[50, 50], "ru"), (&[60, 60], "rr"), (&[70, 70], "rr"), (&[69, 70], "fr")]);
    rounds(2, &[(&[50, 50], "ru"), (&[60, 60], "rr"), (&[70, 70], "rr"), (&[70, 69], "rf")]);
}

#[test]
fn caches_are_notified_only_of_findings_about_servers_in_use() {
    let mut court = Court::of(2);
    let mut strayed = |answers: &[Option<CheckResult>]| {
        let judgement = court.membership.round(answers, court.now);
        (judgement.is_another, judgement.has_strayed)
    };
    assert_eq!(strayed(&[said("a", 50), said("b", 50)]), (false, false));
    assert_eq!(strayed(&[said("a", 50), said("a", 50)]), (false, false));
    assert_eq!(strayed(&[said("a", 50), said("a", 50)]), (false, false));
    assert_eq!(strayed(&[said("a", 50), said("b", 90)]), (false, true));
    assert_eq!(strayed(&[said("a", 50), said("b", 91)]), (false, false));
    assert_eq!(strayed(&[said("c", 50), said("c", 91)]), (true, false));
}

#[test]
fn the_only_server_is_compared_with_what_it_showed_before() {
    let mut court = Court::of(1);
    for head in [50, 60, 70] {
        assert_eq!(court.round(&[said("a", head)]), "r");
    }
    assert!(court.membership.round(&[said("a", 69)], court.now).is_another);
    assert_eq!(court.round(&[said("a", 80)]), "r");
    assert_eq!(court.round(&[away()]), "u");
    assert!(court.membership.round(&[said("a", 79)], court.now).is_another);
}

proptest! {
    /// Of members on one storage, whatever they answer and whenever, none is ever refused; of several storages, those
    /// that stay do not contradict each other, and with one odd member of three or more, that one goes.
    #[test]
    fn members_of_one_storage_are_never_refused(
        steps in prop::collection::vec((prop::collection::vec((0..3_u8, 0..5_u64), 4), 0..100_000_u64), 1..40),
    ) {
        let (mut court, mut head) = (Court::of(4), 50);
        for (answers, jump) in steps {
            let answers: Vec<_> = answers
                .into_iter()
                .map(|(kind, more)| match kind {
                    0 => silent(),
                    1 => said("a", head),
                    _ => said("a", head + more),
                })
                .collect();
            let states = court.round(&answers);
            prop_assert!(!states.contains('f'), "{states}");
            // The next round begins when this one has ended.
            head += 5 + jump;
        }
    }

    #[test]
    fn one_odd_member_of_several_is_found(members in 3..6_usize, odd in 0..6_usize, jump in 1_000..100_000_u64) {
        let odd = odd % members;
        let mut court = Court::of(members);
        let all = |head: u64, more: u64| -> Vec<_> {
            (0..members).map(|member| said("a", if member == odd { head + more } else { head })).collect()
        };
        for (head, more) in [(50, 0), (51, 0), (52, jump), (53, jump)] {
            court.round(&all(head, more));
        }
        let expected: String = (0..members).map(|member| if member == odd { 'f' } else { 'r' }).collect();
        prop_assert_eq!(court.states.iter().collect::<String>(), expected);
    }
}
