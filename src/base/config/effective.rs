//! The configuration in effect, field by field, for the operator. It contains paths of files, not their content.

use std::{fmt::Display, path::Path};

use super::{
    AuditMode, ClientsConfig, Config, DelegatedConfig, IdentityConfig, ListenerConfig, LoggingAccess, LoggingFormat,
    MetricsAuthorization, MostRecentReads, MostRecentWatch, PeersConfig, PemFile, StaleWatches, TlsVersion,
    UpstreamConfig, quantity::duration_text,
};

/// Fields as the configuration file names them, with their values.
type Fields = Vec<(&'static str, String)>;

impl Config {
    /// Every field that has a value, defaults included, in the order of the file.
    pub fn effective(&self) -> Fields {
        let mut fields = Fields::new();
        for listener in &self.listeners {
            fields.extend(listener_fields(listener, ["listeners[].address", "listeners[].tls"]));
            let age = listener.max_connection_age;
            fields.extend(age.map(|age| ("listeners[].maxConnectionAge", duration_text(age))));
        }
        fields.extend(upstream_fields(&self.upstream, ["upstream.kubeconfig", "upstream.context"]));
        fields.extend(list("upstream.servers", &self.servers));
        match &self.clients {
            ClientsConfig::Trusted(trusted) => {
                fields.push(("clients.mode", "trusted".to_owned()));
                fields.extend(list("clients.acceptHosts", &trusted.accept_hosts));
                fields.extend(list("clients.acceptOrigins", &trusted.accept_origins));
            }
            ClientsConfig::Delegated(delegated) => fields.extend(delegated_fields(delegated)),
        }
        fields.extend(self.cache_fields());
        fields.extend(listener_fields(&self.admin.listener(), ["admin.address", "admin.tls"]));
        let authorization = match self.admin.metrics_authorization {
            MetricsAuthorization::None => "none",
            MetricsAuthorization::Delegated => "delegated",
        };
        fields.push(("admin.metricsAuthorization", authorization.to_owned()));
        fields.extend(self.limits_fields());
        fields.extend(self.log_fields());
        fields.push(("drain.timeout", duration_text(self.drain.timeout)));
        fields
    }

    /// The fields whose values differ from those of `other`, in the order of the file.
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let (own, others) = (self.effective(), other.effective());
        let [only_own, only_others] = [(&own, &others), (&others, &own)]
            .map(|(these, those)| these.iter().filter(move |field| !those.contains(field)).map(|(name, _)| *name));
        let mut names: Vec<_> = only_own.collect();
        names.extend(only_others);
        let order = |name: &str| own.iter().chain(&others).position(|(field, _)| *field == name);
        names.sort_by_key(|name| order(name));
        names.dedup();
        names
    }

    fn cache_fields(&self) -> Fields {
        let cache = &self.cache;
        let mut fields = vec![("cache.exclude", joined(&cache.exclude))];
        fields.extend(list("cache.prewarm", &cache.prewarm));
        let stale_watches = match cache.stale_watches {
            StaleWatches::Keep => "keep",
            StaleWatches::End => "end",
        };
        fields.extend([
            ("cache.idleTimeout", duration_text(cache.idle_timeout)),
            ("cache.listBytesTimeout", duration_text(cache.list_bytes_timeout)),
            ("cache.history.age", duration_text(cache.history.age)),
            ("cache.history.bytes", size_text(cache.history.bytes)),
            ("cache.bridge", cache.bridge.to_string()),
        ]);
        if let Some(PeersConfig { addresses, ca }) = &cache.peers {
            fields.extend(list("cache.peers.addresses", addresses));
            fields.extend(ca.as_ref().map(|PemFile(path)| ("cache.peers.caFile", path_text(path))));
        }
        if let Some(max) = cache.max_staleness {
            fields.push(("cache.maxStaleness", duration_text(max)));
            fields.push(("cache.staleWatches", stale_watches.to_owned()));
        }
        let interval = cache.verify_interval.map_or_else(|| "0".to_owned(), duration_text);
        fields.push(("cache.verifyInterval", interval));
        let most_recent_watch = match self.reads.most_recent_watch {
            MostRecentWatch::Prove => "prove",
            MostRecentWatch::Forward => "forward",
        };
        let most_recent = match self.reads.most_recent {
            MostRecentReads::Forward => "forward",
            MostRecentReads::Auto => "auto",
            MostRecentReads::Prove => "prove",
        };
        fields.extend([
            ("reads.mostRecent", most_recent.to_owned()),
            ("reads.freshnessWait", duration_text(self.reads.freshness_wait)),
            ("reads.fillWait", duration_text(self.reads.fill_wait)),
            ("reads.mostRecentWatch", most_recent_watch.to_owned()),
        ]);
        fields
    }

    fn limits_fields(&self) -> Fields {
        let limits = &self.limits;
        vec![
            ("limits.connections", limits.connections.to_string()),
            ("limits.connectionsPerAddress", limits.connections_per_address.to_string()),
            ("limits.forwardedPerClient", limits.forwarded_per_client.to_string()),
            ("limits.watchesPerClient", limits.watches_per_client.to_string()),
            ("limits.answerTimeout", duration_text(limits.answer_timeout)),
            ("limits.answerBytes", size_text(limits.answer_bytes)),
            ("limits.answerBytesPerClient", size_text(limits.answer_bytes_per_client)),
        ]
    }

    fn log_fields(&self) -> Fields {
        let mut fields = Fields::new();
        if let Some(path) = &self.audit.path {
            let mode = match self.audit.mode {
                AuditMode::Blocking => "blocking",
                AuditMode::BestEffort => "bestEffort",
            };
            fields.extend([("audit.path", path_text(path)), ("audit.mode", mode.to_owned())]);
        }
        let format = match self.logging.format {
            LoggingFormat::Text => "text",
            LoggingFormat::Json => "json",
        };
        let access = match self.logging.access {
            LoggingAccess::All => "all",
            LoggingAccess::Notable => "notable",
            LoggingAccess::None => "none",
        };
        fields.extend([
            ("logging.format", format.to_owned()),
            ("logging.level", self.logging.level.to_string()),
            ("logging.access", access.to_owned()),
        ]);
        if let Some(tracing) = &self.tracing {
            fields.extend([
                ("tracing.endpoint", tracing.endpoint.clone()),
                ("tracing.samplingRatePerMillion", tracing.sampling_rate_per_million.to_string()),
            ]);
        }
        fields
    }
}

