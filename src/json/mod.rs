//! JSON as text: where values stand in it, found without reading them.
//!
//! What is passed over is looked at for brackets and strings only. Whether it is valid is upstream's affair: it goes out as it
//! came in.

mod elements;
mod members;
mod nesting;
mod path;

pub use elements::Elements;
pub use members::{InvalidJson, Members, text};
pub use nesting::{Brackets, Nesting};
pub use path::JsonPath;
