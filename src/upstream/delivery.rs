//! One request on one lane: its address, its place, its second try.

use http::{Method, Request, Response, Version, header::HOST, request};
use tower::ServiceExt;

use crate::fairness::ClientKey;

use super::{
    RequestBody, ResponseBody, Retry, SendError,
    access::Transport,
    body::Received,
    connector::ConnectionUse,
    hop,
    lanes::{Lanes, NoPlace},
    slot::Slot,
    target::{InvalidTarget, Target},
};

/// Sends a request on the first of `lanes` that has a place for `client`, the best first. Only path and query of its URI count.
///
/// GET and HEAD without a body are asked a second time if a connection that had worked turns out to be dead.
pub(super) async fn deliver(
    target: &Target,
    lanes: &[&Lanes],
    client: Option<ClientKey>,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, body) = request.into_parts();
    head.uri = target.join(&head.uri).map_err(|InvalidTarget| SendError::InvalidTarget)?;
    // The client chooses the version by what upstream offers, and writes Host from the URI.
    head.version = Version::HTTP_11;
    head.headers.remove(HOST);
    hop::add(&mut head.headers);
    head.extensions = http::Extensions::new();
    let (transport, slot) = admit(lanes, client)?;

    let again = is_repeatable(&head, &body).then(|| (head.clone(), transport.clone()));
    let answer = match (exchange(transport, Request::from_parts(head, body)).await, again) {
        (Err(error), Some((head, transport))) if error.retry() == Retry::AtOnce => {
            exchange(transport, Request::from_parts(head, RequestBody::Empty)).await?
        }
        (answer, _) => answer?,
    };
    Ok(answer.map(|received| ResponseBody::new(received, slot)))
}

/// A place on one of `lanes`. Why there is none is what the last of them says: it is the one for everything.
fn admit(lanes: &[&Lanes], client: Option<ClientKey>) -> Result<(Transport, Slot), SendError> {
    let mut why = NoPlace::Saturated;
    for lanes in lanes {
        match lanes.admit(client) {
            Ok(place) => return Ok(place),
            Err(no_place) => why = no_place,
        }
    }
    Err(match why {
        NoPlace::Saturated => SendError::Saturated,
        NoPlace::ClientShare => SendError::ClientShare,
    })
}

/// Whether a request may be sent twice without harm, and still can be.
fn is_repeatable(head: &request::Parts, body: &RequestBody) -> bool {
    matches!(head.method, Method::GET | Method::HEAD) && matches!(body, RequestBody::Empty)
}

async fn exchange(transport: Transport, request: Request<RequestBody>) -> Result<Response<Received>, SendError> {
    let mut answer = transport.oneshot(request).await.map_err(SendError::from_transport)?;
    if let Some(usage) = answer.extensions_mut().remove::<ConnectionUse>() {
        usage.answered();
    }
    Ok(answer)
}
