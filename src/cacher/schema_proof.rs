//! Proves that a store's objects are of the schema that their resource has now.
//!
//! When a definition changes, an API server applies the new schema to new requests at once, but ends the watches that
//! were opened under the old one only a second later, or after up to a minute if it still answers a slow request.
//! Meanwhile these watches report what is written under the new schema without its new fields, at the right versions
//! (seen on 1.20 and 1.36). A store that such a watch follows has reached a version, but not that version's objects.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::single_flight::{Join, SingleFlight};
use crate::{
    apimachinery::ResourceVersion,
    reflector::{Failure, ListWatch},
    upstream::Crd,
};

/// The version up to which a store's objects are known to be of the current schema.
///
/// Invariant: the definition was read after upstream had reached that version, and was the one that the store was
/// filled under.
#[derive(Debug)]
pub(super) struct SchemaProof {
    up_to: AtomicU64,
    question: SingleFlight<Result<bool, Failure>>,
}

impl SchemaProof {
    /// Of a store that was filled up to `version` before the definition was compared; a built-in resource has none.
    pub(super) fn new(definition: Option<&Crd>, version: ResourceVersion) -> Self {
        let up_to = definition.map_or(u64::MAX, |_| version.value());
        Self { up_to: AtomicU64::new(up_to), question: SingleFlight::new(Join::BeforeItIsSent) }
    }

    /// Whether the objects up to `version`, which upstream has reached, are of the current schema. One question serves
    /// all callers that were waiting when it was sent.
    pub(super) async fn holds_up_to(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
    ) -> Result<bool, Failure> {
        if version.value() <= self.up_to.load(Relaxed) {
            return Ok(true);
        }
        let holds = self.question.ask(|| upstream.is_same_resource()).await?;
        if holds {
            self.up_to.fetch_max(version.value(), Relaxed);
        }
        Ok(holds)
    }
}
