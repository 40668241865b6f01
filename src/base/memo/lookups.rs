//! Answers that have to be asked for, with a cache.
//!
//! Invariants: the same question is never asked twice at the same time. Each question runs in its own task, so
//! that its answer is cached even if the requests that wait for it are gone, or are not polled because their clients do
//! not read. There are as many tasks as questions, not as many as requests. Questions of one [`Capacity`] take none
//! from the other.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use quick_cache::Equivalent;
use tokio::{sync::watch, time::Instant};

use super::{Bound, TtlCache};
use crate::{lifecycle::Tasks, telemetry};

/// The answer to a question.
#[derive(Clone, Copy, Debug)]
pub struct Cacheable<V> {
    pub value: V,
    /// How long the answer is cached. Zero: it is given only to the requests that wait for it now.
    pub ttl: Duration,
}

/// The capacity that a question takes up while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The capacity shared by ordinary questions.
    Common,
    /// Capacity reserved for questions that must be asked however many others there are.
    Reserved,
}

/// Cached answers and questions in flight. Clones share both.
pub struct Lookups<K, V> {
    shared: Arc<Shared<K, V>>,
    tasks: Tasks,
}

struct Shared<K, V> {
    known: TtlCache<K, V>,
    under_way: Mutex<UnderWay<K, V>>,
    common: Bound,
    reserved: Bound,
}

struct UnderWay<K, V> {
    /// The receivers hold `None` until there is an answer.
    questions: HashMap<K, watch::Receiver<Option<V>>>,
    /// Number of questions in flight, per capacity.
    common: usize,
    reserved: usize,
}

impl<K, V> Lookups<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Starts empty. `known` limits the cached answers, `common` and `reserved` the questions in flight in each
    /// capacity; `tasks` runs the questions.
    pub fn new(known: Bound, common: Bound, reserved: Bound, tasks: Tasks) -> Self {
        let under_way = Mutex::new(UnderWay { questions: HashMap::new(), common: 0, reserved: 0 });
        let shared = Shared { known: TtlCache::new(known), under_way, common, reserved };
        Self { shared: Arc::new(shared), tasks }
    }

    /// The cached answer, if it is valid at `now`.
    pub fn known<Q: Hash + Equivalent<K> + ?Sized>(&self, question: &Q, now: Instant) -> Option<V> {
        self.shared.known.get(question, now)
    }

    /// Drops expired answers, unless that was done recently.
    pub fn sweep(&self) {
        self.shared.known.sweep(Instant::now());
    }

    /// Answers a question that was not cached just now. Joins the same question if it is in flight; otherwise spawns
    /// the future of `begin` as a task named `name`, before this function returns. `None` if the capacity is full, if
    /// `begin` returns `None` (the caller may not ask), or if no answer comes.
    pub fn ask<A, B>(
        &self,
        name: &'static str,
        question: K,
        capacity: Capacity,
        begin: B,
    ) -> impl Future<Output = Option<V>> + Send + use<K, V, A, B>
    where
        A: Future<Output = Cacheable<V>> + Send + 'static,
        B: FnOnce() -> Option<A>,
    {
        let answer = self.answer(name, question, capacity, begin);
        async move {
            match answer? {
                Pending::Known(value) => Some(value),
                // The sender is dropped without an answer only if its task panicked or was aborted.
                Pending::UnderWay(mut answer) => answer.wait_for(Option::is_some).await.ok()?.clone(),
            }
        }
    }

    fn answer<A, B>(&self, name: &'static str, question: K, capacity: Capacity, begin: B) -> Option<Pending<V>>
    where
        A: Future<Output = Cacheable<V>> + Send + 'static,
        B: FnOnce() -> Option<A>,
    {
        let mut under_way = self.shared.under_way();
        if let Some(answer) = under_way.questions.get(&question) {
            return Some(Pending::UnderWay(answer.clone()));
        }
        // The answer may have come since the caller looked.
        if let Some(value) = self.known(&question, Instant::now()) {
            return Some(Pending::Known(value));
        }
        let Bound { most, limit } = self.shared.bound(capacity);
        if *under_way.count(capacity) >= most {
            telemetry::limit_reached(limit);
            return None;
        }
        let asked = begin()?;
        let (told, answer) = watch::channel(None);
        under_way.questions.insert(question.clone(), answer.clone());
        *under_way.count(capacity) += 1;
        drop(under_way);
        let question = Place { shared: self.shared.clone(), question, capacity };
        // Not an async block, which would have room for `asked` twice: there are thousands of questions at once.
        let task = asked.map(move |Cacheable { value, ttl }| {
            // Cached before the question is removed, so that a concurrent caller finds it in one place or the other.
            question.shared.known.insert(question.question.clone(), value.clone(), ttl);
            drop(question);
            told.send_replace(Some(value));
        });
        self.tasks.spawn(name, task);
        Some(Pending::UnderWay(answer))
    }
}

impl<K, V> Shared<K, V> {
    fn bound(&self, capacity: Capacity) -> Bound {
        match capacity {
            Capacity::Common => self.common,
            Capacity::Reserved => self.reserved,
        }
    }

    /// Poisoning is ignored: a panic cannot leave the map half-updated.
    fn under_way(&self) -> MutexGuard<'_, UnderWay<K, V>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> UnderWay<K, V> {
    fn count(&mut self, capacity: Capacity) -> &mut usize {
        match capacity {
            Capacity::Common => &mut self.common,
            Capacity::Reserved => &mut self.reserved,
        }
    }
}

