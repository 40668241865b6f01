//! One cell: the output of apiextensions-apiserver for a value in a column of some type.
//!
//! Upstream writes an object and its cells with the same encoder, so strings are copied unchanged. For numbers it
//! matters whether upstream holds them as integers or as floating-point numbers, which their text shows only in part:
//! defaults and conversions can turn 1000000 into either. If this makes a difference, the cell is not printed.

use jiff::Timestamp;

use super::{Kind, Unprintable};
use base::{
    apimachinery::{age, write_string},
    json::text,
};

/// From here on, Go prints floating-point numbers with an exponent, but integers without.
const WITH_EXPONENT: f64 = 1e6;
/// Below this value, Go prints floating-point numbers with an exponent, too.
const WITH_NEGATIVE_EXPONENT: f64 = 1e-4;
/// All integers up to this absolute value are exact as floating-point numbers.
const EXACT_MAX: i64 = 1 << 53;

/// Appends the cell for the first value at a column's path.
pub(super) fn put(kind: Kind, value: Option<&[u8]>, now: Timestamp, out: &mut Vec<u8>) -> Result<(), Unprintable> {
    let nothing = b"null";
    let Some(value) = value else {
        out.extend_from_slice(nothing);
        return Ok(());
    };
    match (kind, value) {
        (Kind::Text, value) => put_printed(value, out)?,
        (Kind::Boolean, b"true" | b"false") | (_, b"null") => out.extend_from_slice(value),
        (Kind::Integer, [b'-' | b'0'..=b'9', ..]) => out.extend_from_slice(integer(value)?.to_string().as_bytes()),
        (Kind::Number, [b'-' | b'0'..=b'9', ..]) => put_number(value, out)?,
        (Kind::Date, [b'"', ..]) => {
            let time = text(value).map_err(|_| Unprintable)?;
            write_string(out, &date(&time, now)?);
        }
        _ => out.extend_from_slice(nothing),
    }
    Ok(())
}

/// Appends a value as client-go prints a result.
fn put_printed(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unprintable> {
    match value {
        [b'"', ..] => out.extend_from_slice(value),
        b"null" => write_string(out, "<no value>"),
        [b'{' | b'[', ..] => write_string(out, str::from_utf8(value).map_err(|_| Unprintable)?),
        b"true" => write_string(out, "true"),
        b"false" => write_string(out, "false"),
        number => {
            let number = str::from_utf8(number).map_err(|_| Unprintable)?;
            let size = number.parse::<f64>().map_err(|_| Unprintable)?.abs();
            let is_plain = number == "0" || (WITH_NEGATIVE_EXPONENT..WITH_EXPONENT).contains(&size);
            if !is_plain || number.contains(['e', 'E']) {
                return Err(Unprintable);
            }
            write_string(out, number);
        }
    }
    Ok(())
}

/// The number without its fraction.
fn integer(value: &[u8]) -> Result<i64, Unprintable> {
    let number = str::from_utf8(value).map_err(|_| Unprintable)?;
    if let Ok(integer) = number.parse() {
        return Ok(integer);
    }
    let size = number.parse::<f64>().map_err(|_| Unprintable)?.abs();
    match number.split_once('.') {
        _ if size < 1.0 => Ok(0),
        Some((whole, fraction)) if fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
            whole.parse().map_err(|_| Unprintable)
        }
        // Beyond 64 bits the result depends on the processor.
        _ => Err(Unprintable),
    }
}

