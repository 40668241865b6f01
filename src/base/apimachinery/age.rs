//! The time since something happened, in the form that Kubernetes shows to people (read-path 6).

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// In seconds. Go's durations end at 292 years.
const MOST: i64 = 290 * YEAR;

/// The age in two or three digits; `None` where Go's duration would overflow.
pub fn age(since: Timestamp, now: Timestamp) -> Option<String> {
    // Rounded towards zero as in Go: a time less than two seconds in the future counts as now.
    let seconds = now.duration_since(since).as_secs();
    let pair = |count: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{count}{unit}"),
        rest => format!("{count}{unit}{rest}{rest_unit}"),
    };
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / DAY);
    if seconds > MOST {
        return None;
    }
    Some(match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn ages_have_two_or_three_digits() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        for (milliseconds, expected) in [
            (-2000, Some("<invalid>")),
            (-1999, Some("0s")),
            (-1, Some("0s")),
            (0, Some("0s")),
            (999, Some("0s")),
            (119_999, Some("119s")),
            (120_000, Some("2m")),
            (599_000, Some("9m59s")),
            (600_000, Some("10m")),
            (3 * 3_600_000 - 1, Some("179m")),
            (3 * 3_600_000, Some("3h")),
            (7 * 3_600_000 + 59 * 60_000, Some("7h59m")),
            (8 * 3_600_000, Some("8h")),
            (48 * 3_600_000 - 1, Some("47h")),
            (48 * 3_600_000, Some("2d")),
            (71 * 3_600_000, Some("2d23h")),
            (8 * DAY * 1000, Some("8d")),
            (2 * YEAR * 1000 - 1, Some("729d")),
            (2 * YEAR * 1000, Some("2y")),
            (2 * YEAR * 1000 + DAY * 1000, Some("2y1d")),
            (8 * YEAR * 1000 - 1, Some("7y364d")),
            (8 * YEAR * 1000 + 2 * DAY * 1000, Some("8y")),
            (291 * YEAR * 1000, None),
            (-900 * YEAR * 1000, Some("<invalid>")),
        ] {
            let since = now - SignedDuration::from_millis(milliseconds);
            assert_eq!(age(since, now).as_deref(), expected, "{milliseconds}");
        }
    }
}
