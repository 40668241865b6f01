//! States of caches that survive the process: `cache.persist`.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use crate::config::fields::{ANY_FOLDER, FLAG, Fields, Size, Time, about};

const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
const MAX_AGE: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 3600);

/// Where states of caches are written, from which a gateway that starts again goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistConfig {
    /// An existing folder. What is written lies in a folder within it that only this user can read.
    pub path: PathBuf,
    /// The maximum of what all states take, in bytes.
    pub bytes: u64,
    /// Older states are not used.
    pub max_age: Duration,
    /// Whether Secrets are written, too.
    pub secrets: bool,
}

impl PersistConfig {
    /// The folder of the states.
    pub fn folder(&self) -> PathBuf {
        self.path.join("states")
    }

    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about(
            "an existing folder of its own for each gateway, in which the states of caches are written, compressed, so \
             that a gateway that starts again need not list them. See the chapter `consistency`",
        );
        fields.required("path", text.default("none: nothing is written"), &mut self.path, &ANY_FOLDER);
        let text = "what all states may take on the disk; a state that does not fit is not written";
        fields.value("bytes", about(text), &mut self.bytes, &Size(BYTES));
        let text = "older states are not used: after some minutes the API server has forgotten what followed. What \
                    does not change is written again in time";
        fields.value("maxAge", about(text), &mut self.max_age, &Time(MAX_AGE));
        fields.value("secrets", about("whether Secrets are written, too"), &mut self.secrets, &FLAG);
    }
}

impl Default for PersistConfig {
    fn default() -> Self {
        Self { path: PathBuf::new(), bytes: 1 << 30, max_age: Duration::from_secs(15 * 60), secrets: false }
    }
}
