//! Limits how many tasks of one client run at once, and with [`PacedConcurrencyLimit`] how much of the time and how
//! often. The others wait in the order in which they came.
//!
//! Invariant: there is one line for each client that has or waits for a turn now, or whose last turn pauses.

use std::{sync::Arc, time::Duration};

use dashmap::{DashMap, Entry};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{ClientKey, RateLimit};
use crate::{lifecycle::Tasks, telemetry::limit_reached};

/// A turn pauses for this many times as long as its task took, so that a client that always has tasks waiting leaves
/// the CPU, and upstream, to others for most of the time.
const PAUSE_FACTOR: u32 = 3;
/// Maximum pause of a turn, by default: where tasks are slow by themselves, pauses do not make them much slower.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The turns of all clients.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    lines: Lines,
    at_once: usize,
    /// What all clients together have beyond one turn of each; `None` for no limit.
    common: Option<Arc<Semaphore>>,
    wait_max: Duration,
    limit: &'static str,
}

/// Turns with a pause after each.
#[derive(Debug)]
pub struct PacedConcurrencyLimit {
    turns: ConcurrencyLimit,
    /// `None`: as often as the pauses allow.
    rate: Option<RateLimit>,
    pause_max: Duration,
    tasks: Tasks,
}

type Lines = Arc<DashMap<ClientKey, Line>>;

/// The line of one client.
#[derive(Debug)]
struct Line {
    /// Number of tasks that have or wait for a turn.
    members: usize,
    turns: Arc<Semaphore>,
    /// The turn that the client has whatever others have; `None` if all of them are its own.
    own: Option<Arc<Semaphore>>,
}

/// A place in a client's line, until it is dropped.
#[derive(Debug)]
struct Member {
    lines: Lines,
    client: ClientKey,
}

/// Permission to run, released when dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    /// Its part of what all clients have together, or the client's own.
    place: Option<OwnedSemaphorePermit>,
    member: Member,
}

/// A turn that pauses when it is dropped.
#[derive(Debug)]
pub struct PacedTurn {
    /// Present until the drop.
    turn: Option<Turn>,
    began: Instant,
    pause_max: Duration,
    tasks: Tasks,
}

impl ConcurrencyLimit {
    /// How long a task waits for a turn.
    pub fn wait_max(&self) -> Duration {
        self.wait_max
    }

    /// Each client has `at_once` turns, and a task waits for one up to `wait_max`. `limit` is counted in the metrics
    /// for each task that waited too long.
    pub fn new(at_once: usize, wait_max: Duration, limit: &'static str) -> Self {
        Self { lines: Arc::default(), at_once, common: None, wait_max, limit }
    }

    /// All clients together have `common` turns beyond one of each. So the tasks that run at once stay few, however
    /// many clients send many, and a client with one task at a time never waits for others.
    #[must_use]
    pub fn with_common(self, common: usize) -> Self {
        Self { common: Some(Arc::new(Semaphore::new(common))), ..self }
    }

    /// Waits for one of the client's turns. `None` if none came in time. The caller has to limit how many tasks may
    /// wait.
    pub async fn wait(&self, client: ClientKey) -> Option<Turn> {
        self.wait_within(client, self.wait_max).await
    }

    /// The same, for a task that has only that time left: it has waited for a turn before.
    pub async fn wait_within(&self, client: ClientKey, left: Duration) -> Option<Turn> {
        self.by(Instant::now() + left, self.take(client)).await
    }

    /// Waits for one of the client's turns, as long as it takes.
    pub async fn take(&self, client: ClientKey) -> Turn {
        let mut turn = self.of_client(client).await;
        if self.common.is_some() {
            // Boxed, so that turns without a common limit do not carry its size.
            Box::pin(self.place(&mut turn)).await;
        }
        turn
    }

