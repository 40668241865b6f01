//! The configuration file as written. Unknown fields and scalars of any type are accepted here, so that `validate` can
//! report all problems at once.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, Visitor},
};

/// Fields that do not exist in the configuration.
pub type Unknown = BTreeMap<String, IgnoredAny>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) api_version: Option<Scalar>,
    pub(super) kind: Option<Scalar>,
    pub(super) listeners: Option<Vec<Listener>>,
    pub(super) upstream: Option<Upstream>,
    pub(super) clients: Option<Clients>,
    pub(super) cache: Option<Cache>,
    pub(super) reads: Option<Reads>,
    pub(super) admin: Option<Admin>,
    pub(super) limits: Option<Limits>,
    pub(super) audit: Option<Audit>,
    pub(super) logging: Option<Logging>,
    pub(super) tracing: Option<Tracing>,
    pub(super) drain: Option<Drain>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Listener {
    pub(super) address: Option<Scalar>,
    pub(super) tls: Option<ListenerTls>,
    pub(super) max_connection_age: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListenerTls {
    pub(super) cert_file: Option<Scalar>,
    pub(super) key_file: Option<Scalar>,
    pub(super) min_version: Option<Scalar>,
    pub(super) cipher_suites: Option<Vec<Scalar>>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Upstream {
    pub(super) kubeconfig: Option<Scalar>,
    pub(super) context: Option<Scalar>,
    pub(super) servers: Option<Vec<Scalar>>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Clients {
    pub(super) mode: Option<Scalar>,
    pub(super) accept_hosts: Option<Vec<Scalar>>,
    pub(super) accept_origins: Option<Vec<Scalar>>,
    pub(super) authentication: Option<Authentication>,
    pub(super) authorization: Option<Authorization>,
    pub(super) identity: Option<Identity>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Authentication {
    #[serde(rename = "clientCAFile")]
    pub(super) client_ca_file: Option<Scalar>,
    pub(super) request_header: Option<RequestHeader>,
    pub(super) kubeconfig: Option<Scalar>,
    pub(super) token_review: Option<TokenReview>,
    pub(super) anonymous: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RequestHeader {
    pub(super) ca_file: Option<Scalar>,
    pub(super) allowed_names: Option<Vec<Scalar>>,
    pub(super) username_headers: Option<Vec<Scalar>>,
    pub(super) uid_headers: Option<Vec<Scalar>>,
    pub(super) group_headers: Option<Vec<Scalar>>,
    pub(super) extra_header_prefixes: Option<Vec<Scalar>>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TokenReview {
    pub(super) audiences: Option<Vec<Scalar>>,
    #[serde(rename = "successTTL")]
    pub(super) success_ttl: Option<Scalar>,
    #[serde(rename = "failureTTL")]
    pub(super) failure_ttl: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Authorization {
    pub(super) kubeconfig: Option<Scalar>,
    #[serde(rename = "allowedTTL")]
    pub(super) allowed_ttl: Option<Scalar>,
    #[serde(rename = "deniedTTL")]
    pub(super) denied_ttl: Option<Scalar>,
    pub(super) watch_interval: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Identity {
    pub(super) front_proxy: Option<FrontProxy>,
    pub(super) impersonation: Option<Impersonation>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FrontProxy {
    pub(super) cert_file: Option<Scalar>,
    pub(super) key_file: Option<Scalar>,
    pub(super) username_header: Option<Scalar>,
    pub(super) uid_header: Option<Scalar>,
    pub(super) group_header: Option<Scalar>,
    pub(super) extra_header_prefix: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// It has no fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Impersonation {
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Cache {
    pub(super) exclude: Option<Vec<Scalar>>,
    pub(super) prewarm: Option<Vec<Scalar>>,
    pub(super) idle_timeout: Option<Scalar>,
    pub(super) list_bytes_timeout: Option<Scalar>,
    pub(super) history: Option<History>,
    pub(super) bridge: Option<Scalar>,
    pub(super) peers: Option<Peers>,
    pub(super) max_staleness: Option<Scalar>,
    pub(super) stale_watches: Option<Scalar>,
    pub(super) verify_interval: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Peers {
    pub(super) addresses: Option<Vec<Scalar>>,
    pub(super) ca_file: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct History {
    pub(super) age: Option<Scalar>,
    pub(super) bytes: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Reads {
    pub(super) freshness_wait: Option<Scalar>,
    pub(super) fill_wait: Option<Scalar>,
    pub(super) most_recent_watch: Option<Scalar>,
    pub(super) most_recent: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Admin {
    pub(super) address: Option<Scalar>,
    pub(super) tls: Option<ListenerTls>,
    pub(super) metrics_authorization: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) connections: Option<Scalar>,
    pub(super) connections_per_address: Option<Scalar>,
    pub(super) forwarded_per_client: Option<Scalar>,
    pub(super) watches_per_client: Option<Scalar>,
    pub(super) answer_timeout: Option<Scalar>,
    pub(super) answer_bytes: Option<Scalar>,
    pub(super) answer_bytes_per_client: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Audit {
    pub(super) path: Option<Scalar>,
    pub(super) mode: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Logging {
    pub(super) format: Option<Scalar>,
    pub(super) level: Option<Scalar>,
    pub(super) access: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Tracing {
    pub(super) endpoint: Option<Scalar>,
    pub(super) sampling_rate_per_million: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Drain {
    pub(super) timeout: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// Any scalar, as text: `10`, `true` and `"10"` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a single value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}
