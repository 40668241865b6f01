//! A stored object: its JSON in two parts around `apiVersion`, and the values that requests select it by.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use base::apimachinery::Labels;

use crate::{definition::Definition, json, key_order};

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Stored {
    /// `namespace/name`, or only the name.
    pub(crate) key: String,
    pub(crate) revision: u64,
    pub(crate) labels: Labels,
    pub(crate) uid: String,
    /// Values of all field labels of all versions.
    fields: Vec<(String, String)>,
    /// The object's text up to the value of `apiVersion`, including the opening quote of the value.
    head: Bytes,
    /// The rest of the text, from the closing quote of `apiVersion` on.
    tail: Bytes,
}

impl Stored {
    /// Encodes the object at a revision, which is written into its metadata.
    pub(crate) fn new(definition: &Definition, mut object: Value, revision: u64) -> Self {
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        object["kind"] = definition.kind.as_str().into();
        object["apiVersion"] = API_VERSION_MARK.into();
        key_order::arrange(&mut object, definition.custom);
        let text = Bytes::from(json::encode(&object));
        let (head, tail) = split_at_api_version(&text);
        let metadata = &object["metadata"];
        let name = text_of(metadata, "name");
        let key = match metadata.get("namespace").and_then(Value::as_str) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        };
        let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
        Self {
            key,
            revision,
            labels: labels
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
                .collect(),
            uid: text_of(metadata, "uid"),
            fields: fields(definition, &object, name),
            head,
            tail,
        }
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.key.split_once('/').map(|(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// `None` for a label that the resource does not have.
    pub(crate) fn field(&self, label: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }

    /// The whole object, as in a get or a watch event.
    pub(crate) fn write(&self, api_version: &str, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.head);
        text.extend_from_slice(api_version.as_bytes());
        text.extend_from_slice(&self.tail);
    }

    /// The object as an item of a list: for built-in types without `kind` and `apiVersion`.
    pub(crate) fn write_item(&self, definition: &Definition, api_version: &str, text: &mut Vec<u8>) {
        if definition.custom {
            self.write(api_version, text);
        } else {
            text.push(b'{');
            text.extend_from_slice(self.tail.strip_prefix(b"\",").unwrap_or(&self.tail));
        }
    }

    pub(crate) fn value(&self, api_version: &str) -> Value {
        let mut text = Vec::with_capacity(self.head.len() + api_version.len() + self.tail.len());
        self.write(api_version, &mut text);
        serde_json::from_slice(&text).expect("the text was made from a JSON value")
    }

    /// The same content with another version, for deletions and objects that leave a selector.
    pub(crate) fn at(&self, definition: &Definition, revision: u64) -> Arc<Self> {
        Arc::new(Self::new(definition, self.value(""), revision))
    }
}

/// Marks the place of the value while an object is encoded. No object of a test or the demo contains this text in front
/// of it.
const API_VERSION_MARK: &str = "\u{1}apiVersion";

fn split_at_api_version(text: &Bytes) -> (Bytes, Bytes) {
    let mark = b"\"\\u0001apiVersion\"";
    let at = text.windows(mark.len()).position(|window| window == mark).expect("the mark was just encoded");
    (text.slice(..=at), text.slice(at + mark.len() - 1..))
}

fn text_of(parent: &Value, key: &str) -> String {
    parent.get(key).and_then(Value::as_str).unwrap_or_default().into()
}

fn fields(definition: &Definition, object: &Value, name: String) -> Vec<(String, String)> {
    let namespace = text_of(&object["metadata"], "namespace");
    let mut fields = vec![("metadata.name".to_owned(), name), ("metadata.namespace".to_owned(), namespace)];
    for label in definition.versions.iter().flat_map(|version| &version.selectable) {
        if !fields.iter().any(|(known, _)| known == label) {
            fields.push((label.clone(), field(definition, object, label)));
        }
    }
    fields
}

/// The value of one field label, formatted as Go would; absent is empty (read-path 5.1).
fn field(definition: &Definition, object: &Value, label: &str) -> String {
    let path = match label {
        _ if definition.custom => label,
        "spec.host" => "spec.nodeName",
        "status.podIPs" => return String::new(),
        "source" => {
            let component = scalar(object, "source.component");
            return if component.is_empty() { scalar(object, "reportingComponent") } else { component };
        }
        "spec.hostNetwork" | "spec.unschedulable" => {
            let value = scalar(object, label);
            return if value.is_empty() { "false".into() } else { value };
        }
        _ => label,
    };
    scalar(object, path)
}

fn scalar(object: &Value, path: &str) -> String {
    match path.split('.').try_fold(object, |value, key| value.get(key)) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}
