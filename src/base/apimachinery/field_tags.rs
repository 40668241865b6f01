//! Where the values of field labels are in an object's protobuf: the counterpart of the table of JSON paths.
//!
//! Field numbers are those of Kubernetes' published `generated.proto` files. They never change: the number of a removed
//! field is not used again.

use crate::apimachinery::GroupResource;

/// One selectable field of a built-in resource, as the path of field numbers from the object's message to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldTag {
    pub label: &'static str,
    pub tags: &'static [u32],
    pub kind: ScalarKind,
}

/// The type of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    Text,
    Bool,
    Int32,
}

use ScalarKind::{Bool, Int32, Text};

/// The known labels besides name and namespace. A resource or label that is missing here cannot be selected on in a
/// protobuf store, so a selector that uses it must be forwarded.
pub fn field_tags(resource: &GroupResource) -> &'static [FieldTag] {
    let row = TAGS.iter().find(|row| row.0 == &*resource.group && row.1 == &*resource.resource);
    row.map_or(&[], |row| row.2)
}

/// Group, resource, and the labels besides name and namespace.
const TAGS: &[(&str, &str, &[FieldTag])] = &[
    ("", "pods", PODS),
    ("", "nodes", &[tag("spec.unschedulable", &[2, 4], Bool)]),
    ("", "namespaces", &[tag("status.phase", &[3, 1], Text)]),
    ("", "secrets", &[tag("type", &[3], Text)]),
    ("", "services", &[tag("spec.clusterIP", &[2, 3], Text), tag("spec.type", &[2, 4], Text)]),
    ("", "replicationcontrollers", &[tag("status.replicas", &[3, 1], Int32)]),
    ("", "events", CORE_EVENTS),
    ("events.k8s.io", "events", EVENTS),
    ("batch", "jobs", &[tag("status.successful", &[3, 5], Int32)]),
    ("certificates.k8s.io", "certificatesigningrequests", &[tag("spec.signerName", &[2, 7], Text)]),
    ("certificates.k8s.io", "clustertrustbundles", &[tag("spec.signerName", &[2, 1], Text)]),
    ("resource.k8s.io", "resourceslices", &[tag("spec.driver", &[2, 1], Text), tag("spec.nodeName", &[2, 3], Text)]),
];

const PODS: &[FieldTag] = &[
    tag("spec.nodeName", &[2, 10], Text),
    tag("spec.host", &[2, 10], Text),
    tag("spec.restartPolicy", &[2, 3], Text),
    tag("spec.schedulerName", &[2, 19], Text),
    tag("spec.serviceAccountName", &[2, 8], Text),
    tag("spec.hostNetwork", &[2, 11], Bool),
    tag("status.phase", &[3, 1], Text),
    tag("status.podIP", &[3, 6], Text),
    tag("status.nominatedNodeName", &[3, 11], Text),
];

const CORE_EVENTS: &[FieldTag] = &[
    tag("involvedObject.kind", &[2, 1], Text),
    tag("involvedObject.namespace", &[2, 2], Text),
    tag("involvedObject.name", &[2, 3], Text),
    tag("involvedObject.uid", &[2, 4], Text),
    tag("involvedObject.apiVersion", &[2, 5], Text),
    tag("involvedObject.resourceVersion", &[2, 6], Text),
    tag("involvedObject.fieldPath", &[2, 7], Text),
    tag("reason", &[3], Text),
    tag("type", &[9], Text),
    tag("reportingComponent", &[14], Text),
];

const EVENTS: &[FieldTag] = &[
    tag("reportingController", &[4], Text),
    tag("reason", &[7], Text),
    tag("regarding.kind", &[8, 1], Text),
    tag("regarding.namespace", &[8, 2], Text),
    tag("regarding.name", &[8, 3], Text),
    tag("regarding.uid", &[8, 4], Text),
    tag("regarding.apiVersion", &[8, 5], Text),
    tag("regarding.resourceVersion", &[8, 6], Text),
    tag("regarding.fieldPath", &[8, 7], Text),
    tag("type", &[11], Text),
];

const fn tag(label: &'static str, tags: &'static [u32], kind: ScalarKind) -> FieldTag {
    FieldTag { label, tags, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::{FieldSource, field_labels::FIELDS, selectable_fields};

    #[test]
    fn every_label_of_a_built_in_resource_has_its_numbers() {
        for (group, resource, _) in FIELDS {
            let resource = GroupResource { group: (*group).into(), resource: (*resource).into() };
            let tags = field_tags(&resource);
            for field in selectable_fields(&resource, true) {
                let FieldSource::Path { absent, .. } = field.source else { continue };
                let tag = tags.iter().find(|tag| *tag.label == *field.label);
                let zero = match tag.unwrap_or_else(|| panic!("{} of {resource}", field.label)).kind {
                    Text => "",
                    Bool => "false",
                    Int32 => "0",
                };
                assert_eq!(absent, zero, "{} of {resource}", field.label);
            }
        }
    }
}
