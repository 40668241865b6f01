//! How long a store may be without upstream, and what happens then.

use std::time::Duration;

/// The maximum age of a store's state ([`engine::reflector::Health::age`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct StalenessLimit {
    /// Beyond this age the gateway is not ready. `None` for no limit.
    pub max: Option<Duration>,
    /// Whether beyond it watches end as well, and new ones are forwarded.
    pub ends_watches: bool,
}

impl StalenessLimit {
    pub(super) fn is_passed_by(self, age: Duration) -> bool {
        self.max.is_some_and(|max| age > max)
    }
}
