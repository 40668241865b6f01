//! A filled store, and everything that is needed to answer requests from it.

mod siblings;
#[cfg(test)]
mod tests;

pub(super) use siblings::Siblings;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use http::HeaderValue;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use super::{
    Unproven,
    backfill::{self, BackfillDemand},
    columns::TableColumns,
    proof_cost::ProofCost,
    proofs::{Candidate, Proofs, SchemaProof},
    shards::UpstreamShards,
    staleness::StalenessLimit,
};
use crate::{
    authz::{NotCovered, Permit},
    upstream::ResourceListWatch,
};
use base::{
    apimachinery::{CollectionScope, Encoding, FieldSelector, GroupVersionResource, Provenance, ResourceVersion, Verb},
    lifecycle::Spread,
    memo::{Join, SingleFlight},
    telemetry::CacheMetrics,
};
use engine::{
    encode::{
        BookmarkTemplate, ListEnvelope,
        table::{Columns, Unprintable},
    },
    fanout::Hub,
    reflector::{Failure, Filled, Health, ListPage, ListWatch},
    store::{Advance, Reader, Schema, Shape, View},
};

/// How long a gateway below waits for an answer that it shares with others. Then it gets one of its own.
const SHARED_HEAD_MAX: Duration = Duration::from_secs(1);
/// How long a read waits for a version, as in an API server (read-path 1.1).
const REACH_MAX: Duration = Duration::from_secs(3);
/// How long a watch, or a read of a version from elsewhere, waits for the store's own watch if progress probes are of
/// no use: the default of the time that reads wait for a version.
pub(super) const OWN_WATCH_WAIT: Duration = Duration::from_millis(100);
/// The typical duration of a progress probe on a current API server (0.6 to 1.9 s on 1.36).
const SMALL_WATCH_TAKES: Duration = Duration::from_millis(1200);

/// The expected wait for a quiet resource's own watch, if progress probes are of no use: it gets one bookmark per
/// minute.
const OWN_WATCH_TAKES: Duration = Duration::from_secs(60);

/// One resource in memory. Lasts from one fill to the next, unless that fill is bridged: then the same instance goes
/// on.
pub struct Instance {
    pub resource: GroupVersionResource,
    /// The part of the collection that is in the store.
    pub(super) scope: CollectionScope,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    pub(super) reader: Reader,
    pub hub: Arc<Hub>,
    pub envelope: ListEnvelope,
    /// `Warning` headers that upstream adds to every response.
    pub warnings: Vec<HeaderValue>,
    pub metrics: Arc<CacheMetrics>,
    bookmark: Arc<OnceLock<BookmarkTemplate>>,
    advance: Advance,
    /// When upstream was first asked for the state in the store.
    pub(super) filled_since: Instant,
    /// `None` if it is not known, or there are no peers that may ask for it.
    provenance: Option<Provenance>,
    /// For gateways below; `None` if it is not known.
    pub written_by: Option<HeaderValue>,
    health: RwLock<Health>,
    staleness_limit: StalenessLimit,
    siblings: Arc<Siblings>,
    proofs: Arc<Proofs>,
    pub(super) backfill: BackfillDemand,
    proof_cost: ProofCost,
    columns: TableColumns,
    shards: UpstreamShards,
    schema_proof: SchemaProof,
    pub(super) upstream: ResourceListWatch,
    /// One page serves all gateways that were waiting for upstream's version when it was requested.
    heads: SingleFlight<Result<ListPage, Failure>>,
    used: Mutex<Instant>,
}

/// The parts that all instances of a resource share.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) resource: GroupVersionResource,
    pub(super) scope: CollectionScope,
    pub(super) namespaced: bool,
    pub(super) upstream: ResourceListWatch,
    pub(super) metrics: Arc<CacheMetrics>,
    pub(super) siblings: Arc<Siblings>,
    /// Whether it is given up if the gateway may not list and watch it: others may take its place.
    pub(super) is_given_up: bool,
    /// Of stores of this scope.
    pub(super) proofs: Arc<Proofs>,
    pub(super) staleness_limit: StalenessLimit,
    pub(super) spread: Spread,
    /// Wakes the task that lets history begin earlier.
    pub(super) backfill_wanted: Arc<Notify>,
}

impl Resource {
    /// For the log.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.resource, self.scope.after_name())
    }
}

