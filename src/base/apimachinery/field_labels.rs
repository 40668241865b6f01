//! The field labels that a resource supports, and where their values are in the object (read-path 5.1).
//!
//! A label that is missing here is not known to be supported, so a selector that uses it must be forwarded. This
//! includes labels whose value is not a single scalar (`source` of events), and `metadata.namespace` of cluster-scoped
//! resources, which only some of them support.

use crate::apimachinery::GroupResource;

/// A label that a field selector of a resource may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    pub label: Box<str>,
    pub source: FieldSource,
}

/// Where the value of a field label is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`, empty for a cluster-scoped object.
    Namespace,
    /// The scalar at this path: a string unchanged, `true` or `false`, an integer in decimal.
    Path {
        path: Box<[Box<str>]>,
        /// The value that an object without the field compares as: Go's zero value as text, or an empty string.
        absent: &'static str,
    },
    /// Supported, but empty in every object.
    NeverSet,
}

impl SelectableField {
    /// One of the `selectableFields` of a custom resource's version, given as a path such as `.spec.color`.
    ///
    /// `None` for anything but names separated by dots.
    pub fn custom(json_path: &str) -> Option<Self> {
        let label = json_path.strip_prefix('.')?;
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        label.split('.').all(is_name).then(|| Self::scalar(label, label, ""))
    }

    fn scalar(label: &str, path: &str, absent: &'static str) -> Self {
        Self {
            label: label.into(),
            source: FieldSource::Path { path: path.split('.').map(Into::into).collect(), absent },
        }
    }
}

/// The labels of a built-in resource, or those that every custom resource has.
pub fn selectable_fields(resource: &GroupResource, namespaced: bool) -> Vec<SelectableField> {
    let mut fields = vec![SelectableField { label: "metadata.name".into(), source: FieldSource::Name }];
    let unsupported = (&*resource.group, &*resource.resource) == ("certificates.k8s.io", "podcertificaterequests");
    if namespaced && !unsupported {
        fields.push(SelectableField { label: "metadata.namespace".into(), source: FieldSource::Namespace });
    }
    let rows = FIELDS.iter().filter(|row| row.0 == &*resource.group && row.1 == &*resource.resource);
    fields.extend(rows.flat_map(|row| row.2).map(|(label, path, absent)| SelectableField::scalar(label, path, absent)));
    if (&*resource.group, &*resource.resource) == ("", "pods") {
        fields.push(SelectableField { label: "status.podIPs".into(), source: FieldSource::NeverSet });
    }
    fields
}

/// Whether a built-in resource has that label besides name and namespace.
pub(super) fn is_selectable(resource: &GroupResource, label: &str) -> bool {
    let mut rows = FIELDS.iter().filter(|row| row.0 == &*resource.group && row.1 == &*resource.resource);
    rows.any(|row| row.2.iter().any(|field| field.0 == label))
}

/// Label, path, and the value that an absent field compares as.
pub(super) type Field = (&'static str, &'static str, &'static str);

/// Group, resource, and the labels besides name and namespace.
pub(super) const FIELDS: &[(&str, &str, &[Field])] = &[
    (
        "",
        "pods",
        &[
            ("spec.nodeName", "spec.nodeName", ""),
            ("spec.host", "spec.nodeName", ""),
            ("spec.restartPolicy", "spec.restartPolicy", ""),
            ("spec.schedulerName", "spec.schedulerName", ""),
            ("spec.serviceAccountName", "spec.serviceAccountName", ""),
            ("spec.hostNetwork", "spec.hostNetwork", "false"),
            ("status.phase", "status.phase", ""),
            ("status.podIP", "status.podIP", ""),
            ("status.nominatedNodeName", "status.nominatedNodeName", ""),
        ],
    ),
    ("", "nodes", &[("spec.unschedulable", "spec.unschedulable", "false")]),
    ("", "namespaces", &[("status.phase", "status.phase", "")]),
    ("", "secrets", &[("type", "type", "")]),
    ("", "services", &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")]),
    ("", "replicationcontrollers", &[("status.replicas", "status.replicas", "0")]),
    (
        "",
        "events",
        &[
            ("involvedObject.kind", "involvedObject.kind", ""),
            ("involvedObject.namespace", "involvedObject.namespace", ""),
            ("involvedObject.name", "involvedObject.name", ""),
            ("involvedObject.uid", "involvedObject.uid", ""),
            ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
            ("reason", "reason", ""),
            ("reportingComponent", "reportingComponent", ""),
            ("type", "type", ""),
        ],
    ),
    (
        "events.k8s.io",
        "events",
        &[
            ("regarding.kind", "regarding.kind", ""),
            ("regarding.namespace", "regarding.namespace", ""),
            ("regarding.name", "regarding.name", ""),
            ("regarding.uid", "regarding.uid", ""),
            ("regarding.apiVersion", "regarding.apiVersion", ""),
            ("regarding.resourceVersion", "regarding.resourceVersion", ""),
            ("regarding.fieldPath", "regarding.fieldPath", ""),
            ("reason", "reason", ""),
            ("reportingController", "reportingController", ""),
            ("type", "type", ""),
        ],
    ),
    ("batch", "jobs", &[("status.successful", "status.succeeded", "0")]),
    ("certificates.k8s.io", "certificatesigningrequests", &[("spec.signerName", "spec.signerName", "")]),
    ("certificates.k8s.io", "clustertrustbundles", &[("spec.signerName", "spec.signerName", "")]),
    (
        "resource.k8s.io",
        "resourceslices",
        &[("spec.nodeName", "spec.nodeName", ""), ("spec.driver", "spec.driver", "")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(group: &str, resource: &str, namespaced: bool) -> Vec<Box<str>> {
        let resource = GroupResource { group: group.into(), resource: resource.into() };
        selectable_fields(&resource, namespaced).into_iter().map(|field| field.label).collect()
    }

    #[test]
    fn labels_equal_those_of_the_table() {
        assert_eq!(
            labels("", "configmaps", true),
            ["metadata.name".into(), "metadata.namespace".into()] as [Box<str>; 2]
        );
        assert_eq!(labels("example.com", "pods", false), ["metadata.name".into()] as [Box<str>; 1]);
        assert_eq!(labels("", "nodes", false), ["metadata.name".into(), "spec.unschedulable".into()] as [Box<str>; 2]);
        assert_eq!(labels("", "pods", true).len(), 12);
    }

    #[test]
    fn a_label_may_stand_for_another_path() {
        let path = |path: &str, absent| FieldSource::Path { path: path.split('.').map(Into::into).collect(), absent };
        let jobs = selectable_fields(&GroupResource { group: "batch".into(), resource: "jobs".into() }, true);
        assert_eq!(jobs[2].source, path("status.succeeded", "0"));
        let pods = selectable_fields(&GroupResource { group: "".into(), resource: "pods".into() }, true);
        let source = |label: &str| pods.iter().find(|field| &*field.label == label).map(|field| field.source.clone());
        assert_eq!(source("spec.host"), source("spec.nodeName"));
        assert_eq!(source("status.podIPs"), Some(FieldSource::NeverSet));
        assert_eq!(source("spec.hostNetwork"), Some(path("spec.hostNetwork", "false")));
    }

    #[test]
    fn custom_fields_are_plain_paths() {
        let field = SelectableField::custom(".spec.color").unwrap();
        assert_eq!(&*field.label, "spec.color");
        for path in ["spec.color", ".", ".spec..x", ".spec['a']", ".spec.a[0]", ""] {
            assert_eq!(SelectableField::custom(path), None, "{path}");
        }
    }
}
