//! What is open: each gateway's tasks, its connections to what it is in front of, as it holds them, and its watches
//! there, as API servers count them (of a node: as its connections carry them); and what is used of the limits.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http_body::{Body, Frame};
use kube_fanout::{
    config::{CacheScope, ClientsConfig, Config},
    telemetry::used_limits,
};
use tokio::runtime::{Handle, RuntimeMetrics};

use crate::{
    settings::Settings,
    world::is_node,
    writer::{APPS, NAMESPACES},
};

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Open(Arc<[OfGateway]>);

#[derive(Debug, Default)]
struct OfGateway {
    /// The runtime of the gateway alone; `None` before its first start.
    runtime: Mutex<Option<RuntimeMetrics>>,
    connections: AtomicUsize,
    watches: AtomicUsize,
    /// The connections that nodes hold to it.
    accepted: AtomicUsize,
    is_delegated: bool,
    /// Of its `upstream.servers`.
    servers: usize,
    /// The nodes that have it among theirs: it forwards their checks.
    checked_by: usize,
    /// The watches that it may keep for itself.
    kept: usize,
    /// The caches that it may have given up for want of memory. Each is remembered by a task.
    given_up: usize,
}

/// What is counted as long as it is held.
#[derive(Debug)]
pub(crate) struct Counted {
    open: Open,
    gateway: usize,
    counter: fn(&OfGateway) -> &AtomicUsize,
}

/// The answer to a watch.
#[derive(Debug)]
pub(crate) struct WatchBody<B> {
    body: B,
    _counted: Option<Counted>,
}

/// What a gateway has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    tasks: usize,
    connections: usize,
    watches: usize,
    accepted: usize,
    is_delegated: bool,
    servers: usize,
    checked_by: usize,
    kept: usize,
    given_up: usize,
}

/// Tasks of a gateway that has nothing to do, for example to accept connections; with delegated clients there is one
/// more, which follows the files of authorities, and what keeps caches within their memory.
const TASKS: usize = 5;
/// Tasks of a watch: its cache's, its connection's, and one that would keep the connection when the watch has ended.
const WATCH_TASKS: usize = 3;
/// Connections for the checks of each of `upstream.servers`: the next question may come before the connection of the
/// last one is free, and opens another.
const SERVER_CONNECTIONS: usize = 2;
/// Tasks for the same: those of the connections, and one that would close them if they were unused for longer than the
/// pause between two checks.
const SERVER_TASKS: usize = SERVER_CONNECTIONS + 1;

/// A watch holds its selector as long as it is open: that of a node on one node's pods, for example.
const SELECTOR_BYTES: u64 = 500;
/// Tasks for reviews: that of a connection, and one that would close it if it were unused.
const REVIEW_TASKS: usize = 2;
/// Tasks of a connection of a node.
const ACCEPTED_TASKS: usize = 1;

impl Counts {
    /// Whether everything that a gateway has open is for itself: one watch at most, or one for each namespace of its
    /// Role and each node there, and their connections; a task that checks the API server, or the `upstream.servers`,
    /// and for these connections. In front of a replica there may be nodes, each of which has the same at it; so a
    /// replica may also have
    /// * as many watches as nodes have, since one of a gateway that was forwarded stays with the API server;
    /// * the connections on which it forwards nodes' checks;
    /// * with delegated clients, one connection for each watch of a node, which is authorized again all the time.
    pub(crate) fn is_at_rest(self) -> bool {
        let Self { tasks, connections, watches, accepted, is_delegated, servers, checked_by, kept, given_up } = self;
        let checked = servers + checked_by;
        let reviews = if is_delegated { accepted } else { 0 };
        // Of one address, what notices that it is silent; of several servers, what checks them.
        let checks = 1 + checked * SERVER_TASKS + reviews * REVIEW_TASKS;
        let nodes = accepted * ACCEPTED_TASKS;
        let most = TASKS + usize::from(is_delegated) + watches * WATCH_TASKS + checks + nodes + given_up;
        let connected = watches + checked * SERVER_CONNECTIONS + reviews;
        watches <= kept + accepted && connections <= connected && tasks <= most
    }
}

