//! Why memory gives no answer: the request is forwarded, or refused.

use crate::{
    listener::Malformed,
    serve::{ForwardReason, Unanswered},
};
use base::apimachinery::{ElectionRank, InvalidShardSelector};

/// Why memory gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    Forward(ForwardReason),
    Refuse(Refusal),
}

/// Why a request is answered by the gateway itself, with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the request is malformed")]
    Malformed(#[source] Malformed),
    #[error("the gateway does not accept this Host; to allow it, add it to clients.acceptHosts")]
    ForeignHost,
    #[error(
        "requests from web pages of other origins are refused; to allow them, add the page's origin to \
         clients.acceptOrigins"
    )]
    ForeignOrigin,
    #[error(
        "exec, attach, port-forward and the node proxy are refused for web pages of the gateway's own origin; to allow \
         them, add that origin to clients.acceptOrigins"
    )]
    OwnPage,
    /// Sent by this gateway, and returned to it.
    #[error(
        "the gateway received its own request: the API server's address leads back to the gateway; set \
         upstream.kubeconfig to one with the API server's own address"
    )]
    Loop,
    #[error(
        "the request has passed eight gateways, which is the maximum: a gateway's upstream has to be nearer to the API \
         server"
    )]
    TooManyGateways,
    /// A question to peers whose connection led back to the gateway.
    #[error("a cache.peers address leads back to this gateway")]
    OwnQuestion,
    /// A question of a peer, which is answered from memory or not at all.
    #[error("this gateway has no proven cache of this resource that the client may read")]
    NotInMemory,
    /// The same, but the state is about to be in memory.
    #[error("this gateway has no such state in memory yet")]
    NotYetInMemory(ElectionRank),
    /// The client's watches exceed its share; other clients' watches go on.
    #[error("this client has too many watches; limits.watchesPerClient is the maximum")]
    TooManyWatches,
    /// Answers are being sent and not read.
    #[error(
        "responses in flight hold too much memory; limits.answerBytes and limits.answerBytesPerClient are the maxima"
    )]
    TooManyBytes,
    /// The client's large reads have taken their share of the CPU for too long.
    #[error(
        "this client has too many large reads at once; send fewer lists that print Tables or select from many objects"
    )]
    NoTurn,
    /// With `reads.shards: always`.
    #[error(
        "reads.shards is always, so lists and watches with a shardSelector are answered from the gateway's memory \
         alone, which does not answer this one: {}",
        .0.as_str()
    )]
    NoShards(ForwardReason),
    /// The same, for a delete.
    #[error(
        "reads.shards is always, so the API server is taken to have no shards: it would ignore the shardSelector, and \
         delete the whole collection"
    )]
    ShardedDelete,
    #[error("{0}")]
    InvalidShards(InvalidShardSelector),
    /// A watch that waited for its cache: forwarded, it would only delay the end.
    #[error("the gateway is shutting down")]
    Draining,
}

impl Refusal {
    /// Whether it belongs to normal operation: each question of a peer that finds no state is answered with one.
    pub(super) fn is_usual(self) -> bool {
        matches!(self, Self::OwnQuestion | Self::NotInMemory | Self::NotYetInMemory(_))
    }

    /// The word for logs and metric labels.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(why) => why.as_str(),
            Self::ForeignHost => "foreign_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::OwnPage => "own_page",
            Self::Loop => "loop",
            Self::TooManyGateways => "too_many_gateways",
            Self::OwnQuestion => "own_question",
            Self::NotInMemory => "not_in_memory",
            Self::NotYetInMemory(_) => "not_yet_in_memory",
            Self::TooManyWatches => "client_watches",
            Self::TooManyBytes => "answer_bytes",
            Self::NoTurn => "client_read_wait",
            Self::NoShards(_) => "no_shards",
            Self::InvalidShards(_) => "invalid_shards",
            Self::ShardedDelete => "sharded_delete",
            Self::Draining => "draining",
        }
    }
}

impl From<ForwardReason> for Unserved {
    fn from(why: ForwardReason) -> Self {
        Self::Forward(why)
    }
}

impl From<Unanswered> for Unserved {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Forward(why) => Self::Forward(why),
            Unanswered::NoTurn => Self::Refuse(Refusal::NoTurn),
        }
    }
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}
