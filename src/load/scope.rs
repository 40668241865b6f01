//! Which of the objects that a workload writes a client's selectors match, as far as the tool can know. Pure.
//!
//! It knows what it has written and no other client changes: names, its namespace, its labels, the nodes of its pods
//! and their scheduler. Whatever a server may add or change it does not know, such as a phase or further labels.

use crate::{churn::Churn, objects, paths, profile::Selection};
use base::apimachinery::{FieldRequirement, FieldSelector, LabelSelector, Labels};

/// The objects of one churn that a client's selectors match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    Nothing,
    Everything,
    /// The pods of the node with this number.
    Node(usize),
    /// The object with this number.
    Object(usize),
    /// Depends on more than the tool knows, or cannot be expressed by one node or object.
    Unknown,
}

impl Scope {
    pub(super) fn of(selection: &Selection, client: usize, churn: &Churn) -> Self {
        let is_elsewhere = selection.namespace.as_ref().is_some_and(|namespace| *namespace != churn.namespace());
        if is_elsewhere || selection.resource != churn.resource() {
            return Self::Nothing;
        }
        let of_labels = of_labels(selection.labels.as_deref().unwrap_or_default(), client, churn);
        let fields = paths::for_client(selection.fields.as_deref().unwrap_or_default(), client);
        let Ok(fields) = FieldSelector::parse(&fields) else { return Self::Unknown };
        let terms = fields.requirements().iter().map(|term| of_term(term, churn));
        terms.fold(of_labels, |scope, term| scope.and(term, churn))
    }

    /// The scopes of which one must contain an object of the churn, so that the selectors match it.
    pub(super) fn with_object(index: usize, churn: &Churn) -> impl Iterator<Item = Self> {
        let node = churn.node_of(index).map(Self::Node);
        [Self::Everything, Self::Object(index)].into_iter().chain(node)
    }

    /// What both contain.
    fn and(self, other: Self, churn: &Churn) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Everything, scope) | (scope, Self::Everything) => scope,
            (Self::Object(index), Self::Node(node)) | (Self::Node(node), Self::Object(index)) => {
                if churn.node_of(index) == Some(node) { Self::Object(index) } else { Self::Nothing }
            }
            (one, other) => {
                if one == other {
                    one
                } else {
                    Self::Nothing
                }
            }
        }
    }
}

/// Everything, nothing or unknown: all objects have the same labels.
fn of_labels(selector: &str, client: usize, churn: &Churn) -> Scope {
    let Ok(selector) = LabelSelector::parse(&paths::for_client(selector, client)) else { return Scope::Unknown };
    let labels: Labels =
        objects::labels(churn.run()).map(|(key, value)| (key.into(), value.into())).into_iter().collect();
    if !selector.matches(&labels) {
        return Scope::Nothing;
    }
    // Satisfied by the absence of a label, which a server may have added.
    let is_absence = selector.requirements().iter().any(|term| labels.get(&term.key).is_none());
    if is_absence { Scope::Unknown } else { Scope::Everything }
}

fn of_term(FieldRequirement { field, equals, value }: &FieldRequirement, churn: &Churn) -> Scope {
    let all_have = |own: &str| if (own == value) == *equals { Scope::Everything } else { Scope::Nothing };
    match field.as_str() {
        "metadata.namespace" => all_have(&churn.namespace()),
        "metadata.name" => of_some(churn.index_of(value).map(Scope::Object), *equals),
        "spec.nodeName" | "spec.host" if churn.writes_pods() => match churn.nodes() {
            // They stay unbound.
            0 => all_have(""),
            1 => all_have(&objects::node_name(0)),
            nodes => {
                let node = objects::node_number(value).filter(|number| *number < nodes);
                of_some(node.map(Scope::Node), *equals)
            }
        },
        "spec.schedulerName" if churn.writes_pods() => all_have(objects::NO_SCHEDULER),
        _ => Scope::Unknown,
    }
}

