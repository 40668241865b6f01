//! Limits of answers: `limits.answerTimeout`, `limits.answerBytes`, `limits.answerBytesPerClient`.

use std::{ops::RangeInclusive, time::Duration};

use crate::config::check::Check;
use crate::config::raw;
use crate::config::{DEFAULT_ANSWER_BYTES, DEFAULT_ANSWER_TIMEOUT, quantity};

/// A second is enough for an answer that fits into a socket's buffers. Request timeouts of API servers are rarely
/// longer than a few minutes.
const ANSWER_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Space for a few of the largest objects (about 1.5 MiB each) and for their compressors.
const ANSWER_BYTES_MIN: u64 = 16 << 20;

/// Limits of answers.
pub(super) struct Answers {
    pub(super) timeout: Duration,
    pub(super) bytes: u64,
    pub(super) bytes_per_client: u64,
}

/// The default of `limits.answerBytesPerClient`, by `limits.answerBytes`.
pub(in crate::config) const fn default_answer_bytes_per_client(all: u64) -> u64 {
    if all / 4 > ANSWER_BYTES_MIN { all / 4 } else { ANSWER_BYTES_MIN }
}

impl Check {
    pub(super) fn answers(&mut self, raw: &raw::Limits) -> Answers {
        let timeout = raw.answer_timeout.as_ref();
        let bytes = self.size("limits.answerBytes", raw.answer_bytes.as_ref(), DEFAULT_ANSWER_BYTES, u64::MAX);
        let (each, quarter) = (raw.answer_bytes_per_client.as_ref(), default_answer_bytes_per_client(bytes));
        Answers {
            timeout: self.duration("limits.answerTimeout", timeout, DEFAULT_ANSWER_TIMEOUT, &ANSWER_TIMEOUT),
            bytes,
            bytes_per_client: self.size("limits.answerBytesPerClient", each, quarter, bytes),
        }
    }

    fn size(&mut self, field: &str, raw: Option<&raw::Scalar>, default: u64, most: u64) -> u64 {
        let up_to = if most == u64::MAX { String::new() } else { format!(", {most} bytes at most") };
        let allowed = format!("{}, {}Mi at least{up_to}", quantity::SIZE, ANSWER_BYTES_MIN >> 20);
        let fits = |text: &str| quantity::size(text).filter(|bytes| (ANSWER_BYTES_MIN..=most).contains(bytes));
        self.parsed(field, raw, default, &allowed, fits)
    }
}
