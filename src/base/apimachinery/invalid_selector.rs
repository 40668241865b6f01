//! Why a label selector or a field selector is refused.

/// Why the API server would not accept a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    #[error("the selector has a syntax error")]
    Syntax,
    #[error("the selector has an invalid key")]
    Key,
    #[error("the selector has an invalid value")]
    Value,
    #[error("the selector has an invalid escape")]
    Escape,
}
