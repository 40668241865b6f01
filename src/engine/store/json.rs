//! Reads the key, the version, the labels and the selectable fields from an object's JSON. Everything else is skipped
//! without decoding it, and kept as upstream wrote it.

use std::{borrow::Cow, ops::Range, sync::Arc};

use bytes::Bytes;
use serde_json::Number;

use super::{
    object::{self, Object},
    read_error::ReadError,
    schema::{PathTree, Schema, Shape},
};
use base::{
    apimachinery::{ObjectKey, ResourceVersion, ShardHash},
    json::{InvalidJson, Members, text},
};

impl Object {
    /// Parses an object as it is written in a list's `items`.
    pub fn from_item(item: Bytes, schema: &Schema) -> Result<Self, ReadError> {
        Self::read(item, schema.shape.item_opening(), schema)
    }

    /// Parses an object as it is written in a get response or a watch event.
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
        found.read_object(&json, &schema.paths)?;

        let Found { metadata, values, type_members } = found;
        // Go writes no second `kind` or `apiVersion`, and readers would differ in which one they use.
        let is_item = opening == b"{";
        if matches!(schema.shape, Shape::Typed { .. }) && type_members != (if is_item { 0 } else { 2 }) {
            return Err(ReadError::Shape);
        }
        let name = metadata.name.ok_or(ReadError::Missing("metadata.name"))?;
        let digits = metadata.version.ok_or(ReadError::Missing("metadata.resourceVersion"))?;
        let version =
            ResourceVersion::parse(digits).map_err(|_| ReadError::Missing("numeric metadata.resourceVersion"))?;
        let digits_at = range_within(&json, digits.as_bytes(), opening.len()).ok_or(ReadError::Shape)?;
        let version_at = object::version_at(&digits_at, version).ok_or(ReadError::Shape)?;
        let metadata_at = range_within(&json, metadata.text, opening.len()).ok_or(ReadError::Shape)?.into();
        let key = ObjectKey::new(metadata.namespace.as_deref(), &name);
        let selectable = schema.selectable(metadata.labels.iter().map(|(name, value)| (&**name, &**value)), values);
        let tail = json.slice(opening.len()..);
        let (tail_len, tail, derived) = (object::position(tail.len()), tail.into(), Default::default());
        let uid_hash = ShardHash::of(metadata.uid.as_deref().unwrap_or_default());
        Ok(Self { key, version, selectable, tail, tail_len, version_at, metadata_at, uid_hash, derived })
    }
}

/// The `uid` in the JSON text of an object's metadata; `None` if the text is no JSON object or has no `uid`.
pub(super) fn uid(metadata: &[u8]) -> Option<String> {
    let uid = Members::of(metadata).ok()?.filter_map(Result::ok).filter(|(name, _)| name == "uid").last();
    text(uid?.1).ok().map(Cow::into_owned)
}

/// The position of `part`, a subslice of `whole`, in `whole` without its first `skip` bytes.
fn range_within(whole: &[u8], part: &[u8], skip: usize) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?.checked_sub(skip)?;
    Some(start..start + part.len())
}

/// What is read from one object, borrowed from its text.
#[derive(Default)]
struct Found<'a> {
    metadata: Metadata<'a>,
    values: Vec<Option<Arc<str>>>,
    /// How many of the members are a `kind` or an `apiVersion`.
    type_members: usize,
}

/// The metadata of an object. If `metadata` occurs twice, the last one replaces the first one completely, so everything
/// here lies within `text`.
#[derive(Default)]
struct Metadata<'a> {
    text: &'a [u8],
    name: Option<Cow<'a, str>>,
    namespace: Option<Cow<'a, str>>,
    uid: Option<Cow<'a, str>>,
    version: Option<&'a str>,
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Found<'a> {
    fn read_object(&mut self, object: &'a [u8], tree: &PathTree) -> Result<(), InvalidJson> {
        for member in Members::of(object)? {
            let (name, value) = member?;
            let tree = tree.child(&name);
            self.type_members += usize::from(matches!(&*name, "kind" | "apiVersion"));
            if name == "metadata" {
                self.metadata = self.read_metadata(value, tree)?;
            } else if let Some(tree) = tree {
                self.read_fields(value, tree)?;
            }
        }
        Ok(())
    }

    fn read_metadata(&mut self, json: &'a [u8], tree: Option<&PathTree>) -> Result<Metadata<'a>, InvalidJson> {
        let mut metadata = Metadata { text: json, ..Metadata::default() };
        for member in Members::of(json)? {
            let (name, value) = member?;
            match &*name {
                "name" => metadata.name = Some(text(value)?),
                "namespace" => metadata.namespace = Some(text(value)?),
                "resourceVersion" => {
                    // A version that contains escapes is not a number, and is treated as missing.
                    metadata.version = match text(value)? {
                        Cow::Borrowed(digits) => Some(digits),
                        Cow::Owned(_) => None,
                    };
                }
                "labels" if value != b"null" => {
                    for label in Members::of(value)? {
                        let (name, value) = label?;
                        metadata.labels.push((name, text(value)?));
                    }
                }
                name => {
                    // Which may be selectable as well.
                    if name == "uid" {
                        metadata.uid = Some(text(value)?);
                    }
                    if let Some(tree) = tree.and_then(|tree| tree.child(name)) {
                        self.read_fields(value, tree)?;
                    }
                }
            }
        }
        Ok(metadata)
    }

    /// Reads the selectable fields that lie within `value`, or are `value` itself.
    fn read_fields(&mut self, value: &[u8], tree: &PathTree) -> Result<(), InvalidJson> {
        if tree.is_leaf() {
            let Some(value) = selectable(value)? else { return Ok(()) };
            tree.positions.iter().for_each(|position| self.values[*position] = Some(value.clone()));
        } else if value.starts_with(b"{") {
            for member in Members::of(value)? {
                let (name, value) = member?;
                if let Some(tree) = tree.child(&name) {
                    self.read_fields(value, tree)?;
                }
            }
        }
        Ok(())
    }
}

/// A string, boolean or integer in the form that selectors compare (read-path 5.1, "Value rules").
fn selectable(value: &[u8]) -> Result<Option<Arc<str>>, InvalidJson> {
    if value.starts_with(b"\"") {
        return Ok(Some(text(value)?.into()));
    }
    let number = || serde_json::from_slice::<Number>(value).ok().filter(|number| !number.is_f64());
    Ok(match value {
        b"true" => Some("true".into()),
        b"false" => Some("false".into()),
        _ => number().map(|number| number.to_string().into()),
    })
}
