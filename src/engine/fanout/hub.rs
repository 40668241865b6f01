//! The watchers of one store, indexed by [`Interest`].

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::EndCause;
use crate::store::{Change, Predicate, Schema, Scope};
use base::{
    apimachinery::{ObjectKey, ShardField, ShardHash, ShardSelector},
    lifecycle::Spread,
    telemetry::Client,
};

/// The value of [`Seat::pending`] when there is nothing new for the watcher.
const NOTHING: u64 = u64::MAX;

/// Wakes, for each change, the watchers that the change may concern, and no others.
#[derive(Default)]
pub struct Hub {
    seats: Mutex<Seats>,
    watchers: AtomicUsize,
    /// Those of them that a client would take for ended if they end before their time.
    lasting: AtomicUsize,
    /// The number after the last change that was announced to all watchers that it may concern.
    announced: AtomicU64,
    closed: OnceLock<EndCause>,
    /// Determines when each watch ends once the gateway drains.
    spread: Spread,
    /// How often the store was bridged over a gap in upstream's history.
    bridges: AtomicU64,
    /// No upstream watch is open, so changes may go unnoticed.
    unfollowed: AtomicBool,
}

type Rows = HashMap<Interest, Vec<Arc<Seat>>>;

/// The watchers by their interest.
#[derive(Default)]
struct Seats {
    /// Of which the keys that a change wakes are looked up.
    keyed: Rows,
    /// The [`Interest::Shards`], each of which is compared with every change. There are as many as clients have divided
    /// the collection into.
    shards: Rows,
}

/// The index key of a watcher: the most selective one that its request allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    Everything,
    Namespace(Arc<str>),
    /// One name in all namespaces.
    Named(Arc<str>),
    Object(ObjectKey),
    /// One value of the schema's indexed field, such as the node of a kubelet.
    Indexed(Arc<str>),
    /// Some shards, of all namespaces or of one.
    Shards(ShardSelector, Option<Arc<str>>),
}

/// The hub's record of one watcher.
struct Seat {
    /// The number of the first change since the watcher last looked that may concern it.
    pending: AtomicU64,
    /// Whether [`Hub::end_stale`] was called since the watcher subscribed.
    is_stale: AtomicBool,
    waker: AtomicWaker,
    /// The client of the watch, where it is known.
    client: Option<Arc<Client>>,
    since: Instant,
}

/// A watcher that has not processed all changes that may concern it.
#[derive(Clone, Debug)]
pub struct Behind {
    pub client: Option<Arc<Client>>,
    pub interest: Interest,
    pub since: Instant,
    /// The number of the first such change.
    pub pending: u64,
    /// The number of changes since then, including those that do not concern it.
    pub changes: u64,
}

/// A watcher's place in the hub; given up when dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    interest: Interest,
    seat: Arc<Seat>,
    is_lasting: bool,
    /// The value of [`Hub::bridges`] that the watcher has seen.
    bridges: u64,
}

impl Interest {
    /// The most selective key under which every change that the request may see wakes the watcher.
    pub fn of(scope: &Scope, predicate: &Predicate, schema: &Schema) -> Self {
        if let Scope::Object(key) = scope {
            return Self::Object(key.clone());
        }
        if let Some(value) = schema.indexed_field().and_then(|field| predicate.required(field)) {
            return Self::Indexed(value.into());
        }
        match (scope, predicate.shards()) {
            (Scope::Named(name), _) => Self::Named(name.clone()),
            (Scope::Namespace(namespace), Some(shards)) => Self::Shards(shards.clone(), Some(namespace.clone())),
            (Scope::Namespace(namespace), None) => Self::Namespace(namespace.clone()),
            (Scope::Everything | Scope::Object(_), Some(shards)) => Self::Shards(shards.clone(), None),
            (Scope::Everything | Scope::Object(_), None) => Self::Everything,
        }
    }

    /// Whether these are shards that the change concerns, whose object is in a namespace with that hash.
    fn has_shard_of(&self, change: &Change, in_namespace: ShardHash) -> bool {
        let Self::Shards(shards, namespace) = self else { return false };
        let mut states = change.before.iter().chain([&change.object]);
        namespace.as_deref().is_none_or(|namespace| change.object.key.namespace() == Some(namespace))
            && match shards.field() {
                ShardField::Uid => states.any(|object| object.is_in(shards)),
                ShardField::Namespace => shards.contains(in_namespace),
            }
    }

