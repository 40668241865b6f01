//! Where the first state of a store comes from before upstream is asked: what this gateway has kept of it, then peers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{KeptList, StateFile};
use crate::{
    peers::{PeerAnswer, ResourcePeers},
    upstream::Upstream,
};
use base::{
    apimachinery::{Provenance, ResourceVersion},
    telemetry::state_persisted,
};
use engine::reflector::{ByteStream, Failure, FillSource, PeerOutcome, Peers};

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

/// A list of one of them.
#[derive(Debug)]
pub enum SourceList {
    Kept(KeptList),
    Peer(PeerAnswer),
}

impl Sources {
    pub fn new(kept: Option<StateFile>, peers: ResourcePeers, upstream: Upstream) -> Self {
        Self { kept, is_given: Arc::default(), peers, upstream }
    }

    /// The kept state, once.
    async fn kept(&self, expected: &Provenance) -> Option<KeptList> {
        let file = self.kept.as_ref().filter(|_| !self.is_given.swap(true, Relaxed))?;
        let (provenance, list) = file.open().await?;
        match difference(&provenance, expected) {
            None => Some(list),
            Some(outcome) => {
                self.note(None, outcome);
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
    type Stream = SourceList;
    /// The place of the address of a peer; `None` for what is kept.
    type Origin = Option<usize>;

    async fn provenance(&self, server: Option<&str>, since: Instant) -> Option<Provenance> {
        match (self.peers.provenance(server, since).await, &self.kept) {
            (None, Some(_)) => {
                let (cluster, definition) = (self.upstream.cluster(since).await?, self.peers.definition());
                Some(Provenance { cluster, server: server?.into(), definition })
            }
            (provenance, _) => provenance,
        }
    }

    async fn list(
        &self,
        not_older_than: ResourceVersion,
        expected: &Provenance,
    ) -> Option<(Option<usize>, SourceList)> {
        if let Some(list) = self.kept(expected).await {
            return Some((None, SourceList::Kept(list)));
        }
        let (peer, answer) = self.peers.list(not_older_than, expected).await?;
        Some((Some(peer), SourceList::Peer(answer)))
    }

    fn source(&self, origin: Option<usize>) -> FillSource {
        origin.map_or(FillSource::Kept, |peer| self.peers.source(peer))
    }

    fn note(&self, origin: Option<usize>, outcome: PeerOutcome) {
        match (origin, &self.kept) {
            (Some(peer), _) => self.peers.note(peer, outcome),
            (None, Some(file)) => {
                state_persisted(outcome.as_str());
                file.told(outcome);
            }
            (None, None) => {}
        }
    }
}

impl ByteStream for SourceList {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        match self {
            Self::Kept(list) => list.next().await,
            Self::Peer(answer) => answer.next().await,
        }
    }
}
