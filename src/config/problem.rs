//! What is wrong with a configuration.

use std::fmt;

/// One field that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `listeners[0].address`, or the command line's `--listen`. Empty for the document as a whole.
    pub field: String,
    /// What is wrong with what was given.
    pub found: String,
    /// What would be allowed. Empty if `found` says it.
    pub allowed: String,
}

/// Every problem of a configuration, in the order of its fields. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.found)?;
        if self.allowed.is_empty() { Ok(()) } else { write!(formatter, "; allowed: {}", self.allowed) }
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
