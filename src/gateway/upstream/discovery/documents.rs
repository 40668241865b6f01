//! The discovery documents of an API server, as far as they are needed. Pure.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::{ApiResource, GroupVersion, ServedBy};

/// Asks for aggregated discovery (1.26 on, beta until 1.30); older servers skip to the last clause.
pub(super) const ACCEPT_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
pub(super) const ACCEPT_JSON: &str = "application/json";

/// The resources of one group version, by their name in the path.
pub(super) type Resources = HashMap<Box<str>, ApiResource>;

/// Parses `/api` or `/apis`: every group version, with its resources if the document contains them.
pub(super) fn roots(document: &[u8]) -> Result<Vec<(GroupVersion, Option<Resources>)>, serde_json::Error> {
    let root: Root = serde_json::from_slice(document)?;
    if &*root.kind == "APIGroupDiscoveryList" {
        return Ok(root.items.unwrap_or_default().into_iter().flat_map(DiscoveredGroup::versions).collect());
    }
    let core = root.versions.unwrap_or_default().into_iter().map(|version| GroupVersion::new("", &version));
    let groups = root.groups.unwrap_or_default();
    let named = groups.iter().flat_map(|group| {
        let versions = group.versions.iter().flatten();
        versions.map(|version| GroupVersion::new(&group.name, &version.version))
    });
    Ok(core.chain(named).map(|version| (version, None)).collect())
}

/// Parses the document of one group version.
pub(super) fn resources(document: &[u8]) -> Result<Resources, serde_json::Error> {
    let list: ResourceList = serde_json::from_slice(document)?;
    let collections = list.resources.unwrap_or_default().into_iter().filter(|listed| !listed.name.contains('/'));
    let entry = |listed: ListedResource| {
        let verbs = listed.verbs.unwrap_or_default();
        (
            listed.name,
            ApiResource { kind: listed.kind, namespaced: listed.namespaced, verbs, served_by: ServedBy::ApiServer },
        )
    };
    Ok(collections.map(entry).collect())
}

/// Parses the list of API services: the group versions that another server answers behind the API server.
pub(super) fn aggregated(api_services: &[u8]) -> Result<HashSet<GroupVersion>, serde_json::Error> {
    let list: ApiServices = serde_json::from_slice(api_services)?;
    let specs = list.items.unwrap_or_default().into_iter().map(|item| item.spec);
    let served_elsewhere = specs.filter(|spec| spec.service.is_some());
    Ok(served_elsewhere.map(|spec| GroupVersion::new(&spec.group, &spec.version)).collect())
}

/// `APIVersions`, `APIGroupList` or `APIGroupDiscoveryList`: only the answer tells which.
#[derive(Deserialize)]
struct Root {
    kind: Box<str>,
    versions: Option<Vec<Box<str>>>,
    groups: Option<Vec<ListedGroup>>,
    items: Option<Vec<DiscoveredGroup>>,
}

#[derive(Deserialize)]
struct ListedGroup {
    name: Box<str>,
    versions: Option<Vec<ListedVersion>>,
}

#[derive(Deserialize)]
struct ListedVersion {
    version: Box<str>,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Option<Vec<ListedResource>>,
}

#[derive(Deserialize)]
struct ListedResource {
    name: Box<str>,
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    namespaced: bool,
    verbs: Option<Box<[Box<str>]>>,
}

#[derive(Deserialize)]
struct DiscoveredGroup {
    metadata: GroupMetadata,
    versions: Option<Vec<DiscoveredVersion>>,
}

#[derive(Deserialize)]
struct GroupMetadata {
    /// Absent for the core group.
    #[serde(default)]
    name: Box<str>,
}

#[derive(Deserialize)]
struct DiscoveredVersion {
    version: Box<str>,
    resources: Option<Vec<DiscoveredResource>>,
}

