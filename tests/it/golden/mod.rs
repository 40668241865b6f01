//! A gateway in front of the recording of a real API server answers as that server did, byte for byte.

mod cases;
mod encodings;
mod live;
mod nonsense;
pub(crate) mod recording;
