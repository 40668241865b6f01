//! What is done to keep all caches within their memory.

use metrics::counter;

use crate::telemetry::metrics::CACHE_MEMORY_STEPS;

/// A step; each one is taken if those before were not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryStep {
    /// What was made from objects is dropped, and objects that rest are compressed at once.
    Compress,
    /// Histories are shortened to the changes that an API server keeps in any case.
    ShortenHistory,
    /// Caches are stopped.
    DropCaches,
}

impl MemoryStep {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compress => "compress",
            Self::ShortenHistory => "shorten_history",
            Self::DropCaches => "drop_caches",
        }
    }
}

/// Counts that a step was taken.
pub fn count_memory_step(step: MemoryStep) {
    counter!(CACHE_MEMORY_STEPS, "step" => step.as_str()).increment(1);
}
