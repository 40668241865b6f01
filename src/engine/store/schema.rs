//! What all objects of one resource have in common: the shape of their bytes and the selectable fields.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    budget::StoreBudget,
    change::FrameCopies,
    interner::{Interner, Selectable},
    tag_tree::TagTree,
    wire,
};
use base::apimachinery::{Encoding, FieldSource, GroupResource, NODE_NAME, SelectableField, field_tags};

/// The first bytes of every protobuf response (read-path 4.1).
pub const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// How upstream writes the objects of a resource (read-path 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A built-in type in JSON: list items lack `kind` and `apiVersion`, all other objects begin with them.
    Typed {
        /// For example `{"kind":"Pod","apiVersion":"v1",`.
        opening: Bytes,
    },
    /// A custom resource: the same bytes in lists and in watches, with keys in alphabetical order.
    Custom,
    /// A built-in type in protobuf: list items are bare messages, all other objects are in an envelope.
    Protobuf {
        /// The envelope up to the length of the message.
        opening: Bytes,
    },
}

impl Shape {
    pub fn typed(kind: &str, api_version: &str) -> Self {
        Self::Typed { opening: format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into() }
    }

    pub fn protobuf(kind: &str, api_version: &str) -> Self {
        let mut type_meta = Vec::with_capacity(kind.len() + api_version.len() + 4);
        wire::put_bytes(&mut type_meta, 1, api_version.as_bytes());
        wire::put_bytes(&mut type_meta, 2, kind.as_bytes());
        let mut opening = PROTOBUF_MAGIC.to_vec();
        wire::put_bytes(&mut opening, 1, &type_meta);
        Self::Protobuf { opening: opening.into() }
    }

    pub const fn encoding(&self) -> Encoding {
        match self {
            Self::Typed { .. } | Self::Custom => Encoding::Json,
            Self::Protobuf { .. } => Encoding::Protobuf,
        }
    }

    /// The bytes in front of an object's tail in a list.
    pub fn item_opening(&self) -> &[u8] {
        match self {
            Self::Typed { .. } => b"{",
            Self::Custom | Self::Protobuf { .. } => b"",
        }
    }

    /// The bytes in front of an object's tail in a get response or a watch event; in protobuf, in front of its length.
    pub fn object_opening(&self) -> &[u8] {
        match self {
            Self::Typed { opening } | Self::Protobuf { opening } => opening,
            Self::Custom => b"",
        }
    }
}

/// Shape and selectable fields of one resource, fixed for the lifetime of its store.
#[derive(Debug)]
pub struct Schema {
    pub shape: Shape,
    fields: Vec<SelectableField>,
    /// Where objects have their values, in the same order.
    places: Vec<FieldPlace>,
    /// The place of the field that watchers are indexed by, besides namespace and name: [`NODE_NAME`], on which
    /// thousands of watchers (one kubelet per node) select.
    index: Option<FieldPlace>,
    pub(super) paths: PathTree,
    pub(super) tags: TagTree,
    pub(super) interner: Interner,
    budget: StoreBudget,
    copies: FrameCopies,
}

impl Schema {
    pub fn new(shape: Shape, fields: Vec<SelectableField>) -> Self {
        let mut paths = PathTree::default();
        for (position, field) in fields.iter().enumerate() {
            if let FieldSource::Path { path, .. } = &field.source {
                paths.insert(path, position);
            }
        }
        let places = FieldPlace::of(&fields);
        let index = fields.iter().position(|field| &*field.label == NODE_NAME).map(|position| places[position]);
        Self {
            shape,
            fields,
            places,
            index,
            paths,
            tags: TagTree::default(),
            interner: Interner::default(),
            budget: StoreBudget::default(),
            copies: FrameCopies::default(),
        }
    }

    /// The same for a store that takes its memory from `room`.
    #[must_use]
    pub fn within(self, budget: StoreBudget) -> Self {
        Self { copies: FrameCopies::within(budget.clone()), budget, ..self }
    }

    /// The memory of the store.
    pub fn budget(&self) -> &StoreBudget {
        &self.budget
    }

    /// The frames that its changes keep.
    pub(super) fn copies(&self) -> &FrameCopies {
        &self.copies
    }

