//! A filled store and everything that answering from it takes.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use http::HeaderValue;
use tokio::time::{Instant, timeout};

use super::{
    Unproven,
    columns::TableColumns,
    demand::Demand,
    freshness::{Candidate, Freshness},
    quiet::Quiet,
    staleness::StalenessLimit,
};
use crate::{
    apimachinery::{GroupVersionResource, ResourceVersion, Verb},
    authz::{NotCovered, Permit},
    encode::{
        BookmarkTemplate, ListEnvelope,
        table::{Columns, Unprintable},
    },
    fanout::Hub,
    lifecycle::Spread,
    reflector::{Filled, Health},
    store::{Advance, Reader, Schema, View},
    telemetry::CacheMetrics,
    upstream::ResourceListWatch,
};

/// How long a read waits for a version, as in an API server (read-path 1.1).
const REACH_MAX: Duration = Duration::from_secs(3);
/// How long a watch or a version from elsewhere waits for the store's own watch where upstream does not tell small ones: as
/// long as reads wait for a version by default.
const OWN_WATCH_WAIT: Duration = Duration::from_millis(100);
/// What a small watch takes of a current API server in the middle (0.6 to 1.9 s on 1.36).
const SMALL_WATCH_TAKES: Duration = Duration::from_millis(1200);

/// What is expected of a quiet resource's own watch, where it is all there is: a bookmark a minute.
const OWN_WATCH_TAKES: Duration = Duration::from_secs(60);

/// One resource in memory, from one fill to the next that is not bridged.
pub struct Instance {
    pub resource: GroupVersionResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    pub(super) reader: Reader,
    pub hub: Arc<Hub>,
    pub envelope: ListEnvelope,
    /// `Warning` headers that upstream puts on every answer.
    pub warnings: Vec<HeaderValue>,
    pub metrics: Arc<CacheMetrics>,
    bookmark: RwLock<Option<Arc<BookmarkTemplate>>>,
    advance: Advance,
    /// When upstream was first asked for what the store holds.
    filled_since: Instant,
    health: RwLock<Health>,
    staleness_limit: StalenessLimit,
    freshness: Arc<Freshness>,
    quiet: Quiet,
    demand: Demand,
    columns: TableColumns,
    pub(super) upstream: ResourceListWatch,
    used: Mutex<Instant>,
}

/// What stays the same from one instance of a resource to the next.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) resource: GroupVersionResource,
    pub(super) namespaced: bool,
    pub(super) upstream: ResourceListWatch,
    pub(super) metrics: Arc<CacheMetrics>,
    pub(super) freshness: Arc<Freshness>,
    pub(super) staleness_limit: StalenessLimit,
    pub(super) spread: Spread,
}

impl Instance {
    pub(super) fn new(resource: Resource, filled: Filled, health: Health) -> Self {
        let Resource { resource, namespaced, upstream, metrics, freshness, staleness_limit, spread } = resource;
        let Filled { reader, began, advance, list_kind, warnings, bookmark } = filled;
        let (_, next) = reader.snapshot_and_next();
        metrics.set_followed(health.is_followed());
        Self {
            envelope: ListEnvelope::new(list_kind, &resource, &reader.schema().shape),
            hub: Hub::new(next, spread),
            bookmark: RwLock::new(bookmark.map(Arc::new)),
            used: Mutex::new(Instant::now()),
            columns: TableColumns::new(upstream.definition(), &resource.version),
            resource,
            namespaced,
            reader,
            warnings,
            metrics,
            advance,
            filled_since: began,
            health: RwLock::new(health),
            staleness_limit,
            freshness,
            quiet: Quiet::default(),
            demand: Demand::default(),
            upstream,
        }
    }

    /// The objects, as far as the permit for that verb reaches. There is no other way to them from outside of this module.
    pub fn view(&self, permit: &Permit, verb: Verb) -> Result<View, NotCovered> {
        Ok(View::new(self.reader.clone(), permit.scope(verb, &self.resource, self.namespaced)?))
    }

