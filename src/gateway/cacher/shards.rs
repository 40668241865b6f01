//! Whether upstream selects by `shardSelector`: an alpha feature of 1.36, which other servers ignore. Learnt from
//! upstream's answers, since no document of upstream says which features are enabled.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::upstream::ResourceListWatch;
use base::memo::{Join, SingleFlight};

/// How long an answer is believed. API servers that are restarted with another setting are mixed with others for as
/// long.
const BELIEVED_FOR: Duration = Duration::from_secs(600);
/// How long upstream is not asked again after it did not answer.
const UNANSWERED_FOR: Duration = Duration::from_secs(5);
/// How long a read waits for the first answer.
const TOLD_WITHIN: Duration = Duration::from_secs(3);
/// How long a read waits for another answer.
const TOLD_AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// What upstream has answered about one resource. It is asked when a client sends the parameter.
#[derive(Debug)]
pub(super) struct UpstreamShards {
    told: Mutex<Option<Told>>,
    question: SingleFlight<Option<bool>>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// The last answer; `None` if there was none yet.
    has_shards: Option<bool>,
    /// When upstream is asked again.
    until: Instant,
}

impl UpstreamShards {
    /// `None` if upstream has never answered. An old answer counts while there is no new one, so that reads go on while
    /// upstream is away.
    pub(super) async fn known(&self, upstream: &ResourceListWatch, is_custom: bool) -> Option<bool> {
        self.known_from(|| async { upstream.has_shards(is_custom).await.ok() }).await
    }

    /// Makes the next read ask upstream.
    pub(super) fn ask_again(&self) {
        if let Some(told) = &mut *self.told() {
            told.until = Instant::now();
        }
    }

    async fn known_from<F: Future<Output = Option<bool>>>(&self, question: impl FnOnce() -> F) -> Option<bool> {
        let before = *self.told();
        if let Some(told) = before.filter(|told| Instant::now() < told.until) {
            return told.has_shards;
        }
        let ask = || async {
            let known = before.and_then(|told| told.has_shards);
            let within = if known.is_some() { TOLD_AGAIN_WITHIN } else { TOLD_WITHIN };
            let answer = timeout(within, question()).await.ok().flatten();
            let has_shards = answer.or(known);
            let believed = if answer.is_some() { BELIEVED_FOR } else { UNANSWERED_FOR };
            *self.told() = Some(Told { has_shards, until: Instant::now() + believed });
            has_shards
        };
        self.question.ask(ask).await
    }

    fn told(&self) -> MutexGuard<'_, Option<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for UpstreamShards {
    fn default() -> Self {
        Self { told: Mutex::default(), question: SingleFlight::new(Join::AnyTime) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_believed_for_a_while_and_beyond_if_there_is_no_other() {
        let (shards, asked, answer) = (UpstreamShards::default(), Cell::new(0), Cell::new(None));
        let known = async || {
            let question = || async {
                asked.set(asked.get() + 1);
                answer.get()
            };
            (shards.known_from(question).await, asked.replace(0))
        };
        assert_eq!(known().await, (None, 1));
        assert_eq!(known().await, (None, 0), "asked a moment ago");
        advance(UNANSWERED_FOR).await;
        answer.set(Some(true));
        assert_eq!((known().await, known().await), ((Some(true), 1), (Some(true), 0)));
        advance(BELIEVED_FOR).await;
        answer.set(None);
        assert_eq!((known().await, known().await), ((Some(true), 1), (Some(true), 0)), "upstream is away");
        advance(UNANSWERED_FOR).await;
        answer.set(Some(false));
        assert_eq!(known().await, (Some(false), 1));
        shards.ask_again();
        answer.set(Some(true));
        assert_eq!((known().await, known().await), ((Some(true), 1), (Some(true), 0)), "upstream was away");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_does_not_hold_reads_up() {
        let shards = UpstreamShards::default();
        let silent = || async { std::future::pending().await };
        let began = Instant::now();
        assert_eq!((shards.known_from(silent).await, began.elapsed()), (None, TOLD_WITHIN));
        advance(UNANSWERED_FOR).await;
        assert_eq!(shards.known_from(|| async { Some(true) }).await, Some(true));
        advance(BELIEVED_FOR).await;
        let began = Instant::now();
        assert_eq!((shards.known_from(silent).await, began.elapsed()), (Some(true), TOLD_AGAIN_WITHIN));
    }
}
