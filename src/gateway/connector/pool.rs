//! Bounded sets of connections to upstream.
//!
//! An HTTP/2 connection carries a limited number of concurrent requests, and unread data of slow readers fills the
//! flow-control window that all requests of a connection share. So a pool spreads its requests over lanes, each with
//! its own client and connection, and a lane takes no more requests than its connection window can hold unread in full:
//! a stalled reader never stops another.

use std::{fmt, sync::Arc, time::Duration};

use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::sync::Semaphore;

use base::{
    fairness::{ClientKey, Shares, is_scarce, share_of},
    telemetry::{limit_reached, show_limit},
};

use super::{
    RequestBody,
    access::{self, Access, Transport},
    dialer::{Dialer, Protocols},
    exclusive::{Exclusive, HTTP1_BUFFER_MAX, IDLE_TIMEOUT},
    servers::Choice,
    silence::Requests,
    slot::Slot,
    target::Target,
};

/// Concurrent requests on one connection: the minimum that RFC 9113 (6.5.2) recommends servers to allow.
pub(super) const LANE_REQUESTS_MAX: u32 = 100;
/// Unused HTTP/1.1 connections kept in a lane of most pools.
pub(super) const IDLE_CONNECTIONS_MAX: usize = 8;
/// A quiet HTTP/2 connection is pinged at this interval, and given up if the ping is not answered in time.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer's headers over HTTP/2, in bytes. Warnings of many deprecated fields need more than hyper's
/// 16 KiB.
const RESPONSE_HEADERS_MAX: u32 = 256 * 1024;

/// Flow-control windows of a lane, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) stream: u32,
    pub(super) connection: u32,
}

/// Unread bytes of one answer: enough for 12 MB/s over a way of 10 ms, there and back.
const PATIENT_BYTES: u32 = 128 << 10;

/// Concurrent requests with a connection each: more than an API server has in flight by default. Further requests share
/// connections.
const EXCLUSIVE_MAX: usize = 1000;

/// The connections for requests of one kind.
pub(super) struct Pool {
    lanes: Box<[Lane]>,
    limit: &'static str,
    /// How many of the places each client may hold; `None` for the gateway's own requests.
    shares: Option<Shares>,
}

/// Why a request gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All places are taken.
    Saturated,
    /// The client's share of the places is taken.
    ClientShare,
}

/// Settings of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSettings {
    pub(super) protocols: Protocols,
    /// How the server of a connection is chosen if there are several.
    pub(super) choice: Choice,
    pub(super) windows: Windows,
    /// The number of unused HTTP/1.1 connections kept in a lane.
    pub(super) idle: usize,
    /// The number of lanes; each takes [`LANE_REQUESTS_MAX`] requests.
    pub(super) count: usize,
    /// The limit's name in the metrics.
    pub(super) limit: &'static str,
    /// The name in the metrics of one client's limit, which is a share of the places. `None` for the gateway's own
    /// requests, which count for no client.
    pub(super) client_limit: Option<&'static str>,
}

struct Lane {
    transport: Transport,
    places: Arc<Semaphore>,
}

impl Windows {
    /// For the gateway's own reads: a large list arrives at 40 MB/s over a way of 25 ms, there and back. What a fill
    /// that waits for memory has not read is memory, too, and no budget counts it.
    pub(super) const EAGER: Self = Self { stream: 2 << 20, connection: 16 << 20 };
    /// For answers that clients read at their own pace: the connection's window holds the unread data of a full lane.
    /// One client may have a thousand streams that it does not read.
    pub(super) const PATIENT: Self = Self { stream: PATIENT_BYTES, connection: PATIENT_BYTES * LANE_REQUESTS_MAX };
}

impl PoolSettings {
    /// For `count` times [`LANE_REQUESTS_MAX`] requests of the gateway itself.
    pub(super) const fn own(limit: &'static str, count: usize) -> Self {
        Self {
            protocols: Protocols::Any,
            choice: Choice::Any,
            windows: Windows::EAGER,
            idle: IDLE_CONNECTIONS_MAX,
            count,
            limit,
            client_limit: None,
        }
    }
}

