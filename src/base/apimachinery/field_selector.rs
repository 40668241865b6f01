//! Field selectors: the grammar of read-path 5.3.
//!
//! Labels are not validated here: which ones exist depends on the resource ([`super::selectable_fields`]).

use crate::apimachinery::InvalidSelector;

/// More requirements are costly. Operators that leave out namespaces send one for each of them.
const REQUIREMENTS_MAX: usize = 256;

/// Requirements that must all hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector(Box<[FieldRequirement]>);

/// One term: the value of a field must, or must not, equal this text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    pub field: String,
    /// `false` for `!=`.
    pub equals: bool,
    pub value: String,
}

impl FieldSelector {
    /// An estimate of the memory that the selector takes, in bytes. Allocations have multiples of 16.
    pub fn own_bytes(&self) -> usize {
        let texts =
            |term: &FieldRequirement| term.field.len().next_multiple_of(16) + term.value.len().next_multiple_of(16);
        self.0.iter().map(|term| size_of::<FieldRequirement>() + texts(term)).sum()
    }

    /// Whether evaluating it for many objects, or for each change, takes more time than a client may ask for.
    pub fn is_costly(&self) -> bool {
        self.0.len() > REQUIREMENTS_MAX
    }

    /// Empty terms are ignored. A term may have an empty label, which no resource supports: the API server authorizes
    /// the request by the other terms before it finds that out (read-path 5.3).
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let mut terms = split_terms(text);
        // The API server sorts the terms: of two required names, the smaller one becomes its key (read-path 5.2).
        terms.sort_unstable();
        let terms = terms.into_iter().filter(|term| !term.is_empty());
        terms.map(parse_term).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, which must all hold, in sorted order of their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// The value that the selector requires of the field, if it requires one. If there are several, the first.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let demand = self.0.iter().find(|requirement| requirement.equals && requirement.field == field)?;
        Some(&demand.value)
    }

    /// Whether the selector matches an object; `value` returns the object's value by field label. The caller has
    /// verified that the resource supports the labels, so `None` only means that the object lacks the field, which
    /// compares as empty (read-path 5.1).
    pub fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            (value(&requirement.field).unwrap_or_default() == requirement.value) == requirement.equals
        })
    }
}

/// Splits at each comma that is not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let at_comma = |c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    };
    text.split(at_comma).collect()
}

/// Splits at the first operator; `!=` and `==` take precedence over `=`.
fn parse_term(term: &str) -> Result<FieldRequirement, InvalidSelector> {
    let at = term.find('=').ok_or(InvalidSelector::Syntax)?;
    let (field, equals) = match term[..at].strip_suffix('!') {
        Some(field) => (field, false),
        None => (&term[..at], true),
    };
    let value = &term[at + 1..];
    let value = if equals { value.strip_prefix('=').unwrap_or(value) } else { value };
    Ok(FieldRequirement { field: field.to_owned(), equals, value: unescape(value)? })
}

/// `\\`, `\,` and `\=` stand for their second character; any other special character is refused.
fn unescape(value: &str) -> Result<String, InvalidSelector> {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                _ => return Err(InvalidSelector::Escape),
            },
            ',' | '=' => return Err(InvalidSelector::Escape),
            plain => text.push(plain),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(text: &str) -> Result<String, InvalidSelector> {
        let selector = FieldSelector::parse(text)?;
        let term =
            |term: &FieldRequirement| format!("{}{}{}", term.field, if term.equals { "=" } else { "!=" }, term.value);
        Ok(selector.requirements().iter().map(term).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn terms_are_parsed_as_the_server_does() {
        let cases = [
            ("", ""),
            (",", ""),
            ("a=b,", "a=b"),
            ("a=b,,c=d", "a=b|c=d"),
            ("a==b", "a=b"),
            ("a!=b", "a!=b"),
            ("a=", "a="),
            ("a!=", "a!="),
            ("c=d,a=b", "a=b|c=d"),
            (r"a=x\,y,b=1", "a=x,y|b=1"),
            (r"a=\\\=", r"a=\="),
            (r"a=\\,b=1", r"a=\|b=1"),
            ("a=UPPER/..", "a=UPPER/.."),
            ("a b = c ", "a b = c "),
            ("a!!=b", "a!!=b"),
            ("metadata.name=a b", "metadata.name=a b"),
            // The unknown label is only found when the labels are validated.
            ("=", "="),
            ("metadata.name=a,!=b", "!=b|metadata.name=a"),
        ];
        for (text, expected) in cases {
            assert_eq!(terms(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn terms_that_the_server_refuses_are_refused() {
        let cases = [
            ("foo", InvalidSelector::Syntax),
            ("metadata.name in (a)", InvalidSelector::Syntax),
            ("a=b,c", InvalidSelector::Syntax),
            (r"a=\", InvalidSelector::Escape),
            (r"a=\n", InvalidSelector::Escape),
            ("a=b=c", InvalidSelector::Escape),
            ("a===b", InvalidSelector::Escape),
            ("a!==b", InvalidSelector::Escape),
        ];
        for (text, error) in cases {
            assert_eq!(terms(text), Err(error), "{text}");
        }
    }

    #[test]
    fn an_absent_field_compares_as_empty() {
        let value = |field: &str| if field == "status.phase" { Some("Running") } else { None };
        let cases = [
            ("status.phase=Running", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("spec.nodeName!=x,status.phase=Running", true),
            ("spec.nodeName=x", false),
            ("", true),
        ];
        for (text, expected) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(value), expected, "{text}");
        }
    }

    #[test]
    fn selectors_with_many_requirements_are_costly() {
        let without = |count| (0..count).map(|number| format!("a!={number}")).collect::<Vec<_>>().join(",");
        let is_costly = |count| FieldSelector::parse(&without(count)).unwrap().is_costly();
        assert!(!is_costly(REQUIREMENTS_MAX) && is_costly(REQUIREMENTS_MAX + 1));
    }

    #[test]
    fn of_two_required_names_the_smaller_is_exact() {
        let selector = FieldSelector::parse("metadata.name=b,metadata.name=a,x!=1").unwrap();
        assert_eq!((selector.exact("metadata.name"), selector.exact("x")), (Some("a"), None));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "([a-z.=!,]|\\\\|\\PC){0,24}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                selector.matches(|_| None);
            }
        }
    }
}