    /// The keys whose watchers a change of the object with that key wakes. `indexed` are the values of the indexed
    /// field before and after the change.
    pub(super) fn woken_by(key: &ObjectKey, [before, after]: [Option<&str>; 2]) -> Vec<Self> {
        let mut woken = vec![Self::Everything, Self::Object(key.clone()), Self::Named(key.name().into())];
        woken.extend(key.namespace().map(|namespace| Self::Namespace(namespace.into())));
        woken.extend(before.map(|value| Self::Indexed(value.into())));
        woken.extend(after.filter(|_| after != before).map(|value| Self::Indexed(value.into())));
        woken
    }
}

impl Hub {
    /// `next` is the number of the store's next change. `spread` determines when watches end while the gateway drains.
    pub fn new(next: u64, spread: Spread) -> Arc<Self> {
        Arc::new(Self { announced: AtomicU64::new(next), spread, ..Self::default() })
    }

    /// Subscribes a watcher whose first change is number `from`. `client` is `None` where it is not known.
    pub fn subscribe(self: &Arc<Self>, interest: Interest, from: u64, client: Option<Arc<Client>>) -> Subscription {
        let seat = Arc::new(Seat {
            pending: AtomicU64::new(from),
            is_stale: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            client,
            since: Instant::now(),
        });
        self.seats().rows(&interest).entry(interest.clone()).or_default().push(seat.clone());
        self.watchers.fetch_add(1, SeqCst);
        let bridges = self.bridges.load(SeqCst);
        Subscription { hub: self.clone(), interest, seat, is_lasting: false, bridges }
    }

    /// Announces a change that the store has applied. `indexed` are the values of the indexed field before and after
    /// it. Wakes without holding a lock.
    pub fn announce(&self, change: &Change, indexed: [Option<&str>; 2]) {
        for seat in self.concerned(change, indexed) {
            // The watcher continues from the lowest number that it has not seen; a higher one changes nothing.
            let _ = seat.pending.fetch_min(change.number, SeqCst);
            seat.waker.wake();
        }
        self.announced.store(change.number + 1, SeqCst);
    }

    fn concerned(&self, change: &Change, indexed: [Option<&str>; 2]) -> Vec<Arc<Seat>> {
        let interests = Interest::woken_by(&change.object.key, indexed);
        let in_namespace = ShardHash::of(change.object.key.namespace().unwrap_or_default());
        let seats = self.seats();
        let keyed = interests.iter().filter_map(|interest| seats.keyed.get(interest));
        let shards = seats.shards.iter().filter(|(interest, _)| interest.has_shard_of(change, in_namespace));
        let shards = shards.map(|(_, row)| row);
        keyed.chain(shards).flatten().cloned().collect()
    }

    /// Ends every current and future watch.
    pub fn close(&self, cause: EndCause) {
        let _ = self.closed.set(cause);
        self.wake_all();
    }

    /// Wakes every watcher, so that it looks for changes of the hub's own state.
    pub fn wake_all(&self) {
        let seats: Vec<_> = self.seats().all().map(|(_, seat)| seat.clone()).collect();
        for seat in seats {
            seat.waker.wake();
        }
    }

    /// Records that the store was bridged and that all changes of the bridge were announced, then wakes every watcher:
    /// a watcher at a version within the gap must end, all others send a bookmark.
    pub fn bridged(&self) {
        self.bridges.fetch_add(1, SeqCst);
        self.wake_all();
    }

    /// Ends all current watches, but not future ones.
    pub fn end_stale(&self) {
        let seats: Vec<_> = self.seats().all().map(|(_, seat)| seat.clone()).collect();
        for seat in seats {
            seat.is_stale.store(true, SeqCst);
            seat.waker.wake();
        }
    }

    /// Sets whether an upstream watch is open. Without one, watchers get no bookmarks, since these would claim that
    /// nothing was missed.
    pub fn set_followed(&self, is_followed: bool) {
        self.unfollowed.store(!is_followed, SeqCst);
    }

    /// The current number of watchers.
    pub fn watchers(&self) -> usize {
        self.watchers.load(SeqCst)
    }

    /// Whether there are watchers for which [`Subscription::lasting`] was called.
    pub fn has_lasting(&self) -> bool {
        self.lasting.load(SeqCst) > 0
    }

