//! Conditions in the status of an object.

use std::borrow::Cow;

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) reason: Cow<'a, str>,
}

impl Condition<'_> {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Whether a condition is true; of several conditions of that type the first one counts.
pub(super) fn first_is_true(conditions: &[Condition<'_>], kind: &str) -> bool {
    conditions.iter().find(|condition| condition.kind == kind).is_some_and(Condition::is_true)
}
