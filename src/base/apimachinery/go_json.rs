//! Strings as Go's `encoding/json` writes them, with HTML-sensitive characters escaped.

use std::io::Write;

/// Appends the quoted text.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character)).expect("writing to memory does not fail");
            }
            plain => out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_characters_are_escaped() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"\\<b>&\n\u{0}\u{1f}\u{7f}é\u{2028}");
        let expected = r#""a\"\\\u003cb\u003e\u0026\n\u0000\u001f"#.to_owned() + "\u{7f}é\\u2028\"";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
