//! Whether upstream can be reached: for the status, and for the log, which has a line when it cannot, and one when it
//! can again.

use std::fmt::Display;

use super::{
    SendError, TroubleKind,
    lasting::{Current, Lasting},
    notice::bounded,
};
use base::telemetry::Chain;

/// What the last requests found out. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reachable(Lasting);

impl Reachable {
    /// Records the outcome of a request to `address`: its error, or `None` if there was an answer.
    pub(super) fn note(&self, address: &impl Display, error: Option<&SendError>) {
        let Some(error) = error else {
            if self.0.ends() {
                tracing::info!(%address, "the API server can be reached again");
            }
            return;
        };
        // Other errors do not show whether the request reached upstream.
        let Some(kind) = error.trouble() else { return };
        if !self.0.begins(kind, bounded(&Chain(error).to_string())) {
            return;
        }
        if kind == TroubleKind::Unreachable {
            tracing::warn!(%address, error = %Chain(error), "{}", kind.advice());
        } else {
            tracing::warn!(error = %Chain(error), "none of upstream.servers is used");
        }
    }

    /// `None` while it can be reached, or is not known not to be.
    pub(super) fn trouble(&self) -> Option<Current> {
        self.0.current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_shows_that_it_can_be_reached() {
        let upstream = Reachable::default();
        upstream.0.begins(TroubleKind::Unreachable, "refused".to_owned());
        assert!(upstream.trouble().is_some());
        upstream.note(&"", None);
        assert_eq!(upstream.trouble(), None);
    }
}
