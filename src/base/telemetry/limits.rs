//! Shows how much of each limit is used, measured when the metrics are read.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metrics::gauge;

use crate::telemetry::metrics::{LIMIT, LIMIT_USED};

/// A limit, and the function that measures how much of it is used.
struct Known {
    limit: &'static str,
    used: Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>,
}

/// Shows a limit, and how much of it is used, in the metrics. `limit` is the name that is also passed to
/// [`super::limit_reached`]; several limits with the same name are added up. `used` returns how much is used, and the
/// limit. It must not block, and returns `None` once the limited thing is gone.
pub fn show_limit(limit: &'static str, used: impl Fn() -> Option<(u64, u64)> + Send + Sync + 'static) {
    known().push(Known { limit, used: Box::new(used) });
}

fn known() -> MutexGuard<'static, Vec<Known>> {
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of each limit is used now, and the limit, by name. Removes limits that are gone.
pub fn used_limits() -> BTreeMap<&'static str, (u64, u64)> {
    let mut totals = BTreeMap::<_, (u64, u64)>::new();
    known().retain(|known| {
        let total = totals.entry(known.limit).or_default();
        let used = (known.used)();
        if let Some((used, most)) = used {
            *total = (total.0 + used, total.1 + most);
        }
        used.is_some()
    });
    totals
}

/// Updates the gauges of all limits.
pub(super) fn refresh() {
    for (limit, (used, most)) in used_limits() {
        gauge!(LIMIT_USED, "limit" => limit).set(used as f64);
        gauge!(LIMIT, "limit" => limit).set(most as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::exposition::recorder;

    #[test]
    fn limits_of_one_name_are_added_up_until_they_are_gone() {
        let (first, second) = (Arc::new(3), Arc::new(4));
        for held in [&first, &second] {
            let held = Arc::downgrade(held);
            show_limit("test_places", move || held.upgrade().map(|used| (*used, 10)));
        }
        let recorder = recorder();
        let text = || {
            metrics::with_local_recorder(&recorder, refresh);
            recorder.handle().render()
        };
        let both = text();
        assert!(both.contains("kube_fanout_limit_used{limit=\"test_places\"} 7"), "{both}");
        assert!(both.contains("kube_fanout_limit{limit=\"test_places\"} 20"), "{both}");
        drop(second);
        assert!(text().contains("kube_fanout_limit_used{limit=\"test_places\"} 3"));
        drop(first);
        assert!(text().contains("kube_fanout_limit{limit=\"test_places\"} 0"));
    }
}
