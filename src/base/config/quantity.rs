//! Durations and sizes as an operator writes them: `1h30m`, `100ms`, `256Mi`.

use std::time::Duration;

/// The format that [`duration`] accepts, for messages.
pub const DURATION: &str = "a duration like 100ms, 30s, 10m or 1h30m";
/// The format that [`size`] accepts, for messages.
pub const SIZE: &str = "a size in bytes like 1048576, 512Ki, 256Mi or 1Gi";

/// Parses numbers with a unit each, in any order of units. `0` needs no unit.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let length = after.find(|character: char| character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(length);
        let part = match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(60 * 60)?),
            _ => return None,
        };
        sum = sum.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

/// The shortest text that [`duration`] accepts for whole milliseconds: `10s`, `7h`.
pub(super) fn duration_text(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let units = [("h", 60 * 60 * 1_000), ("m", 60 * 1_000), ("s", 1_000)];
    match units.iter().find(|(_, unit)| milliseconds.is_multiple_of(*unit)) {
        _ if milliseconds == 0 => "0".to_owned(),
        Some((name, unit)) => format!("{}{name}", milliseconds / unit),
        None => format!("{milliseconds}ms"),
    }
}

/// A size in the largest binary unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [("Gi", 1_u64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Parses a number with a binary unit; without a unit it is in bytes.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text)?;
    let unit = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(length);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("100ms", Some(100)),
            ("5m", Some(300_000)),
            ("1h30m", Some(5_400_000)),
            ("1s500ms", Some(1_500)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("m", None),
            ("5m3", None),
            ("-5m", None),
            ("1.5h", None),
            ("5 m", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(duration(text), milliseconds.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0", "100ms", "1s", "90s", "10m", "168h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes() {
        let cases = [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("4Ki", Some(4096)),
            ("256Mi", Some(268_435_456)),
            ("1Gi", Some(1_073_741_824)),
            ("1G", None),
            ("Mi", None),
            ("", None),
            ("-1", None),
            ("18446744073709551615Gi", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
