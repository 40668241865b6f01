//! `?pretty=true`: compact JSON indented by two spaces, as Go's encoder does it (read-path 4.1).

/// Re-indents JSON that arrives in pieces. Reads brackets and strings only; values stay unchanged.
#[derive(Debug, Default)]
pub struct Pretty {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether a bracket was opened and nothing has followed yet: `{}` and `[]` stay together.
    opened: bool,
}

impl Pretty {
    /// The indented form of the next piece. White space between values is dropped, including a final newline.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() * 3 / 2);
        for &byte in piece {
            if self.in_string {
                self.string_byte(byte);
                out.push(byte);
            } else {
                self.structure_byte(byte, &mut out);
            }
        }
        out
    }

    fn string_byte(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn structure_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte.is_ascii_whitespace() {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        if self.opened != closes && (self.opened || closes) {
            self.line_break(out);
        }
        self.opened = matches!(byte, b'{' | b'[');
        out.push(byte);
        match byte {
            b'{' | b'[' => self.depth += 1,
            b',' => self.line_break(out),
            b':' => out.push(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn line_break(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_equals_that_of_go_for_any_pieces() {
        let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x\"{,:[\\"}],"e":null}"#;
        let indented = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\\\"{,:[\\\\\"\n    }\n  ],\n  \"e\": null\n}";
        for size in [1, 2, 7, compact.len()] {
            let mut pretty = Pretty::default();
            let pieces: Vec<u8> = compact.chunks(size).flat_map(|piece| pretty.push(piece)).collect();
            assert_eq!(String::from_utf8(pieces).expect("utf-8"), indented, "pieces of {size}");
        }
    }
}
