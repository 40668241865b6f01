//! Forwards requests to upstream and relays its answers.
//!
//! Method, path, query, body, trailers, status and all headers that are not of one connection pass unchanged, and
//! stream in both directions. When the client goes, its request is cancelled: dropping the future or the body of the
//! answer ends the request upstream. This module answers nothing itself: an error says why there is no answer, and the
//! gateway words it.

mod body;
mod error;
mod headers;
mod identity;
#[cfg(test)]
mod tests;
mod tunnel;

use std::{sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, Version};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::authn::{CostClass, Credentials, PendingVerification, Requester, UnverifiedSender};
use crate::connector::{AsClient, AsFrontProxy, AsGateway, Outbound, RequestBody, ResponseBody};
use base::fairness::{
    ClientKey, ConcurrencyLimit, PacedConcurrencyLimit, PacedTurn, Rate, RateLimit, Share, Shares, Turn,
};
use base::lifecycle::Tasks;

pub use body::ForwardedBody;
pub use error::ForwardError;
pub use headers::is_upgrade;
pub use identity::Assertion;

use identity::Identity;

/// Requests of one connection that are delayed at once; further ones are refused. The number of connections of an
/// address is limited, and so is that of its delayed requests.
const DELAYED_AT_ONCE: usize = 8;

/// Requests of one client that were not reviewed because there were too many, and are sent upstream at once; its others
/// wait for their turn, which pauses after each. They cost upstream more than the reviews that they replace, and would
/// come all at once. A turn ends with the head of the response, so that a watch does not keep it.
const UNREVIEWED_AT_ONCE: usize = 1 + COMMON;
/// Unreviewed requests of one client in the long run. Few are free: when many clients begin to send more than can be
/// reviewed, upstream is busy with their reviews. Beyond them, the rate is that of reviews: the 1,000 requests that a
/// client may have in flight by default have their turn within [`TURN_WAIT_MAX`].
const UNREVIEWED: Rate = Rate { burst: 5, interval: Duration::from_millis(20), ahead: 9 };
/// Requests of one client with costly selectors that are sent upstream at once; the turn of each pauses. Upstream takes
/// some 25 ms of CPU time for one of 60 kB, most of it before its own fairness looks at the request.
const COSTLY_AT_ONCE: usize = 1;
/// The maximum pause after such a request: three times what upstream takes for it, so that one user takes a quarter of
/// a core.
const COSTLY_PAUSE_MAX: Duration = Duration::from_millis(100);
/// A request of either kind gives its turn back after this time, answered or not: where upstream needs long for the
/// response, its own fairness has begun to look after the client, whose others need not wait.
const HEAVY_TURN_MAX: Duration = Duration::from_secs(1);
/// Unreviewed requests of all clients together, beyond the first of each.
const COMMON: usize = 2;
/// How long such a request waits for its turn before it is refused. Long, because a client that starts with many
/// requests at once should get through.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Forwards requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forward {
    identity: Identity,
    /// `None` in `trusted` mode, where clients are not told apart.
    shares: Option<Shares>,
    /// Limits the requests of one connection that are delayed. Those of one address take no share of it meanwhile:
    /// clients that share an address must not keep each other out for as long.
    delays: Shares,
    turns: Arc<HeavyTurns>,
    tasks: Tasks,
}

/// The turns of requests that cost upstream more than others.
#[derive(Debug)]
struct HeavyTurns {
    /// Of those that were not reviewed because there were too many.
    unreviewed: PacedConcurrencyLimit,
    /// Of those with costly selectors.
    costly: PacedConcurrencyLimit,
    turn_max: Duration,
    tasks: Tasks,
}

/// A turn of one of these kinds: the task that has it gives it back when this is dropped.
type HeavyTurn = oneshot::Sender<()>;

/// What is held until upstream's response begins.
type Held = (Option<HeavyTurn>, Option<Turn>);

impl HeavyTurns {
    fn new(tasks: &Tasks) -> Self {
        let unreviewed =
            ConcurrencyLimit::new(UNREVIEWED_AT_ONCE, TURN_WAIT_MAX, "client_forwarded_wait").with_common(COMMON);
        let rate = RateLimit::new(UNREVIEWED, "client_forwarded_pace");
        let unreviewed = PacedConcurrencyLimit::new(unreviewed, tasks.clone()).at(rate);
        let costly = ConcurrencyLimit::new(COSTLY_AT_ONCE, TURN_WAIT_MAX, "client_costly_wait");
        let costly = PacedConcurrencyLimit::new(costly, tasks.clone()).pausing_up_to(COSTLY_PAUSE_MAX);
        Self { unreviewed, costly, turn_max: HEAVY_TURN_MAX, tasks: tasks.clone() }
    }

    /// Keeps a turn until what is returned is dropped, and no longer than it may last.
    fn keep(&self, turn: PacedTurn) -> HeavyTurn {
        let (held, released) = oneshot::channel();
        let most = self.turn_max;
        self.tasks.spawn("heavy turn", async move {
            drop(timeout(most, released).await);
            drop(turn);
        });
        held
    }
}

impl Forward {
    /// Sends every request as the gateway (`trusted` mode). `tasks` runs the tunnels of upgraded requests.
    pub fn trusted(gateway: AsGateway, tasks: Tasks) -> Self {
        let (identity, turns) = (Identity::Trusted(gateway), Arc::new(HeavyTurns::new(&tasks)));
        Self { identity, shares: None, delays: delays(), turns, tasks }
    }

