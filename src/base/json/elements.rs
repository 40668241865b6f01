//! The elements of a JSON array.

use super::{InvalidJson, members::value_end};

/// Yields the text of each element of an array, without surrounding blanks. Ends after the first error.
#[derive(Debug)]
pub struct Elements<'a> {
    /// The unread part of the text: from an element on, without the closing bracket.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The elements of the array `text`, which may be surrounded by blanks.
    pub fn of(text: &'a [u8]) -> Result<Self, InvalidJson> {
        let inside = text.trim_ascii().strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
        Ok(Self { rest: inside.ok_or(InvalidJson::expected("an array"))?.trim_ascii() })
    }

    fn read(&mut self) -> Result<&'a [u8], InvalidJson> {
        let (value, rest) = self.rest.split_at(value_end(self.rest).ok_or(InvalidJson::expected("a value"))?);
        let rest = rest.trim_ascii_start();
        self.rest = match rest.strip_prefix(b",").map(<[u8]>::trim_ascii_start) {
            None if rest.is_empty() => rest,
            Some(rest) if !rest.is_empty() => rest,
            _ => return Err(InvalidJson::expected("a comma between elements")),
        };
        Ok(value)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], InvalidJson>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = (!self.rest.is_empty()).then(|| self.read());
        if let Some(Err(_)) = element {
            self.rest = &[];
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<&str>, InvalidJson> {
        Elements::of(text.as_bytes())?.map(|element| Ok(str::from_utf8(element?).unwrap())).collect()
    }

    #[test]
    fn elements_are_the_texts_between_commas() {
        for (json, expected) in [
            ("[]", &[][..]),
            (" [ ] ", &[]),
            ("[1]", &["1"]),
            (
                r#"["a,]",{"b":[1,2]},[3,"]"],null, true ]"#,
                &[r#""a,]""#, r#"{"b":[1,2]}"#, r#"[3,"]"]"#, "null", "true"],
            ),
        ] {
            assert_eq!(read(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn other_json_than_arrays_is_refused() {
        for (json, lacks) in [
            ("{}", "an array"),
            ("[1", "an array"),
            ("[1,]", "a comma between elements"),
            ("[1 2]", "a comma between elements"),
            ("[,1]", "a value"),
            (r#"["a]"#, "a value"),
        ] {
            assert_eq!(read(json), Err(InvalidJson::expected(lacks)), "{json}");
        }
    }
}
