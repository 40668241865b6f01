//! The part of a resource's collection that one list or watch covers.

use std::{fmt, sync::Arc};

use super::{FieldSelector, GroupResource, field_labels, qualified_name::is_subdomain};

/// What is listed and watched: everything, one namespace, the objects with one value of a field, or these in one
/// namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionScope {
    /// `None`: all namespaces, or all objects of a cluster-scoped resource.
    pub namespace: Option<Arc<str>>,
    /// `None`: all objects there.
    pub selection: Option<FieldValue>,
}

/// The objects whose field with that label has that value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldValue {
    pub label: &'static str,
    pub value: Arc<str>,
}

/// The field by which the clients on a node select what is theirs. Once it is set, no object changes it; but an object
/// that is made again under the same name may have another value.
pub const NODE_NAME: &str = "spec.nodeName";

impl CollectionScope {
    /// The whole collection.
    pub const CLUSTER: Self = Self { namespace: None, selection: None };

    /// Of one namespace; `None` if no namespace can have that name, which must not become a part of a path.
    pub fn of_namespace(name: &str) -> Option<Self> {
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = !name.is_empty() && name.bytes().all(is_label);
        is_name.then(|| Self { namespace: Some(name.into()), selection: None })
    }

    /// The narrowest that covers a read of the collection with that field selector; `None` if no namespace or no node
    /// can have that name, which must not become a part of logs and metrics. Of the fields, only the name of a node
    /// counts.
    pub fn of_read(resource: &GroupResource, namespace: Option<&str>, fields: Option<&FieldSelector>) -> Option<Self> {
        let scope = namespace.map_or(Some(Self::CLUSTER), Self::of_namespace)?;
        let node = fields.and_then(|fields| fields.exact(NODE_NAME));
        let node = node.filter(|_| field_labels::is_selectable(resource, NODE_NAME));
        if node.is_some_and(|name| !name.is_empty() && !is_subdomain(name)) {
            return None;
        }
        let selection = node.map(|value| FieldValue { label: NODE_NAME, value: value.into() });
        Some(Self { selection, ..scope })
    }

    pub fn is_cluster(&self) -> bool {
        *self == Self::CLUSTER
    }

    /// Whether a list of it at an exact version costs the API server no more than its objects. For a selection, it may
    /// read the whole collection from its storage.
    pub fn has_cheap_exact_lists(&self) -> bool {
        self.selection.is_none()
    }

    /// All scopes that cover this one, the widest first; the last is this one.
    pub fn covering(&self) -> Vec<Self> {
        let Self { namespace, selection } = self;
        let of = |namespace: &Option<_>, selection: &Option<_>| Self {
            namespace: namespace.clone(),
            selection: selection.clone(),
        };
        let mut covering = vec![Self::CLUSTER];
        for scope in [of(namespace, &None), of(&None, selection), self.clone()] {
            if !covering.contains(&scope) {
                covering.push(scope);
            }
        }
        covering
    }

    /// What follows the name of a resource in the log: empty for the cluster, ` of a`.
    pub fn after_name(&self) -> String {
        if self.is_cluster() { String::new() } else { format!(" of {self}") }
    }

    /// Whether the two may ever have objects in common, one after the other. A pod that is made again under its name
    /// may be on another node, so that only namespaces keep them apart.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.namespace.as_ref().zip(other.namespace.as_ref()).is_none_or(|(a, b)| a == b)
    }
}

impl fmt::Display for CollectionScope {
    /// For metrics and the status: empty for the cluster, `a`, `spec.nodeName=n`, or `a,spec.nodeName=n`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, selection } = self;
        formatter.write_str(namespace.as_deref().unwrap_or_default())?;
        let Some(selection) = selection else { return Ok(()) };
        let separator = if namespace.is_some() { "," } else { "" };
        write!(formatter, "{separator}{selection}")
    }
}

impl fmt::Display for FieldValue {
    /// As a field selector.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}=", self.label)?;
        self.value.chars().try_for_each(|character| {
            if matches!(character, '\\' | ',' | '=') {
                formatter.write_str("\\")?;
            }
            write!(formatter, "{character}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resource: &str, namespace: Option<&str>, fields: &str) -> Option<String> {
        let resource = GroupResource { group: "".into(), resource: resource.into() };
        let scope = CollectionScope::of_read(&resource, namespace, Some(&FieldSelector::parse(fields).unwrap()));
        scope.map(|scope| scope.to_string())
    }

    #[test]
    fn a_read_is_covered_by_its_namespace_and_its_node() {
        for (resource, namespace, fields, expected) in [
            ("pods", None, "", Some("")),
            ("pods", Some("a"), "", Some("a")),
            ("pods", None, "spec.nodeName=n", Some("spec.nodeName=n")),
            ("pods", Some("a"), "status.phase=Running,spec.nodeName=n", Some("a,spec.nodeName=n")),
            ("pods", None, "spec.nodeName=", Some("spec.nodeName=")),
            ("pods", None, "spec.nodeName=n-1.example.com", Some("spec.nodeName=n-1.example.com")),
            // No node has such a name.
            ("pods", None, r"spec.nodeName=x\,y\=\\", None),
            ("pods", None, "spec.nodeName=N", None),
            ("pods", Some("a"), "spec.nodeName=n\n", None),
            ("pods", None, &format!("spec.nodeName={}", "n".repeat(254)), None),
            ("pods", None, "spec.nodeName!=n", Some("")),
            ("pods", None, "metadata.name=n", Some("")),
            // It has no such field.
            ("configmaps", None, "spec.nodeName=n", Some("")),
            // None of these may become a part of a path.
            ("pods", Some(".."), "", None),
            ("pods", Some("a/b"), "", None),
            ("pods", Some("a?b"), "", None),
            ("pods", Some("A"), "", None),
            ("pods", Some(""), "", None),
        ] {
            assert_eq!(of(resource, namespace, fields).as_deref(), expected, "{resource} {namespace:?} {fields}");
        }
    }

    fn scope(namespace: Option<&str>, node: Option<&str>) -> CollectionScope {
        let selection = node.map(|node| FieldValue { label: NODE_NAME, value: node.into() });
        CollectionScope { namespace: namespace.map(Into::into), selection }
    }

    #[test]
    fn a_scope_is_covered_by_wider_ones() {
        for (namespace, node, expected) in [
            (None, None, &[""][..]),
            (Some("a"), None, &["", "a"]),
            (None, Some("n"), &["", "spec.nodeName=n"]),
            (Some("a"), Some("n"), &["", "a", "spec.nodeName=n", "a,spec.nodeName=n"]),
        ] {
            let covering: Vec<_> = scope(namespace, node).covering().iter().map(ToString::to_string).collect();
            assert_eq!(covering, expected);
        }
    }

    #[test]
    fn only_other_namespaces_have_nothing_in_common() {
        let node = |node| scope(None, Some(node));
        for (one, other, expected) in [
            (scope(None, None), scope(Some("a"), Some("n")), true),
            (scope(Some("a"), None), scope(Some("b"), None), false),
            (scope(Some("a"), None), node("n"), true),
            (scope(Some("a"), Some("n")), scope(Some("b"), Some("n")), false),
            // The pod of a StatefulSet comes to another node, under its name.
            (node("n"), node("m"), true),
            (scope(Some("a"), Some("n")), scope(Some("a"), Some("m")), true),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{one} {other}");
        }
    }
}
