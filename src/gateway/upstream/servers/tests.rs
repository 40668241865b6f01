//! Judgements of scripted answers.

use super::{answer::ServerReport, *};
use crate::{
    connector::{Denial, Finding},
    upstream::introduction::ClusterName,
};
use answer::CheckResult;

fn said(uid: &str) -> Option<CheckResult> {
    let (cluster, version) = (ClusterName::of_uid(uid), Some("v1".to_owned()));
    Some(CheckResult::Report(ServerReport { cluster, gateways: 0, version, unready: None }))
}

fn away() -> Option<CheckResult> {
    Some(CheckResult::Unreachable("refused".to_owned()))
}

fn silent() -> Option<CheckResult> {
    Some(CheckResult::Silent("silent".to_owned()))
}

fn mute() -> Option<CheckResult> {
    Some(CheckResult::Mute("silent".to_owned()))
}

fn busy(is_ready: bool) -> Option<CheckResult> {
    let unready = (!is_ready).then(|| "it ends".to_owned());
    Some(CheckResult::Busy { error: "429".to_owned(), unready })
}

/// A membership and its time. Servers that it does not ask get no answer.
struct Script {
    membership: Membership,
    now: Instant,
    states: Vec<char>,
}

impl Script {
    fn of(servers: usize) -> Self {
        Self::with_fallback(servers, 0)
    }

    /// The last ones are of the fallback.
    fn with_fallback(servers: usize, fallback: usize) -> Self {
        let now = Instant::now();
        Self { membership: Membership::new(servers, servers - fallback, now), now, states: vec!['u'; servers] }
    }

    /// The state of each server after a round: `r`eady, un`w`ell, `u`nknown, `g`one, `f`oreign.
    fn round(&mut self, answers: &[Option<CheckResult>]) -> String {
        let due = self.membership.due(|_| true);
        let asked = answers.iter().zip(due).map(|(answer, due)| answer.clone().filter(|_| due));
        self.now += CHECK_EVERY;
        let judgement = self.membership.round(&asked.collect::<Vec<_>>(), self.now);
        for (state, finding) in self.states.iter_mut().zip(judgement.findings) {
            *state = match finding {
                None => *state,
                Some(Finding::Ready { .. }) => 'r',
                Some(Finding::Unwell { .. }) => 'w',
                Some(Finding::Unknown { .. } | Finding::Denied { .. }) => 'u',
                Some(Finding::Gone { .. }) => 'g',
                Some(Finding::Foreign { .. }) => 'f',
            };
        }
        self.states.iter().collect()
    }
}

#[test]
fn servers_of_one_cluster_are_used_at_once() {
    let mut script = Script::of(3);
    assert_eq!(script.round(&[away(), said("a"), said("a")]), "urr");
    assert_eq!(script.round(&[said("a"), said("a"), said("a")]), "rrr");
}

#[test]
fn a_busy_member_stays_in_use_and_others_have_to_say_who_they_are() {
    let mut script = Script::of(3);
    assert_eq!(script.round(&[said("a"), said("a"), busy(true)]), "rru");
    for _ in 0..5 {
        assert_eq!(script.round(&[busy(true), busy(true), busy(true)]), "rru");
    }
    assert_eq!(script.round(&[busy(false), busy(true), busy(true)]), "wru", "it is about to end");
    assert_eq!(script.round(&[said("a"), said("b"), busy(true)]), "rfu", "another cluster's");
    assert_eq!(script.round(&[said("a"), busy(true), said("a")]), "rfr");
}

#[test]
fn a_member_that_stays_busy_is_set_aside_until_it_says_who_it_is() {
    let mut script = Script::of(2);
    let beside = |answer| [said("a"), answer];
    assert_eq!(script.round(&beside(said("a"))), "rr");
    let mut rounds = 0;
    while script.round(&beside(busy(true))) == "rr" {
        rounds += 1;
        assert!(rounds < 20, "{rounds} rounds");
    }
    assert_eq!((CHECK_EVERY * rounds, script.states.as_slice()), (Duration::from_secs(60), &['r', 'w'][..]));
    assert_eq!(script.round(&beside(busy(true))), "rw");
    assert_eq!(script.round(&beside(said("a"))), "rr");
    assert_eq!(script.round(&beside(busy(true))), "rr", "a new minute");
}

#[test]
fn a_server_of_another_cluster_is_never_used() {
    let mut script = Script::of(2);
    for _ in 0..100 {
        assert_eq!(script.round(&[said("a"), said("b")]), "rf");
    }
    // Nor if it is the only one that answers, before that lasts.
    assert_eq!(script.round(&[away(), said("b")]), "uf");
}

