//! Why memory gives no answer: the request is forwarded, or refused.

use crate::{listener::Malformed, serve::ForwardReason};

/// Why memory gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    Forward(ForwardReason),
    Refuse(Refusal),
}

/// Why a request is answered by the gateway itself, with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the request cannot be read")]
    Malformed(#[source] Malformed),
    #[error("clients do not call this gateway by that Host; clients.acceptHosts can name it")]
    ForeignHost,
    #[error(
        "requests of web pages of other origins are not answered; clients.acceptOrigins can name the page's origin"
    )]
    ForeignOrigin,
    #[error(
        "pages of the gateway's own origin run no commands (exec, attach, port-forward, the proxy of a node); \
         clients.acceptOrigins can name that origin"
    )]
    OwnPage,
    /// Sent by this gateway, and returned to it.
    #[error(
        "this request was sent by the gateway and has come back to it: the API server's address leads to the gateway; name \
         another one in upstream.kubeconfig"
    )]
    Loop,
    /// The client's watches exceed its share; other clients' watches go on.
    #[error("this client has too many watches")]
    TooManyWatches,
    /// Answers are being sent and not read.
    #[error(
        "answers that are still being sent hold too much memory; limits.answerBytes and limits.answerBytesPerClient bound it"
    )]
    TooManyBytes,
    /// A watch that waited for its cache: forwarded, it would only delay the end.
    #[error("the gateway is told to stop")]
    Draining,
}

impl Refusal {
    /// The word for logs and metric labels.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(why) => why.as_str(),
            Self::ForeignHost => "foreign_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::OwnPage => "own_page",
            Self::Loop => "loop",
            Self::TooManyWatches => "client_watches",
            Self::TooManyBytes => "answer_bytes",
            Self::Draining => "draining",
        }
    }
}

impl From<ForwardReason> for Unserved {
    fn from(why: ForwardReason) -> Self {
        Self::Forward(why)
    }
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}
