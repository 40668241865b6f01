//! A pod with the fields of the table of field numbers, for prost as an independent decoder. Used by the fuzz target
//! and by the unit tests of the reader.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodMetadata>,
    #[prost(message, required, tag = "2")]
    pub(crate) spec: PodSpec,
    #[prost(message, required, tag = "3")]
    pub(crate) status: PodStatus,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodMetadata {
    #[prost(string, required, tag = "1")]
    pub(crate) name: String,
    #[prost(string, required, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, required, tag = "6")]
    pub(crate) resource_version: String,
    #[prost(map = "string, string", tag = "11")]
    pub(crate) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSpec {
    #[prost(string, required, tag = "3")]
    pub(crate) restart_policy: String,
    #[prost(string, required, tag = "8")]
    pub(crate) service_account_name: String,
    #[prost(string, required, tag = "10")]
    pub(crate) node_name: String,
    #[prost(bool, required, tag = "11")]
    pub(crate) host_network: bool,
    #[prost(string, required, tag = "19")]
    pub(crate) scheduler_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodStatus {
    #[prost(string, required, tag = "1")]
    pub(crate) phase: String,
    #[prost(string, required, tag = "6")]
    pub(crate) pod_ip: String,
    #[prost(string, required, tag = "11")]
    pub(crate) nominated_node_name: String,
}

impl Pod {
    /// The values of all selectable fields in the message.
    pub(crate) fn selectable(&self) -> [(&'static str, String); 9] {
        let Self { spec, status, .. } = self;
        [
            ("spec.nodeName", spec.node_name.clone()),
            ("spec.host", spec.node_name.clone()),
            ("spec.restartPolicy", spec.restart_policy.clone()),
            ("spec.schedulerName", spec.scheduler_name.clone()),
            ("spec.serviceAccountName", spec.service_account_name.clone()),
            ("spec.hostNetwork", spec.host_network.to_string()),
            ("status.phase", status.phase.clone()),
            ("status.podIP", status.pod_ip.clone()),
            ("status.nominatedNodeName", status.nominated_node_name.clone()),
        ]
    }
}
