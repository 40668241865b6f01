//! The watch cache: the objects of one resource, kept equal to upstream's by a reflector, the watchers of its changes,
//! and the bytes of what both send. Knows nothing of connections, users and HTTP.

pub mod encode;
pub mod fanout;
pub mod reflector;
pub mod store;
