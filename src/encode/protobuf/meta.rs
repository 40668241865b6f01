//! Messages of `meta.k8s.io` that the gateway writes or reads in whole. `required` means what it does in
//! Kubernetes' generated code: written even when empty.

/// What an envelope says of the object in it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeMeta {
    #[prost(string, required, tag = "1")]
    pub(super) api_version: String,
    #[prost(string, required, tag = "2")]
    pub(super) kind: String,
}

#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[prost(string, required, tag = "1")]
    pub(super) self_link: String,
    #[prost(string, required, tag = "2")]
    pub(super) resource_version: String,
    #[prost(string, required, tag = "3")]
    pub(super) r#continue: String,
    #[prost(int64, optional, tag = "4")]
    pub(super) remaining_item_count: Option<i64>,
}
