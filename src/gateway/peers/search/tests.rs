//! The rules of a search, one by one, and many searches at the same time in a model of a Service.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

const ANY: fn(usize) -> bool = |_| true;

fn name(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A search by gateway 0, with rank 100.
fn search(addresses: usize) -> (Search, Instant) {
    let now = Instant::now();
    (Search::new(name(0), ElectionRank::drawn(100), addresses, 0.5, now), now)
}

/// Asks that many times, and hears each time this.
fn hear(search: &mut Search, now: Instant, times: usize, heard: Heard) {
    for _ in 0..times {
        let Question { address, .. } = search.next(now, ANY).unwrap();
        search.heard(address, heard);
    }
}

#[test]
fn the_search_ends_when_most_likely_all_gateways_were_asked() {
    for others in [0_u8, 1, 5] {
        let (mut search, now) = search(1);
        hear(&mut search, now, 1, Heard::Itself);
        for other in 1..=others {
            hear(&mut search, now, 1, Heard::NoState(Some(name(other.into()))));
        }
        let more = QUESTIONS_PER_GATEWAY * (usize::from(others) + 2);
        hear(&mut search, now, more, Heard::Itself);
        assert_eq!(search.next(now, ANY), Err(End::Nowhere), "{others} others");
    }
}

#[test]
fn a_gateway_that_was_not_known_prolongs_the_search() {
    let (mut search, now) = search(1);
    hear(&mut search, now, 1, Heard::Itself);
    hear(&mut search, now, 2 * QUESTIONS_PER_GATEWAY - 1, Heard::Itself);
    hear(&mut search, now, 1, Heard::NoState(Some(name(1))));
    hear(&mut search, now, 3 * QUESTIONS_PER_GATEWAY, Heard::Itself);
    assert_eq!(search.next(now, ANY), Err(End::Nowhere));
}

#[test]
fn among_many_that_have_nothing_the_number_of_answers_is_limited() {
    let (mut search, now) = search(1);
    for other in 0..ANSWERS_MAX {
        hear(&mut search, now, 1, Heard::NoState(Some(name(other as u128))));
    }
    assert_eq!(search.next(now, ANY), Err(End::Nowhere));
}

#[test]
fn a_gateway_with_the_lowest_lot_asks_upstream_and_one_with_a_higher_lot_waits() {
    let (mut lower, now) = search(1);
    hear(&mut lower, now, ANSWERS_AMONG_SEARCHES, Heard::Filling(Some(name(1)), ElectionRank::drawn(101)));
    assert_eq!((lower.next(now, ANY), lower.lowest()), (Err(End::Nowhere), ElectionRank::drawn(100)));

    for rank in [ElectionRank::drawn(99), ElectionRank::FIRST] {
        let (mut higher, now) = search(1);
        hear(&mut higher, now, QUESTIONS_MAX / 2, Heard::Filling(None, rank));
        assert_eq!(higher.lowest(), rank);
        // What others have not heard yet does not end the wait.
        hear(&mut higher, now, QUESTIONS_MAX / 2, Heard::Filling(None, ElectionRank::drawn(200)));
        assert_eq!(higher.next(now, ANY), Err(End::Late));
    }
}

#[test]
fn a_search_takes_no_longer_than_its_time() {
    let now = Instant::now();
    for (patience, time) in [(0.0, SEARCH_MIN), (1.0, SEARCH_MAX)] {
        let mut search = Search::new(name(0), ElectionRank::drawn(100), 1, patience, now);
        hear(&mut search, now, 1, Heard::Filling(None, ElectionRank::FIRST));
        assert!(search.next(now + time - Duration::from_millis(1), ANY).is_ok());
        assert_eq!(search.next(now + time, ANY), Err(End::Late));
    }
}

#[test]
fn there_are_pauses_which_are_longer_while_the_state_is_fetched() {
    let (mut search, now) = search(1);
    let mut pause = |heard| {
        let Question { pause, .. } = search.next(now, ANY).unwrap();
        search.heard(0, heard);
        pause
    };
    assert_eq!(pause(Heard::Itself), Duration::ZERO);
    assert_eq!(pause(Heard::Filling(None, ElectionRank::drawn(200))), LOOK_EVERY);
    assert_eq!(pause(Heard::Filling(None, ElectionRank::FIRST)), LOOK_EVERY);
    assert_eq!(pause(Heard::Itself), WAIT_EVERY);
}

#[test]
fn an_address_that_does_not_work_is_given_up_and_the_others_are_not() {
    let (mut search, now) = search(3);
    let mut asked = BTreeMap::<_, u32>::new();
    while let Ok(Question { address, .. }) = search.next(now, |address| address != 2 || asked.len() < 3) {
        *asked.entry(address).or_default() += 1;
        search.heard(address, if address == 1 { Heard::Failed } else { Heard::NoState(Some(name(7))) });
        if asked[&0] == 4 {
            break;
        }
    }
    assert_eq!(asked, [(0, 4), (1, FAILURES_MAX), (2, 1)].into());
}

#[test]
fn without_an_address_that_works_upstream_is_asked() {
    for (heard, times) in [(Heard::Failed, FAILURES_MAX as usize), (Heard::TimedOut, 1)] {
        let (mut search, now) = search(1);
        hear(&mut search, now, times, heard);
        assert_eq!(search.next(now, ANY), Err(End::Unanswered), "{heard:?}");
    }
    let (mut search, now) = search(1);
    assert_eq!(search.next(now, |_| false), Err(End::Unanswered));
}

#[test]
fn one_gateway_of_several_that_does_not_answer_does_not_end_the_search() {
    let (mut search, now) = search(1);
    for heard in [Heard::Failed, Heard::TimedOut] {
        for _ in 0..3 {
            hear(&mut search, now, 1, Heard::Filling(Some(name(1)), ElectionRank::FIRST));
            hear(&mut search, now, FAILURES_MAX as usize - 1, heard);
        }
    }
    assert!(search.next(now, ANY).is_ok());
}

#[test]
fn others_are_told_of_a_lot_once_the_search_has_begun() {
    let told = LowestRank::default();
    assert_eq!(told.get(), None);
    for rank in [ElectionRank::drawn(5), ElectionRank::FIRST] {
        told.set(rank);
        assert_eq!(told.get(), Some(rank));
    }
}

/// Some gateways behind one address that need the same state.
#[derive(Clone, Copy, Debug)]
struct Replicas {
    cold: usize,
    /// Those that have it from the beginning.
    warm: usize,
    /// Those that do not need it.
    idle: usize,
    /// Within which time the cold ones begin.
    start: Duration,
    /// How long it takes to get the state from upstream, and from another gateway.
    fetch: [Duration; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Searching,
    Fetching,
    Warm,
}

/// What came of it.
#[derive(Debug)]
struct Played {
    /// How many have asked upstream.
    upstream: usize,
    /// The longest search.
    longest: Duration,
    questions: usize,
}

/// The time for a question and its answer.
const ASKED_WITHIN: Duration = Duration::from_millis(4);

/// One run: gateways by number, the cold ones first.
struct Model {
    replicas: Replicas,
    states: Vec<State>,
    begins: Vec<Instant>,
    searches: Vec<Search>,
    /// Who has something to do when. The number makes each unique.
    due: BTreeMap<(Instant, usize), usize>,
    rng: Rng,
    played: Played,
}

impl Model {
    fn new(replicas: Replicas, seed: u64) -> Self {
        let (mut rng, origin) = (Rng::with_seed(seed), Instant::now());
        let Replicas { cold, warm, idle, start, .. } = replicas;
        let begins: Vec<_> = (0..cold).map(|_| origin + start.mul_f64(rng.f64())).collect();
        let mut search = |number: usize| {
            let rank = ElectionRank::drawn(rng.u64(..u64::MAX));
            Search::new(name(number as u128), rank, 1, rng.f64(), begins[number])
        };
        let searches = (0..cold).map(&mut search).collect();
        let of = |state, count| std::iter::repeat_n(state, count);
        let states = of(State::Before, cold).chain(of(State::Warm, warm)).chain(of(State::Before, idle)).collect();
        let due = begins.iter().enumerate().map(|(number, at)| ((*at, number), number)).collect();
        let played = Played { upstream: 0, longest: Duration::ZERO, questions: 0 };
        Self { replicas, states, begins, searches, due, rng, played }
    }

    fn play(mut self) -> Played {
        let mut number = self.replicas.cold;
        while let Some(((now, _), gateway)) = self.due.pop_first() {
            let next = match self.states[gateway] {
                State::Before => {
                    self.states[gateway] = State::Searching;
                    self.next(gateway, now)
                }
                State::Searching => self.ask(gateway, now),
                State::Fetching => {
                    self.states[gateway] = State::Warm;
                    continue;
                }
                State::Warm => unreachable!("nothing is left to do"),
            };
            number += 1;
            self.due.insert((next, number), gateway);
        }
        self.played
    }

    /// When it asks the next question, or has the state of upstream.
    fn next(&mut self, gateway: usize, now: Instant) -> Instant {
        match self.searches[gateway].next(now, ANY) {
            Ok(Question { pause, .. }) => now + pause.mul_f64(0.5 + self.rng.f64()) + ASKED_WITHIN,
            Err(_) => {
                self.played.upstream += 1;
                self.fetch(gateway, now, self.replicas.fetch[0])
            }
        }
    }

    fn ask(&mut self, gateway: usize, now: Instant) -> Instant {
        self.played.questions += 1;
        let other = self.rng.usize(..self.states.len());
        let named = Some(name(other as u128));
        let heard = match self.states[other] {
            State::Searching if other == gateway => Heard::Itself,
            State::Before => Heard::NoState(named),
            State::Searching => Heard::Filling(named, self.searches[other].lowest()),
            State::Fetching => Heard::Filling(named, ElectionRank::FIRST),
            State::Warm => return self.fetch(gateway, now, self.replicas.fetch[1]),
        };
        self.searches[gateway].heard(0, heard);
        self.next(gateway, now)
    }

    fn fetch(&mut self, gateway: usize, now: Instant, time: Duration) -> Instant {
        self.states[gateway] = State::Fetching;
        self.played.longest = self.played.longest.max(now - self.begins[gateway]);
        now + time
    }
}

/// What came of many runs.
struct Often {
    /// How many have asked upstream in the mean of the runs, and at most.
    upstream: (f64, usize),
    longest: Duration,
    /// Of one gateway, in the mean of the runs.
    questions: usize,
}

impl Replicas {
    fn play(self) -> Often {
        const RUNS: usize = 100;
        let runs: Vec<_> = (0..RUNS).map(|seed| Model::new(self, seed as u64).play()).collect();
        let total: usize = runs.iter().map(|run| run.upstream).sum();
        Often {
            upstream: (total as f64 / RUNS as f64, runs.iter().map(|run| run.upstream).max().unwrap()),
            longest: runs.iter().map(|run| run.longest).max().unwrap(),
            questions: runs.iter().map(|run| run.questions).sum::<usize>() / RUNS / self.cold,
        }
    }
}

const AT_ONCE: Duration = Duration::ZERO;
const WITHIN_SECONDS: Duration = Duration::from_secs(3);
/// A small state, and one of seconds.
const FETCHES: [[Duration; 2]; 2] =
    [[Duration::from_millis(20), Duration::from_millis(10)], [Duration::from_secs(2), Duration::from_secs(1)]];

#[test]
fn of_replicas_that_start_together_about_one_asks_upstream() {
    for cold in [2, 3, 20, 50] {
        for (start, fetch) in [AT_ONCE, WITHIN_SECONDS].into_iter().flat_map(|at| FETCHES.map(|fetch| (at, fetch))) {
            let replicas = Replicas { cold, warm: 0, idle: 0, start, fetch };
            let Often { upstream: (mean, most), longest, questions } = replicas.play();
            assert!((1.0..1.3).contains(&mean) && most <= 4, "{replicas:?}: {mean}, at most {most}");
            assert!(longest < SEARCH_MAX && questions < 80, "{replicas:?}: {longest:?}, {questions} questions");
        }
    }
}

#[test]
fn replicas_find_the_one_that_has_the_state() {
    for (cold, warm, idle) in [(1, 1, 0), (1, 19, 0), (18, 2, 0), (19, 1, 0), (49, 1, 0), (2, 1, 5), (1, 1, 9)] {
        for (start, fetch) in [AT_ONCE, WITHIN_SECONDS].into_iter().flat_map(|at| FETCHES.map(|fetch| (at, fetch))) {
            let replicas = Replicas { cold, warm, idle, start, fetch };
            let Often { upstream: (mean, most), longest, questions } = replicas.play();
            assert!(mean <= 0.2 && most <= 1, "{replicas:?}: {mean}, at most {most}");
            assert!(longest < SEARCH_MIN && questions < 30, "{replicas:?}: {longest:?}, {questions} questions");
        }
    }
}

#[test]
fn a_replica_alone_or_among_idle_ones_soon_asks_upstream() {
    for idle in [0, 1, 4, 19] {
        let replicas = Replicas { cold: 1, warm: 0, idle, start: AT_ONCE, fetch: FETCHES[0] };
        let Often { upstream: (mean, _), longest, questions } = replicas.play();
        assert_eq!(mean, 1.0, "{replicas:?}");
        assert!(longest < Duration::from_secs(2) && questions < 80, "{replicas:?}: {longest:?}, {questions} questions");
    }
}
