//! A request's selectors: resolved against a schema once, then evaluated once per object.

use super::{
    object::Object,
    schema::{FieldPlace, Schema},
};
use base::apimachinery::{FieldSelector, LabelSelector, ShardSelector};

/// Selects the objects of a list or a watch (apiserver's `SelectionPredicate`).
#[derive(Debug)]
pub struct Predicate {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
    shards: Option<ShardSelector>,
}

#[derive(Debug)]
struct FieldTerm {
    place: FieldPlace,
    equals: bool,
    value: Box<str>,
}

/// Why the gateway does not evaluate selectors. The request is forwarded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEvaluated {
    /// The resource has no such selectable field as far as the gateway knows. Upstream words the error.
    #[error("{0:?} is not supported in field selectors")]
    UnsupportedField(String),
    #[error("the selectors have too many requirements or values")]
    Costly,
}

/// The work of examining objects between two turns of other tasks, in requirements that are evaluated: at most some
/// hundred microseconds.
const AT_ONCE: usize = 8192;
/// The work for an object besides its requirements, in the same unit: to load it into the CPU's cache.
const OBJECT: usize = 4;

impl Predicate {
    pub fn new(labels: LabelSelector, fields: &FieldSelector, schema: &Schema) -> Result<Self, NotEvaluated> {
        if labels.is_costly() || fields.is_costly() {
            return Err(NotEvaluated::Costly);
        }
        let term = |requirement: &base::apimachinery::FieldRequirement| {
            let place = schema
                .place(&requirement.field)
                .ok_or_else(|| NotEvaluated::UnsupportedField(requirement.field.clone()))?;
            Ok(FieldTerm { place, equals: requirement.equals, value: requirement.value.as_str().into() })
        };
        let fields = fields.requirements().iter().map(term).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields, shards: None })
    }

    /// The same for the objects of those shards.
    #[must_use]
    pub fn within(self, shards: Option<ShardSelector>) -> Self {
        Self { shards, ..self }
    }

    /// The shards to which it is restricted.
    pub fn shards(&self) -> Option<&ShardSelector> {
        self.shards.as_ref()
    }

    /// An estimate of the memory that the selectors take, in bytes. Allocations have multiples of 16.
    pub fn own_bytes(&self) -> usize {
        let term = |term: &FieldTerm| size_of::<FieldTerm>() + term.value.len().next_multiple_of(16);
        let shards = self.shards.as_ref().map_or(0, ShardSelector::own_bytes);
        self.labels.own_bytes() + self.fields.iter().map(term).sum::<usize>() + shards
    }

    /// The number of objects to examine at a time.
    pub fn objects_at_once(&self) -> usize {
        let shards = self.shards.as_ref().map_or(0, ShardSelector::ranges);
        AT_ONCE / (OBJECT + self.fields.len() + self.labels.requirements().len() + shards)
    }

    /// Whether every object matches: lists can then use whole leaves, and watches use frames without evaluating
    /// selectors.
    pub fn is_everything(&self) -> bool {
        self.tells_rest() && self.shards.is_none()
    }

    /// Whether a page says how many objects follow: it does without a selector. Those outside of the shards are counted
    /// as well (read-path 5.5).
    pub fn tells_rest(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object meets all requirements of all selectors.
    pub fn matches(&self, object: &Object) -> bool {
        let holds = |term: &FieldTerm| (object.field(term.place) == &*term.value) == term.equals;
        self.shards.as_ref().is_none_or(|shards| object.is_in(shards))
            && self.fields.iter().all(holds)
            && (self.labels.is_empty() || self.labels.matches(object.labels()))
    }

    /// The value that the selector requires of the field at that place, if it requires one.
    pub fn required(&self, place: FieldPlace) -> Option<&str> {
        self.fields.iter().find(|term| term.place == place && term.equals).map(|term| &*term.value)
    }
}
