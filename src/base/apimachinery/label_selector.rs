//! Label selectors: the grammar of read-path 5.4.
//!
//! Accepts exactly what the API server accepts, including names and values: a selector that it would refuse must not be
//! answered. Errors contain no text for clients, since the API server words them.

use crate::apimachinery::label_lexer::{Token, tokens};
use crate::apimachinery::qualified_name::{is_label_value, is_qualified_name};
use crate::apimachinery::{InvalidSelector, Labels};

/// More requirements, or more values of `in` and `notin` in all of them, are costly. Controllers, kube-proxy and tools
/// send fewer than ten requirements. Selectors that list names, such as those of batch systems, have some hundred
/// values.
const REQUIREMENTS_MAX: usize = 64;
const VALUES_MAX: usize = 1024;

/// Requirements that must all hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector(Box<[LabelRequirement]>);

/// One term: the condition for the label with this key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    pub key: Box<str>,
    pub condition: LabelCondition,
}

/// The condition for a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LabelCondition {
    Exists,
    DoesNotExist,
    /// Sorted, without duplicates.
    In(Box<[Box<str>]>),
    /// Sorted, without duplicates. Also holds for objects without the label.
    NotIn(Box<[Box<str>]>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// An estimate of the memory that the selector takes, in bytes. Allocations have multiples of 16.
    pub fn own_bytes(&self) -> usize {
        let requirement = |requirement: &LabelRequirement| {
            let values = requirement.condition.values().iter();
            let values = values.map(|value| size_of::<Box<str>>() + value.len().next_multiple_of(16)).sum::<usize>();
            size_of::<LabelRequirement>() + requirement.key.len().next_multiple_of(16) + values
        };
        self.0.iter().map(requirement).sum()
    }

    /// Whether evaluating it for many objects, or for each change, takes more time than a client may ask for.
    pub fn is_costly(&self) -> bool {
        let values = self.0.iter().map(|requirement| requirement.condition.values().len()).sum::<usize>();
        self.0.len() > REQUIREMENTS_MAX || values > VALUES_MAX
    }

    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let mut parser = Parser { tokens: tokens(text)?, position: 0 };
        let mut requirements = Vec::new();
        let mut more = *parser.peek() != Token::End;
        while more {
            requirements.push(parser.requirement()?);
            // A comma requires another requirement; if there is none, the next iteration refuses the selector.
            more = parser.continues()?;
        }
        Ok(Self(requirements.into()))
    }

    /// The selector as it is sent to authorizers (read-path 8.3): ordered by key, terms with the same key in the order
    /// of the text, and without comparisons of numbers.
    #[must_use]
    pub fn as_authorized(self) -> Self {
        let mut told = self.0.into_vec();
        told.retain(|term| !matches!(term.condition, LabelCondition::GreaterThan(_) | LabelCondition::LessThan(_)));
        told.sort_by(|one, other| one.key.cmp(&other.key));
        Self(told.into())
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, which must all hold, in the order of the text.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.0
    }

    /// Whether all terms hold for an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.condition.holds(labels.get(&requirement.key)))
    }
}

