//! For how long a store may be without upstream, and what follows from it.

use std::time::Duration;

/// How old a store's state may be ([`crate::reflector::Health::age`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct StalenessLimit {
    /// Beyond it the gateway is not ready. None: there is no limit.
    pub max: Option<Duration>,
    /// Beyond it watches end, too, and new ones are forwarded.
    pub ends_watches: bool,
}

impl StalenessLimit {
    pub(super) fn is_passed_by(self, age: Duration) -> bool {
        self.max.is_some_and(|max| age > max)
    }
}