impl Pool {
    pub(super) fn new(access: &Access, settings: PoolSettings) -> Self {
        let dialer = access.dialer(settings.protocols, settings.choice);
        let requests = if settings.client_limit.is_some() { Requests::Any } else { Requests::Own };
        let lanes = (0..settings.count).map(|_| Lane {
            transport: access.transport(client(dialer.clone(), settings.windows, settings.idle), requests),
            places: Arc::new(Semaphore::new(LANE_REQUESTS_MAX as usize)),
        });
        let share = share_of(settings.count * LANE_REQUESTS_MAX as usize);
        let shares = settings.client_limit.map(|limit| Shares::new(share, limit));
        let lanes: Box<[Lane]> = lanes.collect();
        lanes.iter().for_each(|lane| lane.show(LANE_REQUESTS_MAX as usize, settings.limit));
        Self { lanes, limit: settings.limit, shares }
    }

    /// A connection for each request, over HTTP/1.1. `limit` and `client_limit` are names of limits in the metrics.
    pub(super) fn exclusive(access: &Access, target: &Target, limit: &'static str, client_limit: &'static str) -> Self {
        let exclusive = Exclusive::new(access.dialer(Protocols::Http1, Choice::Any), target.host());
        let places = Arc::new(Semaphore::new(EXCLUSIVE_MAX));
        let shares = Some(Shares::new(share_of(EXCLUSIVE_MAX), client_limit));
        let lane = Lane { transport: access.transport(exclusive, Requests::Any), places };
        lane.show(EXCLUSIVE_MAX, limit);
        Self { lanes: [lane].into(), limit, shares }
    }

    /// Whether few places are left, of all or of the client's share.
    pub(super) fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        let free = self.lanes.iter().map(|lane| lane.places.available_permits()).sum::<usize>();
        let most = self.lanes.len() * LANE_REQUESTS_MAX as usize;
        let shares = self.shares.as_ref().zip(client);
        is_scarce(most.saturating_sub(free), most)
            || shares.is_some_and(|(shares, client)| shares.are_scarce_for(client))
    }

    /// Takes a place in the first lane that has one, counted for `client` if clients are distinguished.
    pub(super) fn admit(&self, client: Option<ClientKey>) -> Result<(Transport, Slot), NoPlace> {
        let share = match self.shares.as_ref().zip(client) {
            Some((shares, client)) => Some(shares.take(client).ok_or(NoPlace::ClientShare)?),
            None => None,
        };
        let free = self.lanes.iter().find_map(|lane| Some((lane, lane.places.clone().try_acquire_owned().ok()?)));
        let Some((lane, permit)) = free else {
            limit_reached(self.limit);
            return Err(NoPlace::Saturated);
        };
        Ok((lane.transport.clone(), Slot::new(permit, share)))
    }
}

impl Lane {
    /// Exports how many of its `most` places are taken.
    fn show(&self, most: usize, limit: &'static str) {
        let places = Arc::downgrade(&self.places);
        show_limit(limit, move || Some(((most - places.upgrade()?.available_permits()) as u64, most as u64)));
    }
}

/// A new connection for each request, which has to close it. Without credentials and without a limit of its own, and
/// also while upstream is silent.
pub(super) fn unpooled(access: &Access) -> Transport {
    access::plain(client(access.dialer(Protocols::Http1, Choice::Any), Windows::EAGER, 0))
}

fn client(dialer: Dialer, windows: Windows, idle: usize) -> Client<Dialer, RequestBody> {
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(idle)
        .http1_max_buf_size(HTTP1_BUFFER_MAX)
        .http2_initial_stream_window_size(windows.stream)
        .http2_initial_connection_window_size(windows.connection)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_max_header_list_size(RESPONSE_HEADERS_MAX)
        // Retries only requests of which nothing was sent, which is also safe for writes.
        .retry_canceled_requests(true)
        .build(dialer)
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.lanes.iter().map(|lane| lane.places.available_permits());
        formatter.debug_struct("Pool").field("free", &free.sum::<usize>()).finish_non_exhaustive()
    }
}
