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
