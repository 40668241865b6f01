//! The election of the gateway that fetches a state: gateways that need the same one at the same time agree by their
//! ranks on the one that asks upstream for it (the manual's chapter `consistency`, "Peers").

use http::{HeaderMap, HeaderName, HeaderValue};

const RANK: HeaderName = HeaderName::from_static("kube-fanout-rank");

/// The place of a gateway among those that need a state. The one with the lowest rank asks upstream, and the others
/// wait until they can have the state from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ElectionRank(u64);

impl ElectionRank {
    /// That of a gateway which is fetching the state already.
    pub const FIRST: Self = Self(0);

    /// That of a gateway which has drawn this number.
    pub const fn drawn(number: u64) -> Self {
        if number == 0 { Self(1) } else { Self(number) }
    }

    /// The number; 0 for [`Self::FIRST`].
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Adds it to the headers of a response to a peer.
    pub fn write(self, headers: &mut HeaderMap) {
        headers.insert(RANK, HeaderValue::from(self.0));
    }

    /// What a peer said; `None` if it is not about to have the state.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        headers.get(RANK)?.to_str().ok()?.parse().ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(ElectionRank::read(&headers), None);
        for rank in [ElectionRank::FIRST, ElectionRank::drawn(0), ElectionRank::drawn(7), ElectionRank::drawn(u64::MAX)]
        {
            rank.write(&mut headers);
            assert_eq!(ElectionRank::read(&headers), Some(rank));
        }
        for text in ["", "-1", "seven", "18446744073709551616"] {
            headers.insert(RANK, HeaderValue::from_static(text));
            assert_eq!(ElectionRank::read(&headers), None, "{text}");
        }
    }

    #[test]
    fn a_gateway_that_fetches_the_state_precedes_all_that_have_drawn() {
        assert!(ElectionRank::FIRST < ElectionRank::drawn(0) && ElectionRank::drawn(0) < ElectionRank::drawn(2));
    }
}
