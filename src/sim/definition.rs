//! The description of a served resource, and the built-in resources.

use std::sync::Arc;

use base::apimachinery::GroupResource;

/// One served resource in all its versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Defined by a CustomResourceDefinition: such resources have other shapes and error texts than built-in types.
    pub(crate) custom: bool,
    /// Never empty; the first one is stored and preferred.
    pub(crate) versions: Vec<Version>,
}

/// One version of a resource. The versions of an object only differ in `apiVersion`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// Whether `/status` exists; writes of the whole object then do not change the status.
    pub(crate) status: bool,
    /// Field labels besides the name and the namespace. Each is the path of its value.
    pub(crate) selectable: Vec<String>,
    /// Text of the `Warning` header.
    pub(crate) deprecation: Option<String>,
}

impl Definition {
    pub(crate) fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.as_str().into(), resource: self.plural.as_str().into() }
    }

    /// For example `v1` or `apps/v1`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.into() } else { format!("{}/{version}", self.group) }
    }

    /// The `apiVersion` that objects are stored with.
    pub(crate) fn stored_api_version(&self) -> String {
        self.api_version(&self.versions[0].name)
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Whether a field selector may use this label (read-path 5.1).
    pub(crate) fn selects_by(&self, version: &Version, label: &str) -> bool {
        let own_list = self.custom || !version.selectable.is_empty();
        match label {
            "metadata.name" => true,
            "metadata.namespace" => self.namespaced || !own_list,
            _ => version.selectable.iter().any(|known| known == label),
        }
    }

    /// Events have no watch cache in an API server, so they get no bookmarks except the first one (read-path 1.4).
    pub(crate) fn is_events(&self) -> bool {
        !self.custom && self.plural == "events"
    }

    pub(crate) fn is_namespaces(&self) -> bool {
        !self.custom && self.plural == "namespaces"
    }

    pub(crate) fn is_crds(&self) -> bool {
        !self.custom && self.plural == "customresourcedefinitions"
    }

    /// Whether writes to the spec increment `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom || matches!(&*self.plural, "pods" | "deployments" | "customresourcedefinitions")
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.is_namespaces() {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        } else if self.custom {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        }
    }
}

/// The resources that are served before any CustomResourceDefinition exists.
pub(crate) fn built_in() -> Vec<Arc<Definition>> {
    let core = |plural: &str, kind: &str, short: &[&str]| BuiltIn::new("", plural, kind, short);
    let crds = BuiltIn::new("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", &[]);
    [
        core("configmaps", "ConfigMap", &["cm"]),
        core("events", "Event", &["ev"]).selectable(EVENT_FIELDS),
        core("namespaces", "Namespace", &["ns"]).cluster_scoped().status().selectable(&["status.phase"]),
        core("nodes", "Node", &["no"]).cluster_scoped().status().selectable(&["spec.unschedulable"]),
        core("pods", "Pod", &["po"]).status().category("all").selectable(POD_FIELDS),
        core("secrets", "Secret", &[]).selectable(&["type"]),
        core("services", "Service", &["svc"]).status().category("all").selectable(&["spec.clusterIP", "spec.type"]),
        crds.short(&["crd", "crds"]).cluster_scoped().status().category("api-extensions"),
        BuiltIn::new("apps", "deployments", "Deployment", &["deploy"]).status().category("all"),
    ]
    .into_iter()
    .map(|BuiltIn(definition)| Arc::new(definition))
    .collect()
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.host",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

struct BuiltIn(Definition);

impl BuiltIn {
    fn new(group: &str, plural: &str, kind: &str, short_names: &[&str]) -> Self {
        let version = Version { name: "v1".into(), ..Version::default() };
        Self(Definition {
            group: group.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            custom: false,
            versions: vec![version],
        })
        .short(short_names)
    }

    fn short(mut self, names: &[&str]) -> Self {
        self.0.short_names = names.iter().map(ToString::to_string).collect();
        self
    }

    fn cluster_scoped(mut self) -> Self {
        self.0.namespaced = false;
        self
    }

    fn status(mut self) -> Self {
        self.0.versions[0].status = true;
        self
    }

    fn category(mut self, category: &str) -> Self {
        self.0.categories.push(category.into());
        self
    }

    fn selectable(mut self, labels: &[&str]) -> Self {
        self.0.versions[0].selectable = labels.iter().map(ToString::to_string).collect();
        self
    }
}