impl Instance {
    pub(super) fn new(resource: Resource, filled: Filled, health: Health) -> Self {
        let Resource {
            resource,
            scope,
            namespaced,
            upstream,
            metrics,
            siblings,
            proofs,
            staleness_limit,
            spread,
            backfill_wanted,
            ..
        } = resource;
        let Filled { reader, began, advance, list_kind, warnings, bookmark, written_by, provenance, .. } = filled;
        let (_, next) = reader.snapshot_and_next();
        metrics.set_followed(health.is_followed());
        let backfill = BackfillDemand::new(backfill_wanted);
        if !scope.has_cheap_exact_lists() {
            backfill.end();
        }
        Self {
            envelope: ListEnvelope::new(list_kind, &resource, &reader.schema().shape),
            hub: Hub::new(next, spread),
            bookmark: Arc::new(bookmark.map_or_else(OnceLock::new, OnceLock::from)),
            heads: SingleFlight::new(Join::BeforeItIsSent),
            used: Mutex::new(Instant::now()),
            columns: TableColumns::new(upstream.definition(), &resource),
            shards: UpstreamShards::default(),
            schema_proof: SchemaProof::new(upstream.definition(), reader.progress()),
            resource,
            scope,
            namespaced,
            reader,
            warnings,
            metrics,
            advance,
            filled_since: began,
            provenance,
            written_by: written_by.and_then(|version| HeaderValue::try_from(version).ok()),
            health: RwLock::new(health),
            staleness_limit,
            siblings,
            proofs,
            backfill,
            proof_cost: ProofCost::default(),
            upstream,
        }
    }

    /// The objects that the permit covers for that verb. All of them that match the field selector are in the store.
    /// Code outside of this module has no other access to the objects.
    pub fn view(&self, permit: &Permit, verb: Verb, fields: &FieldSelector) -> Result<View, NotCovered> {
        let scope = permit.scope(verb, &self.resource, self.namespaced)?;
        if scope.lies_within(&self.scope, fields) { Ok(View::new(self.reader.clone(), scope)) } else { Err(NotCovered) }
    }