    /// The schema of a built-in resource's protobuf store. It leaves out the `fields` whose field numbers are not
    /// known, so selectors on these are unsupported.
    pub fn protobuf(shape: Shape, resource: &GroupResource, mut fields: Vec<SelectableField>) -> Self {
        let known = field_tags(resource);
        let tag_of = |field: &SelectableField| known.iter().find(|tag| *tag.label == *field.label);
        fields.retain(|field| !matches!(field.source, FieldSource::Path { .. }) || tag_of(field).is_some());
        let mut tags = TagTree::default();
        for (position, field) in fields.iter().enumerate() {
            if let Some(tag) = tag_of(field) {
                tags.insert(tag, position);
            }
        }
        Self { tags, ..Self::new(shape, fields) }
    }

    /// The selectable fields.
    pub fn fields(&self) -> &[SelectableField] {
        &self.fields
    }

    /// What selectors compare of an object, shared with others. `found` are the values that were read from the object,
    /// in the order of [`Self::fields`].
    pub(super) fn selectable<'a>(
        &self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        found: Vec<Option<Arc<str>>>,
    ) -> Arc<Selectable> {
        let labels = labels.map(|(key, value)| (self.interner.share(key), self.interner.share(value))).collect();
        let value = |(field, found): (&SelectableField, Option<Arc<str>>)| match &field.source {
            FieldSource::Name | FieldSource::Namespace => None,
            FieldSource::Path { absent, .. } => Some(self.interner.share(found.as_deref().unwrap_or(absent))),
            FieldSource::NeverSet => Some(self.interner.share("")),
        };
        let fields = self.fields.iter().zip(found).filter_map(value).collect();
        self.interner.share_selectable(Selectable { labels, fields })
    }

    /// The same with the values that an object has of the fields that are not in the key. `None` if these are not as
    /// many as the schema has.
    pub(super) fn selectable_again<'a>(
        &self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        values: impl ExactSizeIterator<Item = &'a str>,
    ) -> Option<Arc<Selectable>> {
        let expected = self.places.iter().filter(|place| matches!(place, FieldPlace::Value(_))).count();
        let is_complete = values.len() == expected;
        let labels = labels.map(|(key, value)| (self.interner.share(key), self.interner.share(value))).collect();
        let fields = values.map(|value| self.interner.share(value)).collect();
        is_complete.then(|| self.interner.share_selectable(Selectable { labels, fields }))
    }

    /// Where objects have the value of a field; `None` if it is not known to be selectable.
    pub fn place(&self, label: &str) -> Option<FieldPlace> {
        let position = self.fields.iter().position(|field| &*field.label == label)?;
        Some(self.places[position])
    }

    /// The places of all selectable fields, in the order of [`Self::fields`].
    pub fn places(&self) -> &[FieldPlace] {
        &self.places
    }

    /// The place of the field that watchers are indexed by, if this resource has it.
    pub fn indexed_field(&self) -> Option<FieldPlace> {
        self.index
    }
}

/// Where an object has the value of a selectable field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    Name,
    Namespace,
    /// The position among the values that are kept beside the key.
    Value(usize),
}

impl FieldPlace {
    /// The places of these fields, in their order.
    fn of(fields: &[SelectableField]) -> Vec<Self> {
        let mut values = 0..;
        let place = |field: &SelectableField| match field.source {
            FieldSource::Name => Some(Self::Name),
            FieldSource::Namespace => Some(Self::Namespace),
            FieldSource::Path { .. } | FieldSource::NeverSet => values.next().map(Self::Value),
        };
        fields.iter().filter_map(place).collect()
    }
}

/// The JSON paths of all selectable fields as one tree, walked once per object.
#[derive(Debug, Default)]
pub(super) struct PathTree {
    children: Vec<(Box<str>, Self)>,
    /// The positions of the fields whose value is at this node.
    pub(super) positions: Vec<usize>,
}

impl PathTree {
    fn insert(&mut self, path: &[Box<str>], position: usize) {
        let Some((first, rest)) = path.split_first() else {
            self.positions.push(position);
            return;
        };
        let at = match self.children.iter().position(|(name, _)| name == first) {
            Some(at) => at,
            None => {
                self.children.push((first.clone(), Self::default()));
                self.children.len() - 1
            }
        };
        self.children[at].1.insert(rest, position);
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|(child, _)| &**child == name).map(|(_, tree)| tree)
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}
