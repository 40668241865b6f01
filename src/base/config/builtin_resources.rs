//! Names in the configuration that no API server has.
//!
//! Custom resources cannot be in the core group, and their groups have a dot: all other names are Kubernetes' own.

use crate::apimachinery::GroupResource;
use crate::config::{Config, Problem, nearest::meant};

/// The resources of groups without a dot, of all releases since 1.16. A later release may add others, so
/// a name that is missing here is only reported, and not refused.
const BUILT_IN: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "bindings",
            "componentstatuses",
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    ("apps", &["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("extensions", &["ingresses"]),
    ("policy", &["poddisruptionbudgets", "podsecuritypolicies"]),
];
/// Kubernetes' own groups with a dot, for what a name without its group may have meant.
const FURTHER: &[(&str, &[&str])] = &[
    ("coordination.k8s.io", &["leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
    ("storage.k8s.io", &["csidrivers", "csinodes", "storageclasses", "volumeattachments"]),
];

impl Config {
    /// The resources of `cache.exclude` and `cache.prewarm` that are probably misspelt.
    pub fn doubtful_resources(&self) -> Vec<Problem> {
        let doubts = self.named_resources().filter_map(|(place, name)| Some(Problem::new(&place, &doubt(name)?, "")));
        doubts.collect()
    }

    /// The resources of `cache.exclude` and `cache.prewarm`, each with its place: `cache.prewarm[0]`.
    pub fn named_resources(&self) -> impl Iterator<Item = (String, &GroupResource)> {
        let excluded = self.cache.exclude.iter().enumerate();
        let excluded = excluded.map(|(index, name)| (format!("cache.exclude[{index}]"), name));
        let prewarmed = self.cache.prewarm.iter().enumerate();
        excluded.chain(prewarmed.map(|(index, prewarm)| (format!("cache.prewarm[{index}]"), &prewarm.resource)))
    }
}

/// The built-in resource with this name, or the one that the name most likely means. `None` if the group may be that of
/// a custom resource or an aggregated API.
pub(super) fn built_in(name: &GroupResource) -> Option<GroupResource> {
    if known().any(|(group, resource)| group == &*name.group && resource == &*name.resource) {
        return Some(name.clone());
    }
    let is_of_others = name.group.contains('.') && !FURTHER.iter().any(|(group, _)| *group == &*name.group);
    if is_of_others { None } else { meant(name, known()) }
}

/// Why the resource is doubtful; `None` if it may well be there.
fn doubt(name: &GroupResource) -> Option<String> {
    let GroupResource { group, resource } = name;
    let (group, resource) = (&**group, &**resource);
    if let Some((version, group)) = group.split_once('.') {
        let meant = format!("{resource}.{group}");
        let found = format!(
            "\"{name}\": {version:?} looks like a version, which is not part of the name; {meant} may be meant"
        );
        return is_version(version).then_some(found);
    }
    let of_group = BUILT_IN.iter().find(|(of, _)| *of == group);
    let Some((_, resources)) = of_group else {
        return Some(format!("\"{name}\": Kubernetes has no API group {group:?}, and groups of others have a dot"));
    };
    if resources.contains(&resource) {
        return None;
    }
    let of = if group.is_empty() { "the core group".to_owned() } else { format!("the API group {group:?}") };
    let meant = meant(name, known());
    let meant = meant.map_or_else(String::new, |meant| format!("; {meant} may be meant"));
    Some(format!("\"{name}\": {of} of Kubernetes has no such resource{meant}"))
}

/// `v1`, `v2beta1`.
pub(super) fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// All resources, those first that are meant by a name which an older group has, too (`ingresses`).
fn known() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    named(FURTHER).chain(named(BUILT_IN))
}

/// Group and name of each resource.
fn named(
    groups: &'static [(&'static str, &'static [&'static str])],
) -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    groups.iter().flat_map(|(group, resources)| resources.iter().map(move |resource| (*group, *resource)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};

    #[test]
    fn unknown_resource_names_are_reported_with_a_suggestion() {
        let names = "pod, secret, deployments, deployment.apps, ingress, lease, networkpolicy, po, deploy, widgets, \
                     jobs.batches";
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\ncache: {{exclude: [{names}]}}");
        let config = Config::parse(&text, &Overrides::default()).unwrap();
        let told: Vec<_> = config.doubtful_resources().iter().map(ToString::to_string).collect();
        let meant = ["pods", "secrets", "deployments.apps", "deployments.apps", "ingresses.networking.k8s.io"];
        let meant = meant.into_iter().chain(["leases.coordination.k8s.io", "networkpolicies.networking.k8s.io"]);
        let meant = meant.chain(["pods", "deployments.apps"]);
        for (index, meant) in meant.enumerate() {
            assert!(told[index].starts_with(&format!("cache.exclude[{index}]: \"")), "{told:#?}");
            assert!(told[index].ends_with(&format!("no such resource; {meant} may be meant")), "{told:#?}");
        }
        assert!(told[9].ends_with("no such resource"), "{told:#?}");
        assert!(told[10].contains("no API group \"batches\""), "{told:#?}");
        assert_eq!(told.len(), 11);
    }

    #[test]
    fn a_version_in_a_name_is_told_of() {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\ncache: {{exclude: [deployments.v1.apps]}}");
        let told = Config::parse(&text, &Overrides::default()).unwrap().doubtful_resources();
        assert!(told[0].to_string().ends_with("; deployments.apps may be meant"), "{told:?}");
    }

    #[test]
    fn possible_resource_names_are_not_reported() {
        let names = "pods, deployments.apps, events, events.events.k8s.io, widgets.example.com, jobs.batch";
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\ncache: {{exclude: [{names}]}}");
        assert_eq!(Config::parse(&text, &Overrides::default()).unwrap().doubtful_resources(), []);
    }
}
