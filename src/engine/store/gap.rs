//! A gap in what is known of a resource's history.

use base::apimachinery::ResourceVersion;

/// The versions between two known states, about which nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: ResourceVersion,
    pub to: ResourceVersion,
}

impl Gap {
    /// Whether the state at `version` is unknown.
    pub fn contains(&self, version: ResourceVersion) -> bool {
        self.from < version && version < self.to
    }
}
