//! The cells of one row as they are written.

use jiff::Timestamp;

use super::Conditions;
use crate::encode::table::{Unprintable, cell};
use base::apimachinery::{age, write_string};

/// Writes the cells of one row.
pub(super) struct Row<'a> {
    out: &'a mut Vec<u8>,
    /// The time that ages are relative to.
    now: Timestamp,
    /// The row's conditions, for example that its object has completed.
    pub(super) conditions: Option<Conditions>,
}

impl<'a> Row<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, now: Timestamp) -> Self {
        Self { out, now, conditions: None }
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Unprintable> {
        // The escapes of the first two depend on the Go version of the server. The third may stand for invalid UTF-8,
        // which a server writes as an escape.
        if text.contains(['\u{8}', '\u{c}', char::REPLACEMENT_CHARACTER]) {
            return Err(Unprintable);
        }
        self.out.push(b',');
        write_string(self.out, text);
        Ok(())
    }

    /// A text, or `none` if it is empty.
    pub(super) fn text_or(&mut self, text: &str, none: &str) -> Result<(), Unprintable> {
        self.text(if text.is_empty() { none } else { text })
    }

    pub(super) fn number(&mut self, number: i64) {
        self.out.push(b',');
        self.out.extend_from_slice(number.to_string().as_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.out.push(b',');
        self.out.extend_from_slice(count.to_string().as_bytes());
    }

    /// The time since `time`; empty is Go's zero time. `Unprintable` if it is not plain: upstream prints the value, and
    /// its text may have a year of another length.
    pub(super) fn age(&mut self, time: &str) -> Result<(), Unprintable> {
        match time {
            "" => self.text("<unknown>"),
            time => {
                let age = self.age_since(cell::moment(time)?)?;
                self.text(&age)
            }
        }
    }

    pub(super) fn age_since(&self, time: Timestamp) -> Result<String, Unprintable> {
        age(time, self.now).ok_or(Unprintable)
    }
}

/// The first texts, and how many more there are.
pub(super) fn first_ones<T: AsRef<str>>(texts: &[T], most: usize, separator: &str) -> String {
    let shown: Vec<_> = texts.iter().take(most).map(AsRef::as_ref).collect();
    let shown = shown.join(separator);
    match texts.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}
