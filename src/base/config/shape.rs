//! Reads a document in which some values have the wrong shape, like a text in place of a list, so that all of its
//! problems can be reported at once.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};
use serde_saphyr::DuplicateKeyPolicy;

use crate::config::Problem;
use crate::config::location::{Locations, is_in};

/// What a place needs in place of a value of the wrong shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    List,
    Fields,
    Single,
}

/// What is wrong with a value, in words for authors of a document.
pub(super) struct Misshapen {
    pub(super) found: &'static str,
    pub(super) needed: Shape,
}

/// The words of the parsers (of YAML, and of a tree of values) for a value of the wrong shape, the more special first.
const WORDS: &[(&str, &str, Shape)] = &[
    ("expected sequence start", "this is not a list", Shape::List),
    ("expected a sequence", "this is not a list", Shape::List),
    ("expected mapping start", "this has no fields", Shape::Fields),
    ("expected struct", "this has no fields", Shape::Fields),
    ("invalid type: sequence", "a list was given", Shape::Single),
    ("invalid type: map", "a mapping was given", Shape::Single),
    ("invalid type: unit value", "nothing was given", Shape::Single),
    ("invalid type: null", "nothing was given", Shape::Single),
];

impl Misshapen {
    /// What a parser's error says; `None` if it is about something else.
    pub(super) fn of(error: &str) -> Option<Self> {
        let (_, found, needed) = WORDS.iter().find(|(words, ..)| error.contains(words))?;
        Some(Self { found, needed: *needed })
    }

    /// `form` is what is allowed there, if that is known.
    pub(super) fn problem(&self, field: &str, form: Option<String>) -> Problem {
        let allowed = || {
            match self.needed {
                Shape::List => "a list",
                Shape::Fields => "a mapping of fields to values",
                Shape::Single => "a single value",
            }
            .to_owned()
        };
        Problem::new(field, self.found, &form.unwrap_or_else(allowed))
    }
}

/// How much of a document could be read.
pub(super) struct Mended<T> {
    /// With an empty value in each place whose value has the wrong shape; `None` if there are more such places than
    /// [`MISSHAPEN_MAX`].
    pub(super) document: Option<T>,
    pub(super) misshapen: Vec<Problem>,
    /// Fields that are given twice; the document has the first value.
    pub(super) repeated: Vec<Problem>,
}

/// The maximum number of places of the wrong shape that are reported at once. The document is read again for each.
const MISSHAPEN_MAX: usize = 100;

/// What can be read of the document in `text`. `form` says what is allowed in a place. `None` if the text is not valid
/// YAML, or if something else is wrong than repeated fields and values of the wrong shape.
pub(super) fn mended<T: DeserializeOwned>(text: &str, form: fn(&str) -> Option<String>) -> Option<Mended<T>> {
    let repeated = Locations::of(text).into_repeated().ok()?;
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::FirstWins };
    let mut tree: Value = serde_saphyr::from_str_with_options(text, options).ok()?;
    let mut misshapen: Vec<Problem> = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize(&tree) {
            Ok(document) => return Some(Mended { document: Some(document), misshapen, repeated }),
            Err(error) => error,
        };
        if misshapen.len() == MISSHAPEN_MAX {
            misshapen.push(Problem::new("", "more fields may have values of the wrong shape: correct these first", ""));
            return Some(Mended { document: None, misshapen, repeated });
        }
        let field = error.path().to_string();
        let shape = Misshapen::of(&error.inner().to_string())?;
        // The second time, an empty value would not help.
        if misshapen.iter().any(|problem| problem.field == field) {
            return None;
        }
        *place(&mut tree, error.path())? = match shape.needed {
            Shape::List => Value::Array(Vec::new()),
            Shape::Fields => Value::Object(Map::new()),
            Shape::Single => Value::String(String::new()),
        };
        misshapen.push(shape.problem(&field, form(&field)));
    }
}

/// Whether a problem may only result from the replacement of a value that has the wrong shape: it is about that value,
/// a part of it, or a value that contains it.
pub(super) fn follows_from(problem: &Problem, misshapen: &Problem) -> bool {
    is_in(&problem.field, &misshapen.field) || is_in(&misshapen.field, &problem.field)
}

