//! A user as Kubernetes describes it.

use std::collections::BTreeMap;

/// An authenticated identity. Authorization evaluates it, and it is asserted to upstream.
///
/// The groups are those that the API server's authenticator reports, including `system:authenticated` where it adds
/// that group (read-path 8.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    pub name: String,
    /// Empty if the authenticator reports none.
    pub uid: String,
    pub groups: Vec<String>,
    /// Keys are in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Bytes of all texts and of what holds them: an estimate.
    pub fn own_bytes(&self) -> usize {
        let of = |text: &String| size_of::<String>() + text.len();
        let extra = self.extra.iter().map(|(key, values)| of(key) + values.iter().map(of).sum::<usize>());
        of(&self.name) + of(&self.uid) + self.groups.iter().map(of).sum::<usize>() + extra.sum::<usize>()
    }
}
