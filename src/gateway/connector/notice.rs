//! Decides when a trouble is logged: once when it begins and once when it ends. Also cuts texts of others to one line.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// The minimum time between two warnings, for the case that outcomes alternate.
pub(super) const WARN_EVERY: Duration = Duration::from_secs(10);
/// The maximum length of the text of an error, in characters: what upstream says has no limit of its own.
const TEXT_MAX: usize = 400;

/// Whether a trouble was logged.
#[derive(Debug, Default)]
pub(super) struct Notice {
    /// Whether the last line was the warning.
    is_told: bool,
    warned_at: Option<Instant>,
}

impl Notice {
    /// Records that the trouble is there. Returns whether to log it.
    pub(super) fn begins(&mut self) -> bool {
        if self.is_told || self.warned_at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return false;
        }
        (self.warned_at, self.is_told) = (Some(Instant::now()), true);
        true
    }

    /// Records that it is over. Returns whether to log that.
    pub(super) fn ends(&mut self) -> bool {
        mem::take(&mut self.is_told)
    }
}

/// The beginning of a text, on one line.
pub(super) fn bounded(text: &str) -> String {
    let line = |letter: char| if letter.is_control() { ' ' } else { letter };
    match text.char_indices().nth(TEXT_MAX) {
        None => text.chars().map(line).collect(),
        Some((end, _)) => text[..end].chars().map(line).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line_of_bounded_length() {
        assert_eq!(bounded("a\nb\u{1b}[2Jé"), "a b [2Jé");
        assert_eq!(bounded(&"é".repeat(TEXT_MAX)), "é".repeat(TEXT_MAX));
        assert_eq!(bounded(&"é".repeat(TEXT_MAX * 9)), format!("{}…", "é".repeat(TEXT_MAX)));
    }
}
