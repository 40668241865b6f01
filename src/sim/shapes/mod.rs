//! The format of responses on the wire.

pub(crate) mod bookmark;
pub(crate) mod list;
mod partial;
pub(crate) mod representation;
pub(crate) mod table;