/// Appends a number as a floating-point number. If the object holds it as one, too, it is written in the same way.
fn put_number(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unprintable> {
    let number = str::from_utf8(value).map_err(|_| Unprintable)?;
    let is_exact = number.parse::<i64>().map_or(true, |integer| (-EXACT_MAX..=EXACT_MAX).contains(&integer));
    if !is_exact || number == "-0" {
        return Err(Unprintable);
    }
    out.extend_from_slice(value);
    Ok(())
}

/// The age of a time.
pub(super) fn date(time: &str, now: Timestamp) -> Result<String, Unprintable> {
    match time.as_bytes() {
        // Older clients write a time that was never set in this way.
        b"" | b"null" => return Ok("<unknown>".to_owned()),
        time if !begins_with_year(time) => return Ok("<invalid>".to_owned()),
        _ => {}
    }
    age(moment(time)?, now).ok_or(Unprintable)
}

/// A time that is plainly RFC 3339. Go takes some that are not quite.
pub(super) fn moment(time: &str) -> Result<Timestamp, Unprintable> {
    let parsed = is_plain_time(time.as_bytes()).then(|| time.parse().ok());
    parsed.flatten().ok_or(Unprintable)
}

/// Whether Go continues to parse the time: a text with another beginning is invalid.
fn begins_with_year(time: &[u8]) -> bool {
    time.split_at_checked(4).is_some_and(|(year, rest)| year.iter().all(u8::is_ascii_digit) && rest.starts_with(b"-"))
}

/// Whether the time has the form `2006-01-02T15:04:05Z`, with or without a fraction, in UTC or another zone.
fn is_plain_time(time: &[u8]) -> bool {
    let is_like = |text: &[u8], form: &[u8]| {
        let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
        text.len() == form.len() && text.iter().zip(form).all(fits)
    };
    const SECONDS: &[u8] = b"0000-00-00T00:00:00";
    let Some((whole, rest)) = time.split_at_checked(SECONDS.len()) else { return false };
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
    };
    // Go accepts no offsets beyond these hours.
    let is_zone = |zone: &[u8]| (is_like(zone, b"+00:00") || is_like(zone, b"-00:00")) && zone.get(1..3) < Some(b"24");
    // Go does not accept leap seconds.
    is_like(whole, SECONDS) && !whole.ends_with(b"60") && (rest == b"Z" || is_zone(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(kind: Kind, value: &str) -> Option<String> {
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        let mut out = Vec::new();
        put(kind, Some(value.as_bytes()), now, &mut out).ok()?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn string_columns_print_any_value() {
        for (value, expected) in [
            (r#""a\u003cb""#, Some(r#""a\u003cb""#)),
            ("true", Some(r#""true""#)),
            ("null", Some(r#""\u003cno value\u003e""#)),
            ("0", Some(r#""0""#)),
            ("-999999", Some(r#""-999999""#)),
            ("999999.5", Some(r#""999999.5""#)),
            ("0.0001", Some(r#""0.0001""#)),
            ("1000000", None),
            ("-1234567.5", None),
            ("0.00009", None),
            ("1e-7", None),
            ("-0", None),
            (r#"{"a":["\u003c\"x\n"]}"#, Some(r#""{\"a\":[\"\\u003c\\\"x\\n\"]}""#)),
            ("[]", Some(r#""[]""#)),
        ] {
            assert_eq!(printed(Kind::Text, value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn numbers_are_printed_if_integers_and_floats_look_the_same() {
        for (value, integer, number) in [
            ("7", Some("7"), Some("7")),
            ("-7", Some("-7"), Some("-7")),
            ("1.9", Some("1"), Some("1.9")),
            ("-1.9", Some("-1"), Some("-1.9")),
            ("1e-7", Some("0"), Some("1e-7")),
            ("9007199254740992", Some("9007199254740992"), Some("9007199254740992")),
            ("9007199254740993", Some("9007199254740993"), None),
            ("10000000000000000000", None, Some("10000000000000000000")),
            ("1e+21", None, Some("1e+21")),
            ("-0", Some("0"), None),
            (r#""7""#, Some("null"), Some("null")),
            ("true", Some("null"), Some("null")),
            ("null", Some("null"), Some("null")),
            ("{}", Some("null"), Some("null")),
        ] {
            assert_eq!(printed(Kind::Integer, value).as_deref(), integer, "{value}");
            assert_eq!(printed(Kind::Number, value).as_deref(), number, "{value}");
        }
    }

    #[test]
    fn only_booleans_are_printed_as_such() {
        for (value, expected) in [("true", "true"), ("false", "false"), (r#""true""#, "null"), ("1", "null")] {
            assert_eq!(printed(Kind::Boolean, value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn dates_are_printed_as_ages() {
        for (value, expected) in [
            (r#""2026-01-09T23:58:01Z""#, Some(r#""119s""#)),
            (r#""2026-01-09T23:58:01.5Z""#, Some(r#""118s""#)),
            (r#""2026-01-10T01:00:00+01:30""#, Some(r#""30m""#)),
            // Go does not accept this offset.
            (r#""2026-01-10T01:00:00+25:00""#, None),
            (r#""2027-01-09T23:58:01Z""#, Some(r#""\u003cinvalid\u003e""#)),
            (r#""soon""#, Some(r#""\u003cinvalid\u003e""#)),
            (r#""""#, Some(r#""\u003cunknown\u003e""#)),
            (r#""null""#, Some(r#""\u003cunknown\u003e""#)),
            ("null", Some("null")),
            ("5", Some("null")),
            (r#""2026""#, Some(r#""\u003cinvalid\u003e""#)),
            (r#""1.5""#, Some(r#""\u003cinvalid\u003e""#)),
            (r#""20260109-""#, Some(r#""\u003cinvalid\u003e""#)),
            (r#""2026-""#, None),
            (r#""2026-01-09""#, None),
            (r#""2026-01-09T3:58:01Z""#, None),
            (r#""2026-01-09T23:58:60Z""#, None),
            (r#""2026-02-30T00:00:00Z""#, None),
            (r#""2026-01-09T23:58:01,5Z""#, None),
            (r#""2026-01-09T23:58:01.Z""#, None),
            (r#""2026-01-09t23:58:01z""#, None),
            (r#""0001-01-01T00:00:00Z""#, None),
        ] {
            assert_eq!(printed(Kind::Date, value).as_deref(), expected, "{value}");
        }
    }
}
