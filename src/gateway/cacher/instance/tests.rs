//! Two stores of one resource that agree on the oldest version that either of them shows.

use serde_json::json;

use super::*;
use crate::connector::test_server::{TestServer, full};
use base::{
    apimachinery::{CollectionScope, Encoding, GroupVersionResource},
    telemetry::CacheMetrics,
};
use engine::{
    reflector::{Condition, FillSource, StorageEvidence},
    store::{ChangeKind, HistoryLimits, Object, Objects, Shape, Writer, store},
};

/// How long the stores wait for their own watches.
const WAIT: Duration = Duration::from_millis(100);

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(number).unwrap()
}

fn health(condition: Condition) -> Health {
    Health { epoch: 1, condition, watch_list: false, bookmarks: true }
}

/// A store that was filled at version 5, and what writes into it.
struct Filled5 {
    instance: Arc<Instance>,
    writer: Writer,
}

impl Filled5 {
    /// A change in the store, and in what it shows.
    fn change(&mut self, at: u64) {
        let metadata = json!({"namespace": "ns", "name": "a", "resourceVersion": at.to_string()});
        let json = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}).to_string();
        let object = Object::from_item(json.into(), self.instance.schema()).unwrap();
        self.writer.apply(ChangeKind::Added, object, "".into()).unwrap();
    }

    fn lose_upstream(&self) {
        self.instance.set_health(health(Condition::Unfollowed { since: Instant::now() }));
    }
}

/// The stores of one resource in JSON and in protobuf, and what they share. Upstream proves nothing.
struct Both {
    json: Filled5,
    protobuf: Filled5,
    siblings: Arc<Siblings>,
    _server: TestServer,
}

impl Both {
    async fn filled() -> Self {
        let server = TestServer::start(async |_| http::Response::new(full("nothing"))).await;
        let siblings = Arc::new(Siblings::of(StorageEvidence::default()));
        let filled = |encoding| {
            let resource = GroupVersionResource::new("example.com", "v1", "widgets");
            let resource = Resource {
                upstream: ResourceListWatch::new(
                    server.upstream(),
                    resource.clone(),
                    CollectionScope::CLUSTER,
                    true,
                    encoding,
                    None,
                ),
                metrics: Arc::new(CacheMetrics::new(&resource, &CollectionScope::CLUSTER, encoding)),
                resource,
                namespaced: true,
                scope: CollectionScope::CLUSTER,
                is_given_up: true,
                proofs: siblings.proofs(&CollectionScope::CLUSTER),
                siblings: siblings.clone(),
                staleness_limit: StalenessLimit { max: None, ends_watches: false },
                spread: Spread::default(),
                backfill_wanted: Arc::default(),
            };
            let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
            let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
            let (writer, reader) = store(schema, &Objects::default(), version(5), limits);
            let (advance, began) = (writer.advance_handle(), Instant::now());
            let (list_kind, warnings) = ("WidgetList".to_owned(), Vec::new());
            let filled = Filled {
                reader,
                began,
                advance,
                list_kind,
                warnings,
                bookmark: None,
                source: FillSource::Upstream,
                written_by: None,
                provenance: None,
            };
            let instance = Arc::new(Instance::new(resource, filled, health(Condition::Followed)));
            siblings.add(&instance);
            Filled5 { instance, writer }
        };
        Self { json: filled(Encoding::Json), protobuf: filled(Encoding::Protobuf), siblings, _server: server }
    }

    /// The result of a read from the protobuf store, and the store's progress after it.
    async fn agreed(&self) -> (Result<(), Unproven>, u64) {
        let agreed = self.protobuf.instance.agree(WAIT).await;
        (agreed, self.protobuf.instance.progress().value())
    }
}

#[tokio::test]
async fn a_lagging_store_agrees_once_it_has_the_changes_of_the_other_store() {
    let mut both = Both::filled().await;
    both.json.change(7);
    assert_eq!(both.agreed().await, (Err(Unproven::NoBookmark), 5));
    assert_eq!(both.json.instance.agree(WAIT).await, Ok(()), "the one that is ahead waits for none");
    let instance = both.protobuf.instance.clone();
    let agreed = async { (instance.agree(Duration::from_secs(60)).await, instance.progress().value()) };
    let (agreed, ()) = tokio::join!(agreed, async { both.protobuf.change(7) });
    assert_eq!(agreed, (Ok(()), 7));
}

#[tokio::test]
async fn a_store_with_the_last_change_takes_over_the_progress_of_the_other_store() {
    let mut both = Both::filled().await;
    both.json.change(7);
    both.protobuf.change(7);
    both.json.writer.advance(version(9));
    assert_eq!(both.agreed().await, (Ok(()), 9));
}

#[tokio::test]
async fn a_store_filled_before_a_rollback_gives_no_progress_to_others() {
    let mut both = Both::filled().await;
    both.json.writer.advance(version(9));
    both.siblings.proofs(&CollectionScope::CLUSTER).evidence().rolled_back();
    assert_eq!(both.agreed().await, (Err(Unproven::NoBookmark), 5));
}

#[tokio::test]
async fn stores_agree_as_they_are_if_none_is_followed() {
    let mut both = Both::filled().await;
    both.json.change(7);
    both.protobuf.lose_upstream();
    assert_eq!(both.agreed().await, (Err(Unproven::NoBookmark), 5), "the other one advances");
    both.json.lose_upstream();
    assert_eq!(both.agreed().await, (Ok(()), 5));
}
