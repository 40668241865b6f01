//! Authentication, authorization and upstream identity of clients, set up as the configured mode requires.

use super::RunError;
use crate::{
    admin::MetricsAccess,
    authn::{self, Authenticator},
    authz::{self, Authorizer},
    config::{
        Address, AuthenticationConfig, ClientsConfig, Config, DelegatedConfig, IdentityConfig, ListenerConfig,
        MetricsAuthorization, RequestHeaderConfig, UpstreamConfig,
    },
    connector::{AsClient, AsFrontProxy, Connector},
    fairness::Shares,
    forward::{Assertion, Forward},
    gateway::{Admission, Clients},
    lifecycle::Tasks,
    upstream::Upstream,
};

/// `access` is the configuration of `connector`. `shares` limits forwarded requests per client.
pub(super) async fn clients(
    config: &Config,
    access: &kube_client::Config,
    (connector, shares): (&Connector, Shares),
    tasks: &Tasks,
) -> Result<Clients, RunError> {
    match &config.clients {
        ClientsConfig::Trusted(_) => Ok(Clients {
            authenticator: Authenticator::trusted(),
            authorizer: Authorizer::trusted(),
            forward: Forward::trusted(connector.as_gateway(), tasks.clone()),
        }),
        ClientsConfig::Delegated(delegated) => Ok(Clients {
            authenticator: authenticator(delegated, access, tasks).await?,
            authorizer: authorizer(delegated, access, tasks).await?,
            forward: forward(delegated, access, (connector, shares), tasks).await?,
        }),
    }
}

/// The check that decides whether a client may read the metrics; `None` if everyone may. Clients are authenticated as
/// by `clients`; in the trusted mode, which does not distinguish clients, by tokens.
pub(super) async fn metrics_access(
    config: &Config,
    access: &kube_client::Config,
    clients: &Clients,
    tasks: &Tasks,
) -> Result<Option<MetricsAccess>, RunError> {
    if config.admin.metrics_authorization == MetricsAuthorization::None {
        return Ok(None);
    }
    let (authenticator, reviews) = match &config.clients {
        ClientsConfig::Trusted(_) => {
            let reviewer = reviewer(None, access, tasks).await?;
            let authenticator = Authenticator::delegated(authn::Config::default(), reviewer, tasks).await;
            (authenticator.map_err(RunError::Authorities)?, None)
        }
        ClientsConfig::Delegated(delegated) => {
            (clients.authenticator.clone(), delegated.authorization.reviews.as_ref())
        }
    };
    Ok(Some(MetricsAccess::new(authenticator, reviewer(reviews, access, tasks).await?)))
}

async fn authenticator(
    delegated: &DelegatedConfig,
    access: &kube_client::Config,
    tasks: &Tasks,
) -> Result<Authenticator, RunError> {
    let config = delegated.authentication.clone();
    let reviewer = reviewer(config.reviews.as_ref(), access, tasks).await?;
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
            token_reviews: token_reviews(&delegated.authentication),
            anonymous: config.anonymous,
        };
    Authenticator::delegated(config, reviewer, tasks).await.map_err(RunError::Authorities)
}

/// How tokens are reviewed.
pub(super) fn token_reviews(config: &AuthenticationConfig) -> authn::TokenReviews {
    let AuthenticationConfig { audiences, success_ttl, failure_ttl, .. } = config;
    authn::TokenReviews { audiences: audiences.clone(), success_ttl: *success_ttl, failure_ttl: *failure_ttl }
}

async fn authorizer(
    delegated: &DelegatedConfig,
    access: &kube_client::Config,
    tasks: &Tasks,
) -> Result<Authorizer, RunError> {
    let config = &delegated.authorization;
    let reviewer = reviewer(config.reviews.as_ref(), access, tasks).await?;
    let config = authz::Config {
        allowed_ttl: config.allowed_ttl,
        denied_ttl: config.denied_ttl,
        watch_interval: config.watch_interval,
    };
    Ok(Authorizer::delegated(config, reviewer, tasks.clone()))
}

/// The upstream that answers reviews. It always has its own connections, so that a flood of tokens delays nothing else.
async fn reviewer(
    config: Option<&UpstreamConfig>,
    access: &kube_client::Config,
    tasks: &Tasks,
) -> Result<Upstream, RunError> {
    let connector = match config {
        Some(config) => Connector::new(&config.resolve().await.map_err(RunError::UpstreamConfig)?),
        None => Connector::new(access),
    };
    let connector = connector.map_err(RunError::Upstream)?;
    let reviewer = Upstream::for_reviews(connector.clone()).map_err(RunError::Upstream)?;
    connector.follow_files(tasks);
    Ok(reviewer)
}

async fn forward(
    delegated: &DelegatedConfig,
    access: &kube_client::Config,
    (connector, shares): (&Connector, Shares),
    tasks: &Tasks,
) -> Result<Forward, RunError> {
    let client = AsClient::new(access).map_err(RunError::Upstream)?;
    let assertion = match &delegated.identity {
        Some(IdentityConfig::FrontProxy(config)) => {
            let proxy =
                AsFrontProxy::new(access, &config.files, config.headers.clone(), tasks).map_err(RunError::Upstream)?;
            proxy.probe(tasks).await.map_err(RunError::FrontProxy)?;
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
pub(super) fn admission(config: &Config) -> Admission {
    let address = |listener: &ListenerConfig| match listener.address {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    match &config.clients {
        ClientsConfig::Trusted(trusted) => {
            let addresses = config.listeners.iter().filter_map(address);
            Admission::local(addresses, &trusted.accept_hosts, &trusted.accept_origins)
        }
        ClientsConfig::Delegated(_) => Admission::any(),
    }
}