/// For a value that some objects have, or none.
fn of_some(scope: Option<Scope>, equals: bool) -> Scope {
    match (scope, equals) {
        (Some(scope), true) => scope,
        (Some(_), false) => Scope::Unknown,
        (None, true) => Scope::Nothing,
        (None, false) => Scope::Everything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ChurnResource, ChurnWork};
    use base::apimachinery::GroupVersionResource;

    const RUN: &str = "a1b2c3";

    fn churn(resource: ChurnResource, nodes: usize) -> Churn {
        let work = ChurnWork { resource, objects: 10, bytes: 0, updates: 1, creates: 0, deletes: 0, nodes };
        Churn::new(&work, RUN, 7)
    }

    /// The scope of client 3.
    fn scope(churn: &Churn, namespace: Option<&str>, labels: &str, fields: &str) -> Scope {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (labels, fields) = (some(labels), some(fields));
        let selection =
            Selection { resource: churn.resource(), namespace: some(namespace.unwrap_or("")), labels, fields };
        Scope::of(&selection, 3, churn)
    }

    #[test]
    fn what_the_tool_has_written_decides_and_nothing_else() {
        let pods = churn(ChurnResource::Pods, 5);
        let own = "app.kubernetes.io/managed-by=kube-fanout-load";
        for (labels, fields, expected) in [
            ("", "", Scope::Everything),
            (own, "", Scope::Everything),
            ("load.kube-fanout.io/run in (a1b2c3, b),app.kubernetes.io/managed-by", "", Scope::Everything),
            ("load.kube-fanout.io/run=a1b2c{client}", "", Scope::Everything),
            ("load.kube-fanout.io/run!=a1b2c3", "", Scope::Nothing),
            ("app=b", "", Scope::Nothing),
            // A server could have added these.
            ("app!=b", "", Scope::Unknown),
            ("!injected", "", Scope::Unknown),
            ("!injected,app=b", "", Scope::Nothing),
            ("a in (", "", Scope::Unknown),
            ("", "spec.nodeName=load-node-{client}", Scope::Node(3)),
            (own, "spec.host=load-node-4", Scope::Node(4)),
            ("app=b", "spec.nodeName=load-node-4", Scope::Nothing),
            ("", "spec.nodeName=load-node-5", Scope::Nothing),
            ("", "spec.nodeName=load-node-04", Scope::Nothing),
            ("", "spec.nodeName=", Scope::Nothing),
            ("", "spec.nodeName!=", Scope::Everything),
            ("", "spec.nodeName!=load-node-4", Scope::Unknown),
            ("", "metadata.name=load-7-12", Scope::Object(12)),
            ("", "metadata.name=load-7-12,spec.nodeName=load-node-2", Scope::Object(12)),
            ("", "metadata.name=load-7-12,spec.nodeName=load-node-3", Scope::Nothing),
            ("", "metadata.name=load-7-12,metadata.name=load-7-13", Scope::Nothing),
            ("", "metadata.name=load-8-12", Scope::Nothing),
            ("", "metadata.name=load-7-+12", Scope::Nothing),
            ("", "metadata.name!=load-8-12", Scope::Everything),
            ("", "metadata.namespace=kube-fanout-load-a1b2c3", Scope::Everything),
            ("", "metadata.namespace!=kube-fanout-load-a1b2c3", Scope::Nothing),
            ("", "spec.schedulerName=load.kube-fanout.io", Scope::Everything),
            ("", "status.phase=Pending", Scope::Unknown),
            ("", "status.phase=Pending,spec.nodeName=x", Scope::Nothing),
            ("", "no selector", Scope::Unknown),
        ] {
            assert_eq!(scope(&pods, None, labels, fields), expected, "{labels:?} {fields:?}");
        }
        assert_eq!(scope(&pods, Some("kube-fanout-load-a1b2c3"), "", ""), Scope::Everything);
        assert_eq!(scope(&pods, Some("default"), "", ""), Scope::Nothing);
        let unbound = churn(ChurnResource::Pods, 0);
        assert_eq!(scope(&unbound, None, "", "spec.nodeName="), Scope::Everything);
        assert_eq!(scope(&unbound, None, "", "spec.nodeName=load-node-0"), Scope::Nothing);
        let on_one = churn(ChurnResource::Pods, 1);
        assert_eq!(scope(&on_one, None, "", "spec.nodeName=load-node-0"), Scope::Everything);
        let configmaps = churn(ChurnResource::ConfigMaps, 5);
        assert_eq!(scope(&configmaps, None, "", "spec.nodeName=load-node-1"), Scope::Unknown, "the server refuses it");
        let of_secrets = GroupVersionResource::new("", "v1", "secrets");
        let selection = Selection { resource: of_secrets, namespace: None, labels: None, fields: None };
        assert_eq!(Scope::of(&selection, 0, &pods), Scope::Nothing);
    }
}
