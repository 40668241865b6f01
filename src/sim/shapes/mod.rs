//! The format of responses on the wire.

pub(crate) mod bookmark;
pub(crate) mod json;
pub(crate) mod list;
pub(crate) mod order;
mod partial;
pub(crate) mod representation;
pub(crate) mod table;