#[derive(Deserialize)]
struct DiscoveredResource {
    resource: Box<str>,
    /// Absent where only subresources are served.
    #[serde(rename = "responseKind")]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: Box<str>,
    verbs: Option<Box<[Box<str>]>>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: Box<str>,
}

#[derive(Deserialize)]
struct ApiServices {
    items: Option<Vec<ApiService>>,
}

#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    #[serde(default)]
    group: Box<str>,
    #[serde(default)]
    version: Box<str>,
    service: Option<serde::de::IgnoredAny>,
}

impl DiscoveredGroup {
    fn versions(self) -> impl Iterator<Item = (GroupVersion, Option<Resources>)> {
        let group = self.metadata.name;
        self.versions.unwrap_or_default().into_iter().map(move |version| {
            let resources = version.resources.unwrap_or_default().into_iter().map(|discovered| {
                let resource = ApiResource {
                    kind: discovered.response_kind.map(|kind| kind.kind).unwrap_or_default(),
                    namespaced: &*discovered.scope == "Namespaced",
                    verbs: discovered.verbs.unwrap_or_default(),
                    served_by: ServedBy::ApiServer,
                };
                (discovered.resource, resource)
            });
            (GroupVersion::new(&group, &version.version), Some(resources.collect()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/discovery-api.json");
    const GROUPS: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/discovery-apis.json");
    const LISTED_CORE: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/api.json");
    const LISTED_GROUPS: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/apis.json");
    const CORE_V1: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/api-v1.json");
    const WIDGETS_V1: &[u8] = include_bytes!("../../../../tests/data/golden/upstream/widgets-v1.json");

    fn told(document: &[u8]) -> HashMap<GroupVersion, Option<Resources>> {
        roots(document).unwrap().into_iter().collect()
    }

    #[test]
    fn both_kinds_of_discovery_say_the_same_of_the_core_group() {
        let mut aggregated = told(CORE);
        assert_eq!(aggregated.len(), 1);
        assert_eq!(aggregated.remove(&GroupVersion::new("", "v1")).unwrap().unwrap(), resources(CORE_V1).unwrap());
        let pods = &resources(CORE_V1).unwrap()["pods"];
        assert_eq!((&*pods.kind, pods.namespaced, pods.is_watchable()), ("Pod", true, true));
    }

    #[test]
    fn both_kinds_of_discovery_name_the_same_group_versions() {
        let names = |document| told(document).into_keys().collect::<HashSet<_>>();
        assert_eq!(names(CORE), names(LISTED_CORE));
        assert_eq!(names(GROUPS), names(LISTED_GROUPS));
        assert!(told(LISTED_GROUPS).values().all(Option::is_none));
    }

    #[test]
    fn subresources_of_custom_resources_are_left_out() {
        let listed = resources(WIDGETS_V1).unwrap();
        assert_eq!(listed.keys().map(|name| &**name).collect::<Vec<_>>(), ["widgets"]);
        let discovered = told(GROUPS).remove(&GroupVersion::new("diff.example.com", "v1")).unwrap().unwrap();
        assert_eq!((&*discovered["widgets"].kind, discovered["widgets"].namespaced), ("Widget", true));
    }

    #[test]
    fn null_lists_are_empty() {
        assert!(roots(br#"{"kind":"APIGroupList","apiVersion":"v1","groups":null}"#).unwrap().is_empty());
        assert!(resources(br#"{"kind":"APIResourceList","groupVersion":"v1","resources":null}"#).unwrap().is_empty());
    }

    #[test]
    fn only_groups_behind_a_service_are_aggregated() {
        let list = br#"{"items":[
            {"spec":{"service":null,"group":"apps","version":"v1"}},{"spec":{"version":"v1"}},
            {"spec":{"service":{"namespace":"kube-system","name":"m"},
                "group":"metrics.k8s.io","version":"v1beta1"}}]}"#;
        assert_eq!(aggregated(list).unwrap(), HashSet::from([GroupVersion::new("metrics.k8s.io", "v1beta1")]));
    }
}
