//! `Status` in protobuf: written for clients, read from upstream's ERROR events.

use bytes::Bytes;
use prost::Message as _;

use super::{envelope::envelope, meta::ListMeta};

/// The first bytes of an envelope with a Status: `v1`, `Status`.
pub(super) const STATUS_OPENING: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status";

/// Kubernetes' `Status` message.
#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusMessage {
    #[prost(message, required, tag = "1")]
    metadata: ListMeta,
    #[prost(string, required, tag = "2")]
    status: String,
    #[prost(string, required, tag = "3")]
    message: String,
    #[prost(string, required, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, required, tag = "6")]
    pub code: i32,
}

#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusDetails {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    group: String,
    #[prost(string, required, tag = "3")]
    kind: String,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCause>,
    #[prost(int32, required, tag = "5")]
    retry_after_seconds: i32,
    #[prost(string, required, tag = "6")]
    uid: String,
}

#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusCause {
    #[prost(string, required, tag = "1")]
    reason: String,
    #[prost(string, required, tag = "2")]
    message: String,
    #[prost(string, required, tag = "3")]
    field: String,
}

impl StatusMessage {
    /// Whether a cause is `ResourceVersionTooLarge`, which client-go looks for, too (read-path 2, "RV too high").
    pub fn is_too_large(&self) -> bool {
        let mut causes = self.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}

/// The body of a response. `json` is the same Status in JSON.
pub fn status(json: &[u8]) -> Bytes {
    envelope(STATUS_OPENING, &status_message(json))
}

pub(super) fn status_message(json: &[u8]) -> Vec<u8> {
    let message: StatusMessage = serde_json::from_slice(json).unwrap_or_default();
    message.encode_to_vec()
}
