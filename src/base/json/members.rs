//! The members of a JSON object.

use std::borrow::Cow;

use memchr::memchr2;

use super::{Brackets, Nesting};

/// A text is not the JSON that was expected; names what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct InvalidJson(&'static str);

impl InvalidJson {
    pub(super) const fn expected(what: &'static str) -> Self {
        Self(what)
    }
}

/// Yields each member of an object: its name, and the text of its value without surrounding blanks. Ends after the
/// first error.
#[derive(Debug)]
pub struct Members<'a> {
    /// The unread part of the text: from a member's name on, without the closing brace.
    rest: &'a [u8],
}

impl<'a> Members<'a> {
    /// The members of the object `text`, which may be surrounded by blanks.
    pub fn of(text: &'a [u8]) -> Result<Self, InvalidJson> {
        let inside = text.trim_ascii().strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}"));
        Ok(Self { rest: inside.ok_or(InvalidJson("an object"))?.trim_ascii() })
    }

    /// The members of an object without its opening brace, and possibly without its first members.
    pub fn behind_opening(text: &'a [u8]) -> Result<Self, InvalidJson> {
        let inside = text.trim_ascii().strip_suffix(b"}");
        Ok(Self { rest: inside.ok_or(InvalidJson("an object"))?.trim_ascii() })
    }

    fn read(&mut self) -> Result<(Cow<'a, str>, &'a [u8]), InvalidJson> {
        let (name, rest) = self.rest.split_at(string_end(self.rest).ok_or(InvalidJson("a member's name"))?);
        let rest = rest.trim_ascii_start().strip_prefix(b":").ok_or(InvalidJson("a colon"))?.trim_ascii_start();
        let (value, rest) = rest.split_at(value_end(rest).ok_or(InvalidJson("a value"))?);
        let rest = rest.trim_ascii_start();
        self.rest = match rest.strip_prefix(b",").map(<[u8]>::trim_ascii_start) {
            None if rest.is_empty() => rest,
            Some(rest) if !rest.is_empty() => rest,
            _ => return Err(InvalidJson("a comma between members")),
        };
        Ok((text(name)?, value))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<(Cow<'a, str>, &'a [u8]), InvalidJson>;

    fn next(&mut self) -> Option<Self::Item> {
        let member = (!self.rest.is_empty()).then(|| self.read());
        if let Some(Err(_)) = member {
            self.rest = &[];
        }
        member
    }
}

/// Decodes the JSON string `value`.
pub fn text(value: &[u8]) -> Result<Cow<'_, str>, InvalidJson> {
    let invalid = InvalidJson("a string");
    let plain = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).ok_or(invalid)?;
    if memchr2(b'"', b'\\', plain).is_some() {
        return serde_json::from_slice(value).map(Cow::Owned).map_err(|_| invalid);
    }
    std::str::from_utf8(plain).map(Cow::Borrowed).map_err(|_| invalid)
}

/// The index after the value at the start of `text`.
pub(super) fn value_end(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'{' => Nesting::default().end(text, Brackets::CURLY),
        b'[' => Nesting::default().end(text, Brackets::SQUARE),
        b'"' => string_end(text),
        _ => {
            let is_over = |byte: &u8| {
                matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']') || byte.is_ascii_whitespace()
            };
            Some(text.iter().position(is_over).unwrap_or(text.len())).filter(|end| *end > 0)
        }
    }
}

/// The index after the string at the start of `text`.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = text.starts_with(b"\"").then_some(1)?;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, value::RawValue};

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let text = r#"[a{}\[\]",:\\\n\u{e4}\u{1f600}]{0,70}"#;
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 60, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::hash_map(text, inner, 0..8).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn read(text: &[u8]) -> Result<BTreeMap<String, String>, InvalidJson> {
        let owned =
            |(name, value): (Cow<'_, str>, &[u8])| (name.into_owned(), String::from_utf8(value.to_vec()).unwrap());
        Members::of(text)?.map(|member| member.map(owned)).collect()
    }

    proptest! {
        #[test]
        fn members_equal_those_of_serde_json(
            object in prop::collection::hash_map(".*", value(), 0..6),
            is_pretty: bool,
        ) {
            let write = if is_pretty { serde_json::to_vec_pretty } else { serde_json::to_vec };
            let text = write(&object).unwrap();
            let expected: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&text).unwrap();
            let expected = expected.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect();
            prop_assert_eq!(read(&text), Ok(expected));
        }

        #[test]
        fn valid_objects_are_read_and_no_text_panics(text in r#"[ {}\[\]",:\\1a]{0,12}"#) {
            let json = format!("{{{text}}}");
            let expected = serde_json::from_str::<BTreeMap<String, &RawValue>>(&json);
            let found = read(json.as_bytes());
            if let Ok(expected) = expected {
                prop_assert_eq!(found.map(|found| found.len()), Ok(expected.len()));
            }
        }
    }

    #[test]
    fn members_are_found_behind_an_opening() {
        let names = |text: &'static str| -> Vec<_> {
            Members::behind_opening(text.as_bytes()).unwrap().map(|member| member.unwrap().0).collect()
        };
        assert_eq!(names(r#""a":{"b":1}, "c":[]}"#), ["a", "c"]);
        assert_eq!(names("} "), [""; 0]);
        assert_eq!(Members::behind_opening(br#""a":1"#).unwrap_err(), InvalidJson("an object"));
    }

    #[test]
    fn other_json_than_objects_is_refused() {
        for (json, lacks) in [
            ("", "an object"),
            ("[]", "an object"),
            ("{", "an object"),
            (r#"{"a":1}x"#, "an object"),
            (r#"{"a":1}}"#, "a comma between members"),
            (r#"{"a":{}"#, "a value"),
            ("{a:1}", "a member's name"),
            (r#"{"a}"#, "a member's name"),
            (r#"{"a"1}"#, "a colon"),
            (r#"{"a":}"#, "a value"),
            (r#"{"a":,"b":1}"#, "a value"),
            (r#"{"a":"\"}"#, "a value"),
            (r#"{"a":1 "b":2}"#, "a comma between members"),
            (r#"{"a":1,}"#, "a comma between members"),
            (r#"{"\x":1}"#, "a string"),
        ] {
            assert_eq!(read(json.as_bytes()), Err(InvalidJson(lacks)), "{json}");
        }
        for value in ["", "\"", "1", "\"a", "\"\\\"", "\"a\"b\""] {
            assert_eq!(text(value.as_bytes()), Err(InvalidJson("a string")), "{value}");
        }
    }
}
