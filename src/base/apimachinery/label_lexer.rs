//! The tokens of a label selector.

use crate::apimachinery::InvalidSelector;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A key, a value, or one of the words `in` and `notin`, depending on its position.
    Word(&'a str),
    /// `!`
    Not,
    /// `=` and `==`
    Equals,
    /// `!=`
    NotEquals,
    /// `>`
    Greater,
    /// `<`
    Less,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    End,
}

/// Splits a selector greedily: of two operators that start at the same place, the longer one is taken, so `a===b` is `a
/// == = b`.
///
/// A NUL, which would end the text for the API server, is refused.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, InvalidSelector> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(BLANKS);
    while !rest.is_empty() {
        let (token, length) = first_token(rest);
        if matches!(token, Token::Word(word) if word.contains('\0')) {
            return Err(InvalidSelector::Syntax);
        }
        found.push(token);
        rest = rest[length..].trim_start_matches(BLANKS);
    }
    found.push(Token::End);
    Ok(found)
}

/// The first token of `text` and its length. `text` must not be empty or start with a blank.
fn first_token(text: &str) -> (Token<'_>, usize) {
    const SIGNS: [(&str, Token<'static>); 9] = [
        ("==", Token::Equals),
        ("!=", Token::NotEquals),
        ("=", Token::Equals),
        ("!", Token::Not),
        (">", Token::Greater),
        ("<", Token::Less),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
    ];
    if let Some((sign, token)) = SIGNS.iter().find(|(sign, _)| text.starts_with(sign)) {
        return (token.clone(), sign.len());
    }
    let length = text.find(|c| BLANKS.contains(&c) || "=!(),><".contains(c)).unwrap_or(text.len());
    (Token::Word(&text[..length]), length)
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
