//! Waiting for something by its name: a test that waits in vain says for what. And time that passes at once.

use std::time::Duration;

use tokio::time::{advance, pause, resume, sleep};

/// Parts of a wait, and how many of them are longer than anything takes on a busy machine. Time that is skipped is one
/// part, however long it is.
const PART: Duration = Duration::from_millis(100);
const PARTS: u32 = 300;
/// How often a condition that nothing announces is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The result of a future that has to come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        value = future => value,
        () = patience() => panic!("waited in vain: {what}"),
    }
}

/// Looks until there is something: for conditions inside the gateway, which announces them to nobody.
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

/// Lets time pass at once, for the gateway, its upstream and its clients alike.
pub(crate) async fn skip(time: Duration) {
    pause();
    let _frozen = Frozen;
    advance(time).await;
}

/// Time that stands still, and goes on whatever becomes of the one who stopped it.
struct Frozen;

impl Drop for Frozen {
    fn drop(&mut self) {
        resume();
    }
}

/// Lets time pass in steps, real time between them, until the future has its result.
pub(crate) async fn passing<T>(step: Duration, future: impl Future<Output = T>) -> T {
    let steps = async {
        loop {
            sleep(LOOK_EVERY * 4).await;
            skip(step).await;
        }
    };
    tokio::select! {
        value = future => value,
        () = steps => unreachable!("steps do not end"),
    }
}

async fn patience() {
    for _ in 0..PARTS {
        sleep(PART).await;
    }
}
