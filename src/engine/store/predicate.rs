//! A request's selectors: resolved against a schema once, then evaluated once per object.

use super::{
    object::Object,
    schema::{FieldPlace, Schema},
};
use base::apimachinery::{FieldSelector, LabelSelector};

/// Selects the objects of a list or a watch (apiserver's `SelectionPredicate`).
#[derive(Debug)]
pub struct Predicate {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
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
        Ok(Self { labels, fields })
    }

    /// An estimate of the memory that the selectors take, in bytes. Allocations have multiples of 16.
    pub fn own_bytes(&self) -> usize {
        let term = |term: &FieldTerm| size_of::<FieldTerm>() + term.value.len().next_multiple_of(16);
        self.labels.own_bytes() + self.fields.iter().map(term).sum::<usize>()
    }

    /// The number of objects to examine at a time.
    pub fn objects_at_once(&self) -> usize {
        AT_ONCE / (OBJECT + self.fields.len() + self.labels.requirements().len())
    }

    /// Whether every object matches: lists can then use whole leaves, and watches use frames without evaluating
    /// selectors.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object meets all requirements of both selectors.
    pub fn matches(&self, object: &Object) -> bool {
        let holds = |term: &FieldTerm| (object.field(term.place) == &*term.value) == term.equals;
        self.fields.iter().all(holds) && (self.labels.is_empty() || self.labels.matches(object.labels()))
    }

    /// The value that the selector requires of the field at that place, if it requires one.
    pub fn required(&self, place: FieldPlace) -> Option<&str> {
        self.fields.iter().find(|term| term.place == place && term.equals).map(|term| &*term.value)
    }
}
