//! Answers that somebody else has to be asked for.
//!
//! Invariants: the same is never asked twice at the same time. A question is asked by a task of its own, so that its answer is kept
//! although those who wait for it go away, or are not polled because their clients do not read. There are as many tasks as questions,
//! never as many as requests. Questions of one [`Room`] take nothing from those of the other.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quick_cache::Equivalent;
use tokio::{sync::watch, time::Instant};

use super::{Bound, Kept};
use crate::{lifecycle::Tasks, telemetry};

/// What came of a question.
#[derive(Clone, Copy, Debug)]
pub struct Answer<V> {
    pub value: V,
    /// For how long it is believed; zero is only by those who wait for it now.
    pub ttl: Duration,
}

/// What a question takes up while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A place among those of all questions.
    Common,
    /// A place that is kept free for questions that have to be asked however many others there are.
    Reserved,
}

/// What is known, and what is being asked. Clones are the same.
pub struct Answers<K, V> {
    shared: Arc<Shared<K, V>>,
    tasks: Tasks,
}

struct Shared<K, V> {
    known: Kept<K, V>,
    under_way: Mutex<UnderWay<K, V>>,
    common: Bound,
    reserved: Bound,
}

struct UnderWay<K, V> {
    /// `None` until there is an answer.
    questions: HashMap<K, watch::Receiver<Option<V>>>,
    /// How many of them are in each room.
    common: usize,
    reserved: usize,
}

impl<K, V> Answers<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Nothing is known yet. `known` bounds the answers that are kept, `common` and `reserved` the questions that are asked at a time in
    /// each room; `tasks` runs them.
    pub fn new(known: Bound, common: Bound, reserved: Bound, tasks: Tasks) -> Self {
        let under_way = Mutex::new(UnderWay { questions: HashMap::new(), common: 0, reserved: 0 });
        let shared = Shared { known: Kept::new(known), under_way, common, reserved };
        Self { shared: Arc::new(shared), tasks }
    }

    /// The answer that is known at `now`.
    pub fn known<Q: Hash + Equivalent<K> + ?Sized>(&self, question: &Q, now: Instant) -> Option<V> {
        self.shared.known.get(question, now)
    }

    /// Gives back what belongs to answers that are no longer believed, if that was not done lately.
    pub fn sweep(&self) {
        self.shared.known.sweep(Instant::now());
    }

    /// The answer to a question that was not known just now: that of the same one under way, or else what comes of the future of
    /// `begin`, in a task with that name. It is on its way when this returns. `None` if too much is being asked already, if `begin` has
    /// nothing (the one who asks may not), or if no answer comes.
    pub fn ask<A, B>(
        &self,
        name: &'static str,
        question: K,
        room: Room,
        begin: B,
    ) -> impl Future<Output = Option<V>> + Send + use<K, V, A, B>
    where
        A: Future<Output = Answer<V>> + Send + 'static,
        B: FnOnce() -> Option<A>,
    {
        let answer = self.answer(name, question, room, begin);
        async move {
            match answer? {
                Pending::Known(value) => Some(value),
                // The one who asks is gone only with the process.
                Pending::UnderWay(mut answer) => answer.wait_for(Option::is_some).await.ok()?.clone(),
            }
        }
    }

    fn answer<A, B>(&self, name: &'static str, question: K, room: Room, begin: B) -> Option<Pending<V>>
    where
        A: Future<Output = Answer<V>> + Send + 'static,
        B: FnOnce() -> Option<A>,
    {
        let mut under_way = self.shared.under_way();
        if let Some(answer) = under_way.questions.get(&question) {
            return Some(Pending::UnderWay(answer.clone()));
        }
        // It may have come since somebody looked.
        if let Some(value) = self.known(&question, Instant::now()) {
            return Some(Pending::Known(value));
        }
        let Bound { most, limit } = match room {
            Room::Common => self.shared.common,
            Room::Reserved => self.shared.reserved,
        };
        if *under_way.count(room) >= most {
            telemetry::limit_reached(limit);
            return None;
        }
        let asked = begin()?;
        let (told, answer) = watch::channel(None);
        under_way.questions.insert(question.clone(), answer.clone());
        *under_way.count(room) += 1;
        drop(under_way);
        let question = Place { shared: self.shared.clone(), question, room };
        self.tasks.spawn(name, async move {
            let Answer { value, ttl } = asked.await;
            // Kept before it is no longer under way: whoever comes now finds it in one place or the other.
            question.shared.known.keep(question.question.clone(), value.clone(), ttl);
            drop(question);
            told.send_replace(Some(value));
        });
        Some(Pending::UnderWay(answer))
    }
}

impl<K, V> Shared<K, V> {
    /// The map holds no invariant that a panic could break half-way.
    fn under_way(&self) -> MutexGuard<'_, UnderWay<K, V>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> UnderWay<K, V> {
    fn count(&mut self, room: Room) -> &mut usize {
        match room {
            Room::Common => &mut self.common,
            Room::Reserved => &mut self.reserved,
        }
    }
}

/// Where an answer is to be had.
enum Pending<V> {
    Known(V),
    UnderWay(watch::Receiver<Option<V>>),
}

/// The place of a question, which is under way until this is dropped.
struct Place<K: Eq + Hash, V> {
    shared: Arc<Shared<K, V>>,
    question: K,
    room: Room,
}