/// The value at a path; `None` for the whole document, and where there is none.
fn place<'tree>(tree: &'tree mut Value, path: &Path) -> Option<&'tree mut Value> {
    let mut segments = path.iter().peekable();
    segments.peek()?;
    segments.try_fold(tree, |value, segment| match segment {
        Segment::Seq { index } => value.get_mut(*index),
        Segment::Map { key } => value.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

#[cfg(test)]
mod tests {
    use super::MISSHAPEN_MAX;
    use crate::config::{API_VERSION, Config, KIND, Overrides};

    #[test]
    fn all_wrong_shapes_are_reported_with_all_other_problems() {
        let text = format!(
            "apiVersion: {API_VERSION}
kind: {KIND}
listeners:
- x
- {{address: '127.0.0.1:1', tsl: 3}}
cache:
  exclude: pods
  prewarm: [Pods, [a], ~]
  history: 5m
  idleTimeuot: 1h
clients: {{mode: [trusted], authentication: {{tokenReview: {{audiences: a}}}}}}
admin: []
limits: {{connections: {{}}, watchesPerClient: none}}
colour: red
"
        );
        let problems = Config::parse(&text, &Overrides::default()).unwrap_err().located(&text);
        let found: Vec<_> = problems.0.iter().map(ToString::to_string).collect();
        let expected = [
            "line 4, column 3: listeners[0]: this has no fields; allowed: the fields address, ",
            "line 5, column 28: listeners[1].tsl: no such field; allowed: address, ",
            "line 7, column 3: cache.exclude: this is not a list; allowed: a list, each item: a plural name",
            "line 8, column 13: cache.prewarm[0]: \"Pods\" was given; write pods; allowed: a plural name",
            "line 8, column 19: cache.prewarm[1]: a list was given; allowed: a plural name",
            "line 8, column 24: cache.prewarm[2]: nothing was given; allowed: a plural name",
            "line 9, column 3: cache.history: this has no fields; allowed: the fields age, bytes",
            "line 10, column 3: cache.idleTimeuot: no such field; allowed: exclude, ",
            "line 11, column 11: clients.mode: a list was given; allowed: trusted, delegated",
            "line 11, column 59: clients.authentication.tokenReview.audiences: this is not a list; allowed: a list, ",
            "line 12, column 1: admin: this has no fields; allowed: the fields address, ",
            "line 13, column 10: limits.connections: a mapping was given; allowed: a number",
            "line 13, column 27: limits.watchesPerClient: \"none\" was given; allowed: a number from 1",
            "line 14, column 1: colour: no such field; allowed: ",
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} begins with {expected}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn repeated_fields_hide_no_other_problems() {
        let text = format!(
            "apiVersion: {API_VERSION}
kind: {KIND}
reads: {{fillWait: lang, fillWait: 1s}}
limits: {{connections: {{}}, connections: 3}}
cache:
  idleTimeuot: 1h
cache:
  idleTimeuot: 1h
  exclude: pods
cache: {{exclude: Pods}}
colour: red
"
        );
        let problems = Config::parse(&text, &Overrides::default()).unwrap_err().located(&text);
        let found: Vec<_> = problems.0.iter().map(ToString::to_string).collect();
        let expected = [
            "line 3, column 9: reads.fillWait: \"lang\" was given; allowed: a duration",
            "line 3, column 25: reads.fillWait: given twice, first in line 3",
            "line 4, column 10: limits.connections: a mapping was given; allowed: a number",
            "line 4, column 27: limits.connections: given twice, first in line 4",
            "line 6, column 3: cache.idleTimeuot: no such field; allowed: exclude, ",
            "line 7, column 1: cache: given twice, first in line 5",
            "line 10, column 1: cache: given twice, first in line 5",
            "line 11, column 1: colour: no such field; allowed: ",
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} begins with {expected}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\nreads: {{}}\nreads: {{}}\n");
        assert_eq!(Config::parse(&text, &Overrides::default()).unwrap_err().0.len(), 1);
    }

    #[test]
    fn the_number_of_reported_places_is_bounded() {
        let places = "[a], ".repeat(MISSHAPEN_MAX + 100);
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\ncolour: red\ncache: {{prewarm: [{places}]}}");
        let problems = Config::parse(&text, &Overrides::default()).unwrap_err();
        assert_eq!(problems.0.len(), MISSHAPEN_MAX + 1);
        assert!(problems.to_string().contains("correct these first"), "{problems}");
    }

    #[test]
    fn consequences_of_a_wrong_shape_are_not_reported() {
        for text in [
            "listeners: [{address: '0.0.0.0:1', tls: x}]\nclients: {mode: delegated}",
            "clients: {mode: delegated, identity: {frontProxy: x}, authentication: {clientCAFile: /ca}}",
            "audit: {path: [], mode: blocking}",
            "clients: []",
        ] {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}");
            let problems = Config::parse(&text, &Overrides::default()).unwrap_err();
            assert_eq!(problems.0.len(), 1, "{text}: {problems}");
        }
    }
}
