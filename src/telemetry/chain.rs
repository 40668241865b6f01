//! An error with its causes on one line, for log lines in text and JSON.

use std::{error::Error, fmt, iter::successors};

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