    /// Sends each request under its client's identity (`delegated` mode), and has no means to send one as the gateway.
    /// `assertion` is how users that the gateway has verified are asserted to upstream; without one, their requests are
    /// not forwarded. `shares` bounds the requests that one client may have in flight.
    pub fn delegated(client: AsClient, assertion: Option<Assertion>, shares: Shares, tasks: Tasks) -> Self {
        let identity = Identity::Delegated { client, assertion };
        let turns = Arc::new(HeavyTurns::new(&tasks));
        Self { identity, shares: Some(shares), delays: delays(), turns, tasks }
    }

    /// What asserts users to upstream as a front proxy does, if that is how.
    pub fn front_proxy(&self) -> Option<AsFrontProxy> {
        match &self.identity {
            Identity::Delegated { assertion: Some(Assertion::FrontProxy(proxy)), .. } => Some(proxy.clone()),
            Identity::Delegated { .. } | Identity::Trusted(_) => None,
        }
    }

    /// Whether few more watches of that client can be forwarded at once: one that can wait for memory should.
    pub fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        let own = self.shares.as_ref().zip(client).is_some_and(|(shares, client)| shares.are_scarce_for(client));
        own || self.identity.is_scarce_for(client)
    }

    /// Forwards a request and returns upstream's answer. `credentials` are the request's own, removed from its headers.
    /// The address of `requester`, if there is one, goes into X-Forwarded-For, and the request counts for its client.
    /// If many credentials of that address were refused, it is delayed first, unless upstream has accepted its own
    /// recently.
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
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        if request.method() == Method::CONNECT {
            return Err(ForwardError::Connect);
        }
        let upgrade = is_upgrade(&request);
        headers::for_upstream(request.headers_mut(), requester.address, upgrade)?;
        // Boxed, so that other requests do not carry its size.
        let client = upgrade.then(|| Box::new(hyper::upgrade::on(&mut request)));
        let outbound = self.identity.put_on(request.map(RequestBody::from_client), credentials)?;
        let outbound = outbound.counted(requester.client).long_running(long_running);
        let unverified = requester.unverified.as_ref().filter(|_| !outbound.is_accepted());
        let (share, _turns) = self.admitted(&requester, unverified, &outbound).await?;
        let pending = unverified.map(UnverifiedSender::sent);
        let answer = match client {
            Some(client) => Box::pin(self.upgrade(*client, outbound, share)).await,
            None => outbound.send().await.map_err(ForwardError::from).and_then(|answer| relayed(answer, share)),
        };
        pending.into_iter().for_each(PendingVerification::answered);
        answer
    }

    /// Waits until the request may be sent: for its delay, if it has one, and for its turns.
    async fn admitted(
        &self,
        requester: &Requester,
        mut unverified: Option<&UnverifiedSender>,
        outbound: &Outbound,
    ) -> Result<(Option<Share>, Held), ForwardError> {
        loop {
            if let Some(sender) = unverified
                && let Some(delay) = sender.delay()
            {
                let _place = self.delays.take(sender.connection).ok_or(ForwardError::TooManyDelayed)?;
                sleep(delay).await;
                unverified = None;
            }
            let share = self.share(requester)?;
            // Counted before it waits, so that the number of those that wait is limited.
            let turns = (self.turn(requester).await?, outbound.turn().await);
            // Others of its address may have been refused while it waited.
            if !unverified.is_some_and(UnverifiedSender::are_many) {
                return Ok((share, turns));
            }
        }
    }

    /// A place among the client's requests in flight; `None` if clients are not told apart.
    fn share(&self, requester: &Requester) -> Result<Option<Share>, ForwardError> {
        let Some((shares, client)) = self.shares.as_ref().zip(requester.client) else { return Ok(None) };
        shares.take(client).map(Some).ok_or(ForwardError::ClientShare)
    }

    /// A turn of a request that costs upstream more than others; `None` for others, and if clients are not told apart.
    async fn turn(&self, requester: &Requester) -> Result<Option<HeavyTurn>, ForwardError> {
        let Some(client) = requester.client else { return Ok(None) };
        let turn = match requester.cost {
            CostClass::Usual => return Ok(None),
            CostClass::Unreviewed => self.turns.unreviewed.wait(client).await,
            CostClass::Costly => self.turns.costly.wait(client).await,
        };
        turn.map(|turn| Some(self.turns.keep(turn))).ok_or(ForwardError::NoTurn)
    }

    /// A granted upgrade becomes a tunnel; any other answer is relayed.
    async fn upgrade(
        &self,
        client: OnUpgrade,
        outbound: Outbound,
        share: Option<Share>,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let mut answer = outbound.send_http1().await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return relayed(answer, share);
        }
        let upstream = hyper::upgrade::on(&mut answer);
        let slot = answer.body_mut().take_slot();
        self.tasks.spawn("tunnel", tunnel::join(client, upstream, slot, share));
        headers::for_client(answer.headers_mut(), true);
        Ok(answer.map(|body| ForwardedBody::new(body, None)))
    }
}

fn delays() -> Shares {
    Shares::new(DELAYED_AT_ONCE, "connection_delayed_requests")
}

fn relayed(mut answer: Response<ResponseBody>, share: Option<Share>) -> Result<Response<ForwardedBody>, ForwardError> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ForwardError::UnaskedUpgrade);
    }
    headers::for_client(answer.headers_mut(), false);
    // The version belongs to the connection, not to the answer.
    *answer.version_mut() = Version::HTTP_11;
    Ok(answer.map(|body| ForwardedBody::new(body, share)))
}
