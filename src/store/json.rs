//! Reads from an object's JSON, in one pass, the key, the version, the labels and the selectable
//! fields. Everything else is skipped, never decoded.

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    object::Object,
    schema::{PathTree, Schema, Shape},
    wire::InvalidWire,
};
use crate::apimachinery::{FieldSource, Labels, ObjectKey, ResourceVersion, SelectableField};

/// Why bytes from upstream cannot be kept. The store they were for is not filled; its requests are forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("not the JSON of an object")]
    Json(#[source] serde_json::Error),
    #[error("not the protobuf of an object")]
    Wire(#[source] InvalidWire),
    #[error("the object does not begin as upstream's other objects of this resource do")]
    Shape,
    #[error("the object has no {0}")]
    Missing(&'static str),
}

impl Object {
    /// Takes an object as list items have it.
    pub fn from_item(item: Bytes, schema: &Schema) -> Result<Self, ReadError> {
        Self::read(item, schema.shape.item_opening(), schema)
    }

    /// Takes an object as gets and watch events have it.
    pub fn from_event(object: Bytes, schema: &Schema) -> Result<Self, ReadError> {
        Self::read(object, schema.shape.object_opening(), schema)
    }

    fn read(json: Bytes, opening: &[u8], schema: &Schema) -> Result<Self, ReadError> {
        if !json.starts_with(opening) {
            return Err(ReadError::Shape);
        }
        if matches!(schema.shape, Shape::Typed { .. }) && !json[opening.len()..].starts_with(b"\"metadata\":") {
            return Err(ReadError::Shape);
        }
        let mut found = Found { values: vec![None; schema.fields().len()], ..Found::default() };
        let mut deserializer = serde_json::Deserializer::from_slice(&json);
        let top = Node { tree: Some(&schema.paths), place: Place::Object, found: &mut found };
        top.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(ReadError::Json)?;

        let name = found.name.ok_or(ReadError::Missing("metadata.name"))?;
        let digits = found.version.ok_or(ReadError::Missing("metadata.resourceVersion"))?;
        let version =
            ResourceVersion::parse(digits).map_err(|_| ReadError::Missing("numeric metadata.resourceVersion"))?;
        let version_at = range_within(&json, digits, opening.len()).ok_or(ReadError::Shape)?;
        let metadata_at = found.around_metadata.range(&json, opening.len())?;
        let key = ObjectKey::new(found.namespace.as_deref(), &name);
        let fields = fields_in_order(schema, &key, found.values);
        let labels =
            found.labels.iter().map(|(name, value)| (Arc::from(&**name), Arc::from(&**value))).collect::<Labels>();
        let tail = json.slice(opening.len()..);
        Ok(Self { key, version, labels, fields, tail, version_at, metadata_at, derived: Default::default() })
    }
}

/// Where `part`, borrowed from `whole`, stands in it when its first `skip` bytes are left out.
fn range_within(whole: &[u8], part: &str, skip: usize) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?.checked_sub(skip)?;
    Some(start..start + part.len())
}

pub(super) fn fields_in_order(schema: &Schema, key: &ObjectKey, values: Vec<Option<Arc<str>>>) -> Box<[Arc<str>]> {
    let value = |(field, found): (&SelectableField, Option<Arc<str>>)| match &field.source {
        FieldSource::Name => key.name().into(),
        FieldSource::Namespace => key.namespace().unwrap_or_default().into(),
        FieldSource::Path { absent, .. } => found.unwrap_or_else(|| (*absent).into()),
        FieldSource::NeverSet => "".into(),
    };
    schema.fields().iter().zip(values).map(value).collect()
}

/// The names that show where the value of `metadata` begins and ends, without reading it twice.
#[derive(Clone, Copy, Default)]
struct AroundMetadata<'de> {
    name: Option<&'de str>,
    next: Option<&'de str>,
}

