//! Identifies a collection by API group, version and resource.

use std::{fmt, sync::Arc};

/// A resource of an API group in any version, for example `pods` or `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: Arc<str>,
    /// Plural, lower case: the word of the path, not the kind.
    pub resource: Arc<str>,
}

/// A resource in one version of its API group. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// Empty for the core group.
    pub group: Arc<str>,
    pub version: Arc<str>,
    /// Plural, lower case: the word of the path, not the kind.
    pub resource: Arc<str>,
}

/// Groups of API servers' built-in resources whose names contain a dot. Groups of custom resources contain a dot, too.
const BUILT_IN_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

impl GroupVersionResource {
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// Whether the group is known to be built into API servers, so that it does not come from a definition. `false`
    /// says nothing about the group.
    pub fn is_built_in(&self) -> bool {
        !self.group.contains('.') || BUILT_IN_GROUPS.contains(&&*self.group)
    }

    /// `v1` or `apps/v1`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of the whole collection, for example `/api/v1/pods` or `/apis/apps/v1/deployments`.
    pub fn collection_path(&self) -> String {
        format!("{}/{}", self.group_version_path(), self.resource)
    }

    /// The path of the collection in a namespace, for example `/api/v1/namespaces/a/pods`, or of all of it.
    pub fn path_in(&self, namespace: Option<&str>) -> String {
        match namespace {
            None => self.collection_path(),
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.group_version_path(), self.resource),
        }
    }

    /// The path of the version, for example `/api/v1` or `/apis/apps/v1`.
    pub fn group_version_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(formatter, ".{}", self.group) }
    }
}

impl fmt::Display for GroupVersionResource {
    /// Resource, version and group as kubectl accepts them, for example `pods.v1` or `deployments.v1.apps`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.resource, self.version)?;
        if self.group.is_empty() { Ok(()) } else { write!(formatter, ".{}", self.group) }
    }
}
