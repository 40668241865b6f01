//! The uid of an object, in either encoding.

use super::{json, object::Object, protobuf};

impl Object {
    /// `metadata.uid`, read on each call; `None` if there is none, or an empty one.
    pub fn uid(&self) -> Option<String> {
        let metadata = self.metadata();
        // No `ObjectMeta` message begins with this byte.
        let is_json = metadata.starts_with(b"{");
        let uid = if is_json { json::uid(&metadata) } else { protobuf::uid(&metadata) };
        uid.filter(|uid| !uid.is_empty())
    }
}
