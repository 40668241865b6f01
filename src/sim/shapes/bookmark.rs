//! Bookmark objects: the zero value of the resource's type with a version (read-path Appendix A).

use crate::definition::Definition;

/// The object of a bookmark event. `initial_end` is set if it ends the initial events of a watch-list.
pub(crate) fn object(definition: &Definition, api_version: &str, revision: u64, initial_end: bool) -> Vec<u8> {
    let kind = &definition.kind;
    if definition.custom {
        let annotations = if initial_end { r#""annotations":{"k8s.io/initial-events-end":"true"},"# } else { "" };
        let metadata = format!(r#"{{{annotations}"resourceVersion":"{revision}"}}"#);
        return format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{metadata}}}"#).into_bytes();
    }
    let annotations = if initial_end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let zero = zero_value(&definition.plural);
    let metadata = format!(r#"{{"resourceVersion":"{revision}"{annotations}}}"#);
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata}{zero}}}"#).into_bytes()
}

/// The part after the metadata, including the leading comma.
fn zero_value(plural: &str) -> &'static str {
    match plural {
        "pods" => r#","spec":{"containers":null},"status":{}"#,
        "namespaces" => r#","spec":{},"status":{}"#,
        "nodes" => concat!(
            r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","#,
            r#""systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","#,
            r#""kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
        ),
        "services" => r#","spec":{},"status":{"loadBalancer":{}}"#,
        "events" => concat!(
            r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"#,
            r#""reportingComponent":"","reportingInstance":"""#
        ),
        "deployments" => concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"#,
            r#""strategy":{}},"status":{}"#
        ),
        "customresourcedefinitions" => concat!(
            r#","spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"#,
            r#""status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}"#
        ),
        _ => "",
    }
}
