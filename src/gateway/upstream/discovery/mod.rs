//! The resources that the API server serves: their kinds, scopes and verbs, and which of them another server answers.
//!
//! Fetched on first use, and again when a resource is unknown or the answer is old: by one request at a time,
//! regardless of how many callers wait, and not again for a few seconds. An unknown resource is `None`, never a guess:
//! its requests are forwarded.

mod documents;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use base::apimachinery::{GroupResource, GroupVersionResource};
use base::telemetry::{Chain, limit_reached};

use super::{Upstream, fetch::FetchError};
use documents::{ACCEPT_DISCOVERY, ACCEPT_JSON, Resources};

/// Minimum interval between questions about unknown resources. A resource may stay unknown for that time.
const REFETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between questions while upstream gives no usable answer. Reads are forwarded meanwhile, so that it
/// is short. There is none while upstream accepts no connections: the herd that comes when an API server starts waits
/// for its first answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Known resources are fetched again after this time: another server may have taken over their groups.
const TRUSTED_FOR: Duration = Duration::from_secs(300);
/// The first and the longest pause between requests for the API services, while the gateway may not list them and a
/// resource is wanted that could be another server's. Doubled each time.
const SERVICES_PAUSE_MIN: Duration = Duration::from_secs(10);
const SERVICES_PAUSE_MAX: Duration = Duration::from_secs(25);
/// Maximum number of group versions in the table of a server that lists none: each group version that clients name adds
/// one. Beyond it, the whole table is fetched again.
const UNLISTED_VERSIONS_MAX: usize = 1_000;
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A collection that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// `Pod`.
    pub kind: Box<str>,
    pub namespaced: bool,
    /// In Kubernetes' words: `get`, `list`, `watch`, …
    pub verbs: Box<[Box<str>]>,
    pub served_by: ServedBy,
}

/// Which server answers for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The API server itself.
    ApiServer,
    /// Another server, to which the API server proxies the requests.
    Another,
    /// Not known, because the gateway may not list API services.
    Unknown,
}

/// The resources that upstream serves, cached. Cheap to clone; clones share the cache.
#[derive(Clone, Debug)]
pub struct Discovery {
    shared: Arc<Shared>,
}

/// Why upstream's resources are not known. Shared by all callers that waited for the same answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot discover the API server's resources")]
pub struct DiscoveryError(#[source] Arc<FetchError>);

#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    /// Never held across an await.
    known: RwLock<Known>,
    /// Held by the task that asks upstream.
    asking: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    table: Arc<Table>,
    /// When the table that was last received was requested; `None` before.
    told: Option<Instant>,
    /// When the whole table was last requested, with or without success.
    asked: Option<Instant>,
    /// Why the last request failed; `None` if it did not.
    failure: Option<Failure>,
    /// The last time that the gateway was not allowed to list API services, and the pause until it asks again.
    services_refused: Option<(Instant, Duration)>,
}

/// What upstream serves, by group version.
#[derive(Clone, Debug, Default)]
struct Table {
    versions: HashMap<GroupVersion, Versioned>,
    /// Upstream does not list its groups (an API server for custom resources alone): each has to be fetched by name.
    is_unlisted: bool,
    /// Upstream does not list which groups other servers answer for.
    hides_services: bool,
}

#[derive(Clone, Debug)]
struct Versioned {
    served_by: ServedBy,
    resources: Told,
}

/// Older servers have a separate document for the resources of each group version.
#[derive(Clone, Debug)]
enum Told {
    NotYet,
    Resources(Arc<Resources>),
    Failed(Failure),
}

