//! Compares a store with upstream's list of metadata at the same version. Pure.

use std::{collections::BTreeMap, iter::Peekable, sync::Arc};

use base::apimachinery::{ObjectKey, ResourceVersion};
use engine::{reflector::Failure, store::Object};

/// A page of a `PartialObjectMetadataList`.
#[derive(Debug, serde::Deserialize)]
pub(super) struct MetadataPage {
    metadata: ListMetadata,
    // Go writes a nil slice as `null`.
    items: Option<Vec<Item>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

#[derive(Debug, serde::Deserialize)]
struct Item {
    metadata: Metadata,
}

/// The metadata that a store knows, too.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// An object that differs between store and upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Difference {
    #[error("the object is in the cache but not upstream")]
    Surplus(ObjectKey),
    #[error("the object is upstream but not in the cache")]
    Missing(ObjectKey),
    #[error("the cache has version {held}, upstream {listed}")]
    Version { key: ObjectKey, held: ResourceVersion, listed: String },
    #[error("the labels differ at the same version")]
    Labels(ObjectKey),
}

impl Difference {
    pub(super) fn key(&self) -> &ObjectKey {
        match self {
            Self::Surplus(key) | Self::Missing(key) | Self::Version { key, .. } | Self::Labels(key) => key,
        }
    }
}

impl MetadataPage {
    /// Parses a page of the list at `version`.
    pub(super) fn read(json: &[u8], version: ResourceVersion) -> Result<Self, Failure> {
        let page: Self = serde_json::from_slice(json).map_err(|_| Failure::Malformed)?;
        // An upstream that does not support exact versions lists another one.
        if page.metadata.resource_version != version.to_string() {
            return Err(Failure::Refused);
        }
        Ok(page)
    }

    /// The token of the next page; `None` on the last page.
    pub(super) fn continue_token(&self) -> Option<&str> {
        Some(&*self.metadata.r#continue).filter(|token| !token.is_empty())
    }

    /// The first object of this page that differs from the next objects of `held`. Both are in the order of their keys;
    /// after the last page `held` must be empty.
    pub(super) fn difference<'a>(
        &self,
        held: &mut Peekable<impl Iterator<Item = &'a Arc<Object>>>,
    ) -> Option<Difference> {
        for Item { metadata: listed } in self.items.iter().flatten() {
            let key = ObjectKey::new(listed.namespace.as_deref(), &listed.name);
            let object = match held.peek() {
                Some(object) if object.key < key => return Some(Difference::Surplus(object.key.clone())),
                Some(object) if object.key == key => *object,
                Some(_) | None => return Some(Difference::Missing(key)),
            };
            if object.version.to_string() != listed.resource_version {
                let (held, listed) = (object.version, listed.resource_version.clone());
                return Some(Difference::Version { key, held, listed });
            }
            let labels = listed.labels.iter().map(|(label, value)| (&**label, &**value));
            if !object.labels().iter().eq(labels) {
                return Some(Difference::Labels(key));
            }
            held.next();
        }
        let left = held.peek().filter(|_| self.continue_token().is_none());
        left.map(|object| Difference::Surplus(object.key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use engine::store::{Schema, Shape};

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    fn metadata((namespace, name, version, app): (&str, &str, u64, &str)) -> serde_json::Value {
        json!({"namespace": namespace, "name": name, "resourceVersion": version.to_string(), "labels": {"app": app}})
    }

    fn held(objects: &[(&str, &str, u64, &str)]) -> Vec<Arc<Object>> {
        let schema = Schema::new(Shape::Custom, Vec::new());
        let object = |object: &_| {
            let json = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata(*object)});
            Arc::new(Object::from_item(json.to_string().into(), &schema).unwrap())
        };
        objects.iter().map(object).collect()
    }

    fn page(objects: &[(&str, &str, u64, &str)], token: &str) -> MetadataPage {
        let items: Vec<_> = objects.iter().map(|object| json!({"metadata": metadata(*object)})).collect();
        let list = json!({"metadata": {"resourceVersion": "9", "continue": token}, "items": items});
        MetadataPage::read(list.to_string().as_bytes(), version(9)).unwrap()
    }

    const A: (&str, &str, u64, &str) = ("default", "a", 3, "x");
    const B: (&str, &str, u64, &str) = ("default", "b", 4, "x");
    const C: (&str, &str, u64, &str) = ("default-2", "c", 5, "x");

    #[test]
    fn equal_pages_have_no_difference() {
        // In the order of their keys: `default-2/c` comes first.
        let objects = held(&[C, A, B]);
        let mut held = objects.iter().peekable();
        for page in [page(&[C], "next"), page(&[A], "next"), page(&[B], "")] {
            assert_eq!(page.difference(&mut held), None);
        }
        assert_eq!(page(&[], "").difference(&mut [].iter().peekable()), None);
    }

    #[test]
    fn every_difference_is_found() {
        let key = |name: &str| ObjectKey::new(Some("default"), name);
        let labels = ("default", "b", 4, "y");
        let changed = ("default", "b", 6, "x");
        for (held_now, listed, expected) in [
            (&[A, B][..], &[A][..], Difference::Surplus(key("b"))),
            (&[A, B], &[B], Difference::Surplus(key("a"))),
            (&[A], &[A, B], Difference::Missing(key("b"))),
            (&[B], &[A, B], Difference::Missing(key("a"))),
            (&[], &[A], Difference::Missing(key("a"))),
            (&[A, B], &[A, changed], Difference::Version { key: key("b"), held: version(4), listed: "6".into() }),
            (&[A, B], &[A, labels], Difference::Labels(key("b"))),
        ] {
            let objects = held(held_now);
            assert_eq!(page(listed, "").difference(&mut objects.iter().peekable()), Some(expected));
        }
    }

    #[test]
    fn a_list_at_another_version_is_refused() {
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": null}).to_string();
        assert!(MetadataPage::read(list.as_bytes(), version(9)).is_ok());
        assert!(matches!(MetadataPage::read(list.as_bytes(), version(8)), Err(Failure::Refused)));
    }
}
