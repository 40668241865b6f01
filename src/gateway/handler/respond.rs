//! Turns errors of the gateway itself into a Status. No other module does.

use bytes::Bytes;
use http::{HeaderValue, Response, header};

use super::refusal::Refusal;
use crate::{
    connector::{Fault, Retry, SendError},
    forward::ForwardError,
    serve::{self, ForwardReason},
};
use base::{apimachinery::Status, telemetry::Chain};

/// Seconds after which a client may retry.
const RETRY_AFTER_SECONDS: u32 = 1;

/// An error of the gateway itself.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) status: Status,
    /// The value of the metric label.
    pub(super) reason: &'static str,
    /// Whether it belongs to normal operation: it is then logged only if all requests are.
    pub(super) is_usual: bool,
}

/// The answer to a request that could not be forwarded. `continues`: it is a watch that does not ask for initial
/// events, so that it may go on where another ended.
pub(super) fn error(error: &ForwardError, continues: bool) -> Rejection {
    // Clients must not fill the log. That upstream cannot be reached is logged once (`connector::health`), and so is
    // that it does not accept the front-proxy certificate.
    if error.is_unreachable() || error.is_of_front_proxy() || error.fault() == Fault::Client {
        tracing::debug!(error = %Chain(error), reason = error.as_str(), "request not forwarded");
    } else {
        tracing::warn!(error = %Chain(error), reason = error.as_str(), "request not forwarded");
    }
    Rejection { status: status(error, continues), reason: error.as_str(), is_usual: false }
}

/// The answer to a request that is refused.
pub(super) fn refusal(refusal: Refusal) -> Rejection {
    let status = match refusal {
        Refusal::Malformed(why) => Status::bad_request(format!("kube-fanout: {why}")),
        Refusal::ShardedDelete | Refusal::InvalidShards(_) => Status::bad_request(format!("kube-fanout: {refusal}")),
        Refusal::ForeignHost | Refusal::ForeignOrigin | Refusal::OwnPage => {
            Status::forbidden(format!("kube-fanout: {refusal}"))
        }
        Refusal::Loop | Refusal::TooManyGateways | Refusal::OwnQuestion => {
            Status::loop_detected(format!("kube-fanout: {refusal}"))
        }
        Refusal::TooManyWatches | Refusal::TooManyBytes | Refusal::NoTurn => {
            Status::too_many_requests(format!("kube-fanout: {refusal}"), RETRY_AFTER_SECONDS)
        }
        // The client lists again, which memory answers.
        Refusal::NoShards(ForwardReason::BeforeFill | ForwardReason::OutsideHistory) => {
            Status::expired(format!("kube-fanout: {refusal}"))
        }
        Refusal::NotInMemory | Refusal::NotYetInMemory(_) | Refusal::NoShards(_) => {
            Status::service_unavailable(format!("kube-fanout: {refusal}"), None)
        }
        Refusal::Draining => Status::service_unavailable(format!("kube-fanout: {refusal}"), Some(RETRY_AFTER_SECONDS)),
    };
    Rejection { status, reason: refusal.as_str(), is_usual: refusal.is_usual() }
}

fn status(error: &ForwardError, continues: bool) -> Status {
    let message = chain_for_clients(error);
    match (error.fault(), error.retry()) {
        (Fault::Client, Retry::Later) => Status::too_many_requests(message, RETRY_AFTER_SECONDS),
        (Fault::Client, _) => Status::bad_request(message),
        (Fault::Gateway, _) if matches!(error, ForwardError::NoAnswer(SendError::Saturated)) => {
            Status::too_many_requests(message, RETRY_AFTER_SECONDS)
        }
        (Fault::Gateway | Fault::Upstream, Retry::AtOnce | Retry::Later) => {
            Status::service_unavailable(message, retry_of_unreachable(error, continues))
        }
        (Fault::Gateway, Retry::Never) => Status::internal_error(message),
        (Fault::Upstream, Retry::Never) => Status::bad_gateway(message),
    }
}

/// When to retry a request that upstream did not answer. Usually this is left out, as proxies in front of API servers
/// and kube-aggregator do. With a number, kubectl would repeat each of its first five requests for ten seconds before
/// it reports the error, client-go would repeat a write that may have been carried out, and an informer that starts
/// would ask for its initial events for ten seconds before it lists any version. Without a number, one that has them
/// would list again instead of watching again.
fn retry_of_unreachable(error: &ForwardError, continues: bool) -> Option<u32> {
    (continues && (error.is_unreachable() || error.is_of_front_proxy())).then_some(RETRY_AFTER_SECONDS)
}

/// The response for a status.
pub(super) fn response(status: &Status, audit_id: HeaderValue) -> Response<Bytes> {
    let mut response = Response::builder()
        .status(status.code())
        .header(serve::AUDIT_ID, audit_id)
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = status.retry_after() {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    response.body(status.to_json()).expect("headers are valid")
}

/// The message for a client: the gateway's own words, not those of the libraries below it.
fn chain_for_clients(error: &ForwardError) -> String {
    match error {
        ForwardError::NoAnswer(cause) => format!("kube-fanout: {error}: {cause}"),
        ForwardError::Identity(cause) => format!("kube-fanout: {error}: {cause}"),
        ForwardError::Connect
        | ForwardError::IdentityHeader(_)
        | ForwardError::NoIdentity
        | ForwardError::ClientShare
        | ForwardError::NoTurn
        | ForwardError::TooManyDelayed
        | ForwardError::UnaskedUpgrade => format!("kube-fanout: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_at_one_of_its_limits_is_told_which() {
        for (why, told) in [
            (ForwardError::ClientShare, "limits.forwardedPerClient"),
            (ForwardError::NoTurn, "waited too long for earlier ones of this client"),
            (ForwardError::TooManyDelayed, "too many requests of this connection are delayed"),
        ] {
            let rejection = error(&why, false);
            assert_eq!((rejection.status.code().as_u16(), rejection.reason), (429, "client_share"));
            assert!(rejection.status.message().contains(told), "{rejection:?}");
        }
    }
}