#[test]
fn a_new_cluster_is_believed_at_once_if_all_answer_and_later_if_some_do_not() {
    let mut script = Script::of(2);
    assert_eq!(script.round(&[said("a"), said("a")]), "rr");
    assert_eq!(script.round(&[said("b"), said("b")]), "rr");
    assert_eq!(script.round(&[away(), said("c")]), "uf");
    let mut rounds = 1;
    while script.round(&[away(), said("c")]) != "ur" {
        rounds += 1;
        assert!(rounds < 40, "it is believed after a minute");
    }
    assert!(rounds > 10, "{rounds}: not before");
}

#[test]
fn a_mute_server_is_gone_after_a_while() {
    let mut script = Script::of(1);
    assert_eq!(script.round(&[said("a")]), "r");
    for expected in ["w", "w", "u", "g", "g"] {
        assert_eq!(script.round(&[mute()]), expected);
    }
    assert_eq!(script.round(&[silent()]), "u", "it answers something");
}

#[test]
fn what_was_known_of_a_server_is_forgotten_while_it_is_not_checked() {
    let mut script = Script::with_fallback(2, 1);
    assert_eq!(script.round(&[away(), said("a")]), "ur");
    script.membership.due(|index| index == 0);
    let denied = Some(CheckResult::Denied(Denial::Forbidden, "403".to_owned()));
    assert_eq!(script.round(&[away(), denied]), "uu", "it has to say again who it is");
}

#[test]
fn no_cluster_of_the_fallback_is_believed_to_be_a_new_one() {
    let mut script = Script::with_fallback(2, 1);
    assert_eq!(script.round(&[said("a"), None]), "ru");
    let gone = Some(CheckResult::Gone("refused".to_owned()));
    for _ in 0..100 {
        assert_eq!(script.round(&[gone.clone(), said("b")]), "gf");
    }
    while script.round(&[said("b"), said("b")]) != "rr" {}
    // Before there is a known one, it is as good as any.
    let mut script = Script::with_fallback(2, 1);
    assert_eq!(script.round(&[gone, said("a")]), "gr");
    assert_eq!(script.round(&[said("a"), said("a")]), "rr");
    // Until another one tells which it is.
    let mut script = Script::with_fallback(2, 1);
    assert_eq!(script.round(&[away(), said("b")]), "ur");
    for _ in 0..3 {
        assert_eq!(script.round(&[said("a"), said("b")]), "rf");
    }
}

#[test]
fn a_silent_server_is_set_aside_and_then_unknown() {
    let mut script = Script::of(2);
    assert_eq!(script.round(&[said("a"), said("a")]), "rr");
    assert_eq!(script.round(&[silent(), said("a")]), "wr");
    assert_eq!(script.round(&[silent(), said("a")]), "wr");
    for _ in 0..10 {
        assert_eq!(script.round(&[silent(), said("a")]), "ur", "it answers something, so it is not gone");
    }
    // It may be another one now.
    assert_eq!(script.round(&[said("b"), said("a")]), "fr");
}

#[test]
fn a_server_that_reports_no_identity_is_set_aside() {
    let mut script = Script::of(2);
    let untold = || Some(CheckResult::Untold("403".to_owned()));
    assert_eq!(script.round(&[said("a"), untold()]), "ru");
    assert_eq!(script.round(&[untold(), untold()]), "wu");
    assert_eq!(script.round(&[said("a"), untold()]), "ru");
}

#[test]
fn a_server_that_is_not_ready_is_set_aside() {
    let mut script = Script::of(1);
    let mut answer = said("a");
    if let Some(CheckResult::Report(report)) = &mut answer {
        report.unready = Some("500".to_owned());
    }
    assert_eq!(script.round(&[answer]), "w");
    assert_eq!(script.round(&[said("a")]), "r");
}

#[test]
fn caches_are_notified_only_of_findings_about_servers_in_use() {
    let mut script = Script::of(2);
    let mut strayed = |answers: &[Option<CheckResult>]| {
        let judgement = script.membership.round(answers, script.now);
        (judgement.is_another, judgement.has_strayed)
    };
    assert_eq!(strayed(&[said("a"), said("b")]), (false, false));
    assert_eq!(strayed(&[said("a"), said("a")]), (false, false));
    assert_eq!(strayed(&[said("a"), said("b")]), (false, true));
    assert_eq!(strayed(&[said("a"), said("b")]), (false, false));
    assert_eq!(strayed(&[said("c"), said("c")]), (true, false));
}
