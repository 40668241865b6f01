//! Whether an API server answers at upstream's address, as the request for its version has shown.

use std::fmt::Display;

use super::{
    TroubleKind,
    lasting::{Current, Lasting},
    notice::bounded,
};

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An API server has said its version.
    Passed,
    /// What is wrong is already known from the request itself: it did not reach upstream, or was refused.
    Noted,
    /// Something answers, or holds the connection open, that is not a working API server.
    Failed { kind: TroubleKind, error: String },
}

/// The outcome of the last probe. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed(Lasting);

impl Probed {
    /// Records the outcome of a probe of `address`. The log has a line when a probe fails, and one when they pass
    /// again.
    pub(super) fn note(&self, address: &impl Display, probe: Probe) {
        match probe {
            Probe::Passed => {
                tracing::debug!(%address, "the API server answers");
                if self.0.ends() {
                    tracing::info!(%address, "an API server answers now");
                }
            }
            Probe::Noted => {
                self.0.ends();
            }
            Probe::Failed { kind, error } => {
                let error = bounded(&error);
                if self.0.begins(kind, error.clone()) {
                    tracing::warn!(%address, error, "{}", kind.advice());
                }
            }
        }
    }

    /// `None` if the last probe has found nothing wrong, or there was none.
    pub(super) fn trouble(&self) -> Option<Current> {
        self.0.current()
    }
}
