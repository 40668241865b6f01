//! Numbers in a readable form.

use std::time::Duration;

/// With commas: `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits and a unit of thousands: `75.6 MB`.
pub(super) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{number} B") } else { format!("{} {unit}", three_digits(value)) };
        }
        value /= 1000.0;
    }
    format!("{} PB", three_digits(value))
}

fn three_digits(value: f64) -> String {
    let places = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.places$}")
}

/// The two largest units: `3 d 4 h`, `12 min`, `45 s`.
pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let pair = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..600 => pair(minutes, "min", seconds % 60, "s"),
        600..3_600 => format!("{minutes} min"),
        3_600..86_400 => pair(hours, "h", minutes, "min"),
        _ => pair(days, "d", hours, "h"),
    }
}

/// Seconds with one decimal while it matters: `0.4 s`; longer spans as [`duration`].
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs())
}

/// One decimal, rounded down, so that only a full ratio is 100.
pub(super) fn percent(ratio: Option<f64>) -> String {
    match ratio {
        None => "–".to_owned(),
        Some(1.0) => "100 %".to_owned(),
        Some(ratio) => format!("{:.1} %", (ratio * 1000.0).floor() / 10.0),
    }
}

/// A rate per second.
pub(super) fn rate(per_second: f64) -> String {
    if per_second < 0.05 { "0".to_owned() } else { three_digits_of_count(per_second) }
}

fn three_digits_of_count(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Text from clients for a terminal: control characters and invisible ones are escaped.
pub(super) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            printable.extend(letter.escape_unicode());
        } else {
            printable.push(letter);
        }
    }
    printable
}

/// Characters that change the order or the look of the text around them.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0, 999, 1_000, 75_640_000, 999_999, 1_500_000_000_000_000_000];
        assert_eq!(sizes.map(bytes), ["0 B", "999 B", "1.00 kB", "75.6 MB", "1.00 MB", "1500 PB"]);
        let times = [0, 59, 60, 61, 599, 600, 3_600, 90_000, 86_400];
        let words = ["0 s", "59 s", "1 min", "1 min 1 s", "9 min 59 s", "10 min", "1 h", "1 d 1 h", "1 d"];
        assert_eq!(times.map(duration), words);
        assert_eq!([0.04, 9.94, 59.0].map(seconds), ["0.0 s", "9.9 s", "59 s"]);
        let ratios = [None, Some(1.0), Some(0.999_99), Some(0.5)].map(percent);
        assert_eq!(ratios, ["–", "100 %", "99.9 %", "50.0 %"]);
        assert_eq!([0.0, 0.21, 240.4].map(rate), ["0", "0.2", "240"]);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}c\u{202e}d\n"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d\\u{a}");
    }
}
