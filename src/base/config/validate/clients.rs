//! How clients are authenticated, authorized and forwarded: `clients`.

use std::{ops::RangeInclusive, time::Duration};

use crate::apimachinery::Origin;
use crate::config::check::{Check, given};
use crate::config::raw::{self, Scalar};
use crate::config::{
    AuthenticationConfig, AuthorizationConfig, ClientsConfig, DEFAULT_ALLOWED_TTL, DEFAULT_DENIED_TTL,
    DEFAULT_TOKEN_FAILURE_TTL, DEFAULT_TOKEN_SUCCESS_TTL, DEFAULT_WATCH_INTERVAL, DelegatedConfig, IdentityConfig,
    PemFile, RequestHeaderConfig, TrustedConfig, UpstreamConfig,
};

/// Bounds how long a removed user or a revoked permission stays in effect.
const REVIEW_TTL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10 * 60);
/// Each interval costs one review per watch; the API server itself never authorizes a watch again.
const WATCH_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);

#[derive(Clone, Copy)]
enum Mode {
    Trusted,
    Delegated,
}

impl Check {
    pub(super) fn clients(&mut self, raw: Option<&raw::Clients>) -> ClientsConfig {
        let absent = raw::Clients::default();
        let raw = raw.unwrap_or(&absent);
        let fields = ["mode", "acceptHosts", "acceptOrigins", "authentication", "authorization", "identity"];
        self.unknown("clients", &raw.unknown, &fields);
        let modes = [("trusted", Mode::Trusted), ("delegated", Mode::Delegated)];
        let problems = self.problems.len();
        let mode = self.word("clients.mode", raw.mode.as_ref(), Mode::Trusted, &modes);
        self.mode_is_known = self.problems.len() == problems;
        match mode {
            Mode::Trusted => ClientsConfig::Trusted(self.trusted(raw)),
            Mode::Delegated => ClientsConfig::Delegated(Box::new(self.delegated(raw))),
        }
    }

    fn trusted(&mut self, raw: &raw::Clients) -> TrustedConfig {
        for (field, is_given) in [
            ("clients.authentication", raw.authentication.is_some()),
            ("clients.authorization", raw.authorization.is_some()),
            ("clients.identity", raw.identity.is_some()),
        ] {
            if is_given && self.mode_is_known {
                self.problem(
                    field,
                    "not allowed with clients.mode: trusted",
                    "clients.mode: delegated, or remove this field",
                );
            }
        }
        TrustedConfig {
            accept_hosts: self.accept_hosts(raw.accept_hosts.as_deref().unwrap_or_default()),
            accept_origins: self.accept_origins(raw.accept_origins.as_deref().unwrap_or_default()),
        }
    }

    fn accept_hosts(&mut self, raw: &[Scalar]) -> Vec<String> {
        let allowed = "the exact name or IP address that clients use, without scheme and port";
        let mut hosts = Vec::new();
        for (index, Scalar(text)) in raw.iter().enumerate() {
            match host(text) {
                Some(host) => hosts.push(host),
                None => self.problem(&format!("clients.acceptHosts[{index}]"), &given(text), allowed),
            }
        }
        hosts
    }

    fn accept_origins(&mut self, raw: &[Scalar]) -> Vec<Origin> {
        let mut origins = Vec::new();
        for (index, Scalar(text)) in raw.iter().enumerate() {
            match text.parse() {
                Ok(origin) => origins.push(origin),
                Err(_) => {
                    self.problem(&format!("clients.acceptOrigins[{index}]"), &given(text), Origin::ALLOWED);
                }
            }
        }
        origins
    }

    fn delegated(&mut self, raw: &raw::Clients) -> DelegatedConfig {
        for (field, is_given) in [
            ("clients.acceptHosts", raw.accept_hosts.is_some()),
            ("clients.acceptOrigins", raw.accept_origins.is_some()),
        ] {
            if is_given {
                let found = "not allowed with clients.mode: delegated";
                self.problem(field, found, "clients.mode: trusted, or remove this field");
            }
        }
        let authentication = self.authentication(raw.authentication.as_ref());
        let authorization = self.authorization(raw.authorization.as_ref());
        let identity = self.identity(raw.identity.as_ref());
        let one = "one of clients.identity.frontProxy and clients.identity.impersonation";
        match (&identity, authentication.by_certificate()) {
            // An empty field is already a problem of its own.
            (None, true) if raw.identity.is_none() => {
                let found =
                    "missing; clientCAFile and requestHeader need it to forward requests under their users' identities";
                self.problem("clients.identity", found, one);
            }
            (Some(_), false) => {
                let found = "not needed without clientCAFile and requestHeader";
                let allowed = "clients.authentication.clientCAFile or .requestHeader, or remove this field";
                self.problem("clients.identity", found, allowed);
            }
            (None, _) | (Some(_), true) => {}
        }
        DelegatedConfig { authentication, authorization, identity }
    }

