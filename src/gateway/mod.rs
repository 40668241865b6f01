//! The request path: parse, authenticate, authorize, decide, serve or forward, respond.

mod admission;
mod body;
mod handle;
mod record;
mod respond;
mod route;

pub use admission::AcceptedHosts;
pub use body::Body;
pub use handle::Gateway;
