//! Merges concurrent questions to upstream into one.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

/// Whether a caller that arrives while the question is being answered may share its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// No: the question must be sent after every caller has arrived.
    BeforeItIsSent,
    /// Yes: any answer that arrives later will do.
    AnyTime,
}

/// Merges callers into groups; the question of only one group is sent at a time.
#[derive(Debug)]
pub struct SingleFlight<T> {
    join: Join,
    group: Mutex<Option<Arc<OnceCell<T>>>>,
    turn: tokio::sync::Mutex<()>,
}

impl<T: Clone> SingleFlight<T> {
    pub fn new(join: Join) -> Self {
        Self { join, group: Mutex::new(None), turn: tokio::sync::Mutex::new(()) }
    }

    /// The answer to the group's question. If the caller that asks for the group is dropped, another one asks again.
    pub async fn ask<F: Future<Output = T>>(&self, question: impl FnOnce() -> F) -> T {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().clone();
        let answer = group.get_or_init(|| async {
            let _turn = self.turn.lock().await;
            if self.join == Join::BeforeItIsSent {
                self.close(&group);
            }
            // Boxed: every read could be the one that asks upstream, and would carry the size of a request to it.
            let answer = Box::pin(question()).await;
            self.close(&group);
            answer
        });
        answer.await.clone()
    }

    fn close(&self, group: &Arc<OnceCell<T>>) {
        let mut open = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, group)) {
            *open = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::sync::Notify;

    use super::*;

    /// How many questions reach upstream when two callers ask, and a third one while the question is being answered.
    async fn questions(join: Join) -> usize {
        let (flight, asked, sent, go_on) = (SingleFlight::new(join), AtomicUsize::new(0), Notify::new(), Notify::new());
        let ask = || {
            flight.ask(|| async {
                asked.fetch_add(1, SeqCst);
                sent.notify_one();
                go_on.notified().await;
            })
        };
        let late = async {
            sent.notified().await;
            let (third, release) = (ask(), async {
                go_on.notify_waiters();
                go_on.notify_one();
                tokio::task::yield_now().await;
                go_on.notify_one()
            });
            tokio::join!(third, release);
        };
        tokio::join!(ask(), ask(), late);
        asked.load(SeqCst)
    }

    #[tokio::test]
    async fn before_it_is_sent_a_caller_does_not_join_a_request_in_flight() {
        assert_eq!(questions(Join::BeforeItIsSent).await, 2);
    }

    #[tokio::test]
    async fn any_time_a_caller_joins_a_request_in_flight() {
        assert_eq!(questions(Join::AnyTime).await, 1);
    }
}
