//! The metadata of a list.

use base::apimachinery::ResourceVersion;

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    pub version: ResourceVersion,
    /// The token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    pub remaining_item_count: Option<u64>,
}

impl ListPosition {
    /// The position of a whole collection.
    pub fn of(version: ResourceVersion) -> Self {
        Self { version, continue_token: None, remaining_item_count: None }
    }

    /// The metadata of a list that is written in the order of the Go struct.
    pub(super) fn list_meta(&self) -> String {
        let Self { version, continue_token, remaining_item_count } = self;
        let token = continue_token.as_ref().map_or(String::new(), |token| format!(",\"continue\":\"{token}\""));
        let rest = remaining_item_count.map_or(String::new(), |count| format!(",\"remainingItemCount\":{count}"));
        format!("{{\"resourceVersion\":\"{version}\"{token}{rest}}}")
    }
}
