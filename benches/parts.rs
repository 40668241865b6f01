//! How the costs of the parts grow: of a change, with the size of its collection and the number of watchers; of a list
//! and of opening a watch, with the size of the collection.
//!
//! `cargo bench --bench parts`, followed by parts of names to run only those; as a test (`cargo test --bench parts`)
//! each runs once. Results: `benches/diary.md`.

use std::{hint::black_box, sync::Arc, task::Waker, time::Duration};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use kube_fanout::apimachinery::{FieldSelector, GroupResource, LabelSelector, ResourceVersion, selectable_fields};
use kube_fanout::encode::{EventForm, Form};
use kube_fanout::fairness::ByteBudget;
use kube_fanout::fanout::{Hub, Interest, Session, SessionOptions, Start, Step};
use kube_fanout::lifecycle::Spread;
use kube_fanout::store::{
    self, ChangeKind, HistoryLimits, Object, Objects, Predicate, Reader, Schema, Scope, Shape, View, Writer,
};
use tokio::time::Instant;

/// The allocator of the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COLLECTIONS: [usize; 3] = [1_000, 10_000, 100_000];
const WATCHERS: [usize; 3] = [10, 1_000, 8_000];
/// The number of objects in the listed namespace, whatever the size of the collection.
const NAMESPACE: usize = 200;

fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    change(&mut criterion);
    list_of_a_namespace(&mut criterion);
    opening_a_watch(&mut criterion);
    waking(&mut criterion);
    waking_by_node(&mut criterion);
    criterion.final_summary();
}

/// A collection of pods with its writer and its watchers.
struct Collection {
    writer: Writer,
    reader: Reader,
    hub: Arc<Hub>,
    /// The version of the last change.
    version: u64,
}

impl Collection {
    fn new(objects: usize) -> Self {
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        let schema = Arc::new(Schema::new(Shape::typed("Pod", "v1"), selectable_fields(&pods, true)));
        let item = |index| Arc::new(Object::from_item(pod("", index, 1), &schema).expect("a pod"));
        let objects = Objects::new((0..objects).map(item).collect()).expect("each key once");
        let version = ResourceVersion::new(1).expect("not zero");
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let (writer, reader) = store::store(schema.clone(), &objects, version, limits);
        Self { writer, reader, hub: Hub::new(0, Spread::default()), version: 1 }
    }

    /// The event of a change to the pod with this index, as upstream sends it.
    fn event(&mut self, index: usize) -> Bytes {
        self.version += 1;
        let kind = "\"kind\":\"Pod\",\"apiVersion\":\"v1\",";
        let object = pod(kind, index, self.version);
        [b"{\"type\":\"MODIFIED\",\"object\":", &*object, b"}\n"].concat().into()
    }

    /// Applies an event as a reflector does, and wakes the watchers that may have selected it.
    fn take(&mut self, line: Bytes) {
        const HEAD: usize = "{\"type\":\"MODIFIED\",\"object\":".len();
        let object = Object::from_event(line.slice(HEAD..line.len() - 2), self.writer.schema()).expect("a pod");
        let change = self.writer.apply(ChangeKind::Modified, object, line).expect("versions rise");
        let field = self.reader.schema().indexed_field().expect("pods are indexed by node");
        let before = change.before.as_ref().map(|before| before.field(field).to_owned());
        self.hub.announce(&change, [before.as_deref(), Some(change.object.field(field))]);
    }

    fn watch(&self, fields: &str) -> Session {
        let fields = FieldSelector::parse(fields).expect("a selector");
        let predicate = Predicate::new(LabelSelector::default(), &fields, self.reader.schema()).expect("known fields");
        let interest = Interest::of(&Scope::Everything, &predicate, self.reader.schema());
        let (snapshot, next) = self.reader.snapshot_and_next();
        let subscription = self.hub.subscribe(interest, next, None);
        let form = Form::Whole(self.reader.schema().shape.clone());
        let (start, now) = (Start::After(snapshot.version()), Instant::now());
        let room = ByteBudget::new(u64::MAX, u64::MAX).of(None);
        let form = EventForm::Objects(form);
        let options = SessionOptions { predicate, form, room, bookmarks: None, timeout: Duration::from_secs(3600) };
        let view = View::new(self.reader.clone(), Scope::Everything);
        let mut session = Session::new(view, subscription, options, start, now);
        session.register(Waker::noop());
        session.step(now);
        session
    }
}

/// A pod of 1.3 KB. The pods of a namespace are adjacent; there are five on each node.
fn pod(kind: &str, index: usize, version: u64) -> Bytes {
    let (namespace, node, rest) = (index / NAMESPACE, index / 5, "x".repeat(1000));
    format!(
        "{{{kind}\"metadata\":{{\"name\":\"pod-{index}\",\"namespace\":\"ns-{namespace}\",\"uid\":\"{index}\",\
         \"resourceVersion\":\"{version}\",\"labels\":{{\"app\":\"app-{}\",\"tier\":\"web\"}}}},\
         \"spec\":{{\"nodeName\":\"node-{node}\",\"rest\":\"{rest}\"}},\"status\":{{\"phase\":\"Running\"}}}}",
        index % 50
    )
    .into()
}

/// Parsing an event, applying it to the store, and dropping the oldest event of the history.
fn change(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a change in a collection of");
    for size in COLLECTIONS {
        let mut collection = Collection::new(size);
        let mut index = 0;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                index = (index + 7919) % size;
                let line = collection.event(index);
                collection.take(line);
            });
        });
    }
    group.finish();
}

/// The items of the namespace, encoded for a list.
fn list_of_a_namespace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a list of 200 objects of a collection of");
    for size in COLLECTIONS {
        let collection = Collection::new(size);
        let form = Form::Whole(collection.reader.schema().shape.clone());
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                let snapshot = collection.reader.snapshot();
                let leaves = snapshot.leaves_in("ns-3");
                let bytes: usize = leaves.map(|leaf| form.leaf_items_once(leaf).expect("as upstream").len()).sum();
                assert!(bytes > NAMESPACE * 1000);
                black_box(bytes)
            });
        });
    }
    group.finish();
}

/// A watch that starts at the current version, until it waits for a change.
fn opening_a_watch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("opening a watch of a collection of");
    for size in COLLECTIONS {
        let collection = Collection::new(size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_with_large_drop(|| collection.watch(""));
        });
    }
    group.finish();
}

/// A change that all watchers selected, until each has its frame.
fn waking(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a change, for each of watchers");
    for count in WATCHERS {
        let mut collection = Collection::new(1_000);
        let mut sessions: Vec<_> = (0..count).map(|_| collection.watch("")).collect();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let line = collection.event(0);
                collection.take(line);
                let now = Instant::now();
                for session in &mut sessions {
                    assert!(matches!(session.step(now), Step::Send(_)));
                    assert!(matches!(session.step(now), Step::Wait(_)));
                }
            });
        });
    }
    group.finish();
}

/// A change that one watcher selected: it must not cost anything for the other watchers.
fn waking_by_node(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a change that one sees, of watchers of a node each");
    for count in [50, 5_000] {
        let mut collection = Collection::new(count * 5);
        let mut sessions: Vec<_> =
            (0..count).map(|node| collection.watch(&format!("spec.nodeName=node-{node}"))).collect();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let line = collection.event(17);
                collection.take(line);
                assert!(matches!(sessions[17 / 5].step(Instant::now()), Step::Send(_)));
            });
        });
    }
    group.finish();
}
