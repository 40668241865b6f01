//! Proves that a store's objects are of the schema that their resource has now.
//!
//! When a definition changes, an API server applies the new schema to new requests at once, but ends the watches that
//! were opened under the old one only a second later, or after up to a minute if it still answers a slow request.
//! Meanwhile these watches report objects that were written under the new schema without their new fields, at the right
//! versions (seen on 1.20 and 1.36). A store that follows such a watch has reached a version, but does not hold that
//! version's objects. So the version of the answer has to be proven, and not only the one that a client asks for.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::upstream::Crd;
use base::{
    apimachinery::ResourceVersion,
    memo::{Join, SingleFlight},
};
use engine::reflector::{Failure, ListWatch};

/// How long an answer counts for versions that were proven before: the server that answers for the resource may change
/// without a new version.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

/// The version up to which a store's objects are known to be of the current schema.
#[derive(Debug)]
pub(super) struct SchemaProof {
    /// `None` for a built-in resource, whose schema changes only with upstream's program.
    proven: Option<Mutex<Proven>>,
    question: SingleFlight<Result<bool, Failure>>,
}

/// Invariant: the definition was read after upstream had reached the version, and was the one that the store was filled
/// under.
#[derive(Clone, Copy, Debug)]
struct Proven {
    up_to: ResourceVersion,
    asked: Instant,
}

impl SchemaProof {
    /// Of a store that was filled up to `version` before the definition was compared; a built-in resource has none.
    pub(super) fn new(definition: Option<&Crd>, version: ResourceVersion) -> Self {
        let proven = definition.map(|_| Mutex::new(Proven { up_to: version, asked: Instant::now() }));
        Self { proven, question: SingleFlight::new(Join::BeforeItIsSent) }
    }

    /// Whether the objects up to `version`, which upstream has reached, are of the current schema. One question serves
    /// all callers that were waiting when it was sent.
    ///
    /// # Errors
    /// Upstream has not answered within `wait`, and the version was not proven before.
    pub(super) async fn holds_up_to(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let Some(proven) = &self.proven else { return Ok(true) };
        let Proven { up_to, asked } = *lock(proven);
        if version <= up_to && asked.elapsed() < TRUSTED_FOR {
            return Ok(true);
        }
        let asked = Instant::now();
        match timeout(wait, self.question.ask(|| upstream.is_same_resource())).await {
            Ok(Ok(true)) => {
                let mut proven = lock(proven);
                *proven = Proven { up_to: version.max(proven.up_to), asked: asked.max(proven.asked) };
                Ok(true)
            }
            Ok(Ok(false)) => Ok(false),
            // As before, then: it is not known to have changed.
            Ok(Err(_)) | Err(_) if version <= up_to => Ok(true),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Silent),
        }
    }
}

fn lock(proven: &Mutex<Proven>) -> MutexGuard<'_, Proven> {
    proven.lock().unwrap_or_else(PoisonError::into_inner)
}
