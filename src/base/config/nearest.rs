//! Suggests an existing name for a misspelt one.

use crate::apimachinery::GroupResource;

/// kubectl's short names of resources.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("cm", "configmaps"),
    ("cj", "cronjobs"),
    ("crd", "customresourcedefinitions"),
    ("crds", "customresourcedefinitions"),
    ("cs", "componentstatuses"),
    ("csr", "certificatesigningrequests"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// The resource among `known` (groups and names) that a name which is not among them most likely means: the same name
/// in another group, the long form of a short name, the plural, or a name that differs in few letters.
pub fn meant<'a>(
    name: &GroupResource,
    known: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<GroupResource> {
    let GroupResource { group, resource } = name;
    let forms = [resource.to_string(), format!("{resource}s"), format!("{resource}es")];
    let plural_of_y = resource.strip_suffix('y').map(|stem| format!("{stem}ies"));
    let long = SHORT_NAMES.iter().find(|(short, _)| *short == &**resource).map(|(_, long)| (*long).to_owned());
    let mut forms = forms.into_iter().chain(plural_of_y).chain(long);
    let found = forms.find_map(|form| {
        let mut of_form = known.clone().filter(|(_, resource)| *resource == form);
        of_form.clone().find(|(known, _)| *known == &**group).or_else(|| of_form.next())
    });
    found.map(|(group, resource)| named(group, resource)).or_else(|| near(&name.to_string(), known))
}

/// The name with the fewest other letters, of those that have few.
fn near<'a>(name: &str, known: impl Iterator<Item = (&'a str, &'a str)>) -> Option<GroupResource> {
    // Short names differ from others in few letters anyway.
    let most = (name.len() / 4).clamp(1, 4);
    let known = known.map(|(group, resource)| named(group, resource));
    let near = known.filter_map(|known| {
        let distance = strsim::osa_distance(name, &known.to_string());
        (distance <= most).then_some((distance, known))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

fn named(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[(&str, &str)] = &[
        ("", "pods"),
        ("apps", "deployments"),
        ("batch", "jobs"),
        ("example.com", "policies"),
        ("example.com", "widgets"),
        ("metrics.k8s.io", "pods"),
    ];

    #[test]
    fn the_nearest_name_is_found_and_no_distant_one() {
        for (group, resource, expected) in [
            ("", "pod", "pods"),
            ("", "pdos", "pods"),
            ("", "po", "pods"),
            ("", "deploy", "deployments.apps"),
            ("apps", "deploy", "deployments.apps"),
            ("", "svc", ""),
            ("metrics.k8s.io", "pod", "pods.metrics.k8s.io"),
            ("apps", "pods", "pods"),
            ("", "deployments", "deployments.apps"),
            ("", "policy", "policies.example.com"),
            ("example.com", "wigdets", "widgets.example.com"),
            ("example.org", "widgets", "widgets.example.com"),
            ("example.org", "gadgets", ""),
            ("", "jobz", ""),
            ("", "nodes", ""),
        ] {
            let found = meant(&named(group, resource), KNOWN.iter().copied());
            assert_eq!(found.map(|found| found.to_string()).unwrap_or_default(), expected, "{resource}.{group}");
        }
    }
}
