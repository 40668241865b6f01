//! Forwards requests to upstream and relays its answers.
//!
//! Method, path, query, body, trailers, status and all headers that are not of one connection pass unchanged, and
//! stream in both directions. When the client goes, its request is cancelled: dropping the future or the body of the
//! answer ends the request upstream. This module answers nothing itself: an error says why there is no answer, and the
//! gateway words it.

mod error;
mod headers;
mod identity;
#[cfg(test)]
mod tests;
mod tunnel;

use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::sleep;

use crate::authn::{Credentials, Requester};
use crate::connector::{AsClient, AsGateway, RequestBody, ResponseBody};
use crate::fairness::{Share, Shares};
use crate::lifecycle::Tasks;

pub use error::ForwardError;
pub use headers::is_upgrade;
pub use identity::Assertion;

use identity::Identity;

/// Forwards requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forward {
    identity: Identity,
    /// `None` in `trusted` mode, where clients are not told apart.
    shares: Option<Shares>,
    tasks: Tasks,
}

impl Forward {
    /// Sends every request as the gateway (`trusted` mode). `tasks` runs the tunnels of upgraded requests.
    pub fn trusted(gateway: AsGateway, tasks: Tasks) -> Self {
        Self { identity: Identity::Trusted(gateway), shares: None, tasks }
    }

    /// Sends each request under its client's identity (`delegated` mode), and has no means to send one as the gateway.
    /// `assertion` is how upstream is told of users that the gateway has verified; without one, their requests are not
    /// forwarded. `shares` bounds the requests that one client may have in flight.
    pub fn delegated(client: AsClient, assertion: Option<Assertion>, shares: Shares, tasks: Tasks) -> Self {
        Self { identity: Identity::Delegated { client, assertion }, shares: Some(shares), tasks }
    }

    /// Forwards a request and returns upstream's answer. `credentials` are the request's own, removed from its headers.
    /// The address of `requester`, if there is one, goes into X-Forwarded-For, and the request counts for its client,
    /// also during its delay.
    /// `long_running` is true if the answer goes on for as long as the client likes.
    ///
    /// X-Remote-* of the client are dropped, Impersonate-* pass.
    ///
    /// # Errors
    /// Upstream gave no answer, or the request may not be forwarded.
    pub async fn send(
        &self,
        mut request: Request<Incoming>,
        credentials: &Credentials,
        requester: Requester,
        long_running: bool,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        if request.method() == Method::CONNECT {
            return Err(ForwardError::Connect);
        }
        let share = self.share(requester)?;
        if let Some(delay) = requester.delay {
            sleep(delay).await;
        }
        let upgrade = is_upgrade(&request);
        headers::for_upstream(request.headers_mut(), requester.address, upgrade)?;
        if upgrade {
            // Boxed, so that other requests do not carry its size.
            return Box::pin(self.upgrade(request, credentials, requester, share)).await;
        }
        let outbound = self.identity.put_on(request.map(RequestBody::from_client), credentials)?;
        let mut answer = outbound.counted(requester.client).long_running(long_running).send().await?;
        answer.body_mut().hold(share);
        relayed(answer)
    }

    /// A place among the client's requests in flight; `None` if clients are not told apart.
    fn share(&self, requester: Requester) -> Result<Option<Share>, ForwardError> {
        let Some((shares, client)) = self.shares.as_ref().zip(requester.client) else { return Ok(None) };
        shares.take(client).map(Some).ok_or(ForwardError::ClientShare)
    }

    /// A granted upgrade becomes a tunnel; any other answer is relayed.
    async fn upgrade(
        &self,
        mut request: Request<Incoming>,
        credentials: &Credentials,
        requester: Requester,
        share: Option<Share>,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let client = hyper::upgrade::on(&mut request);
        let outbound = self.identity.put_on(request.map(RequestBody::from_client), credentials)?;
        let mut answer = outbound.counted(requester.client).send_http1().await?;
        answer.body_mut().hold(share);
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return relayed(answer);
        }
        let upstream = hyper::upgrade::on(&mut answer);
        let slot = answer.body_mut().take_slot();
        self.tasks.spawn("tunnel", tunnel::join(client, upstream, slot));
        headers::for_client(answer.headers_mut(), true);
        Ok(answer)
    }
}

fn relayed(mut answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, ForwardError> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ForwardError::UnaskedUpgrade);
    }
    headers::for_client(answer.headers_mut(), false);
    // The version belongs to the connection, not to the answer.
    *answer.version_mut() = Version::HTTP_11;
    Ok(answer)
}
