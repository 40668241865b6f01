//! A user as Kubernetes knows one.

use std::collections::BTreeMap;

/// Who somebody is, once that is proven. What authorization looks at, and what is asserted to upstream.
///
/// Groups are as the authenticator of the API server leaves them: `system:authenticated` among them where it adds it
/// (read-path 8.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    pub name: String,
    /// Empty if the authenticator knows none.
    pub uid: String,
    pub groups: Vec<String>,
    /// Keys in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}
