//! The nouns of Kubernetes, parsed once at the edge. Pure: no IO, no tokio, no hyper.

mod continue_token;
mod field_labels;
mod field_selector;
mod field_tags;
mod go_json;
mod group_version_resource;
mod label_lexer;
mod label_selector;
mod labels;
mod media_type;
mod object_key;
mod options;
mod origin;
mod qualified_name;
mod query;
mod request_info;
mod resource_version;
mod status;
mod user_info;

pub use continue_token::{ContinueAt, ContinueToken, InvalidContinueToken};
pub use field_labels::{FieldSource, SelectableField, selectable_fields};
pub use field_selector::{FieldRequirement, FieldSelector};
pub use field_tags::{FieldTag, ScalarKind, field_tags};
pub use group_version_resource::{GroupResource, GroupVersionResource};
pub use label_selector::{InvalidSelector, LabelCondition, LabelRequirement, LabelSelector};
pub use labels::Labels;
pub use media_type::{Answer, Encoding, MetaVersion, NotFromMemory, Representation, View, negotiate};
pub use object_key::ObjectKey;
pub use options::{Freshness, GetOptions, InvalidOptions, ListOptions, WatchOptions, WatchStart};
pub use origin::{InvalidOrigin, Origin, normal_host};
pub use query::{InvalidQuery, Query};
pub use request_info::{RequestInfo, ResourceRequest, Target, Verb};
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
pub use status::{Status, StatusReason};
pub use user_info::UserInfo;
