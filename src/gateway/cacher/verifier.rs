//! Compares stores with upstream from time to time, as an API server does with its own cache.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::{
    Cachers,
    comparison::{Difference, MetadataPage},
    instance::Instance,
    store_key::StoreKey,
};
use engine::{reflector::Failure, store::Object};

/// Stores with fewer objects are not verified: they can be checked with an ordinary list.
const OBJECTS_MIN: usize = 100;
/// The maximum number of attempts if upstream has compacted the store's version or not reached it, since the store will
/// soon have another version.
const ATTEMPTS: u32 = 3;
/// How often a store must differ before it counts as different.
const DIFFERS: u32 = 2;
/// The delay between two attempts.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A store that differs again within this time is logged, but not filled again: if filling does not help, clients would
/// have to list for ever.
const FILLED_ANEW_ONCE_IN: Duration = Duration::from_secs(3600);
/// The maximum duration of one comparison.
const LOOK_MAX: Duration = Duration::from_secs(300);

/// The result of comparing a store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Same,
    Differs(Difference),
    /// Upstream has compacted the version, or not reached it.
    NotThere,
    Failed(Failure),
}

impl Outcome {
    /// The value of the metric label.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs(_) => "different",
            Self::NotThere => "version_not_there",
            Self::Failed(_) => "failed",
        }
    }
}

/// What the comparisons of a store have shown so far.
#[derive(Debug, Default)]
struct Seen {
    not_there: u32,
    different: u32,
}

impl Seen {
    /// Whether this outcome is the result, or the store is to be compared again.
    fn suffices(&mut self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::NotThere => {
                self.not_there += 1;
                self.not_there >= ATTEMPTS
            }
            Outcome::Differs(_) => {
                self.different += 1;
                self.different >= DIFFERS
            }
            Outcome::Same | Outcome::Failed(_) => true,
        }
    }
}

impl Cachers {
    /// Verifies each store about once per `interval`, one at a time, until the gateway stops.
    pub fn verify_every(&self, interval: Duration) {
        let cachers = self.clone();
        self.shared.tasks.spawn("verifier", async move {
            tokio::select! {
                () = cachers.verify_all(interval) => {}
                () = cachers.shared.tasks.token().cancelled() => {}
            }
        });
    }

    async fn verify_all(&self, interval: Duration) {
        let mut filled_anew = HashMap::new();
        loop {
            let stores = self.shared.entries.iter().map(|entry| entry.key().clone());
            let stores: Vec<StoreKey> = stores.filter(|store| store.scope.has_cheap_exact_lists()).collect();
            // The stores are verified one after another, spread over the interval.
            let pause = interval / u32::try_from(stores.len().max(1)).unwrap_or(u32::MAX);
            if stores.is_empty() {
                sleep(pause).await;
            }
            for store in stores {
                sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
                self.verify(&store, &mut filled_anew).await;
            }
        }
    }

    async fn verify(&self, store: &StoreKey, filled_anew: &mut HashMap<StoreKey, Instant>) {
        let mut seen = Seen::default();
        loop {
            let entry = self.shared.entries.get(store).map(|entry| entry.value().clone());
            let Some(Ok(instance)) = entry.map(|entry| entry.instance()) else { return };
            if instance.reader.snapshot().len() < OBJECTS_MIN {
                return;
            }
            let outcome = timeout(LOOK_MAX, look(&instance)).await.unwrap_or(Outcome::Failed(Failure::Silent));
            if !seen.suffices(&outcome) {
                sleep(AGAIN_AFTER).await;
                continue;
            }
            match &outcome {
                Outcome::Differs(difference) => {
                    filled_anew.retain(|_, at: &mut Instant| at.elapsed() < FILLED_ANEW_ONCE_IN);
                    let is_first = !filled_anew.contains_key(store);
                    tracing::error!(%store, object = %difference.key(), error = %difference, filled_anew = is_first,
                        "cache differs from upstream");
                    if is_first {
                        filled_anew.insert(store.clone(), Instant::now());
                        instance.give_up();
                    }
                }
                Outcome::Failed(error) => tracing::debug!(%store, %error, "cache not verified"),
                Outcome::Same | Outcome::NotThere => {}
            }
            instance.metrics.verified(outcome.as_str());
            return;
        }
    }
}

/// Lists the metadata of upstream's objects at the store's version, page by page.
async fn look(instance: &Arc<Instance>) -> Outcome {
    let snapshot = instance.reader.snapshot();
    let objects: Vec<Arc<Object>> = snapshot.leaves().flat_map(|leaf| leaf.objects()).cloned().collect();
    let mut held = objects.iter().peekable();
    let mut token = None;
    loop {
        let page = instance.upstream.metadata_at(snapshot.version(), token.as_deref()).await;
        let page = match page.and_then(|page| MetadataPage::read(&page, snapshot.version())) {
            Ok(page) => page,
            Err(Failure::Expired | Failure::TooLarge) => return Outcome::NotThere,
            Err(failure) => return Outcome::Failed(failure),
        };
        if let Some(difference) = page.difference(&mut held) {
            return Outcome::Differs(difference);
        }
        match page.continue_token() {
            Some(next) => token = Some(next.to_owned()),
            None => return Outcome::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::apimachinery::ObjectKey;

    #[test]
    fn a_difference_needs_two_sightings_and_a_missing_version_three() {
        let differs = || Outcome::Differs(Difference::Missing(ObjectKey::new(None, "a")));
        let failed = || Outcome::Failed(Failure::Silent);
        let missing = || Outcome::NotThere;
        for outcomes in [
            vec![Outcome::Same],
            vec![failed()],
            vec![differs(), differs()],
            vec![differs(), Outcome::Same],
            vec![missing(), missing(), missing()],
            vec![missing(), missing(), differs(), differs()],
            vec![differs(), missing(), missing(), differs()],
        ] {
            let mut seen = Seen::default();
            let (last, before) = outcomes.split_last().unwrap();
            assert!(before.iter().all(|outcome| !seen.suffices(outcome)), "{outcomes:?}");
            assert!(seen.suffices(last), "{outcomes:?}");
        }
    }
}
