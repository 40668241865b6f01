//! A profile before validation.

use serde::Deserialize;

use base::config::{Scalar, Unknown};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) api_version: Option<Scalar>,
    pub(super) kind: Option<Scalar>,
    /// Only for readers of the file.
    pub(super) description: Option<Scalar>,
    pub(super) duration: Option<Scalar>,
    pub(super) settle: Option<Scalar>,
    pub(super) timeout: Option<Scalar>,
    pub(super) workloads: Option<Vec<Workload>>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Workload {
    pub(super) name: Option<Scalar>,
    pub(super) clients: Option<Scalar>,
    pub(super) connections: Option<Scalar>,
    pub(super) rate: Option<Scalar>,
    pub(super) http: Option<Scalar>,
    pub(super) encoding: Option<Scalar>,
    pub(super) gzip: Option<Scalar>,
    pub(super) get: Option<Read>,
    pub(super) list: Option<Read>,
    pub(super) watch: Option<Read>,
    pub(super) informer: Option<Read>,
    pub(super) slow_reader: Option<Read>,
    pub(super) reconnect: Option<Read>,
    pub(super) churn: Option<Churn>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// The fields of all kinds of work that read; the validation checks which kind has which fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Read {
    pub(super) resource: Option<Scalar>,
    pub(super) namespace: Option<Scalar>,
    pub(super) version: Option<Scalar>,
    pub(super) start: Option<Scalar>,
    pub(super) limit: Option<Scalar>,
    pub(super) label_selector: Option<Scalar>,
    pub(super) field_selector: Option<Scalar>,
    pub(super) request: Option<Scalar>,
    pub(super) bytes_per_second: Option<Scalar>,
    pub(super) stop_for: Option<Scalar>,
    pub(super) every: Option<Scalar>,
    pub(super) spread: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Churn {
    pub(super) resource: Option<Scalar>,
    pub(super) objects: Option<Scalar>,
    pub(super) bytes: Option<Scalar>,
    pub(super) updates: Option<Scalar>,
    pub(super) creates: Option<Scalar>,
    pub(super) deletes: Option<Scalar>,
    pub(super) nodes: Option<Scalar>,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}
