//! Judgements of scripted answers.

use super::{answer::Said, *};
use crate::{apimachinery::ResourceVersion, connector::Finding};
use answer::Answer;

fn said(uid: &str, head: u64) -> Option<Answer> {
    let head = ResourceVersion::new(head).unwrap();
    Some(Answer::Said(Said { uid: uid.to_owned(), head, version: Some("v1".to_owned()), unready: None }))
}

fn away() -> Option<Answer> {
    Some(Answer::Unreachable("refused".to_owned()))
}

fn silent() -> Option<Answer> {
    Some(Answer::Silent("silent".to_owned()))
}

/// A judge and its time. Servers that it does not ask get no answer.
struct Court {
    judge: Judge,
    now: Instant,
    states: Vec<char>,
}

impl Court {
    fn of(servers: usize) -> Self {
        let now = Instant::now();
        Self { judge: Judge::new(servers, now), now, states: vec!['u'; servers] }
    }

    /// The state of each server after a round: `r`eady, un`w`ell, `u`nknown, `f`oreign.
    fn round(&mut self, answers: &[Option<Answer>]) -> String {
        let due = self.judge.due();
        let asked = answers.iter().zip(due).map(|(answer, due)| answer.clone().filter(|_| due));
        self.now += CHECK_EVERY;
        let judgement = self.judge.round(&asked.collect::<Vec<_>>(), self.now);
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
fn the_first_that_answers_is_used_at_once_and_the_others_when_they_are_compared() {
    let mut court = Court::of(3);
    assert_eq!(court.round(&[away(), said("a", 5), said("a", 6)]), "uru");
    assert_eq!(court.round(&[said("a", 6), said("a", 6), said("a", 6)]), "urr");
    assert_eq!(court.round(&[said("a", 7), said("a", 7), said("a", 8)]), "rrr");
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
fn a_member_whose_storage_leaves_the_others_is_no_member_any_more() {
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
fn a_server_that_does_not_say_who_it_is_stays_what_it_was() {
    let mut court = Court::of(2);
    let untold = || Some(Answer::Untold("403".to_owned()));
    assert_eq!(court.round(&[said("a", 5), untold()]), "ru");
    assert_eq!(court.round(&[untold(), untold()]), "wu");
    assert_eq!(court.round(&[said("a", 5), untold()]), "ru");
}

#[test]
fn a_server_that_is_not_ready_is_set_aside() {
    let mut court = Court::of(1);
    let mut answer = said("a", 5);
    if let Some(Answer::Said(said)) = &mut answer {
        said.unready = Some("500".to_owned());
    }
    assert_eq!(court.round(&[answer]), "w");
    assert_eq!(court.round(&[said("a", 5)]), "r");
}
