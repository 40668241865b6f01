//! The configuration of delegated clients: upstream reviews their tokens and their access.

use std::time::Duration;

use kube_fanout::config::{AuthenticationConfig, AuthorizationConfig, ClientsConfig, DelegatedConfig};

/// Clients with bearer tokens. A token that is accepted, and every verdict on access, is cached for `ttl`; an open
/// watch is authorized again after `watch_interval`.
pub(crate) fn clients(ttl: Duration, watch_interval: Duration) -> ClientsConfig {
    ClientsConfig::Delegated(Box::new(DelegatedConfig {
        authentication: AuthenticationConfig {
            client_ca: None,
            request_header: None,
            reviews: None,
            audiences: Vec::new(),
            success_ttl: ttl,
            failure_ttl: Duration::ZERO,
            anonymous: false,
        },
        authorization: AuthorizationConfig { reviews: None, allowed_ttl: ttl, denied_ttl: ttl, watch_interval },
        identity: None,
        away_ttl: Duration::ZERO,
    }))
}