/// An answer, or where it will arrive.
enum Pending<V> {
    Known(V),
    UnderWay(watch::Receiver<Option<V>>),
}

/// A question in flight; removed from the map when dropped.
struct Place<K: Eq + Hash, V> {
    shared: Arc<Shared<K, V>>,
    question: K,
    capacity: Capacity,
}

impl<K: Eq + Hash, V> Drop for Place<K, V> {
    fn drop(&mut self) {
        let mut under_way = self.shared.under_way();
        under_way.questions.remove(&self.question);
        *under_way.count(self.capacity) -= 1;
    }
}

impl<K, V> Clone for Lookups<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), tasks: self.tasks.clone() }
    }
}

impl<K: Eq + Hash, V: Clone> fmt::Debug for Lookups<K, V> {
    /// Shows neither questions nor answers, which may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = self.shared.under_way().questions.len();
        formatter
            .debug_struct("Lookups")
            .field("known", &self.shared.known)
            .field("under_way", &under_way)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures_util::future;
    use tokio::sync::Semaphore;

    const TTL: Duration = Duration::from_secs(10);
    const LIMIT: &str = "test";

    /// Answers each question with the question itself once a permit is available, and counts them.
    struct World {
        answers: Lookups<u32, u32>,
        asked: Arc<AtomicUsize>,
        gate: Arc<Semaphore>,
    }

    impl World {
        fn new() -> Self {
            let bound = |most| Bound { most, limit: LIMIT };
            let answers = Lookups::new(bound(1000), bound(3), bound(1), Tasks::new());
            Self { answers, asked: Arc::default(), gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
        }

        fn ask(&self, question: u32, ttl: Duration) -> impl Future<Output = Option<u32>> + use<> {
            self.ask_in(Capacity::Common, question, ttl)
        }

        fn ask_in(
            &self,
            capacity: Capacity,
            question: u32,
            ttl: Duration,
        ) -> impl Future<Output = Option<u32>> + use<> {
            let (asked, gate) = (self.asked.clone(), self.gate.clone());
            let answered = async move {
                asked.fetch_add(1, SeqCst);
                gate.acquire().await.unwrap().forget();
                Cacheable { value: question, ttl }
            };
            self.answers.ask("question", question, capacity, || Some(answered))
        }

        fn asked(&self) -> usize {
            self.asked.load(SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_cached_for_its_ttl() {
        let world = World::new();
        let known = |question| world.answers.known(&question, Instant::now());
        assert_eq!((known(1), world.ask(1, TTL).await, known(1)), (None, Some(1), Some(1)));
        // A caller that looked before the answer came, and asks after that.
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 1));
        tokio::time::advance(TTL).await;
        assert_eq!((known(1), world.ask(1, TTL).await, world.asked()), (None, Some(1), 2));
    }

    #[tokio::test]
    async fn an_answer_without_a_ttl_reaches_only_its_waiters() {
        let world = World::new();
        let waiting = [world.ask(1, Duration::ZERO), world.ask(1, Duration::ZERO)];
        assert_eq!(future::join_all(waiting).await, [Some(1); 2]);
        assert_eq!((world.asked(), world.answers.known(&1, Instant::now())), (1, None));
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 2));
    }

    #[tokio::test]
    async fn a_question_outlives_the_caller_that_asked_it() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        assert_eq!(world.ask(1, TTL).now_or_never(), None);
        tokio::task::yield_now().await;
        world.gate.add_permits(1);
        assert_eq!((world.ask(1, TTL).await, world.asked()), (Some(1), 1));
    }

    #[tokio::test]
    async fn the_questions_in_flight_are_limited() {
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
    async fn the_reserved_room_is_free_when_the_common_one_is_full() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        for question in 1..=3 {
            assert_eq!(world.ask(question, TTL).now_or_never(), None);
        }
        let reserved = world.ask_in(Capacity::Reserved, 5, TTL);
        assert_eq!(world.ask(6, TTL).now_or_never(), Some(None));
        assert_eq!(world.ask_in(Capacity::Reserved, 6, TTL).now_or_never(), Some(None));
        let joined = world.ask(5, TTL);
        world.gate.add_permits(4);
        assert_eq!((reserved.await, joined.await, world.asked()), (Some(5), Some(5), 4));
        world.gate.add_permits(1);
        assert_eq!(world.ask_in(Capacity::Reserved, 6, TTL).await, Some(6));
    }

    #[tokio::test]
    async fn a_refused_question_takes_no_room_but_joins_one_in_flight() {
        let world = World::new();
        world.gate.forget_permits(Semaphore::MAX_PERMITS);
        let refused = |question| {
            world.answers.ask("question", question, Capacity::Common, || None::<future::Ready<Cacheable<u32>>>)
        };
        assert_eq!(refused(1).await, None);
        let asked = world.ask(1, TTL);
        let joined = refused(1);
        world.gate.add_permits(1);
        assert_eq!((asked.await, joined.await, world.asked()), (Some(1), Some(1), 1));
    }

    #[tokio::test]
    async fn waiters_of_a_panicked_question_get_none() {
        let world = World::new();
        let broken =
            world.answers.ask("question", 1, Capacity::Common, || Some(async { panic!("as the test wants it") }));
        assert_eq!(broken.await, None);
        assert_eq!(world.ask(1, TTL).await, Some(1), "no longer under way");
    }
}
