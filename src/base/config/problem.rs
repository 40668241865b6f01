//! Problems of a configuration.

use std::fmt::{self, Write as _};

use crate::config::{Location, location::Locations};

/// One field that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `listeners[0].address`, or the command line's `--listen`. Empty for the document as a whole.
    pub field: String,
    /// What is wrong with the given value.
    pub found: String,
    /// The values that would be allowed. Empty if `found` says it.
    pub allowed: String,
    /// Where the field is in the file, or should be; `None` without a file.
    pub at: Option<Location>,
}

/// Every problem of a configuration, in the order of its fields, or of their places. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    pub(super) fn new(field: &str, found: &str, allowed: &str) -> Self {
        Self { field: field.to_owned(), found: found.to_owned(), allowed: allowed.to_owned(), at: None }
    }
}

impl Problems {
    /// The same problems, each with its place in `text`, the content of the file.
    #[must_use]
    pub fn located(mut self, text: &str) -> Self {
        let locations = Locations::of(text);
        for problem in &mut self.0 {
            problem.at = problem.at.or_else(|| locations.find(&problem.field));
        }
        self.0.sort_by_key(|problem| problem.at.map(|at| (at.line, at.column)));
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(formatter, "{at}: ")?;
        }
        if !self.field.is_empty() {
            write!(formatter, "{}: ", Visible(&self.field))?;
        }
        Visible(&self.found).fmt(formatter)?;
        if self.allowed.is_empty() { Ok(()) } else { write!(formatter, "; allowed: {}", self.allowed) }
    }
}

/// A text with parts of a file or of a server's answers, which must not control a terminal.
struct Visible<'a>(&'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\n' => formatter.write_char('\n'),
            control if control.is_control() => write!(formatter, "{}", control.escape_default()),
            character => formatter.write_char(character),
        })
    }
}

impl fmt::Display for Problems {
    /// One problem a line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            problem.fmt(formatter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_foreign_texts_are_escaped() {
        let (field, found) = ("\u{1b}[5mx".to_owned(), "things\u{9b}5m\u{7} may be meant".to_owned());
        let problem = Problem { field, found, allowed: String::new(), at: None };
        assert_eq!(problem.to_string(), r"\u{1b}[5mx: things\u{9b}5m\u{7} may be meant");
    }
}