/// A request that gave no usable answer.
#[derive(Clone, Debug)]
struct Failure {
    error: DiscoveryError,
    at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupVersion {
    group: Arc<str>,
    version: Arc<str>,
}

/// What the table knows of one resource.
enum Knowledge {
    Answer(Result<Option<ApiResource>, DiscoveryError>),
    /// The group version exists; its document has not been read.
    Unread,
    /// Which server answers is not known, and is to be asked again.
    Unattributed(ApiResource),
    Unknown,
}

impl ApiResource {
    /// Whether a cache can follow it.
    pub fn is_watchable(&self) -> bool {
        ["list", "watch"].iter().all(|verb| self.verbs.iter().any(|allowed| &**allowed == *verb))
    }
}

impl Discovery {
    pub fn new(upstream: Upstream) -> Self {
        let shared = Shared { upstream, known: RwLock::default(), asking: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The resource, or `None` if upstream is not known to serve it.
    ///
    /// # Errors
    /// Upstream was asked, now or a moment ago, and gave no usable answer.
    pub async fn resource(&self, gvr: &GroupVersionResource) -> Result<Option<ApiResource>, DiscoveryError> {
        let called = Instant::now();
        if let Knowledge::Answer(answer) = self.shared.look_up(gvr, called) {
            return answer;
        }
        let _asking = self.shared.asking.lock().await;
        // Another task may have asked while this one waited.
        let mut knowledge = self.shared.look_up(gvr, called);
        if let Knowledge::Unknown = knowledge {
            self.shared.read_roots().await;
            knowledge = self.shared.look_up(gvr, called);
        }
        if let Knowledge::Unread = knowledge {
            self.shared.read_version(gvr).await;
            knowledge = self.shared.look_up(gvr, called);
        }
        if let Knowledge::Unattributed(_) = knowledge {
            self.shared.read_services().await;
            knowledge = self.shared.look_up(gvr, called);
        }
        match knowledge {
            Knowledge::Answer(answer) => answer,
            Knowledge::Unattributed(resource) => Ok(Some(resource)),
            Knowledge::Unread | Knowledge::Unknown => Ok(None),
        }
    }

    /// The resources that caches can follow, by group and name, of all groups that upstream lists. If
    /// upstream gives no usable answer, those that are known from earlier ones. Not to be called for each request: an
    /// older server is asked for each of its group versions.
    pub async fn cacheable(&self) -> BTreeSet<GroupResource> {
        let shared = &self.shared;
        let _asking = shared.asking.lock().await;
        let table = || shared.known.read().unwrap_or_else(PoisonError::into_inner).table.clone();
        if table().versions.is_empty() {
            shared.read_roots().await;
        }
        for (GroupVersion { group, version }, versioned) in &table().versions {
            if matches!(versioned.resources, Told::NotYet) {
                shared.read_version(&GroupVersionResource::new(group, version, "")).await;
            }
        }
        let own = table();
        let own = own.versions.iter().filter(|(_, versioned)| versioned.served_by != ServedBy::Another);
        let told = own.filter_map(|(group_version, versioned)| match &versioned.resources {
            Told::Resources(resources) => Some((&group_version.group, resources)),
            Told::NotYet | Told::Failed(_) => None,
        });
        told.flat_map(|(group, resources)| {
            let cacheable = resources.iter().filter(|(_, resource)| resource.is_watchable());
            cacheable.map(|(name, _)| GroupResource { group: group.clone(), resource: (&**name).into() })
        })
        .collect()
    }

    /// Forgets a resource that is gone, or replaced by another under its name: `None` until upstream was asked again.
    pub fn forget(&self, gvr: &GroupVersionResource) {
        self.shared.learn(|known| {
            let versioned = Arc::make_mut(&mut known.table).versions.get_mut(&GroupVersion::of(gvr));
            if let Some(Versioned { resources: Told::Resources(resources), .. }) = versioned {
                Arc::make_mut(resources).remove(&*gvr.resource);
            }
        });
    }
}

impl Upstream {
    /// Asks whether another server answers for the group version of a resource now; `false` if the gateway may not list
    /// API services.
    pub(super) async fn is_aggregated(&self, gvr: &GroupVersionResource) -> Result<bool, FetchError> {
        // A custom resource's group and version are domain names.
        let query = format!("fieldSelector=metadata.name%3D{}.{}", gvr.version, gvr.group);
        let aggregated = self.aggregated(&query).await?;
        Ok(aggregated.is_some_and(|aggregated| aggregated.contains(&GroupVersion::of(gvr))))
    }

    /// The group versions that other servers answer for, of the API services that a query selects: none without an
    /// aggregation layer. `None` if the gateway may not list them.
    async fn aggregated(&self, query: &str) -> Result<Option<HashSet<GroupVersion>>, FetchError> {
        let document = match self.fetch_selected(API_SERVICES, query, ACCEPT_JSON).await {
            Err(FetchError::Status { status: http::StatusCode::FORBIDDEN, .. }) => return Ok(None),
            answer => answer?,
        };
        let Some(document) = document else { return Ok(Some(HashSet::new())) };
        let aggregated = documents::aggregated(&document);
        aggregated.map(Some).map_err(|source| FetchError::Malformed { path: API_SERVICES.to_owned(), source })
    }
}

impl Shared {
    /// What is known of a resource, for a caller that asked at `called`.
    fn look_up(&self, gvr: &GroupVersionResource, called: Instant) -> Knowledge {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let storage = self.upstream.storage();
        let holds = |instant: Instant, age| instant.elapsed() < age && !storage.was_replaced_since(instant);
        let within = |instant: Option<Instant>, age| instant.is_some_and(|instant| holds(instant, age));
        if within(known.told, TRUSTED_FOR)
            && let Some(versioned) = known.table.get(gvr)
        {
            match versioned.resources {
                Told::Resources(resources) => {
                    if let Some(resource) = resources.get(&*gvr.resource) {
                        let resource = ApiResource { served_by: versioned.served_by, ..resource.clone() };
                        let is_due = known.services_refused.is_some_and(|(at, pause)| at.elapsed() >= pause);
                        return if resource.served_by == ServedBy::Unknown && is_due {
                            Knowledge::Unattributed(resource)
                        } else {
                            Knowledge::Answer(Ok(Some(resource)))
                        };
                    }
                }
                Told::Failed(failure) if failure.holds(called) => return Knowledge::Answer(Err(failure.error)),
                Told::NotYet | Told::Failed(_) => return Knowledge::Unread,
            }
        }
        match &known.failure {
            Some(failure) if failure.holds(called) => Knowledge::Answer(Err(failure.error.clone())),
            None if within(known.asked, REFETCH_INTERVAL) => Knowledge::Answer(Ok(None)),
            Some(_) | None => Knowledge::Unknown,
        }
    }

    /// Fetches everything that upstream serves. Failures are remembered too, so that they are not repeated at once.
    async fn read_roots(&self) {
        let began = Some(Instant::now());
        let read = self.fetch_roots().await.map_err(Failure::now);
        let now = Some(Instant::now());
        self.learn(|known| {
            known.asked = now;
            report(known.failure.as_ref(), read.as_ref().err());
            if read.as_ref().is_ok_and(|table| table.hides_services) && !known.table.hides_services {
                tracing::warn!(
                    "no permission to list apiservices, so only the core group, custom resources and the groups of \
                     cache.trustedGroups are cached; grant it (config/rbac.yaml), or with a Role name the groups there"
                );
            }
            match read {
                Ok(table) => {
                    if table.hides_services {
                        known.services_are_refused();
                    } else {
                        known.services_refused = None;
                    }
                    (known.table, known.told, known.failure) = (Arc::new(table), began, None);
                }
                Err(failure) => known.failure = Some(failure),
            }
        });
    }

    async fn fetch_roots(&self) -> Result<Table, FetchError> {
        let core = self.read("/api", ACCEPT_DISCOVERY, documents::roots).await?;
        let groups = self.read("/apis", ACCEPT_DISCOVERY, documents::roots).await?;
        let is_unlisted = groups.is_none();
        let versions = core.into_iter().chain(groups).flatten().map(|(group_version, resources)| {
            let resources = resources.map_or(Told::NotYet, |resources| Told::Resources(Arc::new(resources)));
            (group_version, Versioned { served_by: ServedBy::ApiServer, resources })
        });
        let mut table = Table { versions: versions.collect(), is_unlisted, hides_services: false };
        table.attribute(self.upstream.aggregated("").await?.as_ref());
        Ok(table)
    }

    /// Fetches only which groups other servers answer for, for a table that lacks it. A failure is no answer: the
    /// servers stay unknown.
    async fn read_services(&self) {
        let aggregated = self.upstream.aggregated("").await;
        self.learn(|known| match aggregated {
            Ok(Some(aggregated)) => {
                tracing::info!("API services can be listed: resources of all groups are cached");
                Arc::make_mut(&mut known.table).attribute(Some(&aggregated));
                known.services_refused = None;
            }
            Ok(None) => known.services_are_refused(),
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot list API services");
                known.services_are_refused();
            }
        });
    }

    /// Fetches the document of one group version of an older server.
    async fn read_version(&self, gvr: &GroupVersionResource) {
        let told = match self.read(&gvr.group_version_path(), ACCEPT_JSON, documents::resources).await {
            Ok(resources) => Told::Resources(Arc::new(resources.unwrap_or_default())),
            Err(error) => Told::Failed(Failure::now(error)),
        };
        self.learn(|known| {
            if let Some(mut versioned) = known.table.get(gvr) {
                report(versioned.resources.failure(), told.failure());
                versioned.resources = told;
                Arc::make_mut(&mut known.table).versions.insert(GroupVersion::of(gvr), versioned);
            }
        });
    }

    /// A parsed document; `None` if upstream has none there.
    async fn read<T>(
        &self,
        path: &str,
        accept: &'static str,
        parse: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<Option<T>, FetchError> {
        let Some(document) = self.upstream.fetch(path, accept).await? else { return Ok(None) };
        parse(&document).map(Some).map_err(|source| FetchError::Malformed { path: path.to_owned(), source })
    }

    fn learn(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Known {
    /// Notes that API services cannot be listed now, and when to ask again.
    fn services_are_refused(&mut self) {
        let before = self.services_refused.map(|(_, pause)| pause * 2);
        let pause = before.unwrap_or(SERVICES_PAUSE_MIN).min(SERVICES_PAUSE_MAX);
        self.services_refused = Some((Instant::now(), pause));
    }
}

impl Table {
    /// Notes which server answers for each group version, given those that others answer for; `None` if they are not
    /// listed.
    fn attribute(&mut self, aggregated: Option<&HashSet<GroupVersion>>) {
        self.hides_services = aggregated.is_none();
        for (group_version, versioned) in &mut self.versions {
            versioned.served_by = match aggregated {
                None => served_by_unlisted(&group_version.group),
                Some(aggregated) if aggregated.contains(group_version) => ServedBy::Another,
                Some(_) => ServedBy::ApiServer,
            };
        }
    }

    /// The resource's group version; one that upstream does not list counts as not yet fetched.
    fn get(&self, gvr: &GroupVersionResource) -> Option<Versioned> {
        let known = self.versions.get(&GroupVersion::of(gvr)).cloned();
        if known.is_some() || !self.is_unlisted {
            return known;
        }
        if self.versions.len() >= UNLISTED_VERSIONS_MAX {
            limit_reached("unlisted_group_versions");
            return None;
        }
        let served_by = if self.hides_services { served_by_unlisted(&gvr.group) } else { ServedBy::ApiServer };
        Some(Versioned { served_by, resources: Told::NotYet })
    }
}

/// Which server answers for a group when API services cannot be listed: the core group always belongs to the API
/// server.
fn served_by_unlisted(group: &str) -> ServedBy {
    if group.is_empty() { ServedBy::ApiServer } else { ServedBy::Unknown }
}

impl GroupVersion {
    fn new(group: &str, version: &str) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    fn of(gvr: &GroupVersionResource) -> Self {
        Self { group: gvr.group.clone(), version: gvr.version.clone() }
    }
}

impl Told {
    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::NotYet | Self::Resources(_) => None,
        }
    }
}

impl Failure {
    fn now(error: FetchError) -> Self {
        Self { error: DiscoveryError(Arc::new(error)), at: Instant::now() }
    }

    /// Whether it answers a caller that came at `called`, instead of another request.
    fn holds(&self, called: Instant) -> bool {
        self.at >= called || !self.error.0.is_refused_connection() && self.at.elapsed() < RETRY_INTERVAL
    }
}

/// Logs when requests begin to fail, and when they succeed again. That upstream accepts no connections is logged where
/// it is found out.
fn report(before: Option<&Failure>, now: Option<&Failure>) {
    match (before, now) {
        (None, Some(failure)) if failure.error.0.is_refused_connection() => {}
        (None, Some(failure)) => tracing::warn!(error = %Chain(&failure.error), "discovery failed"),
        (Some(_), None) => tracing::info!("discovery succeeded again"),
        (None, None) | (Some(_), Some(_)) => {}
    }
}
