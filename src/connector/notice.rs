//! What the log says of a trouble: one line when it begins and one when it ends. And texts from elsewhere, cut to a line.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// The minimum time between two warnings, for the case that outcomes alternate.
pub(super) const WARN_EVERY: Duration = Duration::from_secs(10);
/// The maximum length of the text of an error, in characters: what upstream says has no limit of its own.
const TEXT_MAX: usize = 400;

/// Whether the log was told of a trouble.
#[derive(Debug, Default)]
pub(super) struct Notice {
    /// The last line was the warning.
    is_told: bool,
    warned_at: Option<Instant>,
}

impl Notice {
    /// Notes that the trouble is there. Whether to log it.
    pub(super) fn begins(&mut self) -> bool {
        if self.is_told || self.warned_at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return false;
        }
        (self.warned_at, self.is_told) = (Some(Instant::now()), true);
        true
    }

    /// Notes that it is over. Whether to log that.
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
