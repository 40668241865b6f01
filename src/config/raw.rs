//! The configuration file as it is written. Fields nobody knows and scalars of any type are taken in, so that
//! `validate` can name all of them at once.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, Visitor},
};

/// Fields that are not known here.
pub(super) type Unknown = BTreeMap<String, IgnoredAny>;

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
    pub(super) logging: Option<Logging>,
    pub(super) drain: Option<Drain>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Listener {
    pub(super) address: Option<Scalar>,
    pub(super) tls: Option<Tls>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Tls {
    pub(super) cert_file: Option<Scalar>,
    pub(super) key_file: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Upstream {
    pub(super) kubeconfig: Option<Scalar>,
    pub(super) context: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Clients {
    pub(super) mode: Option<Scalar>,
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
    pub(super) most_recent_watch: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Admin {
    pub(super) address: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) connections: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Logging {
    pub(super) format: Option<Scalar>,
    pub(super) level: Option<Scalar>,
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
pub(super) struct Scalar(pub(super) String);

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
