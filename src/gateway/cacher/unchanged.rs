//! Shows that upstream's objects at a version from before the fill are those in the store, without a watch.

use base::apimachinery::ResourceVersion;
use engine::{reflector::Failure, store::Snapshot};

/// Asks upstream on behalf of all callers of one store, one question at a time.
#[derive(Debug, Default)]
pub(super) struct Unchanged(tokio::sync::Mutex<Known>);

/// What upstream has answered. Neither changes any more.
#[derive(Debug, Default)]
struct Known {
    /// The number of objects at the last version that was asked about: a herd of clients often has the same version.
    last: Option<(ResourceVersion, usize)>,
    /// The highest version that upstream is known to have compacted; so are all lower ones.
    compacted: Option<ResourceVersion>,
}

impl Unchanged {
    /// Whether the objects of `snapshot` are those at `version`, which may be older than history. `count` asks upstream
    /// for the number of objects at that version.
    ///
    /// An object that was not written after `version` already existed then as it is now. If this is true of all
    /// objects, and there were as many at `version`, none was deleted since. An object that was created after `version`
    /// and deleted before the snapshot goes unnoticed.
    pub(super) async fn since(
        &self,
        version: ResourceVersion,
        snapshot: &Snapshot,
        count: impl AsyncFnOnce() -> Result<usize, Failure>,
    ) -> bool {
        let mut objects = snapshot.leaves().flat_map(|leaf| leaf.objects());
        if snapshot.version() < version || objects.any(|object| object.version > version) {
            return false;
        }
        let mut known = self.0.lock().await;
        if known.compacted.is_some_and(|compacted| version <= compacted) {
            return false;
        }
        let counted = match known.last {
            Some((last, counted)) if last == version => Ok(counted),
            _ => count().await,
        };
        match counted {
            Ok(counted) => {
                known.last = Some((version, counted));
                counted == snapshot.len()
            }
            Err(failure) => {
                if failure == Failure::Expired {
                    known.compacted = known.compacted.max(Some(version));
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        time::Duration,
    };

    use serde_json::json;

    use super::*;
    use engine::store::{HistoryLimits, Object, Objects, Schema, Shape, store};

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    /// A store at version 50 with objects of these versions.
    fn holding(versions: &[u64]) -> Snapshot {
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
        let object = |of: &u64| {
            let metadata = json!({"namespace": "ns", "name": format!("w{of}"), "resourceVersion": of.to_string()});
            let json = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
            Arc::new(Object::from_item(json.to_string().into(), &schema).unwrap())
        };
        let objects = Objects::new(versions.iter().map(object).collect()).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        let (_, reader) = store(schema, &objects, version(50), limits);
        reader.snapshot()
    }

    /// The answer for each of the versions, and how often upstream was asked. Upstream has `counted` objects at every
    /// version after 10, and has compacted the versions up to 10.
    async fn asked<const N: usize>(versions: [u64; N], held: &[u64], counted: usize) -> ([bool; N], usize) {
        let (unchanged, snapshot, questions) = (Unchanged::default(), holding(held), AtomicUsize::new(0));
        let mut answers = [false; N];
        for (at, of) in versions.into_iter().enumerate() {
            let count = async || {
                questions.fetch_add(1, SeqCst);
                if of > 10 { Ok(counted) } else { Err(Failure::Expired) }
            };
            answers[at] = unchanged.since(version(of), &snapshot, count).await;
        }
        (answers, questions.into_inner())
    }

    #[tokio::test]
    async fn an_equal_count_without_later_writes_means_unchanged() {
        assert_eq!(asked([20, 20, 30], &[3, 20], 2).await, ([true; 3], 2), "20 is asked about once");
        assert_eq!(asked([20], &[], 0).await, ([true], 1));
    }

    #[tokio::test]
    async fn a_deletion_shows_in_the_count() {
        assert_eq!(asked([20], &[3, 20], 3).await, ([false], 1));
    }

    #[tokio::test]
    async fn a_later_write_shows_without_asking_upstream() {
        assert_eq!(asked([19, 51], &[3, 20], 2).await, ([false; 2], 0));
    }

    #[tokio::test]
    async fn compacted_versions_are_not_reported_as_unchanged() {
        assert_eq!(asked([10, 9, 20], &[3], 1).await, ([false, false, true], 2), "9 is compacted if 10 is");
    }
}
