//! Authentication, authorization and upstream identity of clients, set up as the configured mode requires.

use super::{RunError, followed};
use crate::{
    admin::MetricsAccess,
    authn::{self, Authenticator},
    authz::{self, Authorizer},
    connector::Connector,
    forward::{Assertion, Forward},
    handler::{Clients, HostCheck, KeptDiscovery},
    upstream::Upstream,
};
use base::{
    config::{
        Address, AuthenticationConfig, ClientsConfig, Config, DelegatedConfig, IdentityConfig, ListenerConfig,
        MetricsAuthorization, RequestHeaderConfig, UpstreamConfig,
    },
    fairness::Shares,
    lifecycle::Tasks,
};

/// `shares` limits forwarded requests per client. Also the servers of reviews, where these are other ones.
pub(super) async fn clients(
    config: &Config,
    connector: &Connector,
    upstream: &Upstream,
    shares: Shares,
    tasks: &Tasks,
) -> Result<(Clients, Vec<Upstream>), RunError> {
    let discovery = KeptDiscovery::new(upstream.clone(), config.cache.discovery_bytes);
    let delegated = match &config.clients {
        ClientsConfig::Trusted(_) => {
            let clients = Clients {
                host_check: host_check(config),
                authenticator: Authenticator::trusted(),
                authorizer: Authorizer::trusted(),
                forward: Forward::trusted(connector.as_gateway(), tasks.clone()),
                discovery,
            };
            return Ok((clients, Vec::new()));
        }
        ClientsConfig::Delegated(delegated) => delegated,
    };
    let (of_tokens, of_access) = (&delegated.authentication.reviews, &delegated.authorization.reviews);
    let token_reviewer = reviewer(of_tokens.as_ref(), connector, upstream, tasks).await?;
    let access_reviewer = reviewer(of_access.as_ref(), connector, upstream, tasks).await?;
    let others = [(of_tokens, &token_reviewer), (of_access, &access_reviewer)];
    let others: Vec<_> =
        others.into_iter().filter(|(config, _)| config.is_some()).map(|(_, reviewer)| reviewer.clone()).collect();
    others.iter().for_each(|reviewer| reviewer.keep_probed(tasks));
    let clients = Clients {
        host_check: host_check(config),
        authenticator: authenticator(delegated, token_reviewer, tasks).await?,
        authorizer: authorizer(delegated, access_reviewer, tasks),
        forward: forward(delegated, connector, shares, tasks).await?,
        discovery,
    };
    Ok((clients, others))
}

/// The check that decides whether a client may read the metrics; `None` if everyone may. Clients are authenticated as
/// by `clients`; in the trusted mode, which does not distinguish clients, by tokens.
pub(super) async fn metrics_access(
    config: &Config,
    connector: &Connector,
    upstream: &Upstream,
    clients: &Clients,
    tasks: &Tasks,
) -> Result<Option<MetricsAccess>, RunError> {
    if config.admin.metrics_authorization == MetricsAuthorization::None {
        return Ok(None);
    }
    let (authenticator, reviews) = match &config.clients {
        ClientsConfig::Trusted(_) => {
            let reviewer = reviewer(None, connector, upstream, tasks).await?;
            let authenticator = Authenticator::delegated(authn::Config::default(), reviewer, tasks).await;
            (authenticator.map_err(RunError::Authorities)?, None)
        }
        ClientsConfig::Delegated(delegated) => {
            (clients.authenticator.clone(), delegated.authorization.reviews.as_ref())
        }
    };
    Ok(Some(MetricsAccess::new(authenticator, reviewer(reviews, connector, upstream, tasks).await?)))
}

async fn authenticator(
    delegated: &DelegatedConfig,
    reviewer: Upstream,
    tasks: &Tasks,
) -> Result<Authenticator, RunError> {
    let config = delegated.authentication.clone();
    let request_header = config.request_header;
    let config =
        authn::Config {
            client_ca: config.client_ca,
            request_header: request_header.map(|RequestHeaderConfig { ca, allowed_names, headers }| {
                authn::RequestHeader { ca, allowed_names, headers }
            }),
            asserted_upstream: match &delegated.identity {
                Some(IdentityConfig::FrontProxy(proxy)) => Some(proxy.headers.clone()),
                Some(IdentityConfig::Impersonation) | None => None,
            },
            token_reviews: token_reviews(delegated),
            anonymous: config.anonymous,
        };
    Authenticator::delegated(config, reviewer, tasks).await.map_err(RunError::Authorities)
}

/// How tokens are reviewed.
pub(super) fn token_reviews(config: &DelegatedConfig) -> authn::TokenReviews {
    let AuthenticationConfig { audiences, success_ttl, failure_ttl, .. } = config.authentication.clone();
    authn::TokenReviews { audiences, success_ttl, failure_ttl, away_ttl: config.away_ttl }
}

fn authorizer(delegated: &DelegatedConfig, reviewer: Upstream, tasks: &Tasks) -> Authorizer {
    let away_ttl = delegated.away_ttl;
    let config = &delegated.authorization;
    let config = authz::Config {
        away_ttl,
        allowed_ttl: config.allowed_ttl,
        denied_ttl: config.denied_ttl,
        watch_interval: config.watch_interval,
    };
    Authorizer::delegated(config, reviewer, tasks.clone())
}

/// The upstream that answers reviews. It always has its own connections, so that a flood of tokens delays nothing else.
/// When the cluster of `upstream` is found to be another one than before, its answers are forgotten, and its
/// connections break, since they may still lead to the old one.
async fn reviewer(
    config: Option<&UpstreamConfig>,
    connector: &Connector,
    upstream: &Upstream,
    tasks: &Tasks,
) -> Result<Upstream, RunError> {
    let connector = match config {
        Some(config) => followed(connector.beside(&config.resolve().await.map_err(RunError::UpstreamConfig)?), tasks)?,
        None => connector.clone(),
    };
    Upstream::for_reviews(connector, upstream.storage().clone()).map_err(RunError::Upstream)
}

async fn forward(
    delegated: &DelegatedConfig,
    connector: &Connector,
    shares: Shares,
    tasks: &Tasks,
) -> Result<Forward, RunError> {
    let client = connector.as_client().map_err(RunError::Upstream)?;
    let assertion = match &delegated.identity {
        Some(IdentityConfig::FrontProxy(config)) => {
            let proxy = connector.as_front_proxy(&config.files, config.headers.clone(), tasks);
            let proxy = proxy.map_err(RunError::Upstream)?;
            proxy.start(tasks).await.map_err(RunError::FrontProxy)?;
            Ok(Some(Assertion::FrontProxy(proxy)))
        }
        Some(IdentityConfig::Impersonation) => {
            connector.as_impersonator().map(|impersonator| Some(Assertion::Impersonation(impersonator)))
        }
        None => Ok(None),
    };
    Ok(Forward::delegated(client, assertion.map_err(RunError::Upstream)?, shares, tasks.clone()))
}

/// The host names that clients may use for the gateway, and the web pages that may send requests.
fn host_check(config: &Config) -> HostCheck {
    let address = |listener: &ListenerConfig| match listener.address {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    match &config.clients {
        ClientsConfig::Trusted(trusted) => {
            let addresses = config.listeners.iter().filter_map(address);
            HostCheck::local(addresses, &trusted.accept_hosts, &trusted.accept_origins)
        }
        ClientsConfig::Delegated(_) => HostCheck::any(),
    }
}
