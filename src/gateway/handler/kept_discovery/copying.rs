//! Answers that are copied while they pass to a client: one for each question. Others with the same question wait for
//! it, so that clients that start at once cost the API server one body, not one each.
//!
//! Invariants: the copies under way hold no more bytes than all kept answers may; a client waits once, and no longer
//! than [`WAIT_MAX`], whatever another one does; and it gets nothing of another's answer: it asks upstream afterwards.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout},
};

use super::{BYTES, Question};
use base::telemetry::limit_reached;

/// How long a client waits for the answer that another one gets, and has the place to itself: longer than upstream
/// takes for its largest document, shorter than people take notice of. The other one may be slow, or not allowed.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// The questions that are asked at a time with the aim of keeping the answer. Others are forwarded without it.
const COPIED_AT_ONCE: usize = 256;
/// The unit in which the bytes of copies are counted.
const UNIT: usize = 1 << 10;

/// The copies under way. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    under_way: Arc<Mutex<HashMap<Question, Place>>>,
    room: Arc<Semaphore>,
    /// The maximum number of bytes of one answer.
    answer_max: usize,
}

#[derive(Clone, Debug)]
struct Place {
    taken: Instant,
    /// Closed when the client gives its place up.
    ended: watch::Receiver<()>,
    /// Whether the one before was too slow: then nobody waits again, and each client may take the place.
    is_contested: bool,
}

impl Place {
    /// How long it is waited for.
    fn left(&self) -> Duration {
        if self.is_contested { Duration::ZERO } else { WAIT_MAX.saturating_sub(self.taken.elapsed()) }
    }
}

/// The place of the client whose answer is copied. Those that wait go on once it is dropped.
#[derive(Debug)]
pub(super) struct Copying {
    copies: Copies,
    question: Question,
    end: watch::Sender<()>,
    room: OwnedSemaphorePermit,
    body: Vec<u8>,
}

impl Copies {
    /// Without any. All together hold at most `bytes`, and each at most `answer_max`.
    pub(super) fn new(bytes: u64, answer_max: usize) -> Self {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT;
        let room = Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)));
        Self { under_way: Arc::default(), room, answer_max }
    }

    /// The place to copy the answer to a question; `None` if another client had it, which has been waited for, or if
    /// there is no room.
    pub(super) async fn join(&self, question: &Question) -> Option<Copying> {
        let other = self.under_way().get(question).cloned();
        if let Some(mut other) = other
            && !other.left().is_zero()
            && timeout(other.left(), other.ended.changed()).await.is_ok()
        {
            return None;
        }
        self.begin(question)
    }

    /// The same without a wait: `None` if another client has the place that is still waited for.
    pub(super) fn begin(&self, question: &Question) -> Option<Copying> {
        let mut under_way = self.under_way();
        let is_contested = under_way.contains_key(question);
        if under_way.get(question).is_some_and(|other| !other.left().is_zero()) {
            return None;
        }
        if !is_contested && under_way.len() >= COPIED_AT_ONCE {
            under_way.retain(|_, place| !place.left().is_zero());
        }
        let has_place = is_contested || under_way.len() < COPIED_AT_ONCE;
        let room = self.room.clone().try_acquire_owned().ok().filter(|_| has_place);
        let Some(room) = room else {
            limit_reached(BYTES);
            return None;
        };
        let (end, ended) = watch::channel(());
        under_way.insert(question.clone(), Place { taken: Instant::now(), ended, is_contested });
        Some(Copying { copies: self.clone(), question: question.clone(), end, room, body: Vec::new() })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Question, Place>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copying {
    /// The next bytes. False if there is no room for them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let length = self.body.len() + bytes.len();
        let units = (length / UNIT + 1).saturating_sub(self.room.num_permits());
        let more =
            u32::try_from(units).ok().and_then(|units| self.copies.room.clone().try_acquire_many_owned(units).ok());
        let Some(more) = more.filter(|_| length <= self.copies.answer_max) else { return false };
        self.room.merge(more);
        self.body.extend_from_slice(bytes);
        true
    }

    /// The bytes so far, without the room that the buffer has to grow.
    pub(super) fn body(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.body).into_boxed_slice()
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let mut under_way = self.copies.under_way();
        // A later client may have the place.
        if under_way.get(&self.question).is_some_and(|place| self.end.subscribe().same_channel(&place.ended)) {
            under_way.remove(&self.question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn question(number: usize) -> Question {
        number.to_string().into_bytes().into()
    }

    #[tokio::test(start_paused = true)]
    async fn clients_wait_for_the_one_whose_answer_is_copied() {
        let copies = Copies::new(8 << 10, 4 << 10);
        let asked = question(1);
        let first = copies.join(&asked).await.unwrap();
        let mut second = Box::pin(copies.join(&asked));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(copies.join(&question(2)).await.is_some(), "another question");
        drop(first);
        assert!(second.await.is_none());
        assert!(copies.begin(&question(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_place_of_a_slow_client_is_taken_over_once() {
        let copies = Copies::new(8 << 10, 4 << 10);
        let slow = copies.join(&question(1)).await.unwrap();
        let next = copies.join(&question(1)).await.unwrap();
        drop(slow);
        // However many slow clients follow.
        let others = [(); 3].map(|()| copies.join(&question(1)).now_or_never().flatten().unwrap());
        drop(next);
        assert_eq!(copies.under_way().len(), 1);
        drop(others);
        assert!(copies.under_way().is_empty());
        assert!(copies.begin(&question(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn copies_are_bounded_in_number_and_bytes() {
        let copies = Copies::new(8 << 10, 5 << 10);
        let [mut one, mut two] = [1, 2].map(|number| copies.begin(&question(number)).unwrap());
        assert!(!one.push(&[0; 6 << 10]), "more than one may hold");
        assert!(one.push(&[0; 5 << 10]) && two.push(&[0; 1 << 10]));
        assert!(!two.push(&[0; 1 << 10]), "more than all may hold");
        assert_eq!(one.body().len(), 5 << 10);
        drop((one, two));
        assert_eq!(copies.room.available_permits(), 8);
        let many = Copies::new(1 << 20, 1 << 20);
        let all: Vec<_> = (0..COPIED_AT_ONCE).map(|number| many.begin(&question(number)).unwrap()).collect();
        assert!(many.begin(&question(COPIED_AT_ONCE)).is_none());
        // Slow ones take no place of others.
        tokio::time::advance(WAIT_MAX).await;
        assert!(many.begin(&question(COPIED_AT_ONCE)).is_some());
        drop(all);
        assert!(many.under_way().is_empty());
    }
}
