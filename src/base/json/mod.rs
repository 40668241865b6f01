//! Finds values in JSON text without decoding them.
//!
//! Skipped values are only scanned for brackets and strings. They are not validated: the gateway sends them as it
//! received them, and their validity is upstream's responsibility.

mod elements;
mod members;
mod nesting;
mod path;

pub use elements::Elements;
pub use members::{InvalidJson, Members, text};
pub use nesting::{Brackets, Nesting};
pub use path::JsonPath;