    /// The `most` watchers that are furthest behind, the furthest first. Takes one step per watcher: meant for the
    /// status page, not for requests.
    pub fn furthest_behind(&self, most: usize) -> Vec<Behind> {
        let announced = self.announced.load(SeqCst);
        let seats = self.seats();
        let behind = |(interest, seat): (&Interest, &Arc<Seat>)| {
            let pending = seat.pending.load(SeqCst);
            // A watcher without pending changes is up to date, and so is one that starts with the next change.
            let changes = announced.checked_sub(pending).filter(|changes| *changes > 0)?;
            let (client, interest, since) = (seat.client.clone(), interest.clone(), seat.since);
            Some(Behind { client, interest, since, pending, changes })
        };
        let mut all: Vec<_> = seats.all().filter_map(behind).collect();
        drop(seats);
        all.sort_by_key(|behind| (behind.pending, behind.since));
        all.truncate(most);
        all
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    /// Those that have the row of that interest.
    fn rows(&mut self, interest: &Interest) -> &mut Rows {
        if matches!(interest, Interest::Shards(..)) { &mut self.shards } else { &mut self.keyed }
    }

    fn all(&self) -> impl Iterator<Item = (&Interest, &Arc<Seat>)> {
        let rows = self.keyed.iter().chain(&self.shards);
        rows.flat_map(|(interest, row)| row.iter().map(move |seat| (interest, seat)))
    }
}

impl Subscription {
    /// Marks the watcher as one that does not resume: its client has asked for no bookmarks.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.hub.lasting.fetch_add(1, SeqCst);
        self.is_lasting = true;
        self
    }

