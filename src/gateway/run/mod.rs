//! Wiring: from a configuration and sockets to a gateway that serves until it is told to stop.

mod clients;
mod peers;
mod reload;
mod resources;
mod rights;
mod scopes;

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{sync::watch, task::spawn_blocking, time::Instant};

pub use reload::Reloads;
use reload::{InEffect, Reloaded};
pub use resources::{LookedUp, look_up};

use crate::{
    admin::{Admin, Check},
    audit::{AuditError, AuditHealth, AuditLog},
    authn::AuthoritiesError,
    cacher::{self, Cachers, Prewarmed, Readiness, Scopes, StalenessLimit},
    connector::{AsFrontProxy, BuildError, Connector, NotBelieved, SocketOpener, Usage},
    handler::{Accounting, Gateway, Journal, Settings},
    listener::{self, BindError, Bound, GivesWay, Places},
    persist::{PersistError, States},
    status::{self, Configured},
    traces::{self, Tracer},
    upstream::{Discovery, Upstream},
};
use base::{
    config::{
        ClientsConfig, Config, FallbackConfig, LimitsConfig, Problem, Problems, Redacted, ServerAddress, StaleWatches,
        UpstreamConfigError,
    },
    fairness::{ByteBudget, Shares},
    lifecycle::{Drained, Tasks},
    telemetry::{self, Exposition, InstallError, TopClients},
};
use engine::store::HistoryLimits;

/// The sockets of the gateway.
#[derive(Debug)]
pub struct Sockets {
    /// Opens connections to the API server; `None` for TCP.
    pub upstream: Option<SocketOpener>,
    /// For clients.
    pub listeners: Vec<Bound>,
    /// The operator's port, and the metrics to show there.
    pub admin: Option<(Bound, Exposition)>,
}

