//! Values of metrics.

/// The sum of the series whose row begins with `series` and contains `label`; 0 if there is none.
pub(crate) fn sum(metrics: &str, series: &str, label: &str) -> u64 {
    let rows = metrics.lines().filter(|row| row.starts_with(series) && row.contains(label));
    rows.map(|row| row.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}
