//! The interface between a reflector and other gateways of the same cluster. Implemented by the module `peers`.

use std::convert::Infallible;

use bytes::Bytes;
use tokio::time::Instant;

use super::{ByteStream, Failure};
use base::apimachinery::{Provenance, ResourceVersion};

/// From where a store was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillSource {
    Upstream,
    /// The gateway that upstream is, as it keeps the state.
    Above,
    Peer,
    /// What this gateway wrote before it ended.
    Kept,
}

impl FillSource {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Above => "above",
            Self::Peer => "peer",
            Self::Kept => "kept",
        }
    }
}

/// What came of a question to a peer, or of a state that this gateway has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerOutcome {
    #[error("the cache was filled with the peer's state")]
    Used,
    #[error("the connection led to this gateway itself")]
    Itself,
    #[error("the peer has no state in memory that it is sure of and may show, or none that is recent enough")]
    NoState,
    #[error("the peer fetches the state, or searches for it, too")]
    Filling,
    #[error("the peer has too much to send at the moment")]
    Busy,
    #[error("the peer refused the request")]
    Refused,
    #[error("the peer cannot be reached, or its certificate is not valid")]
    Unreachable,
    #[error("the peer did not answer in time")]
    TimedOut,
    #[error("the answer is not that of a gateway that answers peers")]
    Foreign,
    #[error("the peer's state is of another cluster")]
    Cluster,
    #[error("the peer's state was written by another version of the API server")]
    Server,
    #[error("the peer's state was written under another definition of the resource")]
    Definition,
    #[error("the peer's state is older than requested")]
    Old,
    #[error("the peer's state has a version that upstream has not reached; was its etcd restored?")]
    Ahead,
    #[error("the peer's state cannot be read, or contradicts itself or upstream")]
    Malformed,
    #[error("the peer's answer broke off, took too long, or is too large")]
    Broken,
    #[error("upstream does not support watch-list, or did not accept a watch from the version of the peer's state")]
    Unconfirmed,
}

impl PeerOutcome {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Itself => "itself",
            Self::NoState => "no_state",
            Self::Filling => "filling",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Foreign => "foreign",
            Self::Cluster => "cluster",
            Self::Server => "server",
            Self::Definition => "definition",
            Self::Old => "old",
            Self::Ahead => "ahead",
            Self::Malformed => "malformed",
            Self::Broken => "broken",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateForm {
    /// A list, as a client gets it.
    List,
    /// Packed, in records that the pieces of the body do not follow ([`crate::store::Records`]).
    Packed,
    /// Packed, a record at a time, as this gateway has kept it, at that version, which may be old.
    Kept(ResourceVersion),
}

impl StateForm {
    /// Whether it comes from another gateway.
    pub const fn is_of_peer(self) -> bool {
        !matches!(self, Self::Kept(_))
    }
}

/// States of one resource in one encoding that need not come from upstream: those of other gateways of the same
/// cluster, and the one that this gateway has kept.
pub trait Peers: Send + Sync + 'static {
    type Stream: ByteStream;
    /// Where an answer came from.
    type Origin: Copy + Send;

    /// The provenance of a state that upstream would give now, read no earlier than `since`. `server` is upstream's
    /// version. `None` if there are no peers, or it is not known: then no peer is asked, nor given a state.
    fn provenance(&self, server: Option<&str>, since: Instant) -> impl Future<Output = Option<Provenance>> + Send;

    /// The whole collection at `not_older_than` or later, with that provenance, or what this gateway has kept of it, of
    /// any version. `None` if there is neither. Questions without such an answer are counted.
    fn state(
        &self,
        not_older_than: ResourceVersion,
        expected: &Provenance,
    ) -> impl Future<Output = Option<(Self::Origin, StateForm, Self::Stream)>> + Send;

    /// Counts and records what came of the answer.
    fn note(&self, origin: Self::Origin, outcome: PeerOutcome);
}

/// No other gateways.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

impl Peers for NoPeers {
    type Stream = Infallible;
    type Origin = Infallible;

    async fn provenance(&self, _: Option<&str>, _: Instant) -> Option<Provenance> {
        None
    }

    async fn state(&self, _: ResourceVersion, _: &Provenance) -> Option<(Infallible, StateForm, Infallible)> {
        None
    }

    fn note(&self, origin: Infallible, _: PeerOutcome) {
        match origin {}
    }
}

impl ByteStream for Infallible {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        match *self {}
    }
}
