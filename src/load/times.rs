//! Histograms of times. Pure.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest time that is recorded exactly, in microseconds: more than a run of the longest duration takes.
const LONGEST: u64 = 200 * 3_600_000_000;
/// The number of significant digits: a value differs by at most a thousandth.
const DIGITS: u8 = 3;
/// The upper bound of the first bucket of a histogram, in microseconds; each further bound is [`BUCKET_FACTOR`] times
/// the previous one.
const BUCKET_FIRST: u64 = 100;
const BUCKET_FACTOR: f64 = std::f64::consts::SQRT_2;

/// A histogram of times in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are valid"))
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(LONGEST));
    }

    pub(super) fn add_many(&mut self, time: Duration, count: u64) {
        self.0.saturating_record_n(u64::try_from(time.as_micros()).unwrap_or(LONGEST), count);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentile in milliseconds.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }

    pub(super) fn max(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    pub(super) fn mean(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The upper bound in milliseconds and the count of each bucket, up to the bucket of the largest value.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let buckets = self.0.iter_log(BUCKET_FIRST, BUCKET_FACTOR);
        buckets.map(|bucket| (bucket.value_iterated_to() as f64 / 1e3, bucket.count_since_last_iteration()))
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        self.0.add(&other.0).unwrap_or_default();
    }
}