fn listener_fields(listener: &ListenerConfig, [address, tls]: [&'static str; 2]) -> Fields {
    let mut fields = vec![(address, listener.address.to_string())];
    if let Some(with) = &listener.tls {
        let version = match with.policy.min_version {
            TlsVersion::Tls12 => "VersionTLS12",
            TlsVersion::Tls13 => "VersionTLS13",
        };
        let (certificate, key) = (path_text(&with.files.cert_file), path_text(&with.files.key_file));
        fields.push((tls, format!("certFile {certificate}, keyFile {key}, minVersion {version}")));
    }
    fields
}

fn upstream_fields(upstream: &UpstreamConfig, [kubeconfig, context]: [&'static str; 2]) -> Fields {
    let path = upstream.kubeconfig.as_deref().map(|path| (kubeconfig, path_text(path)));
    let named = upstream.context.clone().map(|named| (context, named));
    path.into_iter().chain(named).collect()
}

fn delegated_fields(delegated: &DelegatedConfig) -> Fields {
    let (authentication, authorization) = (&delegated.authentication, &delegated.authorization);
    let mut fields = vec![("clients.mode", "delegated".to_owned())];
    if let Some(ca) = &authentication.client_ca {
        fields.push(("clients.authentication.clientCAFile", path_text(&ca.0)));
    }
    if let Some(proxy) = &authentication.request_header {
        fields.push(("clients.authentication.requestHeader.caFile", path_text(&proxy.ca.0)));
        fields.extend(list("clients.authentication.requestHeader.allowedNames", &proxy.allowed_names));
    }
    if let Some(path) = authentication.reviews.as_ref().and_then(|reviews| reviews.kubeconfig.as_deref()) {
        fields.push(("clients.authentication.kubeconfig", path_text(path)));
    }
    fields.extend(list("clients.authentication.tokenReview.audiences", &authentication.audiences));
    fields.extend([
        ("clients.authentication.tokenReview.successTTL", duration_text(authentication.success_ttl)),
        ("clients.authentication.tokenReview.failureTTL", duration_text(authentication.failure_ttl)),
        ("clients.authentication.anonymous", authentication.anonymous.to_string()),
    ]);
    if let Some(path) = authorization.reviews.as_ref().and_then(|reviews| reviews.kubeconfig.as_deref()) {
        fields.push(("clients.authorization.kubeconfig", path_text(path)));
    }
    fields.extend([
        ("clients.authorization.allowedTTL", duration_text(authorization.allowed_ttl)),
        ("clients.authorization.deniedTTL", duration_text(authorization.denied_ttl)),
        ("clients.authorization.watchInterval", duration_text(authorization.watch_interval)),
    ]);
    match &delegated.identity {
        Some(IdentityConfig::FrontProxy(proxy)) => {
            let files = (path_text(&proxy.files.cert_file), path_text(&proxy.files.key_file));
            fields.push(("clients.identity.frontProxy", format!("certFile {}, keyFile {}", files.0, files.1)));
        }
        Some(IdentityConfig::Impersonation) => fields.push(("clients.identity.impersonation", "{}".to_owned())),
        None => {}
    }
    fields
}

/// Omitted if empty.
fn list(field: &'static str, values: &[impl Display]) -> Option<(&'static str, String)> {
    (!values.is_empty()).then(|| (field, joined(values)))
}

fn joined(values: &[impl Display]) -> String {
    format!("[{}]", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// A size in the largest binary unit that divides it.
fn size_text(bytes: u64) -> String {
    let units = [("Gi", 1_u64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdminConfig, Overrides};

    fn effective(text: &str) -> Fields {
        let text = format!("apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n{text}");
        Config::parse(&text, &Overrides::default()).unwrap().effective()
    }

    #[test]
    fn defaults_are_shown_as_the_file_would_write_them() {
        let fields = effective("");
        for expected in [
            ("listeners[].address", "127.0.0.1:8001"),
            ("clients.mode", "trusted"),
            ("cache.exclude", "[events, events.events.k8s.io]"),
            ("cache.history.bytes", "256Mi"),
            ("cache.verifyInterval", "5m"),
            ("reads.fillWait", "30s"),
            ("limits.answerBytes", "1Gi"),
            ("logging.level", "info"),
            ("drain.timeout", "20s"),
        ] {
            assert!(fields.contains(&(expected.0, expected.1.to_owned())), "{expected:?} in {fields:?}");
        }
        assert!(!fields.iter().any(|(field, _)| field.starts_with("cache.maxStaleness")), "{fields:?}");
    }

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = include_str!("../../manual/operations.md");
        let fields = effective("cache: {prewarm: [pods], maxStaleness: 1m}\naudit: {path: /a}\n");
        let leaf = |field: &str| field.rsplit('.').next().unwrap_or_default().to_owned();
        for (field, _) in fields {
            assert!(
                manual.contains(&format!("`{field}`")) || manual.contains(&format!("`.{}`", leaf(field))),
                "{field}"
            );
        }
    }

    #[test]
    fn what_authorizes_is_shown() {
        let mut config = Config::defaults(&Overrides::default()).unwrap();
        config.admin = AdminConfig { metrics_authorization: MetricsAuthorization::Delegated, ..config.admin };
        assert!(config.effective().contains(&("admin.metricsAuthorization", "delegated".to_owned())));
    }
}