    /// Whether history goes back to `version`: a watch can go on behind it.
    pub fn reaches_back_to(&self, version: ResourceVersion) -> bool {
        self.reader.after(version).is_ok()
    }

    /// The version up to which nothing has happened since `version`, which may be older than history: who knows everything up
    /// to the one knows everything up to the other. `None` if something has happened, or upstream does not say.
    pub async fn quiet_since(&self, version: ResourceVersion) -> Option<ResourceVersion> {
        // An upstream without watch-list tells its watches nothing when they are about to end.
        if !self.has_watch_list() {
            return None;
        }
        self.quiet.since(version, &self.upstream, self.schema()).await
    }

    /// The version up to which the store is known to be complete.
    pub fn progress(&self) -> ResourceVersion {
        self.reader.progress()
    }

    /// Resolves when the store is complete up to `version`: see [`Reader::reached`].
    pub async fn reached(&self, version: ResourceVersion) {
        self.reader.reached(version).await;
    }

    pub fn schema(&self) -> &Arc<Schema> {
        self.reader.schema()
    }

    /// Returns when the store holds everything that upstream had acknowledged when this was called.
    pub async fn prove_most_recent(&self) -> Result<(), Unproven> {
        self.count(self.freshness.prove(&self.upstream, &self.candidate()).await)
    }

    /// The same for a read that waits for no longer than `limit`. One that fails counts as having taken `failed`, at least, when
    /// [`Self::recent_proof`] is asked for.
    pub async fn prove_within(&self, limit: Duration, failed: Duration) -> Result<(), Unproven> {
        let (store, began) = (Candidate { own_watch: limit, ..self.candidate() }, Instant::now());
        let proven = self.count(self.freshness.prove_within(limit, &self.upstream, &store).await);
        let at_least = if self.has_watch_list() { SMALL_WATCH_TAKES } else { OWN_WATCH_TAKES };
        match proven {
            Ok(()) => self.demand.proven_in(began.elapsed()),
            Err(_) => self.demand.failed_in(failed.max(at_least)),
        }
        proven
    }

    /// How long proofs have taken lately, if there were any.
    pub fn recent_proof(&self) -> Option<Duration> {
        self.demand.proof()
    }

    /// Counts a most-recent read that is about so many bytes. Gives how many of those that came within the last second are at
    /// least half as large, this one included.
    pub fn asked(&self, bytes: usize) -> usize {
        self.demand.asked(bytes)
    }

    /// How often the store changes: see [`Reader::pace`].
    pub fn pace(&self) -> Option<Duration> {
        self.reader.pace()
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> usize {
        self.reader.snapshot().bytes()
    }

    /// Returns when the store holds everything up to `version`, which is proven if its own watch does not say so soon.
    ///
    /// Waits for three seconds at most, `watch_wait` of them for the store's own watch.
    pub async fn reach(&self, version: ResourceVersion, watch_wait: Duration) -> Result<(), Unproven> {
        if self.reader.progress() >= version || timeout(watch_wait, self.reader.reached(version)).await.is_ok() {
            return Ok(());
        }
        let store = self.candidate();
        let proof = self.freshness.prove_reached(version, &self.upstream, &store);
        let proven = timeout(REACH_MAX.saturating_sub(watch_wait), proof).await;
        self.count(proven.unwrap_or(Err(Unproven::NoBookmark)))
    }

    /// The store holds what upstream does not: it is filled anew, and so are the resource's others, which heard the same.
    pub(super) fn give_up(&self) {
        self.freshness.evidence().corrupt();
    }

    /// Returns when the store holds everything that the others of its resource hold: time does not run backwards between
    /// encodings, or between versions of the API.
    ///
    /// Where none of them is followed, none comes further, and each stays what there is.
    pub async fn agree(&self, watch_wait: Duration) -> Result<(), Unproven> {
        let Some(ahead) = self.freshness.ahead_of(self.reader.progress()) else { return Ok(()) };
        // Where the other one is followed, this one only waits for its next try.
        if !self.health().is_followed() && !ahead.health().is_followed() {
            return Ok(());
        }
        let (last_change, progress) = ahead.reader.last_change_and_progress();
        if ahead.health().is_followed() && timeout(watch_wait, self.reader.reached(last_change)).await.is_ok() {
            // Nothing happened behind that change, as the other one knows.
            if !self.freshness.evidence().has_rolled_back_since(ahead.filled_since.min(self.filled_since)) {
                self.advance.to(progress);
            }
        }
        self.reach(progress, watch_wait).await
    }

    fn count(&self, proven: Result<(), Unproven>) -> Result<(), Unproven> {
        self.metrics.freshness_proof(match proven {
            Ok(()) => "proven",
            Err(Unproven::NoHead) => "no_head",
            Err(Unproven::NoBookmark) => "no_bookmark",
            Err(Unproven::Ahead) => "ahead",
            Err(Unproven::Backwards) => "backwards",
            Err(Unproven::Late) => "late",
        });
        proven
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            reader: &self.reader,
            advance: &self.advance,
            filled_since: self.filled_since,
            has_watch_list: self.has_watch_list(),
            own_watch: OWN_WATCH_WAIT,
        }
    }