impl<'de> AroundMetadata<'de> {
    /// `None` for a name with an escape in it, which stands nowhere to be pointed at.
    fn see(&mut self, name: Option<&'de str>) {
        match name {
            None => *self = Self::default(),
            Some("metadata") => *self = Self { name, next: None },
            Some(_) if self.name.is_some() && self.next.is_none() => self.next = name,
            Some(_) => {}
        }
    }

    /// Where the value stands in `json` when its first `skip` bytes are left out.
    fn range(&self, json: &'de [u8], skip: usize) -> Result<Range<usize>, ReadError> {
        #[derive(serde::Deserialize)]
        struct Whole<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }

        if let Some(range) = self.range_in_compact(json, skip) {
            return Ok(range);
        }
        let Whole { metadata } = serde_json::from_slice(json).map_err(ReadError::Json)?;
        range_within(json, metadata.get(), skip).ok_or(ReadError::Shape)
    }

    /// As [`Self::range`], where there are no blanks around the value, as there are none in what Go writes.
    fn range_in_compact(&self, json: &[u8], skip: usize) -> Option<Range<usize>> {
        let name = range_within(json, self.name?, 0)?;
        let (start, end) = match self.next {
            Some(next) => (name.end + 2, range_within(json, next, 0)?.start.checked_sub(2)?),
            None => (name.end + 2, json.len().checked_sub(1)?),
        };
        let is_value = json.get(start..end)?.starts_with(b"{") && json.get(start..end)?.ends_with(b"}");
        let is_between = json[name.end..].starts_with(b"\":") && matches!(json.get(end)?, b',' | b'}');
        (is_value && is_between && start >= skip).then(|| start - skip..end - skip)
    }
}

#[derive(Default)]
struct Found<'de> {
    around_metadata: AroundMetadata<'de>,
    name: Option<Cow<'de, str>>,
    namespace: Option<Cow<'de, str>>,
    version: Option<&'de str>,
    labels: Vec<(Cow<'de, str>, Cow<'de, str>)>,
    values: Vec<Option<Arc<str>>>,
}

/// Which part of an object is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Labels,
    Inside,
}

/// One value on the way down: the paths below it that matter, and where it stands.
struct Node<'a, 'de> {
    tree: Option<&'a PathTree>,
    place: Place,
    found: &'a mut Found<'de>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match (self.place, self.tree) {
            (Place::Inside, None) => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Node<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.place == Place::Inside { "any value" } else { "an object" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            if self.place == Place::Object {
                self.found.around_metadata.see(match name {
                    Cow::Borrowed(name) => Some(name),
                    Cow::Owned(_) => None,
                });
            }
            match (self.place, &*name) {
                (Place::Object, "metadata") => {
                    let tree = self.tree.and_then(|tree| tree.child("metadata"));
                    map.next_value_seed(Node { tree, place: Place::Metadata, found: &mut *self.found })?;
                }
                (Place::Metadata, "name") => self.found.name = Some(map.next_value::<Text<'de>>()?.0),
                (Place::Metadata, "namespace") => self.found.namespace = Some(map.next_value::<Text<'de>>()?.0),
                (Place::Metadata, "resourceVersion") => self.found.version = Some(map.next_value()?),
                (Place::Metadata, "labels") => {
                    map.next_value_seed(Node { tree: None, place: Place::Labels, found: &mut *self.found })?;
                }
                (Place::Labels, _) => {
                    let value = map.next_value::<Text<'de>>()?.0;
                    self.found.labels.push((name, value));
                }
                (Place::Object | Place::Metadata | Place::Inside, name) => {
                    let tree = self.tree.and_then(|tree| tree.child(name));
                    map.next_value_seed(Node { tree, place: Place::Inside, found: &mut *self.found })?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.place != Place::Inside {
            return Err(A::Error::custom("a list where an object is expected"));
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.scalar(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(&value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(&value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

impl Node<'_, '_> {
    fn scalar(self, value: &str) {
        let Some(tree) = self.tree.filter(|tree| tree.is_leaf()) else { return };
        for &position in &tree.positions {
            self.found.values[position] = Some(value.into());
        }
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}