impl Sockets {
    fn connector(
        &self,
        access: &kube_client::Config,
        servers: &[ServerAddress],
        fallback: Option<&FallbackConfig>,
        tasks: &Tasks,
    ) -> Result<Connector, RunError> {
        followed(Connector::to_servers(access, servers, fallback, self.upstream.clone()), tasks)
    }
}

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot determine which API server to connect to")]
    UpstreamConfig(#[source] UpstreamConfigError),
    #[error("cannot set up connections to the API server")]
    Upstream(#[source] BuildError),
    #[error("cannot read cache.peers.caFile")]
    Peers(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("a listener or the admin port cannot be opened")]
    Bind(#[source] BindError),
    #[error("the files of the configuration have problems")]
    Files(#[source] Problems),
    #[error("cannot load the certificate authorities for client authentication")]
    Authorities(#[source] AuthoritiesError),
    #[error("the certificate of clients.identity.frontProxy is not used")]
    FrontProxy(#[source] NotBelieved),
    #[error("cannot open the audit log")]
    Audit(#[source] AuditError),
    #[error("cannot keep states in cache.persist.path")]
    Persist(#[source] PersistError),
    #[error("cannot set up the metrics")]
    Metrics(#[source] InstallError),
}

/// Serves as the configuration says until `shutdown` resolves.
///
/// # Errors
/// The configuration cannot be put into effect on this machine: for example no upstream, an address in use, an
/// unreadable certificate.
pub async fn run_config(
    config: &Config,
    reloads: Option<Reloads>,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, RunError> {
    config.check_files().await.map_err(RunError::Files)?;
    let upstream = config.upstream.resolve().await.map_err(RunError::UpstreamConfig)?;
    let upstream = trusting(upstream, config.fallback.as_ref()).await?;
    let exposition = telemetry::install().map_err(RunError::Metrics)?;
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        listeners.push(listener::bind(listener).await.map_err(RunError::Bind)?);
    }
    let admin = listener::bind(&config.admin.listener()).await.map_err(RunError::Bind)?;
    let sockets = Sockets { upstream: None, listeners, admin: Some((admin, exposition)) };
    run_following(config, &upstream, sockets, reloads, shutdown).await
}

/// Serves until `shutdown` resolves, then drains: open watches end cleanly, and active requests finish, up to the
/// configured limit.
///
/// # Errors
/// The upstream configuration cannot be used.
pub async fn run(
    config: &Config,
    upstream: &kube_client::Config,
    sockets: Sockets,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, RunError> {
    let upstream = trusting(upstream.clone(), config.fallback.as_ref()).await?;
    run_following(config, &upstream, sockets, None, shutdown).await
}

async fn run_following(
    config: &Config,
    access: &kube_client::Config,
    sockets: Sockets,
    reloads: Option<Reloads>,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, RunError> {
    // Clients are drained first, while caches are still followed; the operator's port is drained last.
    let (client_tasks, tasks, admin_tasks) = (Tasks::new(), Tasks::new(), Tasks::new());
    let connector = sockets.connector(access, &config.servers, config.fallback.as_ref(), &tasks)?;
    let upstream = Upstream::new(connector.clone());
    upstream.keep_servers_checked(&tasks);
    upstream.keep_probed(&tasks);
    let (forwarded, watches) = client_shares(&config.limits);
    let (clients, reviewers) = clients::clients(config, &connector, &upstream, forwarded.clone(), &tasks).await?;
    let metrics_access = clients::metrics_access(config, &connector, &upstream, &clients, &tasks).await?;
    let audit = audit(config, &tasks).await?;
    let (audit_health, front_proxy) = (audit.as_ref().and_then(AuditLog::health), clients.forward.front_proxy());
    let (accounts, room) = (Accounting::new(watches.clone(), audit), answer_room(config));
    let sources = (states(config).await?, peers::peers(&config.cache, access, &sockets, &upstream, &tasks).await?);
    let cachers =
        Cachers::new(upstream.clone(), Discovery::new(upstream.clone()), sources, cacher_config(config), tasks.clone());
    let (settings, top_clients) = (Settings::new(config.reads, config.logging.access), TopClients::default());
    let places = Places::new(connection_limits(config));
    places.show();
    let reloaded = Reloaded {
        settings: settings.clone(),
        cachers: cachers.clone(),
        authenticator: clients.authenticator.clone(),
        places: places.clone(),
        watches,
        forwarded,
        room: room.clone(),
        tracer: tracer(config, access, &tasks),
    };
    let journal = Journal::new(settings.clone(), top_clients.clone(), reloaded.tracer.clone());
    let gateway = Gateway::new(clients, accounts, room, cachers.clone(), settings, journal);
    begin(&cachers, config);
    let (in_effect, current) = watch::channel(InEffect::new(config.clone()));
    let file = reloads.as_ref().map(|reloads| reloads.file.path().to_owned());
    if let Some(reloads) = reloads {
        tasks.spawn("configuration", reloads.follow(in_effect, reloaded, tasks.token().clone()));
    }
    announce(&sockets, access, mode(&config.clients), file.as_deref());
    if let Some((bound, exposition)) = sockets.admin {
        let source = status::Source {
            exposition: exposition.clone(),
            samples: status_samples(&exposition, &admin_tasks),
            cachers: cachers.clone(),
            top_clients,
            upstream: upstream.clone(),
            reviewers,
            mode: mode(&config.clients),
            configuration: configured(current.clone()),
        };
        let checks = checks(&cachers, upstream, audit_health, front_proxy);
        let admin = Admin::new(exposition, checks, client_tasks.token().clone());
        let admin = admin.with_metrics_access(metrics_access).with_status(source, bound.address().is_local());
        admin.serve(bound, &admin_tasks);
    }
    listener::serve(sockets.listeners, &places, &gateway, &client_tasks);

    shutdown.await;
    // The audit log is written until nothing is left that sends events to it.
    drop(gateway);
    let limit = current.borrow().config.drain.timeout;
    let drained = drain(limit, &cachers, [&client_tasks, &tasks]).await;
    admin_tasks.drain(ADMIN_DRAIN).await;
    Ok(drained)
}

/// Follows the gateway's own credentials in their files.
pub(super) fn followed(connector: Result<Connector, BuildError>, tasks: &Tasks) -> Result<Connector, RunError> {
    let connector = connector.map_err(RunError::Upstream)?;
    connector.follow_files(tasks);
    Ok(connector)
}

/// Starts what no client has to ask for.
fn begin(cachers: &Cachers, config: &Config) {
    tell_doubts(config);
    tell_ineffective(config);
    cachers.prewarm();
    cachers.keep_within_memory();
    if let Some(interval) = config.cache.verify_interval {
        cachers.verify_every(interval);
    }
}

/// Logs what is probably misspelt in `cache.exclude`: nothing else would tell of it. Names of `cache.prewarm` are
/// looked up.
fn tell_doubts(config: &Config) {
    let doubts = config.doubtful_resources().into_iter().filter(|doubt| doubt.field.starts_with("cache.exclude"));
    for Problem { field, found, .. } in doubts {
        tracing::warn!(field, error = found, "a resource of cache.exclude may be misspelt");
    }
}

/// Logs the limits that have no effect in the mode of the configuration.
fn tell_ineffective(config: &Config) {
    for Problem { field, found, .. } in config.ineffective_limits() {
        tracing::warn!(field, error = found, "a limit of the configuration has no effect");
    }
}

/// Logs what clients and operators connect to, when nothing can fail any more.
fn announce(sockets: &Sockets, access: &kube_client::Config, mode: &str, file: Option<&Path>) {
    let upstream = Redacted::url(&access.cluster_url);
    if access.accept_invalid_certs {
        tracing::warn!(%upstream, "the API server's certificate is not verified: the kubeconfig has \
            insecure-skip-tls-verify");
    }
    for bound in &sockets.listeners {
        let (address, version) = (bound.address(), env!("CARGO_PKG_VERSION"));
        // None without a file.
        let config = file.map(|file| tracing::field::display(file.display()));
        tracing::info!(%address, %upstream, mode, version, config, "serving");
    }
    if let Some((admin, _)) = &sockets.admin {
        tracing::info!(address = %admin.address(), "serving the admin port");
    }
}

/// Ends watches over half of the available time, waits for active requests, then ends the tasks that serve them.
async fn drain(limit: Duration, cachers: &Cachers, [client_tasks, tasks]: [&Tasks; 2]) -> Drained {
    tracing::info!(?limit, "draining");
    let began = Instant::now();
    cachers.drain(limit / 2);
    let of_clients = client_tasks.drain(limit).await;
    // These are upgraded connections, which get the rest of the time, and the tasks of the gateway itself.
    let drained = tasks.drain(limit.saturating_sub(began.elapsed()).max(TASKS_DRAIN)).await;
    let drained = of_clients.and(drained);
    if let Drained::Aborted(tasks) = &drained {
        tracing::warn!(?tasks, "drain timed out; remaining tasks aborted");
    }
    drained
}

/// The minimum time for the gateway's own tasks, even if clients took all of the time.
const TASKS_DRAIN: Duration = Duration::from_secs(1);

/// Scrapes are short.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// Collects the samples of the status until the operator's port closes.
fn status_samples(exposition: &Exposition, tasks: &Tasks) -> status::Samples {
    let (samples, ended) = (status::Samples::default(), tasks.token().clone());
    let follow = samples.clone().follow(exposition.clone());
    tasks.spawn("status samples", async move {
        tokio::select! {
            () = ended.cancelled() => {}
            () = follow => {}
        }
    });
    samples
}

fn mode(clients: &ClientsConfig) -> &'static str {
    match clients {
        ClientsConfig::Trusted(_) => "trusted",
        ClientsConfig::Delegated(_) => "delegated",
    }
}

/// The configuration in effect, field by field, and what of the file is not.
fn configured(current: watch::Receiver<InEffect>) -> Arc<dyn Fn() -> Configured + Send + Sync> {
    Arc::new(move || {
        let InEffect { config, refused, needs_restart } = &*current.borrow();
        Configured { settings: config.effective(), refused: refused.clone(), needs_restart: needs_restart.clone() }
    })
}

fn cacher_config(config: &Config) -> cacher::Config {
    let history = config.cache.history;
    cacher::Config {
        exclude: Arc::new(config.cache.exclude.iter().cloned().collect()),
        prewarm: config.cache.prewarm.iter().flat_map(Prewarmed::all).collect(),
        idle_timeout: config.cache.idle_timeout,
        list_bytes_timeout: config.cache.list_bytes_timeout,
        compress_after: config.cache.compress_after,
        bytes: config.cache.bytes,
        staleness: StalenessLimit {
            max: config.cache.max_staleness,
            ends_watches: config.cache.stale_watches == StaleWatches::End,
        },
        bridge: config.cache.bridge,
        scopes: Scopes { policy: config.cache.scope, per_resource: config.cache.scopes_per_resource },
        trusted_groups: Arc::new(config.cache.trusted_groups.iter().cloned().collect()),
        history: HistoryLimits { age: history.age, bytes: usize::try_from(history.bytes).unwrap_or(usize::MAX) },
    }
}

async fn states(config: &Config) -> Result<Option<States>, RunError> {
    let Some(persist) = config.cache.persist.clone() else { return Ok(None) };
    let opened = spawn_blocking(move || States::open(&persist)).await.expect("opening a folder does not panic");
    opened.map(Some).map_err(RunError::Persist)
}

async fn audit(config: &Config, tasks: &Tasks) -> Result<Option<AuditLog>, RunError> {
    let Some(path) = &config.audit.path else { return Ok(None) };
    AuditLog::open(path, config.audit.mode, tasks).await.map(Some).map_err(RunError::Audit)
}

/// Spans are sent in clear text, to a collector on this machine or over a network that the operator trusts.
fn tracer(config: &Config, access: &kube_client::Config, tasks: &Tasks) -> Tracer {
    let Some(tracing) = &config.tracing else { return Tracer::default() };
    let config = traces::Config {
        endpoint: tracing.endpoint.clone(),
        sampling_rate_per_million: tracing.sampling_rate_per_million,
        trusts_clients: matches!(config.clients, ClientsConfig::Trusted(_)),
        upstream: access.cluster_url.clone(),
    };
    Tracer::start(config, tasks)
}

/// Of requests on their way upstream, and of watches.
fn client_shares(limits: &LimitsConfig) -> (Shares, Shares) {
    let forwarded = Shares::new(limits.forwarded_per_client, "client_forwarded_requests");
    (forwarded, Shares::new(limits.watches_per_client, "client_watches"))
}

/// Clients are only told apart in the delegated mode.
fn answer_room(config: &Config) -> ByteBudget {
    match config.clients {
        ClientsConfig::Trusted(_) => ByteBudget::undivided(config.limits.answer_bytes),
        ClientsConfig::Delegated(_) => {
            ByteBudget::new(config.limits.answer_bytes, config.limits.answer_bytes_per_client)
        }
    }
}

fn connection_limits(config: &Config) -> listener::Limits {
    let LimitsConfig { connections, connections_per_address, answer_timeout, .. } = config.limits;
    listener::Limits { connections, connections_per_address, gives_way: GivesWay::Idle, answer_timeout }
}

/// The access to upstream, which believes the authorities of its fallback, too.
pub(super) async fn trusting(
    access: kube_client::Config,
    fallback: Option<&FallbackConfig>,
) -> Result<kube_client::Config, RunError> {
    match fallback {
        Some(fallback) => fallback.trusted(access).await.map_err(|problem| RunError::Files(Problems(vec![problem]))),
        None => Ok(access),
    }
}

/// The conditions of readiness. One of several API servers that is not in use is listed, but is not required.
fn checks(
    cachers: &Cachers,
    upstream: Upstream,
    audit: Option<AuditHealth>,
    front_proxy: Option<AsFrontProxy>,
) -> impl Fn() -> Vec<Check> + Send + Sync + use<> {
    let cachers = cachers.clone();
    let cache = |Readiness { name, is_ready, is_required, reason }| {
        let otherwise = if is_required { reason } else { "requests are forwarded" };
        Check { name: format!("cache/{name}"), ready: is_ready, required: is_required, otherwise }
    };
    move || {
        let audit = audit.as_ref().map(|audit| audit.is_writable());
        let audit = audit.map(|ready| Check::required("audit", ready));
        let front_proxy = front_proxy.as_ref().map(|proxy| {
            let doubt = proxy.doubt();
            Check { otherwise: doubt.unwrap_or_default(), ..Check::required("frontProxy", doubt.is_none()) }
        });
        let servers = upstream.servers().into_iter().map(|server| Check {
            name: format!("upstream/{}", server.server),
            ready: matches!(server.state, Usage::InUse | Usage::Standby),
            required: false,
            otherwise: server.state.in_words(),
        });
        audit.into_iter().chain(front_proxy).chain(servers).chain(cachers.readiness().into_iter().map(cache)).collect()
    }
}
