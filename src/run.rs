//! Wiring: from a configuration and sockets to a gateway that serves until it is told to stop.

use crate::{
    admin::{Admin, Check},
    authn::Authenticator,
    authz::Authorizer,
    cacher::{self, Cachers},
    config::{
        Address, ClientsConfig, Config, LimitsConfig, ListenerConfig, MostRecentWatch, Problems, UpstreamConfigError,
    },
    forward::Forward,
    gateway::{AcceptedHosts, Gateway},
    lifecycle::{Drained, Tasks},
    listener::{self, BindError, Bound},
    serve,
    store::HistoryLimits,
    telemetry::{self, Exposition, InstallError},
    upstream::{BuildError, Discovery, Upstream},
};

/// What the gateway listens on.
#[derive(Debug)]
pub struct Sockets {
    /// For clients.
    pub listeners: Vec<Bound>,
    /// For the operator, and what there is to show.
    pub admin: Option<(Bound, Exposition)>,
}

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("no API server to stand before")]
    UpstreamConfig(#[source] UpstreamConfigError),
    #[error("the API server cannot be reached this way")]
    Upstream(#[source] BuildError),
    #[error("no socket to serve on")]
    Bind(#[source] BindError),
    #[error("the files of the configuration have problems")]
    Files(#[source] Problems),
    #[error("clients.mode: delegated cannot be served yet")]
    Delegated,
    #[error("no metrics")]
    Metrics(#[source] InstallError),
}

/// Serves as the configuration says until `shutdown` resolves.
///
/// # Errors
/// The configuration cannot be put into effect here: no upstream, an address taken, a certificate unreadable.
pub async fn run_config(config: &Config, shutdown: impl Future<Output = ()>) -> Result<Drained, RunError> {
    config.check_files().await.map_err(RunError::Files)?;
    let upstream = config.upstream.resolve().await.map_err(RunError::UpstreamConfig)?;
    let exposition = telemetry::install().map_err(RunError::Metrics)?;
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        listeners.push(listener::bind(listener).await.map_err(RunError::Bind)?);
    }
    let admin = listener::bind(&config.admin.listener()).await.map_err(RunError::Bind)?;
    for bound in &listeners {
        tracing::info!(address = %bound.address(), upstream = %upstream.cluster_url, "serving");
    }
    tracing::info!(address = %admin.address(), "admin port");
    run(config, &upstream, Sockets { listeners, admin: Some((admin, exposition)) }, shutdown).await
}

/// Serves until `shutdown` resolves, then drains: open watches end cleanly, requests under way finish,
/// up to the configured limit.
///
/// # Errors
/// The upstream configuration cannot be used.
pub async fn run(
    config: &Config,
    upstream: &kube_client::Config,
    sockets: Sockets,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, RunError> {
    if matches!(config.clients, ClientsConfig::Delegated(_)) {
        return Err(RunError::Delegated);
    }
    let (tasks, admin_tasks) = (Tasks::new(), Tasks::new());
    let upstream = Upstream::new(upstream).map_err(RunError::Upstream)?;
    upstream.follow_files(&tasks);
    let discovery = Discovery::new(upstream.clone());
    let cachers = Cachers::new(upstream.clone(), discovery, cacher_config(config), tasks.clone());
    let forward = Forward::trusted(upstream.as_gateway(), tasks.clone());
    let (authenticator, authorizer) = (Authenticator::trusted(), Authorizer::trusted());
    let (hosts, serve_config) = (accepted_hosts(config), serve_config(config));
    let gateway = Gateway::new(hosts, authenticator, authorizer, cachers.clone(), forward, serve_config);
    cachers.prewarm();

    if let Some((bound, exposition)) = sockets.admin {
        let checks = cachers.clone();
        let admin = Admin::new(exposition, move || readiness(&checks), tasks.token().clone());
        admin.serve(bound, &admin_tasks);
    }
    listener::serve(sockets.listeners, connection_limits(config), &gateway, &tasks);

    shutdown.await;
    tracing::info!(limit = ?config.drain.timeout, "draining");
    cachers.close();
    let drained = tasks.drain(config.drain.timeout).await;
    if let Drained::Aborted(tasks) = &drained {
        tracing::warn!(?tasks, "the drain's time is over");
    }
    admin_tasks.drain(ADMIN_DRAIN).await;
    Ok(drained)
}

/// Scrapes are short.
const ADMIN_DRAIN: std::time::Duration = std::time::Duration::from_secs(1);

fn cacher_config(config: &Config) -> cacher::Config {
    let history = config.cache.history;
    cacher::Config {
        exclude: config.cache.exclude.iter().cloned().collect(),
        prewarm: config.cache.prewarm.clone(),
        idle_timeout: config.cache.idle_timeout,
        list_bytes_timeout: config.cache.list_bytes_timeout,
        history: HistoryLimits { age: history.age, bytes: usize::try_from(history.bytes).unwrap_or(usize::MAX) },
    }
}

fn accepted_hosts(config: &Config) -> AcceptedHosts {
    let address = |listener: &ListenerConfig| match listener.address {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    match &config.clients {
        ClientsConfig::Trusted(trusted) => {
            AcceptedHosts::local(config.listeners.iter().filter_map(address), &trusted.accept_hosts)
        }
        ClientsConfig::Delegated(_) => AcceptedHosts::any(),
    }
}

fn connection_limits(config: &Config) -> listener::Limits {
    let LimitsConfig { connections, connections_per_address } = config.limits;
    listener::Limits { connections, connections_per_address }
}

fn serve_config(config: &Config) -> serve::Config {
    serve::Config {
        freshness_wait: config.reads.freshness_wait,
        prove_most_recent: config.reads.most_recent_watch == MostRecentWatch::Prove,
    }
}

fn readiness(cachers: &Cachers) -> Vec<Check> {
    let check = |(name, ready, required)| Check { name: format!("cache/{name}"), ready, required };
    cachers.readiness().into_iter().map(check).collect()
}
