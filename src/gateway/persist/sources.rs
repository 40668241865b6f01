//! Where the first state of a store comes from before upstream is asked: what this gateway has kept of it, then peers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{KeptState, StateFile};
use crate::{
    peers::{PeerAnswer, ResourcePeers},
    upstream::Upstream,
};
use base::{
    apimachinery::{Provenance, ResourceVersion},
    telemetry::state_persisted,
};
use engine::reflector::{ByteStream, Failure, PeerOutcome, Peers, StateForm};

/// The states of one store in one encoding.
#[derive(Clone, Debug)]
pub struct Sources {
    /// `None`: nothing is kept.
    kept: Option<StateFile>,
    /// Whether the kept state was given.
    is_given: Arc<AtomicBool>,
    peers: ResourcePeers,
    upstream: Upstream,
}

/// Where a state came from.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// What is kept.
    Kept,
    /// The place of a peer's address.
    Peer(usize),
}

/// The answer of a peer, or the records of the kept state.
#[derive(Debug)]
pub enum SourceState {
    Kept(KeptState),
    Peer(PeerAnswer),
}

impl Sources {
    pub fn new(kept: Option<StateFile>, peers: ResourcePeers, upstream: Upstream) -> Self {
        Self { kept, is_given: Arc::default(), peers, upstream }
    }

    /// The kept state and its version, once.
    async fn open_kept(&self, expected: &Provenance) -> Option<(ResourceVersion, KeptState)> {
        let file = self.kept.as_ref().filter(|_| !self.is_given.swap(true, Relaxed))?;
        let (provenance, version, state) = file.open().await?;
        match difference(&provenance, expected) {
            None => Some((version, state)),
            Some(outcome) => {
                self.note(Origin::Kept, outcome);
                None
            }
        }
    }
}

fn difference(kept: &Provenance, expected: &Provenance) -> Option<PeerOutcome> {
    let Provenance { cluster, server, definition } = expected;
    let differences = [
        (kept.cluster != *cluster, PeerOutcome::Cluster),
        (kept.server != *server, PeerOutcome::Server),
        (kept.definition != *definition, PeerOutcome::Definition),
    ];
    differences.into_iter().find_map(|(differs, outcome)| differs.then_some(outcome))
}

impl Peers for Sources {
    type Stream = SourceState;
    type Origin = Origin;

    async fn provenance(&self, server: Option<&str>, since: Instant) -> Option<Provenance> {
        match (self.peers.provenance(server, since).await, &self.kept) {
            (None, Some(_)) => {
                let (cluster, definition) = (self.upstream.cluster(since).await?, self.peers.definition());
                Some(Provenance { cluster, server: server?.into(), definition })
            }
            (provenance, _) => provenance,
        }
    }

    async fn state(
        &self,
        not_older_than: ResourceVersion,
        expected: &Provenance,
    ) -> Option<(Origin, StateForm, SourceState)> {
        if let Some((version, state)) = self.open_kept(expected).await {
            return Some((Origin::Kept, StateForm::Kept(version), SourceState::Kept(state)));
        }
        let (peer, form, answer) = self.peers.state(not_older_than, expected).await?;
        Some((Origin::Peer(peer), form, SourceState::Peer(answer)))
    }

    fn note(&self, origin: Origin, outcome: PeerOutcome) {
        match (origin, &self.kept) {
            (Origin::Peer(peer), _) => self.peers.note(peer, outcome),
            (Origin::Kept, Some(file)) => {
                state_persisted(outcome.as_str());
                file.told(outcome);
            }
            (Origin::Kept, None) => {}
        }
    }
}

impl ByteStream for SourceState {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        match self {
            Self::Kept(state) => state.next().await,
            Self::Peer(answer) => answer.next().await,
        }
    }
}
