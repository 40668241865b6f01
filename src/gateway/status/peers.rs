//! The other gateways of the cluster.

use std::time::SystemTime;

use jiff::Timestamp;

use super::{Detail, Peer};
use crate::peers::{PeerStatus, PeerTroubleKind};

const NOT_ASKED: &str = "notAsked";
const WORKS: &str = "works";
const ITSELF: &str = "itself";

/// An error may name hosts and clusters.
pub(super) fn row(peer: PeerStatus, detail: Detail) -> Peer {
    let PeerStatus { address, asked, used, trouble, is_itself } = peer;
    let state = match (&trouble, asked) {
        (Some(trouble), _) => trouble.kind.as_str(),
        (None, Some(_)) if is_itself => ITSELF,
        (None, Some(_)) => WORKS,
        (None, None) => NOT_ASKED,
    };
    Peer {
        address,
        state: state.to_owned(),
        since: trouble.as_ref().and_then(|trouble| text(trouble.since)),
        last_asked: asked.and_then(text),
        last_used: used.and_then(text),
        error: trouble.filter(|_| detail == Detail::Full).map(|trouble| trouble.error).unwrap_or_default(),
    }
}

/// To the second.
fn text(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).and_then(|time| Timestamp::from_second(time.as_second()));
    time.ok().map(|time| time.to_string())
}

impl Peer {
    /// Whether the last question to it has shown nothing wrong.
    pub(super) fn is_well(&self) -> bool {
        matches!(self.state.as_str(), NOT_ASKED | WORKS | ITSELF)
    }

    /// Its state in words.
    pub(super) fn line(&self) -> String {
        let used = self.last_used.as_ref().map_or("never used".to_owned(), |at| format!("last used {at}"));
        let state = match self.state.as_str() {
            NOT_ASKED => return format!("{}, not asked yet", self.address),
            WORKS => "works",
            ITSELF => "is this gateway, and no other one answers there",
            // A state that only newer gateways have is shown as it is.
            state => PeerTroubleKind::of(state).map_or(state, |kind| kind.in_words()),
        };
        let since = self.since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
        let because = if self.error.is_empty() { String::new() } else { format!(": {}", self.error) };
        format!("{}, {used}, {state}{since}{because}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_in_a_line() {
        let peer = |state: &str, used: Option<&str>| Peer {
            address: "https://peers:443".to_owned(),
            state: state.to_owned(),
            last_used: used.map(str::to_owned),
            ..Peer::default()
        };
        assert_eq!(peer(NOT_ASKED, None).line(), "https://peers:443, not asked yet");
        assert_eq!(
            peer(WORKS, Some("2026-11-23T08:00:00Z")).line(),
            "https://peers:443, last used 2026-11-23T08:00:00Z, works"
        );
        let alone = "https://peers:443, never used, is this gateway, and no other one answers there";
        assert_eq!((peer(ITSELF, None).line().as_str(), peer(ITSELF, None).is_well()), (alone, true));
        let failed = Peer { since: Some("T".to_owned()), error: "a and b".to_owned(), ..peer("cluster", None) };
        let told = "https://peers:443, never used, the peer belongs to another cluster since T: a and b";
        assert_eq!((failed.line().as_str(), failed.is_well()), (told, false));
        assert_eq!(peer("of a newer gateway", None).line(), "https://peers:443, never used, of a newer gateway");
    }
}
