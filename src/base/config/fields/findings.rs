//! What reading a document, or describing its fields, has shown.

use serde_json::Value;

use super::{About, Document, Fields, Node, Purpose};
use crate::config::location::is_in;
use crate::config::{Problem, Problems};

/// Problems of a document, and the fields that were declared.
#[derive(Debug, Default)]
pub struct Findings {
    /// Fields that are given twice.
    repeated: Vec<Problem>,
    problems: Vec<Problem>,
    /// Which of the problems are of values that have the wrong shape, like a text in place of a list.
    misshapen: Vec<usize>,
    rows: Vec<Row>,
}

/// A field that was declared, with the value that its struct has.
#[derive(Clone, Debug)]
pub(in crate::config) struct Row {
    /// `listeners[].tls.certFile`.
    pub(in crate::config) path: String,
    /// As a document would write it; `None` if only the field's absence has this value.
    pub(in crate::config) value: Option<String>,
    /// Which values are allowed, as Markdown.
    column: String,
    about: About,
}

impl Findings {
    /// Reads a document whose fields `declare` names.
    pub fn read(document: &Document, declare: impl FnOnce(&mut Fields<'_>)) -> Self {
        let mut findings = Self { repeated: document.repeated.clone(), ..Self::default() };
        let given = match &document.root {
            Node::Fields(given) => given.as_slice(),
            Node::Nothing | Node::Single(_) | Node::List(_) => {
                findings.misshapen("", "this has no fields", "a mapping of fields to values");
                &[]
            }
        };
        Fields::new(String::new(), given, Purpose::Read, &mut findings).declared(declare);
        findings
    }

    /// Adds a problem of a place: `listeners[0].address`, or an option of the command line.
    pub fn problem(&mut self, place: &str, found: &str, allowed: &str) {
        self.problems.push(Problem::new(place, found, allowed));
    }

    /// Whether a problem of the place, or of what contains it, was reported.
    pub fn has_problem(&self, place: &str) -> bool {
        self.problems.iter().any(|problem| !problem.field.is_empty() && is_in(place, &problem.field))
    }

    pub(super) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn misshapen(&mut self, place: &str, found: &str, allowed: &str) {
        self.misshapen.push(self.problems.len());
        self.problem(place, found, allowed);
    }

    /// The value, if there is no problem.
    ///
    /// # Errors
    /// All problems, but those that may only result from a value of the wrong shape: others of that value, of a part of
    /// it, or of a value that contains it.
    pub fn result<T>(self, value: T) -> Result<T, Problems> {
        let follows = |index: usize, problem: &Problem| {
            self.misshapen.iter().any(|of| {
                let place = &self.problems[*of].field;
                *of != index && (is_in(&problem.field, place) || is_in(place, &problem.field))
            })
        };
        let own = self.problems.iter().enumerate().filter(|(index, problem)| !follows(*index, problem));
        let problems: Vec<_> = self.repeated.iter().chain(own.map(|(_, problem)| problem)).cloned().collect();
        if problems.is_empty() { Ok(value) } else { Err(Problems(problems)) }
    }
}

/// The fields that `declare` names, and their schema.
pub(in crate::config) fn rows(purpose: Purpose, declare: impl FnOnce(&mut Fields<'_>)) -> (Vec<Row>, Value) {
    let mut findings = Findings::default();
    let schema = Fields::new(String::new(), &[], purpose, &mut findings).declared(declare);
    (findings.rows, schema)
}

impl Row {
    pub(super) fn new(path: String, (value, column): (Option<String>, String), about: About) -> Self {
        Self { path, value, column, about }
    }

    /// A row of the manual's table.
    #[cfg(test)]
    pub(in crate::config) fn markdown(&self) -> String {
        let of_value = self.value.as_ref().map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        let default = if self.about.default.is_empty() { of_value } else { self.about.default.to_owned() };
        format!("| `{}` | {default} | {} |", self.path, self.meaning())
    }

    /// The description in the schema, in plain text.
    pub(super) fn description(&self) -> String {
        let of_value = self.value.clone().unwrap_or_else(|| "none".to_owned());
        let default = if self.about.default.is_empty() { of_value } else { self.about.default.replace('`', "") };
        format!("Default: {default}. Allowed: {}.", self.meaning().replace('`', "").trim_end_matches('.'))
    }

    fn meaning(&self) -> String {
        let parts = [self.column.as_str(), self.about.text];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}
