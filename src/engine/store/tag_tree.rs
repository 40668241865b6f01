//! Reads the selectable fields from an object's protobuf.

use std::sync::Arc;

use super::wire::{Fields, InvalidWire, Value};
use base::apimachinery::{FieldTag, ScalarKind};

/// The field numbers of all selectable fields as one tree, walked once per object.
#[derive(Debug, Default)]
pub(super) struct TagTree {
    children: Vec<(u32, Self)>,
    /// The positions of the fields whose value is at this node, and the type of the value.
    values: Vec<(usize, ScalarKind)>,
}

impl TagTree {
    pub(super) fn insert(&mut self, tag: &FieldTag, position: usize) {
        let mut node = self;
        for number in tag.tags {
            let at = node.children.iter().position(|(child, _)| child == number).unwrap_or_else(|| {
                node.children.push((*number, Self::default()));
                node.children.len() - 1
            });
            node = &mut node.children[at].1;
        }
        node.values.push((position, tag.kind));
    }

    pub(super) fn child(&self, number: u32) -> Option<&Self> {
        self.children.iter().find(|(child, _)| *child == number).map(|(_, tree)| tree)
    }

    /// Reads the values at and below this node. The depth is bounded by the longest path of the table of fields.
    pub(super) fn read(&self, value: Value<'_>, found: &mut [Option<Arc<str>>]) -> Result<(), InvalidWire> {
        for (position, kind) in &self.values {
            found[*position] = Some(scalar(value, *kind)?);
        }
        if self.children.is_empty() {
            return Ok(());
        }
        for field in Fields::of(value.bytes()?) {
            let field = field?;
            if let Some(tree) = self.child(field.number) {
                tree.read(field.value, found)?;
            }
        }
        Ok(())
    }
}

fn scalar(value: Value<'_>, kind: ScalarKind) -> Result<Arc<str>, InvalidWire> {
    Ok(match kind {
        ScalarKind::Text => value.text()?.into(),
        ScalarKind::Bool => if value.varint()? == 0 { "false" } else { "true" }.into(),
        ScalarKind::Int32 => int32(value.varint()?).to_string().into(),
    })
}

/// Negative numbers are written as 64 bits; a decoder keeps the lower 32 bits of any number.
#[expect(clippy::cast_possible_truncation, reason = "as the format says")]
fn int32(varint: u64) -> i32 {
    varint as i32
}