impl<K: Eq + Hash, V> Drop for Place<K, V> {
    fn drop(&mut self) {
        let mut under_way = self.shared.under_way();
        under_way.questions.remove(&self.question);
        *under_way.count(self.room) -= 1;
    }
}

impl<K, V> Clone for Answers<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), tasks: self.tasks.clone() }
    }
}

impl<K: Eq + Hash, V: Clone> fmt::Debug for Answers<K, V> {
    /// Neither questions nor answers: they may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = self.shared.under_way().questions.len();
        formatter
            .debug_struct("Answers")
            .field("known", &self.shared.known)
            .field("under_way", &under_way)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures_util::{FutureExt, future};
    use tokio::sync::Semaphore;

    const TTL: Duration = Duration::from_secs(10);
    const LIMIT: &str = "test";

    /// Answers each question with itself, as soon as it is let, and counts.
    struct World {
        answers: Answers<u32, u32>,
        asked: Arc<AtomicUsize>,
        gate: Arc<Semaphore>,
    }

    impl World {
        fn new() -> Self {
            let bound = |most| Bound { most, limit: LIMIT };
            let answers = Answers::new(bound(1000), bound(3), bound(1), Tasks::new());
            Self { answers, asked: Arc::default(), gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
        }

        fn ask(&self, question: u32, ttl: Duration) -> impl Future<Output = Option<u32>> + use<> {
            self.ask_in(Room::Common, question, ttl)
        }

        fn ask_in(&self, room: Room, question: u32, ttl: Duration) -> impl Future<Output = Option<u32>> + use<> {
            let (asked, gate) = (self.asked.clone(), self.gate.clone());
            let answered = async move {
                asked.fetch_add(1, SeqCst);
                gate.acquire().await.unwrap().forget();
                Answer { value: question, ttl }
            };
            self.answers.ask("question", question, room, || Some(answered))
        }

        fn asked(&self) -> usize {
            self.asked.load(SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_known_for_its_time() {
        let world = World::new();
        let known = |question| world.answers.known(&question, Instant::now());
        assert_eq!((known(1), world.ask(1, TTL).await, known(1)), (None, Some(1), Some(1)));
        // Whoever looked before the answer came, and asks after that.
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 1));
        tokio::time::advance(TTL).await;
        assert_eq!((known(1), world.ask(1, TTL).await, world.asked()), (None, Some(1), 2));
    }

    #[tokio::test]
    async fn an_answer_without_a_time_is_for_those_who_wait() {
        let world = World::new();
        let waiting = [world.ask(1, Duration::ZERO), world.ask(1, Duration::ZERO)];
        assert_eq!(future::join_all(waiting).await, [Some(1); 2]);
        assert_eq!((world.asked(), world.answers.known(&1, Instant::now())), (1, None));
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 2));
    }

    #[tokio::test]
    async fn a_question_outlives_who_asked_it() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        assert_eq!(world.ask(1, TTL).now_or_never(), None);
        tokio::task::yield_now().await;
        world.gate.add_permits(1);
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 1));
    }

    #[tokio::test]
    async fn so_much_is_asked_at_a_time_and_no_more() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        for question in 1..=3 {
            assert_eq!(world.ask(question, TTL).now_or_never(), None);
        }
        assert_eq!(world.ask(4, TTL).now_or_never(), Some(None));
        let joined = world.ask(3, TTL);
        world.gate.add_permits(3);
        assert_eq!((joined.await, world.asked()), (Some(3), 3));
        world.gate.add_permits(1);
        assert_eq!(world.ask(4, TTL).await, Some(4));
    }

    #[tokio::test]
    async fn a_reserve_is_free_however_much_is_asked() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        for question in 1..=3 {
            assert_eq!(world.ask(question, TTL).now_or_never(), None);
        }
        let reserved = world.ask_in(Room::Reserved, 5, TTL);
        assert_eq!(world.ask(6, TTL).now_or_never(), Some(None));
        assert_eq!(world.ask_in(Room::Reserved, 6, TTL).now_or_never(), Some(None));
        let joined = world.ask(5, TTL);
        world.gate.add_permits(4);
        assert_eq!((reserved.await, joined.await, world.asked()), (Some(5), Some(5), 4));
        world.gate.add_permits(1);
        assert_eq!(world.ask_in(Room::Reserved, 6, TTL).await, Some(6));
    }

    #[tokio::test]
    async fn what_may_not_be_asked_takes_no_room_and_joins_what_is_asked() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        let refused =
            |question| world.answers.ask("question", question, Room::Common, || None::<future::Ready<Answer<u32>>>);
        assert_eq!(refused(1).await, None);
        let asked = world.ask(1, TTL);
        let joined = refused(1);
        world.gate.add_permits(1);
        assert_eq!((asked.await, joined.await, world.asked()), (Some(1), Some(1), 1));
    }

    #[tokio::test]
    async fn who_waits_for_what_breaks_is_told_so() {
        let world = World::new();
        let broken = world.answers.ask("question", 1, Room::Common, || Some(async { panic!("as the test wants it") }));
        assert_eq!(broken.await, None);
        assert_eq!(world.ask(1, TTL).await, Some(1), "no longer under way");
    }
}
