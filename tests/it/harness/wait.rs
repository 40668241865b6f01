//! Waiting for something by its name: a test that waits in vain says for what.

use std::time::Duration;

use tokio::time::{interval, timeout};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition that nothing announces is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The result of a future that has to come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// Looks until there is something: for conditions inside the gateway, which announces them to nobody.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = async {
        let mut looks = interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    within(what, looked).await
}
