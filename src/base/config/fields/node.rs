//! A YAML or JSON document as a tree whose leaves are texts: `10`, `true` and `"10"` alike.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::DuplicateKeyPolicy;

use crate::config::location::Locations;
use crate::config::{Problem, Problems};

/// A value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// `~`, or a field without a value: as if the field were not there.
    Nothing,
    Single(String),
    List(Vec<Self>),
    /// In the order of the document. Of a field that is given twice, the first value.
    Fields(Vec<(String, Self)>),
}

/// A document that is valid YAML; its fields may have any names and values.
#[derive(Debug)]
pub struct Document {
    pub(super) root: Node,
    /// Fields that are given twice.
    pub(super) repeated: Vec<Problem>,
}

impl Document {
    /// # Errors
    /// The first place where the text is not one YAML document.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::FirstWins };
        let root = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let fault = Locations::of(text).into_fault();
            let words = || error.without_snippet().to_string().lines().collect::<Vec<_>>().join(" ");
            Problems(vec![fault.unwrap_or_else(|| Problem::new("", &words(), ""))])
        })?;
        let repeated = Locations::of(text).into_repeated().map_err(|fault| Problems(vec![fault]))?;
        Ok(Self { root, repeated })
    }

    /// A document without any field but these.
    pub(in crate::config) fn of<const N: usize>(fields: [(&str, &str); N]) -> Self {
        let fields = fields.map(|(name, text)| (name.to_owned(), Node::Single(text.to_owned())));
        Self { root: Node::Fields(fields.into()), repeated: Vec::new() }
    }

    /// The text at a path; `None` if there is none.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        let at = path.iter().try_fold(&self.root, |node, name| node.field(name))?;
        if let Node::Single(text) = at { Some(text) } else { None }
    }
}

impl Node {
    fn field(&self, name: &str) -> Option<&Self> {
        let Self::Fields(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, node)| node)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a single value, a list or fields")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Single(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::Fields(fields))
    }
}