    /// One of the client's turns. The task may not run before it has its [place](Self::place).
    async fn of_client(&self, client: ClientKey) -> Turn {
        let turns = {
            let mut line = self.lines.entry(client).or_insert_with(|| Line::new(self.at_once, self.common.is_some()));
            line.members += 1;
            line.turns.clone()
        };
        let member = Member { lines: self.lines.clone(), client };
        // The semaphore is never closed.
        let permit = turns.acquire_owned().await.ok();
        Turn { _permit: permit, place: None, member }
    }

    /// Waits for the client's own place, or for one of those of all clients.
    async fn place(&self, turn: &mut Turn) {
        let own = self.lines.get(&turn.member.client).and_then(|line| line.own.clone());
        let Some((own, common)) = own.zip(self.common.clone()) else { return };
        turn.place = tokio::select! {
            biased;
            place = own.acquire_owned() => place.ok(),
            place = common.acquire_owned() => place.ok(),
        };
    }

    /// `None` if the wait takes longer.
    async fn by<T>(&self, deadline: Instant, wait: impl Future<Output = T>) -> Option<T> {
        let waited = timeout_at(deadline, wait).await.ok();
        if waited.is_none() {
            limit_reached(self.limit);
        }
        waited
    }
}

impl PacedConcurrencyLimit {
    /// `tasks` runs the pauses.
    pub fn new(turns: ConcurrencyLimit, tasks: Tasks) -> Self {
        Self { turns, rate: None, pause_max: PAUSE_MAX, tasks }
    }

    /// With a longer maximum of the pauses, for tasks that others should notice as little as possible.
    #[must_use]
    pub fn pausing_up_to(self, pause_max: Duration) -> Self {
        Self { pause_max, ..self }
    }

    /// With a limit on how often each client's turns come in the long run.
    #[must_use]
    pub fn at(self, rate: RateLimit) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Runs `task` in one of the client's turns, which then pauses. `None` if none came in time: see
    /// [`ConcurrencyLimit::wait`].
    ///
    /// The task is made and allocated once it has its turn: those that wait, which are many more, take little memory.
    pub async fn run<T: Future>(&self, client: ClientKey, task: impl FnOnce() -> T) -> Option<T::Output> {
        let _turn = self.wait(client).await?;
        Some(Box::pin(task()).await)
    }

    /// Waits for one of the client's turns. `None` if none came in time: see
    /// [`ConcurrencyLimit::wait`].
    pub async fn wait(&self, client: ClientKey) -> Option<PacedTurn> {
        let deadline = Instant::now() + self.turns.wait_max;
        let mut turn = self.turns.by(deadline, self.turns.of_client(client)).await?;
        // Only the few tasks that have a turn are accounted for ahead of their time.
        if let Some(rate) = &self.rate {
            let begins = rate.reserve(client);
            self.turns.by(deadline, sleep_until(begins)).await?;
        }
        // Last, so that tasks which wait for anything else keep no place from others.
        self.turns.by(deadline, self.turns.place(&mut turn)).await?;
        let (began, pause_max, tasks) = (Instant::now(), self.pause_max, self.tasks.clone());
        Some(PacedTurn { turn: Some(turn), began, pause_max, tasks })
    }
}

impl Drop for PacedTurn {
    fn drop(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        // The pause is the client's alone.
        turn.place = None;
        let pause = (self.began.elapsed() * PAUSE_FACTOR).min(self.pause_max);
        self.tasks.spawn("pause", async move {
            sleep(pause).await;
            drop(turn);
        });
    }
}