impl Open {
    /// Of the gateways of a run.
    pub(crate) fn new(settings: &Settings) -> Self {
        let narrow = NAMESPACES.len() * (1 + APPS.len());
        // Without the memory for a wide cache, narrow ones stay until they are idle.
        let stays_narrow = |config: &Config| {
            settings.has_roles || config.cache.bytes.is_some() && config.cache.scope == CacheScope::Requested
        };
        let checking = settings.nodes().iter().filter(|config| !config.servers.is_empty()).count();
        let of = |(number, config): (usize, &Config)| {
            // Nodes read the namespace kube-system, so that a replica may have a cache of namespaces.
            let has_namespaces = usize::from(!is_node(number) && !settings.nodes().is_empty());
            OfGateway {
                kept: if stays_narrow(config) { narrow } else { 1 } + has_namespaces,
                given_up: if config.cache.bytes.is_some() { 1 + APPS.len() + narrow + has_namespaces } else { 0 },
                is_delegated: matches!(config.clients, ClientsConfig::Delegated(_)),
                servers: config.servers.len(),
                checked_by: if is_node(number) { 0 } else { checking },
                ..OfGateway::default()
            }
        };
        Self(settings.gateways.iter().enumerate().map(of).collect())
    }

    /// A gateway starts, in the current runtime.
    pub(crate) fn start(&self, gateway: usize) {
        *self.0[gateway].runtime.lock().unwrap() = Some(Handle::current().metrics());
    }

    /// A gateway has opened a connection to an API server.
    pub(crate) fn connected(&self, gateway: usize) -> Counted {
        self.count(gateway, |gateway| &gateway.connections)
    }

    /// A node has opened a connection to the gateway.
    pub(crate) fn accepted(&self, gateway: usize) -> Counted {
        self.count(gateway, |gateway| &gateway.accepted)
    }

    /// A watch of a gateway has come to an API server, or one of a node was sent to a replica.
    pub(crate) fn watched(&self, gateway: usize) -> Counted {
        self.count(gateway, |gateway| &gateway.watches)
    }

    fn count(&self, gateway: usize, counter: fn(&OfGateway) -> &AtomicUsize) -> Counted {
        counter(&self.0[gateway]).fetch_add(1, Relaxed);
        Counted { open: self.clone(), gateway, counter }
    }

    /// Whether the gateway may have no memory for what is read, and forward it.
    pub(crate) fn may_lack_memory(&self, gateway: usize) -> bool {
        self.0[gateway].given_up > 0
    }

    pub(crate) fn counts(&self, gateway: usize) -> Counts {
        let of = &self.0[gateway];
        let OfGateway { is_delegated, servers, checked_by, kept, given_up, .. } = *of;
        let tasks = of.runtime.lock().unwrap().as_ref().map_or(0, RuntimeMetrics::num_alive_tasks);
        let [connections, watches, accepted] =
            [&of.connections, &of.watches, &of.accepted].map(|counter| counter.load(Relaxed));
        Counts { tasks, connections, watches, accepted, is_delegated, servers, checked_by, kept, given_up }
    }

    /// What is used of the limits of all gateways, which share a process, but by what they have for themselves: each
    /// watch is a cache and a request.
    pub(crate) fn used(&self) -> BTreeMap<&'static str, u64> {
        let sum = |counter: fn(&OfGateway) -> &AtomicUsize| -> u64 {
            self.0.iter().map(|gateway| counter(gateway).load(Relaxed) as u64).sum()
        };
        let (watches, accepted) = (sum(|gateway| &gateway.watches), sum(|gateway| &gateway.accepted));
        let used = used_limits().into_iter().map(|(name, (used, _))| (name, used));
        let given_up: u64 = self.0.iter().map(|gateway| gateway.given_up as u64).sum();
        let own = |name: &str| match name {
            "cached_resources" => watches + given_up,
            "upstream_own_requests" => watches,
            "connections" | "upstream_client_requests" => accepted,
            // A watch of a node, begun while the cache was filled, goes on as it began.
            "upstream_forwarded_requests" | "upstream_unknown_requests" => accepted,
            "answer_bytes" | "reserved_watch_bytes" => accepted * SELECTOR_BYTES,
            // What is cached stays, and so do answers to discovery, which nodes ask for.
            "cache_bytes" | "discovery_bytes" => u64::MAX,
            _ => 0,
        };
        used.filter(|(name, used)| *used > own(name)).collect()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.open.0[self.gateway]).fetch_sub(1, Relaxed);
    }
}

impl<B> WatchBody<B> {
    pub(crate) fn new(body: B, counted: Option<Counted>) -> Self {
        Self { body, _counted: counted }
    }
}

impl<B: Body + Unpin> Body for WatchBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, connections, watches, accepted, is_delegated, servers, checked_by, .. } = self;
        write!(formatter, "{tasks} tasks, {connections} connections and {watches} watches upstream, ")?;
        write!(formatter, "{accepted} connections of nodes, with {servers} upstream.servers, ")?;
        write!(formatter, "checked by {checked_by} nodes, delegated clients: {is_delegated}")
    }
}
