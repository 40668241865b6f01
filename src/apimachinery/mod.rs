//! The nouns of Kubernetes, parsed once at the edge. Pure: no IO, no tokio, no hyper.

mod group_version_resource;
mod object_key;
mod resource_version;

pub use group_version_resource::{GroupResource, GroupVersionResource};
pub use object_key::ObjectKey;
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
