//! Named waits, so that a test that times out says what it waited for; and time that can be skipped.

use std::time::Duration;

use tokio::time::{advance, pause, resume, sleep};

/// Longer than anything takes on a busy machine, in real time: time that is skipped does not count.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the end of the patience is looked for.
const PART: Duration = Duration::from_millis(100);
/// How often a condition is polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The result of a future that must complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        // A future that has completed is never late.
        biased;
        value = future => value,
        () = patience() => panic!("waited in vain: {what}"),
    }
}

/// Polls until `look` returns a value: for conditions inside the gateway, which does not report them.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(LOOK_EVERY).await;
        }
    };
    within(what, looked).await
}

/// Skips time for the gateway, its upstream and its clients alike.
pub(crate) async fn skip(time: Duration) {
    pause();
    let _frozen = Frozen;
    advance(time).await;
}

/// Paused time, which is resumed when this is dropped.
struct Frozen;

impl Drop for Frozen {
    fn drop(&mut self) {
        resume();
    }
}

/// Skips time in steps, with real time in between, until the future completes.
///
/// That grows, up to a twentieth of a step: on a busy machine a request may need more than the first rests leave it,
/// and a step may be longer than its time limit.
pub(crate) async fn passing<T>(step: Duration, future: impl Future<Output = T>) -> T {
    let steps = async {
        let mut rest = LOOK_EVERY * 4;
        let longest = rest.max(step / 20);
        loop {
            sleep(rest).await;
            skip(step).await;
            rest = longest.min(rest + rest / 10);
        }
    };
    tokio::select! {
        value = future => value,
        () = steps => unreachable!("steps do not end"),
    }
}

#[expect(clippy::disallowed_types, reason = "time that is skipped does not count")]
async fn patience() {
    let began = std::time::Instant::now();
    while began.elapsed() < PATIENCE {
        sleep(PART).await;
    }
}