impl LabelCondition {
    /// The values of `in` and `notin`.
    fn values(&self) -> &[Box<str>] {
        match self {
            Self::In(values) | Self::NotIn(values) => values,
            Self::Exists | Self::DoesNotExist | Self::GreaterThan(_) | Self::LessThan(_) => &[],
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Box<str>]| {
            value.is_some_and(|value| values.binary_search_by(|wanted| (**wanted).cmp(value)).is_ok())
        };
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::GreaterThan(limit) => number().is_some_and(|number| number > *limit),
            Self::LessThan(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

/// Follows the API server's recursive-descent parser, with one token of look-ahead.
struct Parser<'a> {
    /// The last one is `Token::End`.
    tokens: Vec<Token<'a>>,
    position: usize,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "any other token is a syntax error, a new one too")]
impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    /// Called after a requirement: whether another one follows.
    fn continues(&mut self) -> Result<bool, InvalidSelector> {
        match self.next() {
            Token::End => Ok(false),
            Token::Comma => Ok(true),
            _ => Err(InvalidSelector::Syntax),
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, InvalidSelector> {
        let negated = *self.peek() == Token::Not;
        if negated {
            self.next();
        }
        let Token::Word(key) = self.next() else { return Err(InvalidSelector::Syntax) };
        if !is_qualified_name(key) {
            return Err(InvalidSelector::Key);
        }
        let condition = match self.peek() {
            // The token after a negated key is checked by the caller, which requires a comma or the end.
            _ if negated => LabelCondition::DoesNotExist,
            Token::End | Token::Comma => LabelCondition::Exists,
            _ => self.condition()?,
        };
        Ok(LabelRequirement { key: key.into(), condition })
    }

    fn condition(&mut self) -> Result<LabelCondition, InvalidSelector> {
        match self.next() {
            Token::Equals => Ok(LabelCondition::In([self.single_value()?.into()].into())),
            Token::NotEquals => Ok(LabelCondition::NotIn([self.single_value()?.into()].into())),
            Token::Word("in") => Ok(LabelCondition::In(self.values()?)),
            Token::Word("notin") => Ok(LabelCondition::NotIn(self.values()?)),
            Token::Greater => self.number().map(LabelCondition::GreaterThan),
            Token::Less => self.number().map(LabelCondition::LessThan),
            _ => Err(InvalidSelector::Syntax),
        }
    }

    /// A missing value before a comma or the end is the empty value.
    fn single_value(&mut self) -> Result<&'a str, InvalidSelector> {
        match *self.peek() {
            Token::End | Token::Comma => Ok(""),
            Token::Word(value) => {
                self.next();
                valid_value(value)
            }
            _ => Err(InvalidSelector::Syntax),
        }
    }

    fn number(&mut self) -> Result<i64, InvalidSelector> {
        self.single_value()?.parse().map_err(|_| InvalidSelector::Value)
    }

    /// Parses `(a,b)`. A missing value is the empty value, within the limits of the API server's own parser: it accepts
    /// `(,)` and `(a,,b)` but not `(a,,)`.
    fn values(&mut self) -> Result<Box<[Box<str>]>, InvalidSelector> {
        if self.next() != Token::Open {
            return Err(InvalidSelector::Syntax);
        }
        let mut values: Vec<Box<str>> = Vec::new();
        if *self.peek() == Token::Close {
            values.push("".into());
        }
        while *self.peek() != Token::Close {
            match self.next() {
                Token::Word(value) => {
                    values.push(valid_value(value)?.into());
                    if !matches!(self.peek(), Token::Comma | Token::Close) {
                        return Err(InvalidSelector::Syntax);
                    }
                }
                Token::Comma => self.empty_places(&mut values)?,
                _ => return Err(InvalidSelector::Syntax),
            }
        }
        self.next();
        values.sort_unstable();
        values.dedup();
        Ok(values.into())
    }

    /// Called after a comma within parentheses.
    fn empty_places(&mut self, values: &mut Vec<Box<str>>) -> Result<(), InvalidSelector> {
        if values.is_empty() {
            values.push("".into());
        }
        match self.peek() {
            Token::Close => values.push("".into()),
            Token::Comma => {
                self.next();
                values.push("".into());
                if *self.peek() == Token::Close {
                    return Err(InvalidSelector::Syntax);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn valid_value(value: &str) -> Result<&str, InvalidSelector> {
    if is_label_value(value) { Ok(value) } else { Err(InvalidSelector::Value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(text: &str) -> Labels {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        pairs.filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
    }

    #[test]
    fn selectors_match_as_the_server_does() {
        let cases = [
            ("", "a=1", true),
            ("  ", "a=1", true),
            ("a", "a=1", true),
            ("a", "b=1", false),
            ("!a", "b=1", true),
            ("! a", "a=1", false),
            ("a=1", "a=1", true),
            ("a==1", "a=2", false),
            ("a = 1 , b=2", "a=1,b=2", true),
            ("a=1,b=2", "a=1", false),
            ("a!=1", "b=2", true),
            ("a!=1", "a=1", false),
            ("a=", "a=", true),
            ("a=", "b=1", false),
            ("a=,b", "a=,b=1", true),
            ("a!=", "a=", false),
            ("a in (1,2)", "a=2", true),
            ("a in(1)", "a=3", false),
            ("a in ()", "a=", true),
            ("a in ()", "a=1", false),
            ("a in (,1)", "a=", true),
            ("a in (1,)", "a=", true),
            ("a in (1,,2)", "a=", true),
            ("a in (,)", "a=", true),
            ("a in (,,1)", "a=1", true),
            ("a notin (1)", "b=1", true),
            ("a notin (1,2)", "a=2", false),
            ("in in (in,notin)", "in=notin", true),
            ("notin", "notin=1", true),
            ("a=in", "a=in", true),
            ("a>1", "a=2", true),
            ("a>1", "a=1", false),
            ("a<5", "a=4", true),
            ("a<5", "b=4", false),
            ("a>1", "a=x", false),
            ("a > 05", "a=6", true),
            ("example.com/app_x.y=Web-1", "example.com/app_x.y=Web-1", true),
            ("a\tin\n(1)", "a=1", true),
        ];
        for (selector, object, expected) in cases {
            assert_eq!(
                LabelSelector::parse(selector).unwrap().matches(&labels(object)),
                expected,
                "{selector} on {object}"
            );
        }
        assert!(LabelSelector::parse("").unwrap().is_empty());
        assert_eq!(LabelSelector::parse("a in (2,1,1)"), LabelSelector::parse("a in (1,2)"));
    }

    #[test]
    fn values_are_found_wherever_they_are() {
        let values: Vec<_> = (0..300).map(|number| format!("v{number}")).collect();
        let [among, not_among] = ["in", "notin"]
            .map(|operator| LabelSelector::parse(&format!("a {operator} ({})", values.join(","))).unwrap());
        for (value, is_listed) in values.iter().map(|value| (&**value, true)).chain([("v300", false), ("", false)]) {
            let object = labels(&format!("a={value}"));
            assert_eq!((among.matches(&object), not_among.matches(&object)), (is_listed, !is_listed), "{value}");
        }
    }

    #[test]
    fn selectors_with_many_requirements_or_values_are_costly() {
        let absent = |count| (0..count).map(|number| format!("!k{number}")).collect::<Vec<_>>().join(",");
        let among = |count| (0..count).map(|number| format!("v{number}")).collect::<Vec<_>>().join(",");
        let is_costly = |text: &str| LabelSelector::parse(text).unwrap().is_costly();
        assert!(!is_costly(&absent(REQUIREMENTS_MAX)) && is_costly(&absent(REQUIREMENTS_MAX + 1)));
        let [half, rest] = [among(VALUES_MAX / 2), among(VALUES_MAX / 2 + 1)];
        assert!(!is_costly(&format!("a in ({half}),b notin ({half})")));
        assert!(is_costly(&format!("a in ({half}),b notin ({rest})")));
    }

    #[test]
    fn selectors_that_the_server_refuses_are_refused() {
        let long = "x".repeat(64);
        let cases = [
            "a===b",
            "a in",
            "!!",
            "!",
            "!!a",
            "!a=b",
            "=",
            "=a",
            ",",
            "a,",
            ",a",
            "a,,b",
            "a b",
            "a in (1",
            "a in 1",
            "a in (1 2)",
            "a in (1,,)",
            "a in ((1))",
            "a in (1),",
            "a in (=)",
            "a=b=c",
            "a=!b",
            "a=(b)",
            "a)",
            "(a)",
            "-bad=x",
            "bad-=x",
            "/a",
            "a/",
            "a/b/c",
            "Example.com/a",
            "a_b/c",
            "a..b/c",
            "a=-bad-",
            "a=b/c",
            "a=é",
            "é",
            "a in (-x)",
            "a>x",
            "a>",
            "a<1.5",
            "a>-1",
            "a>9223372036854775808",
            "a>1>2",
            "a\0b",
            "a=b\0",
            "a=b;c",
            "a\u{a0}=b",
            &format!("{long}=a"),
            &format!("a={long}"),
            &format!("{}/a", "x".repeat(254)),
        ];
        for selector in cases {
            assert!(LabelSelector::parse(selector).is_err(), "{selector:?}");
        }
        assert!(LabelSelector::parse(&format!("{}/{}={}", "x".repeat(253), &long[1..], &long[1..])).is_ok());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "([a-z0-9!=<>(),\\-./ ]|in|notin|\\PC){0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                selector.matches(&labels("a=1,b=2"));
            }
        }
    }
}
