//! The query of a request, decoded as Go's `url.ParseQuery` does.
//!
//! Anything that Go would drop or reject is an error here, so that such a request is forwarded.

use std::borrow::Cow;

/// Decoded query parameters in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Why a query, or one value in it, cannot be parsed with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuery {
    #[error("the query has an invalid percent escape")]
    Escape,
    #[error("the query contains a semicolon")]
    Semicolon,
    #[error("the query is not UTF-8")]
    Utf8,
    #[error("{0} is not a 64-bit integer")]
    Integer(&'static str),
    #[error("{0} is not plain ASCII")]
    Flag(&'static str),
    #[error("{0} is not a positive duration")]
    Duration(&'static str),
}

impl<'a> Query<'a> {
    pub fn parse(query: Option<&'a str>) -> Result<Self, InvalidQuery> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(decode_pair).collect::<Result<_, _>>().map(Self)
    }

    /// The first value of a parameter: later ones are ignored (read-path 4.4).
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The value of a parameter for which an empty value means the same as none.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// `0` and any spelling of `false` are false; everything else is true, even an empty value (read-path 4.4).
    ///
    /// Go folds case by Unicode, so a value that is not ASCII is refused.
    pub fn flag(&self, name: &'static str) -> Result<Option<bool>, InvalidQuery> {
        match self.first(name) {
            None => Ok(None),
            Some(value) if !value.is_ascii() => Err(InvalidQuery::Flag(name)),
            Some(value) => Ok(Some(value != "0" && !value.eq_ignore_ascii_case("false"))),
        }
    }

    /// A decimal number as Go's `ParseInt` reads it; an empty value is an error.
    pub fn integer(&self, name: &'static str) -> Result<Option<i64>, InvalidQuery> {
        self.first(name).map(|value| value.parse().map_err(|_| InvalidQuery::Integer(name))).transpose()
    }
}

fn decode_pair(pair: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), InvalidQuery> {
    if pair.contains(';') {
        return Err(InvalidQuery::Semicolon);
    }
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    Ok((decode(key)?, decode(value)?))
}

fn decode(text: &str) -> Result<Cow<'_, str>, InvalidQuery> {
    if !text.contains(['+', '%']) {
        return Ok(Cow::Borrowed(text));
    }
    let decoded = percent_decode(&text.replace('+', " ")).ok_or(InvalidQuery::Escape)?;
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| InvalidQuery::Utf8)
}

/// Resolves `%XX`; `None` for a malformed escape.
pub(super) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            decoded.push(hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_the_first_value_wins() {
        let query = Query::parse(Some("a=1&a=2&&b=x+y%2Bz%3D&c&=e&d=p=q")).unwrap();
        let values = ["a", "b", "c", "", "d", "missing"].map(|name| query.first(name));
        assert_eq!(values, [Some("1"), Some("x y+z="), Some(""), Some("e"), Some("p=q"), None]);
        assert_eq!(query.text("c"), None);
    }

    #[test]
    fn parameters_that_go_would_drop_are_errors() {
        let cases = [
            ("a=%", InvalidQuery::Escape),
            ("a=%4", InvalidQuery::Escape),
            ("%zz=1", InvalidQuery::Escape),
            ("a=%+1", InvalidQuery::Escape),
            ("a=1;b=2", InvalidQuery::Semicolon),
            ("a=%ff", InvalidQuery::Utf8),
        ];
        for (text, error) in cases {
            assert_eq!(Query::parse(Some(text)), Err(error), "{text}");
        }
    }

    #[test]
    fn flags_are_true_unless_the_value_is_false() {
        let cases = [("w=0", false), ("w=false", false), ("w=FaLse", false), ("w", true), ("w=", true), ("w=no", true)];
        for (text, expected) in cases {
            assert_eq!(Query::parse(Some(text)).unwrap().flag("w"), Ok(Some(expected)), "{text}");
        }
        assert_eq!(Query::parse(None).unwrap().flag("w"), Ok(None));
        assert_eq!(Query::parse(Some("w=fal%C5%BFe")).unwrap().flag("w"), Err(InvalidQuery::Flag("w")));
    }

    #[test]
    fn integers_have_64_bits() {
        let value = |text| Query::parse(Some(text)).unwrap().integer("n");
        assert_eq!(value("n=-5"), Ok(Some(-5)));
        assert_eq!(value("m=1"), Ok(None));
        for text in ["n", "n=", "n=abc", "n=1.0", "n=+1", "n=9223372036854775808"] {
            assert_eq!(value(text), Err(InvalidQuery::Integer("n")), "{text}");
        }
    }
}
