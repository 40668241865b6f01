//! JSON text as Go's encoder writes it: HTML characters are escaped, and indentation is two blanks.

use std::io;

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// Compact JSON without a newline at the end.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    encode_into(value, &mut text);
    text
}

pub(crate) fn encode_into(value: &impl Serialize, text: &mut Vec<u8>) {
    value
        .serialize(&mut Serializer::with_formatter(text, GoStrings))
        .expect("JSON values have string keys and a vector takes every write");
}

/// Indents compact JSON as `?pretty=1` does.
pub(crate) fn indent(compact: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut bytes = compact.iter().copied().peekable();
    let newline = |text: &mut Vec<u8>, depth: usize| {
        text.push(b'\n');
        text.extend(std::iter::repeat_n(b' ', 2 * depth));
    };
    while let Some(byte) = bytes.next() {
        if in_string {
            text.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                text.push(byte);
                if matches!(bytes.peek(), Some(b'}' | b']')) {
                    text.extend(bytes.next());
                } else {
                    depth += 1;
                    newline(&mut text, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                newline(&mut text, depth);
                text.push(byte);
            }
            b',' => {
                text.push(byte);
                newline(&mut text, depth);
            }
            b':' => text.extend(b": "),
            _ => {
                in_string = byte == b'"';
                text.push(byte);
            }
        }
    }
    text
}

struct GoStrings;

impl Formatter for GoStrings {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            let character = special.chars().next().unwrap_or_default();
            write!(writer, "{plain}\\u{:04x}", u32::from(character))?;
            rest = &special[character.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_of_html_and_line_separators_are_escaped() {
        let text = encode(&json!({"a": "<é&>\u{2028}\"\\\n"}));
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"a":"\u003cé\u0026\u003e\u2028\"\\\n"}"#);
    }

    #[test]
    fn indenting_keeps_strings_and_empty_values() {
        let text = indent(br#"{"a":{},"b":["x,y:{\"",1],"c":[]}"#);
        let expected = "{\n  \"a\": {},\n  \"b\": [\n    \"x,y:{\\\"\",\n    1\n  ],\n  \"c\": []\n}";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
