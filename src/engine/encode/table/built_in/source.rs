//! The parts of an object that printers read.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use crate::{encode::table::Unprintable, store::Object};
use base::json::{Members, text};

/// An object whose top-level members have been located. Only members that a printer reads are decoded.
pub(super) struct Source<'a> {
    object: &'a Object,
    members: Vec<(Cow<'a, str>, &'a [u8])>,
    created: Cow<'a, str>,
    is_deleted: bool,
    annotations: Option<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// Locates the members of an object that is stored as JSON without its `kind` and `apiVersion`. `tail` is
    /// [`Object::tail`].
    pub(super) fn of(object: &'a Object, tail: &'a [u8]) -> Result<Self, Unprintable> {
        let members = Members::behind_opening(tail).map_err(|_| Unprintable)?;
        let mut source = Self {
            object,
            members: members.collect::<Result<_, _>>().map_err(|_| Unprintable)?,
            created: Cow::default(),
            is_deleted: false,
            annotations: None,
        };
        let metadata = source.member("metadata").ok_or(Unprintable)?;
        for member in Members::of(metadata).map_err(|_| Unprintable)? {
            let (name, value) = member.map_err(|_| Unprintable)?;
            match &*name {
                "creationTimestamp" if value != b"null" => source.created = text(value).map_err(|_| Unprintable)?,
                "deletionTimestamp" => source.is_deleted = value != b"null",
                "annotations" => source.annotations = Some(value).filter(|value| *value != b"null"),
                _ => {}
            }
        }
        Ok(source)
    }

    /// The creation timestamp; empty if there is none.
    pub(super) fn created(&self) -> &str {
        &self.created
    }

    /// Whether it has a deletion timestamp.
    pub(super) fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.object.labels().iter()
    }

    /// The value of an annotation.
    pub(super) fn annotation(&self, key: &str) -> Result<Option<Cow<'a, str>>, Unprintable> {
        let Some(annotations) = self.annotations else { return Ok(None) };
        for member in Members::of(annotations).map_err(|_| Unprintable)? {
            let (name, value) = member.map_err(|_| Unprintable)?;
            if name == key {
                return text(value).map(Some).map_err(|_| Unprintable);
            }
        }
        Ok(None)
    }

    fn member(&self, name: &str) -> Option<&'a [u8]> {
        self.members.iter().find(|(found, _)| found == name).map(|(_, value)| *value).filter(|value| *value != b"null")
    }

    /// Decodes a top-level member; its default if it is missing or null.
    pub(super) fn read<T: Deserialize<'a> + Default>(&self, name: &str) -> Result<T, Unprintable> {
        self.member(name)
            .map_or_else(|| Ok(T::default()), |value| serde_json::from_slice(value).map_err(|_| Unprintable))
    }

    /// The number of members of a top-level object, such as `data`; 0 if it is missing or null.
    pub(super) fn count(&self, name: &str) -> Result<usize, Unprintable> {
        let Some(value) = self.member(name) else { return Ok(0) };
        let mut members = Members::of(value).map_err(|_| Unprintable)?;
        members.try_fold(0, |count, member| member.map(|_| count + 1)).map_err(|_| Unprintable)
    }
}

/// Reads null as the default: Go writes null for some empty values.
pub(super) fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
