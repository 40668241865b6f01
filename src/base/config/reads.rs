//! How reads are answered: `reads`.

use std::{ops::RangeInclusive, time::Duration};

use crate::config::fields::{Fields, Time, Words, about};

/// The API server itself waits up to 3 s for a version.
const FRESHNESS_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3);
/// The API server itself ends a list after 60 s.
const FILL_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

const MOST_RECENT_WATCH: Words<MostRecentWatch> =
    Words(&[("prove", MostRecentWatch::Prove), ("forward", MostRecentWatch::Forward)]);
const MOST_RECENT: Words<MostRecentReads> =
    Words(&[("forward", MostRecentReads::Forward), ("auto", MostRecentReads::Auto), ("prove", MostRecentReads::Prove)]);
const SHARDS: Words<Shards> = Words(&[("upstream", Shards::Upstream), ("always", Shards::Always)]);

/// How reads are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// How long a read waits for its version to arrive before it is forwarded.
    pub freshness_wait: Duration,
    /// How long a read waits for its cache to be filled before it is forwarded.
    pub fill_wait: Duration,
    pub most_recent_watch: MostRecentWatch,
    pub most_recent: MostRecentReads,
    pub shards: Shards,
}

/// How a get or a list of the most recent state is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MostRecentReads {
    /// Forwarded.
    #[default]
    Forward,
    /// Served from memory after a freshness proof where that is neither slower nor more expensive than forwarding.
    Auto,
    /// Served from memory after a freshness proof.
    Prove,
}

/// How a watch from the most recent state is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MostRecentWatch {
    /// Served from memory after a freshness proof.
    Prove,
    /// Forwarded.
    Forward,
}

/// Which lists and watches with a `shardSelector` are of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shards {
    /// Those of an upstream that has shards; others ignore the selector.
    #[default]
    Upstream,
    /// All: they are answered from memory, or refused.
    Always,
}

impl ReadsConfig {
    /// The same for a read; if it is one of shards, and memory alone has them, memory is proven instead of asking
    /// upstream.
    #[must_use]
    pub fn of_shards(self, is_sharded: bool) -> Self {
        match self.shards {
            Shards::Always if is_sharded => {
                Self { most_recent: MostRecentReads::Prove, most_recent_watch: MostRecentWatch::Prove, ..self }
            }
            Shards::Upstream | Shards::Always => self,
        }
    }

    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = "how long a read waits for its version before it is forwarded";
        fields.value("freshnessWait", about(text), &mut self.freshness_wait, &Time(FRESHNESS_WAIT));
        let text = "how long a read waits for a cache that is being filled before it is forwarded";
        fields.value("fillWait", about(text), &mut self.fill_wait, &Time(FILL_WAIT));
        let text = "how watches without a version are answered, see the chapter `consistency`";
        fields.value("mostRecentWatch", about(text), &mut self.most_recent_watch, &MOST_RECENT_WATCH);
        let text = "how gets and lists without a version are answered, see the chapter `consistency`";
        fields.value("mostRecent", about(text), &mut self.most_recent, &MOST_RECENT);
        let text = "whether a `shardSelector` selects only where upstream has shards, see the chapter `consistency`";
        fields.value("shards", about(text), &mut self.shards, &SHARDS);
    }
}

impl Default for ReadsConfig {
    fn default() -> Self {
        Self {
            // A change usually arrives within a few milliseconds.
            freshness_wait: Duration::from_millis(100),
            // A fill of 10,000 pods takes one or two seconds, one of 100,000 ten to twenty. Half of the 60 s after
            // which an API server ends a list (`--request-timeout`), so that a read that is forwarded after all can
            // still be answered in its client's time.
            fill_wait: Duration::from_secs(30),
            most_recent_watch: MostRecentWatch::Prove,
            most_recent: MostRecentReads::Forward,
            shards: Shards::Upstream,
        }
    }
}