    /// How long the watch has been open.
    pub(super) fn open_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.seat.since)
    }

    /// Sets what is woken. Must be called before the pending changes are read, or a wake-up is lost.
    pub fn register(&self, waker: &Waker) {
        self.seat.waker.register(waker);
    }

    /// Returns and clears the number of the first change that may concern the watcher since the last call.
    pub(super) fn take_pending(&self) -> Option<u64> {
        Some(self.seat.pending.swap(NOTHING, SeqCst)).filter(|number| *number != NOTHING)
    }

    /// The same without clearing it.
    pub(super) fn pending(&self) -> Option<u64> {
        Some(self.seat.pending.load(SeqCst)).filter(|number| *number != NOTHING)
    }

    /// Whether all changes before `next` have been announced.
    pub(super) fn is_announced(&self, next: u64) -> bool {
        self.hub.announced.load(SeqCst) >= next
    }

    pub(super) fn closed(&self) -> Option<EndCause> {
        self.hub.closed.get().copied().or_else(|| self.seat.is_stale.load(SeqCst).then_some(EndCause::Stale))
    }

    /// When the watch ends because the gateway drains; `None` if it does not. Each call takes a turn, so it must be
    /// called only once after the drain began.
    pub(super) fn turn(&self) -> Option<Instant> {
        self.hub.spread.turn()
    }

    /// Whether the store was bridged since the last call, or since the watcher subscribed.
    pub(super) fn take_bridged(&mut self) -> bool {
        let bridges = self.hub.bridges.load(SeqCst);
        std::mem::replace(&mut self.bridges, bridges) != bridges
    }

    pub(super) fn is_followed(&self) -> bool {
        !self.hub.unfollowed.load(SeqCst)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.watchers.fetch_sub(1, SeqCst);
        self.hub.lasting.fetch_sub(usize::from(self.is_lasting), SeqCst);
        let mut seats = self.hub.seats();
        let rows = seats.rows(&self.interest);
        let Some(row) = rows.get_mut(&self.interest) else { return };
        if let Some(at) = row.iter().position(|seat| Arc::ptr_eq(seat, &self.seat)) {
            row.swap_remove(at);
        }
        if row.is_empty() {
            rows.remove(&self.interest);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Hub").field("watchers", &self.watchers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subscription").field("interest", &self.interest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::{self, ChangeKind, FIRST_CHANGE, HistoryLimits, Object, Objects, Reader, Schema, Shape, Writer};
    use base::{
        apimachinery::{FieldSelector, LabelSelector, ResourceVersion},
        telemetry::TopClients,
    };

    /// A store of config maps without objects.
    fn empty() -> (Arc<Schema>, Writer, Reader) {
        let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let first = ResourceVersion::new(1).expect("not zero");
        let (writer, reader) = store::store(schema.clone(), &Objects::default(), first, limits);
        (schema, writer, reader)
    }

    /// A config map `name` of the namespace `n`.
    fn config_map(name: &str, version: u64, schema: &Schema) -> Object {
        let metadata = format!(r#"{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}"#);
        let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#);
        Object::from_event(object.into(), schema).unwrap()
    }

    #[test]
    fn a_change_concerns_only_watchers_that_may_see_it() {
        let (schema, mut writer, _reader) = empty();
        let hub = Hub::new(FIRST_CHANGE, Spread::default());
        let everything = Predicate::new(LabelSelector::default(), &FieldSelector::default(), &schema).unwrap();
        let watch = |scope: Scope| hub.subscribe(Interest::of(&scope, &everything, &schema), FIRST_CHANGE, None);
        let object = |namespace, name| Scope::Object(ObjectKey::new(Some(namespace), name));
        let concerned =
            [Scope::Everything, Scope::Namespace("n".into()), Scope::Named("m".into()), object("n", "m")].map(watch);
        let others =
            [Scope::Namespace("m".into()), Scope::Named("n".into()), object("n", "n"), object("m", "m")].map(watch);
        concerned.iter().chain(&others).for_each(|watcher| _ = watcher.take_pending());
        let object = config_map("m", 2, &schema);
        let change = writer.apply(ChangeKind::Added, object, Bytes::from_static(b"line\n")).unwrap();
        hub.announce(&change, [None, None]);
        assert_eq!(concerned.map(|watcher| watcher.pending()), [Some(FIRST_CHANGE); 4]);
        assert_eq!(others.map(|watcher| watcher.pending()), [None; 4]);
    }

    /// In 16 parts, as 16 replicas of a client have it.
    #[test]
    fn a_change_wakes_one_shard() {
        let (schema, mut writer, _reader) = empty();
        let hub = Hub::new(FIRST_CHANGE, Spread::default());
        let watch = |scope: &Scope, field: &str, part: u128| {
            let [start, end] = [part, part + 1].map(|part| format!("'0x{:016x}'", part << 60));
            let shards = ShardSelector::parse(&format!("shardRange(object.metadata.{field},{start},{end})")).unwrap();
            let everything = Predicate::new(LabelSelector::default(), &FieldSelector::default(), &schema).unwrap();
            let predicate = everything.within(Some(shards));
            hub.subscribe(Interest::of(scope, &predicate, &schema), FIRST_CHANGE, None)
        };
        let (all, ours) = (Scope::Everything, Scope::Namespace("n".into()));
        let by_uid: Vec<_> = (0..16).map(|part| watch(&all, "uid", part)).collect();
        let by_namespace: Vec<_> = (0..16).map(|part| watch(&all, "namespace", part)).collect();
        let in_namespace: Vec<_> = (0..16).map(|part| watch(&ours, "uid", part)).collect();
        let elsewhere: Vec<_> = (0..16).map(|part| watch(&Scope::Namespace("m".into()), "uid", part)).collect();
        let all = [&by_uid, &by_namespace, &in_namespace, &elsewhere];
        for watcher in all.into_iter().flatten() {
            watcher.take_pending();
        }
        let change =
            writer.apply(ChangeKind::Added, config_map("m", 2, &schema), Bytes::from_static(b"line\n")).unwrap();
        hub.announce(&change, [None, None]);
        // The hash of no uid begins with c, that of the namespace `n` with a.
        let woken = |watchers: &[Subscription]| {
            let at = |part: &usize| watchers[*part].pending().is_some();
            (0..16).filter(at).collect::<Vec<_>>()
        };
        assert_eq!(all.map(|watchers| woken(watchers)), [vec![12], vec![10], vec![12], vec![]]);
        drop((by_uid, by_namespace, in_namespace, elsewhere));
        assert_eq!((hub.watchers(), hub.seats().all().count()), (0, 0));
    }

    #[test]
    fn a_watcher_that_takes_no_changes_falls_behind() {
        let (schema, mut writer, reader) = empty();
        let (hub, top_clients) = (Hub::new(FIRST_CHANGE, Spread::default()), TopClients::default());
        let client = |name: &str| Some(top_clients.find(name.as_bytes(), None));
        let attentive = hub.subscribe(Interest::Everything, FIRST_CHANGE, client("attentive"));
        let _deaf = hub.subscribe(Interest::Everything, FIRST_CHANGE, client("deaf"));
        assert!(hub.furthest_behind(10).is_empty(), "nothing has happened");
        for number in 2..5 {
            let kind = if number == 2 { ChangeKind::Added } else { ChangeKind::Modified };
            let change = writer.apply(kind, config_map("m", number, &schema), Bytes::from_static(b"line\n")).unwrap();
            hub.announce(&change, [None, None]);
            attentive.take_pending();
        }
        let [behind] = &hub.furthest_behind(10)[..] else { panic!("{:?}", hub.furthest_behind(10)) };
        assert_eq!((behind.pending, behind.changes), (FIRST_CHANGE, 3));
        assert_eq!(behind.client.as_ref().map(|client| &*client.user_agent), Some("deaf"));
        assert!(reader.change_age(behind.pending).is_some() && reader.change_age(FIRST_CHANGE + 3).is_none());
    }
}
