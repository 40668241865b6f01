//! An error with its causes: on one line, for log lines in text and JSON, and one after the other.

use std::{error::Error, fmt, io, iter::successors};

/// Writes an error and its causes, the outermost first. A cause whose words the error in front of it ends with is not
/// repeated: some libraries put it into their own message.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = String::new();
        for error in successors(Some(self.0), |&error| error.source()) {
            let words = error.to_string().lines().collect::<Vec<_>>().join("; ");
            if !written.ends_with(&words) {
                let colon = if written.is_empty() { "" } else { ": " };
                written += &format!("{colon}{words}");
            }
        }
        formatter.write_str(&written)
    }
}

/// The error and its causes, also those that an IO error does not show.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| contained(error).or_else(|| error.source()))
}

/// The first error of that type among the error and its causes.
pub fn caused_by<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// What an IO error was made of, which it does not show as its source.
fn contained<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let contained = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(contained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("one\ntwo")]
    struct Inner;

    #[test]
    fn causes_are_joined_on_one_line() {
        assert_eq!(Chain(&Outer(Inner)).to_string(), "outer: one; two");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeating(#[source] io::Error);

    #[test]
    fn a_cause_that_a_message_ends_with_is_written_once() {
        let error = Repeating(io::Error::other("one"));
        assert_eq!(Chain(&error).to_string(), "outer: one");
    }

    #[test]
    fn causes_are_found_by_their_type_even_within_io_errors() {
        let error = Repeating(io::Error::other(Outer(Inner)));
        assert!(caused_by::<Inner>(&error).is_some() && caused_by::<Repeating>(&error).is_some());
        assert!(caused_by::<fmt::Error>(&error).is_none());
    }
}
