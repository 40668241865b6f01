//! Why an object of upstream cannot be read.

use super::wire::InvalidWire;
use base::json::InvalidJson;

/// Why bytes from upstream cannot be kept. Their store is then not filled, and requests for its resource are forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("not an object in JSON")]
    Json(#[from] InvalidJson),
    #[error("not an object in protobuf")]
    Wire(#[source] InvalidWire),
    #[error("the object begins differently from upstream's other objects of this resource")]
    Shape,
    #[error("the object has no {0}")]
    Missing(&'static str),
}
