//! The settings of a running gateway that change when its configuration is reloaded.

use std::sync::{Arc, PoisonError, RwLock};

use base::{config::ReadsConfig, telemetry::AccessLines};

/// The current settings. Cheap to clone; all clones change together.
#[derive(Clone, Debug)]
pub struct Settings(Arc<RwLock<Values>>);

#[derive(Clone, Copy, Debug)]
struct Values {
    reads: ReadsConfig,
    lines: AccessLines,
}

impl Settings {
    /// `lines` are written as far as the log takes them.
    pub fn new(reads: ReadsConfig, lines: AccessLines) -> Self {
        Self(Arc::new(RwLock::new(Values { reads, lines: lines.logged() })))
    }

    /// Sets them for requests that come from now on.
    pub fn set(&self, reads: ReadsConfig, lines: AccessLines) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Values { reads, lines: lines.logged() };
    }

    /// For tests that read nothing and log nothing.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::new(super::same_request::CONFIG, AccessLines::None)
    }

    pub(super) fn reads(&self) -> ReadsConfig {
        self.values().reads
    }

    pub(super) fn lines(&self) -> AccessLines {
        self.values().lines
    }

    fn values(&self) -> Values {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
