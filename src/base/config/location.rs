//! Finds where in a file a field is.

use std::{collections::HashMap, fmt};

use granit_parser::{ErrorKind, Event, Parser, Span};

use crate::config::Problem;

/// A place in a text; line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub line: usize,
    pub column: usize,
}

/// The fields of a YAML document, by their paths (`listeners[0].tls`).
#[derive(Default)]
pub(super) struct Locations {
    fields: HashMap<String, Location>,
    /// Why the text is not YAML.
    fault: Option<Problem>,
    /// Fields that are given twice, which a configuration must not have. Fields within such a field are left out.
    repeated: Vec<Problem>,
    /// Where a second document begins, which a configuration must not have. Its fields are not among these.
    second: Option<Problem>,
}

/// A mapping or a sequence that has not ended.
enum Open {
    Mapping { path: String, key: Option<String> },
    Sequence { path: String, next: usize },
}

impl Locations {
    /// The fields of a text; if it cannot be parsed, those up to the error.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of all kinds of events, values matter, and there may be more kinds"
    )]
    pub(super) fn of(text: &str) -> Self {
        let (mut found, mut open, mut fault, mut repeated) = (HashMap::new(), Vec::new(), None, Vec::new());
        let (mut documents, mut second) = (0, None);
        for event in Parser::new_from_str(text) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    let at = Location { line: error.marker().line(), column: error.marker().col() + 1 };
                    fault = Some(Problem { at: Some(at), ..Problem::new("", &words(error.kind()), "") });
                    break;
                }
            };
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        let told = "a second YAML document begins here; a file has one";
                        second = Some(Problem { at: Some(Location::of(span)), ..Problem::new("", told, "") });
                        break;
                    }
                }
                Event::MappingEnd | Event::SequenceEnd => {
                    open.pop();
                    value_ended(&mut open);
                }
                Event::MappingStart(..) => {
                    let path = begin(&open, &mut found, span);
                    open.push(Open::Mapping { path, key: None });
                }
                Event::SequenceStart(..) => {
                    let path = begin(&open, &mut found, span);
                    open.push(Open::Sequence { path, next: 0 });
                }
                Event::Scalar(text, ..) => match open.last_mut() {
                    Some(Open::Mapping { path, key: key @ None }) => {
                        let field = member(path, &text);
                        let at = Location::of(span);
                        // The first value is the one that is checked.
                        let first = *found.entry(field.clone()).or_insert(at);
                        if first != at && !is_repeated(path, &repeated) {
                            let given = format!("given twice, first in line {}", first.line);
                            repeated.push(Problem { at: Some(at), ..Problem::new(&field, &given, "") });
                        }
                        *key = Some(text.into_owned());
                    }
                    _ => {
                        begin(&open, &mut found, span);
                        value_ended(&mut open);
                    }
                },
                Event::Alias(_) => {
                    begin(&open, &mut found, span);
                    value_ended(&mut open);
                }
                _ => {}
            }
        }
        Self { fields: found, fault, repeated, second }
    }

    /// Why the text is not one document: that there is a second one, or the first place where it is not YAML.
    pub(super) fn into_fault(self) -> Option<Problem> {
        self.second.or(self.fault)
    }

    /// The fields that are given twice.
    ///
    /// # Errors
    /// The text is not YAML.
    pub(super) fn into_repeated(self) -> Result<Vec<Problem>, Problem> {
        self.fault.map_or(Ok(self.repeated), Err)
    }

    /// The place of a field; if it is missing, that of its parent.
    pub(super) fn find(&self, field: &str) -> Option<Location> {
        let mut path = field;
        loop {
            if let Some(location) = self.fields.get(path) {
                return Some(*location);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// The path of a value that begins here. A member was already recorded with its key.
fn begin(open: &[Open], found: &mut HashMap<String, Location>, span: Span) -> String {
    match open.last() {
        None => String::new(),
        Some(Open::Mapping { path, key }) => member(path, key.as_deref().unwrap_or_default()),
        Some(Open::Sequence { path, next }) => {
            let path = format!("{path}[{next}]");
            found.insert(path.clone(), Location::of(span));
            path
        }
    }
}

/// Whether a mapping is, or is in, the value of a field that is given twice.
fn is_repeated(path: &str, repeated: &[Problem]) -> bool {
    repeated.iter().any(|problem| is_in(path, &problem.field))
}

/// Whether a field is another one, or within it.
pub(super) fn is_in(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn value_ended(open: &mut [Open]) {
    match open.last_mut() {
        Some(Open::Mapping { key, .. }) => *key = None,
        Some(Open::Sequence { next, .. }) => *next += 1,
        None => {}
    }
}

fn member(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Rewords the parser's messages for authors of a configuration.
fn words(error: &ErrorKind) -> String {
    if matches!(error, ErrorKind::ExpectedBlockMappingKey) {
        return "this line's indentation is that of no field above it, or the field lacks its `:`".to_owned();
    }
    error.to_string()
}

impl Location {
    fn of(span: Span) -> Self {
        Self { line: span.start.line(), column: span.start.col() + 1 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_every_style() {
        let text = "a: 1 # first
listeners:
  - address: x
    tls: {certFile: c, keyFile: [1, {deep: 2}]}
  - address: y
\"quoted\": {}
anchor: &one {b: 1}
alias: *one
last: |
  text
";
        let locations = Locations::of(text);
        for (field, at) in [
            ("a", Some((1, 1))),
            ("listeners", Some((2, 1))),
            ("listeners[0]", Some((3, 5))),
            ("listeners[0].address", Some((3, 5))),
            ("listeners[0].tls", Some((4, 5))),
            ("listeners[0].tls.keyFile", Some((4, 24))),
            ("listeners[0].tls.keyFile[1].deep", Some((4, 38))),
            ("listeners[1].address", Some((5, 5))),
            ("quoted", Some((6, 1))),
            ("anchor.b", Some((7, 15))),
            ("last", Some((9, 1))),
            // A missing field is at the place of its parent.
            ("listeners[1].tls.certFile", Some((5, 5))),
            ("listeners[2].address", Some((2, 1))),
            ("kind", None),
            ("--listen", None),
        ] {
            let at = at.map(|(line, column)| Location { line, column });
            assert_eq!(locations.find(field), at, "{field}");
        }
    }

    #[test]
    fn no_text_panics() {
        for text in
            ["", "[", "{a: [", "? [a]\n: b", "? {a: b}\n: [c]", "- - a", "a: b: c", "\0", "&a [*a]", "---\n---\n"]
        {
            Locations::of(text);
        }
    }
}