    pub(super) fn set_health(&self, health: Health) {
        *self.health.write().unwrap_or_else(PoisonError::into_inner) = health;
        self.hub.set_followed(health.is_followed());
        self.metrics.set_followed(health.is_followed());
    }

    fn health(&self) -> Health {
        *self.health.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has been without upstream for longer than the configuration allows.
    pub(super) fn is_stale(&self) -> bool {
        self.staleness_limit.is_passed_by(self.health().age(Instant::now()))
    }

    /// The same, and the configuration wants watches to end then.
    pub fn refuses_watches(&self) -> bool {
        self.staleness_limit.ends_watches && self.is_stale()
    }

    /// Upstream takes `sendInitialEvents`, and ends initial events with a bookmark.
    pub fn has_watch_list(&self) -> bool {
        self.health().watch_list
    }

    /// Whether a Table of the resource is worth trying: its columns are understood, upstream is one of those that print them as it is
    /// done here, and none could not be printed lately.
    pub fn prints_tables(&self) -> bool {
        self.columns.are_printable() && self.has_watch_list()
    }

    /// Some object could not be printed.
    pub fn gave_up_table(&self) {
        self.columns.gave_up();
    }

    /// The columns, if upstream says after this was called that the definition is the one that the store was filled under.
    pub async fn columns(&self) -> Result<Arc<Columns>, Unprintable> {
        self.columns.current(&self.upstream, &self.resource.version).await
    }

    /// What bookmarks look like, once upstream has sent one.
    pub fn bookmark(&self) -> Option<Arc<BookmarkTemplate>> {
        self.bookmark.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn record_bookmark(&self, template: BookmarkTemplate) {
        if self.bookmark().is_none() {
            *self.bookmark.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(template));
        }
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Since when it has not been watched or asked, as far as looks like this one tell: a watch counts as use for as long
    /// as it lasts, up to the last look that saw it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        if self.hub.watchers() > 0 {
            self.touch();
            return None;
        }
        Some(*self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings the gauges up to date.
    pub(super) fn observe(&self) {
        let size = self.reader.size();
        self.metrics.set_objects(size.objects, size.object_bytes as u64);
        self.metrics.set_joined(size.joined_bytes as u64);
        self.metrics.set_deflated(size.deflated_bytes as u64);
        self.metrics.set_derived(size.derived_bytes as u64);
        self.metrics.set_history(size.changes, size.change_bytes as u64);
        self.metrics.set_resource_version(self.reader.progress());
        self.metrics.set_staleness(self.health().age(Instant::now()));
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Instance").field("resource", &self.resource).field("reader", &self.reader).finish()
    }
}
