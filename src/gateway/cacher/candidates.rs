//! Which stores may answer a read, by `cache.scope`.

use base::{
    apimachinery::{CollectionScope, FieldSelector, ResourceRequest},
    config::CacheScope,
};

/// The stores of the read's resource that may answer it, by what they cover.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    /// Used if they are filled, and not started for this read; the best first.
    pub(super) filled: Vec<CollectionScope>,
    /// Started for this read: the second one only if there may be no first one.
    pub(super) started: [Option<CollectionScope>; 2],
}

impl Candidates {
    /// For a read of `target` with that field selector.
    pub(super) fn of(policy: CacheScope, target: &ResourceRequest, fields: Option<&FieldSelector>) -> Self {
        let namespace = target.namespace.as_deref();
        match policy {
            CacheScope::Cluster => Self { started: [Some(CollectionScope::CLUSTER), None], ..Self::default() },
            CacheScope::Auto => {
                let narrow = namespace.and_then(CollectionScope::of_namespace);
                Self { started: [Some(CollectionScope::CLUSTER), narrow], ..Self::default() }
            }
            CacheScope::Requested => {
                let resource = target.resource.group_resource();
                let Some(narrowest) = CollectionScope::of_read(&resource, namespace, fields) else {
                    return Self::default();
                };
                let filled = narrowest.covering();
                let is_single = target.name.is_some() || fields.is_some_and(|fields| fields.exact(NAME).is_some());
                let started = match is_single {
                    // A kubelet reads hundreds of names, each by itself.
                    true => [None, None],
                    false if narrowest.is_cluster() => [Some(narrowest), None],
                    false => [Some(narrowest), Some(CollectionScope::CLUSTER)],
                };
                Self { filled, started }
            }
        }
    }
}

const NAME: &str = "metadata.name";

#[cfg(test)]
mod tests {
    use super::*;
    use base::apimachinery::{RequestInfo, Target};
    use http::Method;

    /// The candidates for a read of that path with that field selector: those that may be filled, and those that are
    /// started for it.
    fn candidates(policy: CacheScope, path: &str, fields: &str) -> (String, String) {
        let Target::Resource(target) = RequestInfo::parse(&Method::GET, path, None).target else { panic!("{path}") };
        let fields = FieldSelector::parse(fields).unwrap();
        let Candidates { filled, started } = Candidates::of(policy, &target, Some(&fields));
        let words = |scopes: Vec<CollectionScope>| {
            let word = |scope: &CollectionScope| if scope.is_cluster() { "all".to_owned() } else { scope.to_string() };
            scopes.iter().map(word).collect::<Vec<_>>().join(" ")
        };
        (words(filled), words(started.into_iter().flatten().collect()))
    }

    #[test]
    fn a_read_starts_what_the_policy_says() {
        use CacheScope::*;
        let node = "spec.nodeName=n";
        for (policy, path, fields, filled, started) in [
            (Cluster, "/api/v1/namespaces/a/pods", node, "", "all"),
            (Auto, "/api/v1/pods", "", "", "all"),
            (Auto, "/api/v1/namespaces/a/pods", node, "", "all a"),
            (Auto, "/api/v1/namespaces/a/pods/b", "", "", "all a"),
            (Auto, "/api/v1/namespaces/A/pods", "", "", "all"),
            (Requested, "/api/v1/pods", "", "all", "all"),
            (Requested, "/api/v1/namespaces/a/pods", "", "all a", "a all"),
            (Requested, "/api/v1/pods", node, "all spec.nodeName=n", "spec.nodeName=n all"),
            (
                Requested,
                "/api/v1/namespaces/a/pods",
                node,
                "all a spec.nodeName=n a,spec.nodeName=n",
                "a,spec.nodeName=n all",
            ),
            (Requested, "/api/v1/namespaces/a/pods/b", "", "all a", ""),
            (Requested, "/api/v1/namespaces/a/configmaps", "metadata.name=b", "all a", ""),
            (Requested, "/api/v1/nodes/n", "", "all", ""),
            (Requested, "/api/v1/namespaces/A/pods", "", "", ""),
        ] {
            let expected = (filled.to_owned(), started.to_owned());
            assert_eq!(candidates(policy, path, fields), expected, "{policy:?} {path} {fields}");
        }
    }
}