    /// The conditions under which upstream gave the state, for a peer to compare with its own.
    pub fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_ref()
    }

    /// Whether history reaches back to `version`, so that a watch can continue after it.
    pub fn reaches_back_to(&self, version: ResourceVersion) -> bool {
        self.reader.after(version).is_ok()
    }

    /// Whether history begins after `version`, and did not drop the changes after it: upstream may still know them.
    pub fn is_before_history(&self, version: ResourceVersion) -> bool {
        backfill::is_before_history(version, &self.reader)
    }

    /// Whether upstream's storage was found to be another one since the fill.
    pub(super) fn was_rolled_back(&self) -> bool {
        self.proofs.evidence().has_rolled_back_since(self.filled_since)
    }

    /// The version up to which the store is known to be complete.
    pub fn progress(&self) -> ResourceVersion {
        self.reader.progress()
    }

    pub fn schema(&self) -> &Arc<Schema> {
        self.reader.schema()
    }

    /// Upstream's answer to a list of one object of the most recent state, requested after the call; `None` if it could
    /// not be had soon.
    pub async fn head(&self) -> Option<ListPage> {
        timeout(SHARED_HEAD_MAX, self.heads.ask(|| self.upstream.head())).await.ok()?.ok()
    }

    /// Whether [`Self::head`] has an object of that part of the collection, in that encoding.
    pub fn has_head_of(&self, namespace: Option<&str>, encoding: Encoding) -> bool {
        let CollectionScope { namespace: ours, selection } = &self.scope;
        selection.is_none() && ours.as_deref() == namespace && self.schema().shape.encoding() == encoding
    }

    /// Returns when the store holds everything that upstream had acknowledged before the call.
    pub async fn prove_most_recent(&self) -> Result<(), Unproven> {
        self.count(self.proofs.prove(&self.upstream, &self.candidate()).await)
    }

    /// Like [`Self::prove_most_recent`], but waits no longer than `limit`. A failure counts as a duration of at least
    /// `failed` in [`Self::recent_proof`].
    pub async fn prove_within(&self, limit: Duration, failed: Duration) -> Result<(), Unproven> {
        let (store, began) = (Candidate { own_watch: limit, ..self.candidate() }, Instant::now());
        let proven = self.count(self.proofs.prove_within(limit, &self.upstream, &store).await);
        let at_least = if self.has_watch_list() { SMALL_WATCH_TAKES } else { OWN_WATCH_TAKES };
        match proven {
            Ok(()) => self.proof_cost.proven_in(began.elapsed()),
            Err(_) => self.proof_cost.failed_in(failed.max(at_least)),
        }
        proven
    }

    /// The expected duration of a proof, from recent proofs; `None` if there were none.
    pub fn recent_proof(&self) -> Option<Duration> {
        self.proof_cost.proof()
    }

    /// Counts a most-recent read of about `bytes` bytes. Returns how many of the reads within the last second are at
    /// least half as large, including this one.
    pub fn asked(&self, bytes: usize) -> usize {
        self.proof_cost.asked(bytes)
    }

    /// The average time between recent changes: see [`Reader::pace`].
    pub fn pace(&self) -> Option<Duration> {
        self.reader.pace()
    }

    /// The size of all objects in bytes.
    pub fn bytes(&self) -> usize {
        self.reader.snapshot().bytes()
    }

    /// Returns when the store holds everything up to `version`, and agrees with the other stores of its resource
    /// ([`Self::agree`]).
    ///
    /// Waits at most three seconds in total.
    pub async fn reach(&self, version: ResourceVersion, watch_wait: Duration) -> Result<(), Unproven> {
        let began = Instant::now();
        self.catch_up(version, watch_wait).await?;
        let left = REACH_MAX.saturating_sub(began.elapsed());
        timeout(left, self.agree(watch_wait)).await.unwrap_or(Err(Unproven::Late))
    }

    /// Returns when the store holds everything up to `version`. If its own watch does not reach the version soon, it is
    /// proven.
    ///
    /// Waits at most three seconds in total, and at most `watch_wait` of them for the store's own watch.
    async fn catch_up(&self, version: ResourceVersion, watch_wait: Duration) -> Result<(), Unproven> {
        let began = Instant::now();
        if self.reader.progress() >= version || timeout(watch_wait, self.reader.reached(version)).await.is_ok() {
            let store = self.candidate();
            let schema = self.proofs.prove_schema(version, &self.upstream, &store);
            let proven = timeout(REACH_MAX.saturating_sub(began.elapsed()), schema).await;
            return proven.unwrap_or(Err(Unproven::Late)).or_else(|unproven| self.count(Err(unproven)));
        }
        let store = self.candidate();
        let proof = self.proofs.prove_reached(version, &self.upstream, &store);
        let proven = timeout(REACH_MAX.saturating_sub(watch_wait), proof).await;
        self.count(proven.unwrap_or(Err(Unproven::NoBookmark)))
    }

    /// Whether the store has only the objects that a field selects, and does not know which keys lie between them.
    pub fn is_selection(&self) -> bool {
        self.scope.selection.is_some()
    }

    /// Records that the store differs from upstream. It is filled again, and so are the resource's other stores, which
    /// are notified as well.
    pub(super) fn give_up(&self) {
        self.proofs.evidence().corrupt();
    }

    /// Returns when the store holds everything that the other stores of its resource hold, so that time does not run
    /// backwards between encodings, or between versions of the API.
    ///
    /// If none of these stores is followed, none of them advances, and each is served as it is.
    pub async fn agree(&self, watch_wait: Duration) -> Result<(), Unproven> {
        let ahead = self.siblings.ahead_of(self.reader.progress(), &self.scope);
        let Some((ahead, is_any_followed)) = ahead else { return Ok(()) };
        // If another store is followed, this one is about to be followed again, too.
        if !self.is_followed() && !is_any_followed {
            return Ok(());
        }
        let (last_change, progress) = ahead.reader.last_change_and_progress();
        let is_same = ahead.scope == self.scope;
        if is_same && ahead.is_followed() && timeout(watch_wait, self.reader.reached(last_change)).await.is_ok() {
            // The other store knows that nothing happened after that change.
            if !self.proofs.evidence().has_rolled_back_since(ahead.filled_since.min(self.filled_since)) {
                self.advance.to(progress);
            }
        }
        self.catch_up(progress, watch_wait).await
    }

    /// Whether the objects up to `version`, which the store has reached, are of the schema that the resource has now;
    /// `None` if upstream does not answer in time.
    pub async fn is_current_schema(&self, version: ResourceVersion, wait: Duration) -> Option<bool> {
        let is_current = self.proofs.is_current(version, &self.upstream, &self.candidate(), wait).await;
        if is_current == Some(false) {
            self.metrics.freshness_proof("redefined");
        }
        is_current
    }

    fn count(&self, proven: Result<(), Unproven>) -> Result<(), Unproven> {
        self.metrics.freshness_proof(match proven {
            Ok(()) => "proven",
            Err(Unproven::NoHead) => "no_head",
            Err(Unproven::NoBookmark) => "no_bookmark",
            Err(Unproven::Ahead) => "ahead",
            Err(Unproven::Backwards) => "backwards",
            Err(Unproven::Late) => "late",
            Err(Unproven::Redefined) => "redefined",
        });
        proven
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            reader: &self.reader,
            advance: &self.advance,
            filled_since: self.filled_since,
            has_watch_list: self.has_watch_list(),
            schema: &self.schema_proof,
            own_watch: OWN_WATCH_WAIT,
        }
    }

    pub(super) fn set_health(&self, health: Health) {
        *self.health.write().unwrap_or_else(PoisonError::into_inner) = health;
        if !health.is_followed() {
            // A server that starts again may have other features.
            self.shards.ask_again();
        }
        self.hub.set_followed(health.is_followed());
        self.metrics.set_followed(health.is_followed());
    }

    fn health(&self) -> Health {
        *self.health.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store has been without upstream for longer than the configuration allows.
    pub(super) fn is_followed(&self) -> bool {
        self.health().is_followed()
    }

    pub(super) fn is_stale(&self) -> bool {
        self.staleness_limit.is_passed_by(self.health().age(Instant::now()))
    }

    /// Whether the store is stale and the configuration requires that watches end in that case.
    pub fn refuses_watches(&self) -> bool {
        self.staleness_limit.ends_watches && self.is_stale()
    }

    /// Whether upstream accepts `sendInitialEvents`, and ends initial events with a bookmark.
    pub fn has_watch_list(&self) -> bool {
        self.health().watch_list
    }

    /// Whether a Table of the resource is worth trying: its columns are supported, upstream is recent enough to print
    /// them in the same way, and there was no recent failure to print an object.
    pub fn prints_tables(&self) -> bool {
        self.columns.are_printable() && (self.columns.are_of_any_age() || self.has_watch_list())
    }

    /// Whether a watch of such Tables is worth trying, too: none ended at an object that could not be printed for a
    /// while.
    pub fn prints_tables_of_watches(&self) -> bool {
        self.columns.are_printable_in_watches()
    }

    /// Records that an object could not be printed.
    pub fn gave_up_table(&self) {
        self.columns.gave_up();
    }

    /// Records that a watch of Tables ended at an object that could not be printed.
    pub fn gave_up_table_watch(&self) {
        self.columns.gave_up_watch();
    }

    /// The columns of a Table. For a custom resource, upstream has to confirm after this call that the definition is
    /// the one under which the store was filled; for a built-in one, upstream's release must be one that is known to
    /// print these columns.
    pub async fn columns(&self) -> Result<Arc<Columns>, Unprintable> {
        self.columns.current(&self.upstream, &self.resource).await
    }

    /// Whether upstream selects by `shardSelector`; `None` if it has not answered.
    pub async fn has_shards(&self) -> Option<bool> {
        self.shards.known(&self.upstream, self.schema().shape == Shape::Custom).await
    }

    /// The template of bookmarks; empty until upstream has sent a bookmark.
    pub fn bookmark(&self) -> &Arc<OnceLock<BookmarkTemplate>> {
        &self.bookmark
    }

    pub(super) fn record_bookmark(&self, template: BookmarkTemplate) {
        self.bookmark.get_or_init(|| template);
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When it was last used; `None` while it is watched. A watch counts as use until the last call of this function
    /// that saw it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        if self.hub.watchers() > 0 {
            self.touch();
            return None;
        }
        Some(*self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the gauges.
    pub(super) fn observe(&self) {
        let size = self.reader.size();
        self.metrics.set_objects(size.objects, size.object_bytes as u64, size.cold_bytes as u64);
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
