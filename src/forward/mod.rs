//! Answers from upstream: the request goes through as it came.
//!
//! Method, path, query, body, trailers, status and all headers that are not of one connection pass unchanged, in both
//! directions as they arrive. When the client goes, its request is cancelled: whoever drops the future or the body of the
//! answer ends the request upstream. Nothing is answered here: an error says why there is no answer, and the gateway
//! words it.

mod error;
mod headers;
mod identity;
#[cfg(test)]
mod tests;
mod tunnel;

use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::authn::{Credentials, Requester};
use crate::fairness::{Share, Shares};
use crate::lifecycle::Tasks;
use crate::upstream::{AsClient, AsGateway, RequestBody, ResponseBody};

pub use error::ForwardError;
pub use headers::is_upgrade;
pub use identity::Assertion;

use identity::Identity;

/// Forwards requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forward {
    identity: Identity,
    /// None in `trusted` mode, where clients are not told apart.
    shares: Option<Shares>,
    tasks: Tasks,
}

impl Forward {
    /// As the gateway, whoever asks (`trusted` mode). `tasks` runs the tunnels of upgraded requests.
    pub fn trusted(gateway: AsGateway, tasks: Tasks) -> Self {
        Self { identity: Identity::Trusted(gateway), shares: None, tasks }
    }

    /// As who asks (`delegated` mode), and never as the gateway: there is nothing here that could. `assertion` is how
    /// upstream is told of users who were verified here; without one, their requests are not forwarded. `shares` is how many
    /// requests one client may have on their way.
    pub fn delegated(client: AsClient, assertion: Option<Assertion>, shares: Shares, tasks: Tasks) -> Self {
        Self { identity: Identity::Delegated { client, assertion }, shares: Some(shares), tasks }
    }

    /// Upstream's answer. `credentials` are the request's own, taken off its headers. The address of `requester`, if there is one,
    /// goes into X-Forwarded-For, and the request counts for its client. `lasts` is true of an answer that goes on for as long as the
    /// client likes.
    ///
    /// X-Remote-* of the client are dropped, Impersonate-* pass.
    ///
    /// # Errors
    /// Upstream gave no answer, or the request is none that may be forwarded.
    pub async fn send(
        &self,
        mut request: Request<Incoming>,
        credentials: &Credentials,
        requester: Requester,
        lasts: bool,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        if request.method() == Method::CONNECT {
            return Err(ForwardError::Connect);
        }
        let share = self.share(requester)?;
        let upgrade = is_upgrade(&request);
        headers::for_upstream(request.headers_mut(), requester.address, upgrade)?;
        if upgrade {
            // In a box: others carry no room for it around.
            return Box::pin(self.upgrade(request, credentials, requester, share)).await;
        }
        let outbound = self.identity.put_on(request.map(RequestBody::from_client), credentials)?;
        let mut answer = outbound.counted(requester.client).lasts(lasts).send().await?;
        answer.body_mut().hold(share);
        relayed(answer)
    }

    /// A place among those of one client, where clients are told apart.
    fn share(&self, requester: Requester) -> Result<Option<Share>, ForwardError> {
        let Some((shares, client)) = self.shares.as_ref().zip(requester.client) else { return Ok(None) };
        shares.take(client).map(Some).ok_or(ForwardError::ClientShare)
    }

    /// A granted upgrade becomes a tunnel; anything else is an answer like others.
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
    // The version is the connection's, not the answer's.
    *answer.version_mut() = Version::HTTP_11;
    Ok(answer)
}