impl Line {
    fn new(at_once: usize, has_own: bool) -> Self {
        let own = has_own.then(|| Arc::new(Semaphore::new(1)));
        Self { members: 0, turns: Arc::new(Semaphore::new(at_once)), own }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Entry::Occupied(mut line) = self.lines.entry(self.client) {
            line.get_mut().members -= 1;
            if line.get().members == 0 {
                line.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;
    use tokio::time::advance;

    const WAIT_MAX: Duration = Duration::from_secs(5);

    fn turns(at_once: usize) -> ConcurrencyLimit {
        ConcurrencyLimit::new(at_once, WAIT_MAX, "test")
    }

    fn paced() -> PacedConcurrencyLimit {
        PacedConcurrencyLimit::new(turns(1), Tasks::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_pauses_after_its_task() {
        let turns = paced();
        let jane = ClientKey::of(&"jane");
        for (took, pause) in [(2, 6), (1000, 20)].map(|(took, pause)| (took, Duration::from_millis(pause))) {
            turns.run(jane, || sleep(Duration::from_millis(took))).await;
            let next = turns.run(jane, || async { Instant::now() });
            let ended = Instant::now();
            assert_eq!(next.await, Some(ended + pause));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_too_long_for_its_turn_is_not_run() {
        let turns = paced();
        let jane = ClientKey::of(&"jane");
        let (long, next) = (turns.run(jane, || sleep(2 * WAIT_MAX)), turns.run(jane, || async {}));
        assert_eq!(tokio::join!(long, next), (Some(()), None));
        advance(PAUSE_MAX).await;
        assert_eq!(turns.run(jane, || async {}).await, Some(()));
    }

    #[test]
    fn a_client_waits_for_its_own_turns_in_order_and_for_no_others() {
        let turns = turns(2);
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let [first, second] = [turns.take(jane), turns.take(jane)].map(|turn| turn.now_or_never().expect("one of two"));
        let (mut third, mut fourth) = (Box::pin(turns.take(jane)), Box::pin(turns.take(jane)));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        assert!(turns.take(john).now_or_never().is_some());
        drop(first);
        assert!((&mut fourth).now_or_never().is_none(), "the third goes first");
        let third = third.now_or_never().expect("its turn");
        drop((second, third));
        assert!(fourth.now_or_never().is_some());
        assert!(turns.lines.is_empty(), "clients that are done or gone have no line");
    }

    #[test]
    fn all_clients_have_common_turns_beyond_one_of_each() {
        let turns = turns(4).with_common(3);
        let [jane, john, joe] = ["jane", "john", "joe"].map(|name| ClientKey::of(&name));
        let take =
            |client, count: usize| -> Vec<_> { (0..count).map_while(|_| turns.take(client).now_or_never()).collect() };
        let mut hers = take(jane, 10);
        assert_eq!(hers.len(), 4, "one of her own, and all that are common");
        let mut his = take(john, 10);
        assert_eq!(his.len(), 1, "his own");
        let mut second = Box::pin(turns.take(john));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(take(joe, 1).len(), 1, "a client with one task does not wait");
        drop(hers.pop());
        his.extend(second.now_or_never());
        assert_eq!(his.len(), 2, "a common one was given back");
        drop((hers, his));
        assert!(turns.lines.is_empty());
        assert_eq!(take(john, 10).len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_pauses_is_not_common_any_more() {
        let turns = PacedConcurrencyLimit::new(turns(4).with_common(1), Tasks::new());
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let took = Duration::from_millis(4);
        let two = async |client| tokio::join!(turns.run(client, || sleep(took)), turns.run(client, || sleep(took)));
        let began = Instant::now();
        tokio::join!(two(jane), two(john));
        // Three of the four run at once; the last one waits for one of them, and for no pause.
        assert!(began.elapsed() < took * 3, "{:?}", began.elapsed());
    }

    #[test]
    fn a_cancelled_waiter_does_not_block_the_next() {
        let turns = turns(1);
        let jane = ClientKey::of(&"jane");
        let first = turns.take(jane).now_or_never().expect("the only one");
        let (mut goes, mut stays) = (Box::pin(turns.take(jane)), Box::pin(turns.take(jane)));
        assert!((&mut goes).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(goes);
        drop(first);
        assert!(stays.now_or_never().is_some());
        assert!(turns.lines.is_empty());
    }
}