    fn authentication(&mut self, raw: Option<&raw::Authentication>) -> AuthenticationConfig {
        let absent = raw::Authentication::default();
        let raw = raw.unwrap_or(&absent);
        let field = "clients.authentication";
        let known = ["clientCAFile", "requestHeader", "kubeconfig", "tokenReview", "anonymous"];
        self.unknown(field, &raw.unknown, &known);
        let client_ca = self.optional_path(&format!("{field}.clientCAFile"), raw.client_ca_file.as_ref());
        let request_header = raw.request_header.as_ref().map(|raw| self.request_header(raw));
        let reviews = self.reviews(&format!("{field}.kubeconfig"), raw.kubeconfig.as_ref());
        let absent = raw::TokenReview::default();
        let tokens = raw.token_review.as_ref().unwrap_or(&absent);
        let field = "clients.authentication.tokenReview";
        self.unknown(field, &tokens.unknown, &["audiences", "successTTL", "failureTTL"]);
        let audiences = self.texts(&format!("{field}.audiences"), tokens.audiences.as_deref());
        let ttl = |check: &mut Self, name: &str, raw: &Option<Scalar>, default| {
            check.duration(&format!("{field}.{name}"), raw.as_ref(), default, &REVIEW_TTL)
        };
        AuthenticationConfig {
            client_ca: client_ca.map(PemFile),
            request_header,
            reviews,
            audiences,
            success_ttl: ttl(self, "successTTL", &tokens.success_ttl, DEFAULT_TOKEN_SUCCESS_TTL),
            failure_ttl: ttl(self, "failureTTL", &tokens.failure_ttl, DEFAULT_TOKEN_FAILURE_TTL),
            anonymous: self.word(
                "clients.authentication.anonymous",
                raw.anonymous.as_ref(),
                false,
                &[("true", true), ("false", false)],
            ),
        }
    }

    fn request_header(&mut self, raw: &raw::RequestHeader) -> RequestHeaderConfig {
        let field = "clients.authentication.requestHeader";
        let known = ["caFile", "allowedNames", "usernameHeaders", "uidHeaders", "groupHeaders", "extraHeaderPrefixes"];
        self.unknown(field, &raw.unknown, &known);
        RequestHeaderConfig {
            ca: PemFile(self.path(&format!("{field}.caFile"), raw.ca_file.as_ref())),
            allowed_names: self.texts(&format!("{field}.allowedNames"), raw.allowed_names.as_deref()),
            headers: self.proxy_headers(field, raw),
        }
    }

    fn authorization(&mut self, raw: Option<&raw::Authorization>) -> AuthorizationConfig {
        let absent = raw::Authorization::default();
        let raw = raw.unwrap_or(&absent);
        let field = "clients.authorization";
        self.unknown(field, &raw.unknown, &["kubeconfig", "allowedTTL", "deniedTTL", "watchInterval"]);
        let (allowed, denied, interval) = (&raw.allowed_ttl, &raw.denied_ttl, &raw.watch_interval);
        AuthorizationConfig {
            reviews: self.reviews(&format!("{field}.kubeconfig"), raw.kubeconfig.as_ref()),
            allowed_ttl: self.duration(
                &format!("{field}.allowedTTL"),
                allowed.as_ref(),
                DEFAULT_ALLOWED_TTL,
                &REVIEW_TTL,
            ),
            denied_ttl: self.duration(&format!("{field}.deniedTTL"), denied.as_ref(), DEFAULT_DENIED_TTL, &REVIEW_TTL),
            watch_interval: self.duration(
                &format!("{field}.watchInterval"),
                interval.as_ref(),
                DEFAULT_WATCH_INTERVAL,
                &WATCH_INTERVAL,
            ),
        }
    }

    fn reviews(&mut self, field: &str, raw: Option<&Scalar>) -> Option<UpstreamConfig> {
        let path = self.optional_path(field, raw)?;
        Some(UpstreamConfig { kubeconfig: Some(path), context: None })
    }

    fn identity(&mut self, raw: Option<&raw::Identity>) -> Option<IdentityConfig> {
        let raw = raw?;
        self.unknown("clients.identity", &raw.unknown, &["frontProxy", "impersonation"]);
        let front_proxy = raw.front_proxy.as_ref().map(|raw| self.front_proxy("clients.identity.frontProxy", raw));
        if let Some(raw) = &raw.impersonation {
            self.unknown("clients.identity.impersonation", &raw.unknown, &[]);
        }
        match (front_proxy, &raw.impersonation) {
            (Some(proxy), None) => Some(IdentityConfig::FrontProxy(proxy)),
            (None, Some(_)) => Some(IdentityConfig::Impersonation),
            (both, _) => {
                let found = if both.is_some() { "both were given" } else { "neither was given" };
                let allowed =
                    "one of frontProxy and impersonation; a field without a value is not given: impersonation: {}";
                self.problem("clients.identity", found, allowed);
                None
            }
        }
    }
}

/// A host in the form in which requests are compared with it; `None` if no request could contain it.
fn host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    };
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    (is_address || is_name(text)).then(|| bare.to_ascii_lowercase())
}
