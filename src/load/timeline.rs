//! How a measured time, such as a latency, changes during a run. The memory is bounded for a run of any length. Pure.

use std::time::Duration;

/// The maximum number of intervals.
const INTERVALS_MAX: usize = 120;
/// The length of an interval, until there would be more than [`INTERVALS_MAX`].
const SHORTEST: Duration = Duration::from_secs(1);

/// Count, mean and maximum of a measured time in intervals of equal length. When there would be too many intervals,
/// pairs of them are merged.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    length: Duration,
    /// The first one starts with the run.
    intervals: Vec<Interval>,
}

/// The measurements in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) count: u32,
    pub(super) sum: Duration,
    pub(super) max: Duration,
}

impl Timeline {
    /// Adds a time that was measured `count` times, `at` this long after the start of the run.
    pub(super) fn add_many(&mut self, at: Duration, time: Duration, count: u64) {
        let mut index = self.index(at);
        while index >= INTERVALS_MAX {
            self.length *= 2;
            self.intervals = self
                .intervals
                .chunks(2)
                .map(|two| two.iter().copied().fold(Interval::default(), Interval::and))
                .collect();
            index = self.index(at);
        }
        if self.intervals.len() <= index {
            self.intervals.resize(index + 1, Interval::default());
        }
        let interval = &mut self.intervals[index];
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        *interval = interval.and(Interval { count, sum: time.saturating_mul(count), max: time });
    }

    /// The length of an interval.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    pub(super) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    fn index(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.length.as_nanos()).unwrap_or(usize::MAX)
    }
}

impl Interval {
    fn and(self, other: Self) -> Self {
        let sum = self.sum.saturating_add(other.sum);
        Self { count: self.count.saturating_add(other.count), sum, max: self.max.max(other.max) }
    }

    /// Zero if the interval is empty.
    pub(super) fn mean(self) -> Duration {
        self.sum.checked_div(self.count).unwrap_or_default()
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self { length: SHORTEST, intervals: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_merged_without_losing_times() {
        let mut timeline = Timeline::default();
        for second in 0..100_000u64 {
            timeline.add_many(Duration::from_secs(second), Duration::from_millis(second % 7), 1);
        }
        let intervals = timeline.intervals();
        assert!(intervals.len() > INTERVALS_MAX / 2 && intervals.len() <= INTERVALS_MAX, "{}", intervals.len());
        assert_eq!(intervals.iter().map(|interval| interval.count).sum::<u32>(), 100_000);
        assert_eq!(intervals[0].max, Duration::from_millis(6));
        assert_eq!(timeline.length(), Duration::from_secs(1024));
        let mean = intervals[0].mean();
        assert!(mean > Duration::from_micros(2_900) && mean < Duration::from_micros(3_100), "{mean:?}");
    }

    #[test]
    fn an_interval_without_times_is_empty() {
        let mut timeline = Timeline::default();
        timeline.add_many(Duration::from_millis(2_500), Duration::from_millis(4), 1);
        assert_eq!(timeline.intervals()[..2], [Interval::default(); 2]);
        timeline.add_many(Duration::from_millis(2_600), Duration::from_millis(8), 3);
        assert_eq!(timeline.intervals()[2].mean(), Duration::from_millis(7));
    }
}
