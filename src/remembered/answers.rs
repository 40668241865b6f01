//! Answers that somebody else has to be asked for.
//!
//! Invariants: the same is never asked twice at the same time. A question is asked by a task of its own, so that its answer is kept
//! although those who wait for it go away, or are not polled because their clients do not read. There are as many tasks as questions,
//! never as many as requests.

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

/// What is known, and what is being asked. Clones are the same.
pub struct Answers<K, V> {
    shared: Arc<Shared<K, V>>,
    tasks: Tasks,
}

struct Shared<K, V> {
    known: Kept<K, V>,
    /// `None` until there is an answer.
    under_way: Mutex<HashMap<K, watch::Receiver<Option<V>>>>,
    under_way_bound: Bound,
}

impl<K, V> Answers<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Nothing is known yet. `known` bounds the answers that are kept, `under_way` the questions that are asked at a time; `tasks` runs
    /// them.
    pub fn new(known: Bound, under_way: Bound, tasks: Tasks) -> Self {
        let shared = Shared { known: Kept::new(known), under_way: Mutex::default(), under_way_bound: under_way };
        Self { shared: Arc::new(shared), tasks }
    }

    /// The answer that is known at `now`.
    pub fn known<Q: Hash + Equivalent<K> + ?Sized>(&self, question: &Q, now: Instant) -> Option<V> {
        self.shared.known.get(question, now)
    }

    /// The answer to a question that nobody knew just now: that of the same one under way, or else what comes of `asked`, in a task with
    /// that name. It is on its way when this returns. `None` if too much is being asked already, or if no answer comes.
    pub fn ask<A>(
        &self,
        name: &'static str,
        question: K,
        asked: A,
    ) -> impl Future<Output = Option<V>> + Send + use<K, V, A>
    where
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let answer = self.answer(name, question, asked);
        async move {
            match answer? {
                Pending::Known(value) => Some(value),
                // The one who asks is gone only with the process.
                Pending::UnderWay(mut answer) => answer.wait_for(Option::is_some).await.ok()?.clone(),
            }
        }
    }

    fn answer<A>(&self, name: &'static str, question: K, asked: A) -> Option<Pending<V>>
    where
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let mut under_way = self.shared.under_way();
        if let Some(answer) = under_way.get(&question) {
            return Some(Pending::UnderWay(answer.clone()));
        }
        // It may have come since somebody looked.
        if let Some(value) = self.known(&question, Instant::now()) {
            return Some(Pending::Known(value));
        }
        let Bound { most, limit } = self.shared.under_way_bound;
        if under_way.len() >= most {
            telemetry::limit_reached(limit);
            return None;
        }
        let (told, answer) = watch::channel(None);
        under_way.insert(question.clone(), answer.clone());
        drop(under_way);
        let question = UnderWay { shared: self.shared.clone(), question };
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
    fn under_way(&self) -> MutexGuard<'_, HashMap<K, watch::Receiver<Option<V>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an answer is to be had.
enum Pending<V> {
    Known(V),
    UnderWay(watch::Receiver<Option<V>>),
}

/// A question that is under way until this is dropped.
struct UnderWay<K: Eq + Hash, V> {
    shared: Arc<Shared<K, V>>,
    question: K,
}

impl<K: Eq + Hash, V> Drop for UnderWay<K, V> {
    fn drop(&mut self) {
        self.shared.under_way().remove(&self.question);
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
        let under_way = self.shared.under_way().len();
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

    use futures_util::FutureExt;
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
            let answers = Answers::new(bound(1000), bound(3), Tasks::new());
            Self { answers, asked: Arc::default(), gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
        }

        fn ask(&self, question: u32, ttl: Duration) -> impl Future<Output = Option<u32>> + use<> {
            let (asked, gate) = (self.asked.clone(), self.gate.clone());
            self.answers.ask("question", question, async move {
                asked.fetch_add(1, SeqCst);
                gate.acquire().await.unwrap().forget();
                Answer { value: question, ttl }
            })
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
        assert_eq!(futures_util::future::join_all(waiting).await, [Some(1); 2]);
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
    async fn who_waits_for_what_breaks_is_told_so() {
        let world = World::new();
        let broken = world.answers.ask("question", 1, async { panic!("as the test wants it") });
        assert_eq!(broken.await, None);
        assert_eq!(world.ask(1, TTL).await, Some(1), "no longer under way");
    }
}
