//! How much detail a reader of the status gets.

/// Depends on what the reader may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Names of users, of namespaces and of objects, and the configuration.
    Full,
    /// Only what the metrics contain, and user agents.
    WithoutNames,
}
