//! What a gateway's caches will cover, by its rights: for `check --online`.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};

use crate::upstream::Upstream;
use base::apimachinery::{CollectionScope, GroupResource};

const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// The maximum number of resources that are looked at: those of a Role that somebody wrote.
const RESOURCES_MAX: usize = 50;

/// The resources that a gateway may list and watch in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// In the whole cluster, too.
    pub(super) cluster: Vec<GroupResource>,
    pub(super) namespace: Vec<GroupResource>,
}

impl Reach {
    /// By the gateway's rights in `namespace`; `None` if the API server does not say.
    pub(super) async fn in_namespace(upstream: &Upstream, namespace: &str) -> Option<Self> {
        let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
        let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
        let status = upstream.review(RULES, &review).await.ok()?.status?;
        let mut reach = Self::default();
        for resource in followed(&status.resource_rules).into_iter().take(RESOURCES_MAX) {
            let is_wide = upstream.may_follow(&resource, &CollectionScope::CLUSTER).await?;
            let found = if is_wide { &mut reach.cluster } else { &mut reach.namespace };
            found.push(resource);
        }
        Some(reach)
    }

    /// The groups besides the core group, of which not every gateway can find out who serves them.
    pub(super) fn groups(&self) -> BTreeSet<&str> {
        let groups = self.cluster.iter().chain(&self.namespace).map(|resource| &*resource.group);
        groups.filter(|group| !matches!(*group, "" | "*")).collect()
    }
}

/// The names of resources, as in the configuration.
pub(super) fn names(resources: &[GroupResource]) -> String {
    resources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The resources that rules allow to be listed and watched as a whole.
fn followed(rules: &[ResourceRule]) -> BTreeSet<GroupResource> {
    let may = |rule: &ResourceRule, verb: &str| rule.verbs.iter().any(|allowed| allowed == verb || allowed == "*");
    let of = |verb: &str| -> BTreeSet<GroupResource> {
        let whole = rules.iter().filter(|rule| rule.resource_names.as_ref().is_none_or(Vec::is_empty));
        let named = whole.filter(|rule| may(rule, verb)).flat_map(|rule| {
            let resources = rule.resources.iter().flatten().filter(|resource| !resource.contains('/'));
            resources.flat_map(|resource| {
                let groups = rule.api_groups.iter().flatten();
                groups.map(|group| GroupResource { group: group.as_str().into(), resource: resource.as_str().into() })
            })
        });
        named.collect()
    };
    of("list").intersection(&of("watch")).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_on_whole_resources_are_followed() {
        let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            ResourceRule {
                verbs: texts(verbs),
                api_groups: Some(texts(groups)),
                resources: Some(texts(resources)),
                resource_names: Some(texts(names)),
            }
        };
        let rules = [
            rule(&["get", "list", "watch"], &[""], &["configmaps", "pods/log"], &[]),
            rule(&["list"], &["apps"], &["deployments", "replicasets"], &[]),
            rule(&["*"], &["apps"], &["deployments"], &[]),
            rule(&["list", "watch"], &[""], &["secrets"], &["one"]),
        ];
        let found: Vec<_> = followed(&rules).into_iter().collect();
        assert_eq!(names(&found), "configmaps, deployments.apps");
        let reach = Reach { cluster: Vec::new(), namespace: found };
        assert_eq!(reach.groups().into_iter().collect::<Vec<_>>(), ["apps"]);
    }
}
