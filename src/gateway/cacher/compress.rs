//! What has not changed for a while is kept compressed.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    select,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{cachers::Shared, entry::Entry};
use engine::encode::Settled;

/// How often it is looked whether to compress, if that is off; and the shortest period.
const NEVER: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_millis(20);
/// After compressing one block, all stores together pause for this many times the time that it took: a tenth of a core.
/// If memory is short, for as long as it took.
const PAUSE_TIMES: u32 = 9;

impl Shared {
    /// Compresses the leaves that have not changed for a period, and what only history has for as long. Never on the
    /// path of an event or a request.
    pub(super) async fn compress(&self, entry: &Entry) -> Infallible {
        loop {
            let period = self.config.borrow().compress_after;
            let is_hurried = select! {
                () = sleep(period.unwrap_or(NEVER).max(PERIOD_MIN)) => period == Some(Duration::ZERO),
                () = self.tight.notified() => true,
            };
            let (Some(_), Ok(instance)) = (period, entry.instance()) else { continue };
            if is_hurried {
                // Counts as having been there.
                drop(Settled::of(&instance.reader));
            }
            for settled in Settled::of(&instance.reader) {
                let Ok(_turn) = self.compressing.acquire().await else { continue };
                // Both may have been replaced meanwhile.
                if entry.instance().is_ok_and(|now| !Arc::ptr_eq(&now, &instance)) {
                    break;
                }
                if settled.is_gone() {
                    continue;
                }
                let started = Instant::now();
                if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
                    // In simulations, which have to repeat themselves.
                    settled.compress(&instance.reader);
                } else {
                    let reader = instance.reader.clone();
                    // The store is followed meanwhile. A failure would be a panic, and leaves the text as it is.
                    drop(spawn_blocking(move || settled.compress(&reader)).await);
                }
                sleep(started.elapsed() * if is_hurried { 1 } else { PAUSE_TIMES }).await;
            }
        }
    }
}
