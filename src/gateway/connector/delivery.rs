//! Sends one request: sets its address, takes a place on a connection, and retries it at most once.

use http::{Request, Response, Version, header::HOST, request};
use tower::ServiceExt;

use base::fairness::ClientKey;

use super::{
    RequestBody, ResponseBody, Retry, SendError,
    access::Transport,
    dialer::ConnectionUse,
    pool::{NoPlace, Pool},
    response_body::Received,
    silence::changes_nothing,
    slot::Slot,
    target::{InvalidTarget, Target},
    via,
};

/// Sends a request on the first of `pools`, in order of preference, that has a place for `client`. Only path and query
/// of its URI are used.
///
/// GET and HEAD without a body, if they ask for no upgrade, are sent a second time if a connection that had worked
/// turns out to be dead, and all requests without a body if upstream says that it has not processed them.
pub(super) async fn deliver(
    target: &Target,
    pools: &[&Pool],
    client: Option<ClientKey>,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, SendError> {
    let answer = deliver_unnoted(target, pools, client, request).await;
    target.health.requested(target, answer.as_ref().err());
    answer
}

/// The same, but the outcome does not count for whether upstream can be reached.
pub(super) async fn deliver_unnoted(
    target: &Target,
    pools: &[&Pool],
    client: Option<ClientKey>,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, body) = request.into_parts();
    head.uri = target.join(&head.uri).map_err(|InvalidTarget| SendError::InvalidTarget)?;
    // The HTTP client uses the version that upstream offers, and sets Host from the URI.
    head.version = Version::HTTP_11;
    head.headers.remove(HOST);
    via::add(&mut head.headers);
    head.extensions = http::Extensions::new();
    let (transport, slot) = admit(pools, client)?;

    let is_answered_by_api = !head.uri.path().contains("/proxy");
    let again = matches!(body, RequestBody::Empty).then(|| (head.clone(), transport.clone()));
    let answer = match (exchange(transport, Request::from_parts(head, body)).await, again) {
        (Err(error), Some((head, transport))) if may_be_repeated(&head, &error) => {
            exchange(transport, Request::from_parts(head, RequestBody::Empty)).await
        }
        (answer, _) => answer,
    };
    let answer = answer?;
    // A pod or a service behind the API server may say anything.
    if is_answered_by_api && via::says_gone(&answer) {
        return Err(SendError::GoneAbove);
    }
    Ok(answer.map(|received| ResponseBody::new(received, slot)))
}

/// Takes a place in one of `pools`. The error is that of the last pool, which accepts every kind of request.
fn admit(pools: &[&Pool], client: Option<ClientKey>) -> Result<(Transport, Slot), SendError> {
    let mut why = NoPlace::Saturated;
    for pool in pools {
        match pool.admit(client) {
            Ok(place) => return Ok(place),
            Err(no_place) => why = no_place,
        }
    }
    Err(match why {
        NoPlace::Saturated => SendError::Saturated,
        NoPlace::ClientShare => SendError::ClientShare,
    })
}

/// Whether a request without a body, which has got this error, can safely be sent a second time.
fn may_be_repeated(head: &request::Parts, error: &SendError) -> bool {
    changes_nothing(&head.method, &head.headers) && error.retry() == Retry::AtOnce || error.is_unprocessed()
}

async fn exchange(transport: Transport, request: Request<RequestBody>) -> Result<Response<Received>, SendError> {
    let mut answer = transport.oneshot(request).await.map_err(SendError::from_transport)?;
    if let Some(usage) = answer.extensions_mut().remove::<ConnectionUse>() {
        usage.answered();
    }
    Ok(answer)
}
