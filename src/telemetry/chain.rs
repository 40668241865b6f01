//! An error with its causes: on one line, for log lines in text and JSON, and one after the other.

use std::{error::Error, fmt, io, iter::successors};

/// Writes an error and its causes, the outermost first.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in successors(Some(self.0), |&error| error.source()).enumerate() {
            if index > 0 {
                formatter.write_str(": ")?;
            }
            for (index, line) in error.to_string().lines().enumerate() {
                if index > 0 {
                    formatter.write_str("; ")?;
                }
                formatter.write_str(line)?;
            }
        }
        Ok(())
    }
}

/// The error and its causes, also those that an IO error does not show.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| contained(error).or_else(|| error.source()))
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
}
