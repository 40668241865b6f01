//! Messages of `meta.k8s.io` that the gateway reads or writes completely. `required` has the meaning of Kubernetes'
//! generated code: the field is written even if it is empty.

/// The type of the object in an envelope.
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
    #[prost(message, optional, tag = "5")]
    pub(super) shard_info: Option<ShardInfo>,
}

/// Which shards a list has.
#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
pub(super) struct ShardInfo {
    #[prost(string, required, tag = "1")]
    pub(super) selector: String,
}
