//! The scope and the selectors of a request: which objects of a collection it selects.

use base::apimachinery::{FieldSelector, LabelSelector};

use crate::{definition::Definition, failure::Failure, path::Target, shards::Shards, stored::Stored};

/// The scope and the selectors of a list or a watch.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The common prefix of all keys: `namespace/`, or empty.
    pub(crate) prefix: String,
    /// The only key that can match, if a selector or the path determines one.
    pub(crate) key: Option<String>,
    /// The name in the path.
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    shards: Option<Shards>,
}

impl Selection {
    /// # Errors
    /// The resource does not have a field label, or the name in the path contradicts the selector.
    pub(crate) fn new(
        definition: &Definition,
        target: &Target,
        labels: LabelSelector,
        fields: FieldSelector,
    ) -> Result<Self, Failure> {
        let version = definition.version(&target.version).ok_or_else(Failure::unknown_resource)?;
        for requirement in fields.requirements() {
            let field = &requirement.field;
            if definition.selects_by(version, field) {
                continue;
            }
            let own_list = definition.custom || !version.selectable.is_empty();
            return Err(Failure::bad_request(if own_list {
                format!("field label not supported: {field}")
            } else {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }));
        }
        let selected_name = fields.exact("metadata.name").filter(|name| !name.is_empty());
        if let (Some(name), Some(selected)) = (&target.name, selected_name)
            && name != selected
        {
            return Err(Failure::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        let pinned = fields.exact("metadata.namespace").filter(|name| definition.namespaced && !name.is_empty());
        let namespace = target.namespace.as_deref().or(pinned);
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let name = target.name.as_deref().or(selected_name);
        let key = name.filter(|_| namespace.is_some() || !definition.namespaced);
        Ok(Self {
            key: key.map(|name| format!("{prefix}{name}")),
            name: target.name.clone(),
            prefix,
            labels,
            fields,
            shards: None,
        })
    }

    pub(crate) fn within(self, shards: Option<Shards>) -> Self {
        Self { shards, ..self }
    }

    pub(crate) fn shards(&self) -> Option<String> {
        self.shards.as_ref().map(Shards::text)
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        object.key.starts_with(&self.prefix)
            && self.name.as_deref().is_none_or(|name| object.key.rsplit('/').next() == Some(name))
            && self.key.as_ref().is_none_or(|key| *key == object.key)
            && self.shards.as_ref().is_none_or(|shards| shards.select(object))
            && self.labels.matches(&object.labels)
            && self.fields.matches(|label| object.field(label))
    }

    /// Whether there is no selector but for shards; only then `remainingItemCount` is known.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}
