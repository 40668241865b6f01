//! A Status in JSON, as far as a reflector reads it.

/// The fields of a Status that a reflector reads.
#[derive(Debug, serde::Deserialize)]
pub(super) struct StatusBody {
    pub(super) code: u16,
    #[serde(default)]
    details: StatusDetails,
}

#[derive(Debug, Default, serde::Deserialize)]
struct StatusDetails {
    #[serde(default)]
    causes: Vec<StatusCause>,
}

#[derive(Debug, serde::Deserialize)]
struct StatusCause {
    #[serde(default)]
    reason: String,
}

impl StatusBody {
    /// Whether a cause is `ResourceVersionTooLarge`, which client-go looks for, too (read-path 2, "RV too high").
    pub(super) fn is_too_large(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}
