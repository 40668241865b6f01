//! What a seed decides for the whole run: the kind of upstream, and the configuration of each gateway.

use std::{fmt, time::Duration};

use fastrand::Rng;
use kube_fanout::{
    config::{
        Address, CacheScope, ClientsConfig, Config, ListenerConfig, MostRecentReads, MostRecentWatch, Overrides,
        PeersConfig, StaleWatches,
    },
    sim::Features,
};

use crate::{
    delegated,
    gateway::{PEERS, server_address},
    world::{API_SERVERS, GATEWAY_PORT, NODES_MAX, REPLICAS},
};

/// How long a review is remembered, and how often an open watch is authorized again.
const REVIEWED: Duration = Duration::from_secs(10);

/// The settings of a run.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) features: Features,
    /// The number of changes that upstream keeps for watches.
    pub(crate) history: usize,
    /// Whether API servers are upgraded one after another. Then each gateway has all its connections to one of them:
    /// else it cannot know which program filled a cache (the chapter `consistency`).
    pub(crate) has_upgrades: bool,
    /// Whether rights end at namespaces: those of the gateways and those of clients. All clients then read namespaces.
    pub(crate) has_roles: bool,
    /// Whether all connections of a node go to one replica.
    pub(crate) has_sticky_nodes: bool,
    /// The replicas, and then the nodes.
    pub(crate) gateways: Vec<Config>,
}

impl Settings {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let features = if rng.u32(..5) == 0 { Features::old() } else { Features::default() };
        let history = *rng.choice(&[10, 200, 200, 10_000]).unwrap();
        let clients = if rng.bool() { delegated::clients(REVIEWED, REVIEWED) } else { ClientsConfig::default() };
        let has_upgrades = rng.u32(..3) == 0;
        let mut gateways: Vec<_> = (0..REPLICAS).map(|_| gateway(clients.clone(), rng)).collect();
        let has_roles = rng.u32(..4) == 0;
        // Which servers are of one cluster is asked about the namespace kube-system, which no Role grants.
        let (has_peers, has_servers) = (rng.bool(), !has_upgrades && !has_roles && rng.bool());
        for config in &mut gateways {
            if has_roles {
                // Beyond fewer, namespaces are forwarded.
                config.cache.scopes_per_resource = 64;
            }
            if has_peers {
                config.cache.peers = Some(PeersConfig { addresses: vec![PEERS.parse().unwrap()], ca: None });
            }
            if has_servers && rng.u32(..4) > 0 {
                let count = rng.usize(2..=API_SERVERS);
                let servers = rng.choose_multiple(0..API_SERVERS, count);
                config.servers = servers.into_iter().map(|number| server_address(number).parse().unwrap()).collect();
            }
        }
        Self { features, history, has_upgrades, has_roles, has_sticky_nodes: has_upgrades, gateways }
    }

    /// Puts nodes in front of the replicas in half of the seeds, or as many as are wanted.
    pub(crate) fn add_nodes(&mut self, wanted: Option<usize>, rng: &mut Rng) {
        let drawn = if rng.bool() { rng.usize(1..=NODES_MAX) } else { 0 };
        // As on the machines of a cluster, where a node speaks for its clients.
        let clients = if rng.bool() { ClientsConfig::default() } else { self.gateways[0].clients.clone() };
        self.has_sticky_nodes |= rng.bool();
        let (has_peers, has_servers) = (rng.bool(), !self.has_upgrades && !self.has_roles && rng.bool());
        for _ in 0..wanted.unwrap_or(drawn) {
            let mut config = gateway(clients.clone(), rng);
            if self.has_roles {
                config.cache.scopes_per_resource = 64;
            }
            if has_peers {
                config.cache.peers = Some(PeersConfig { addresses: vec![PEERS.parse().unwrap()], ca: None });
            }
            if has_servers {
                config.servers = (0..REPLICAS).map(|number| server_address(number).parse().unwrap()).collect();
            }
            self.gateways.push(config);
        }
        if self.has_speaking_nodes() {
            // Forwarded watches of all its clients would leave a node no place for its own fills.
            for replica in &mut self.gateways[..REPLICAS] {
                replica.limits.forwarded_per_client = 64;
            }
        }
    }

    /// Whether there are nodes, and replicas take all clients of one for a single one.
    fn has_speaking_nodes(&self) -> bool {
        self.nodes().first().is_some_and(|node| matches!(node.clients, ClientsConfig::Trusted(_)))
            && self.is_delegated()
    }

    pub(crate) fn nodes(&self) -> &[Config] {
        &self.gateways[REPLICAS..]
    }

    /// Whether gateways send reviews of clients to upstream.
    pub(crate) fn is_delegated(&self) -> bool {
        matches!(self.gateways[0].clients, ClientsConfig::Delegated(_))
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = if self.is_delegated() { "delegated" } else { "trusted" };
        let upstream = if self.features.watch_list { "" } else { ", old upstream" };
        let upgrades = if self.has_upgrades { ", upgrades" } else { "" };
        let peers = if self.gateways[0].cache.peers.is_some() { ", peers" } else { "" };
        let servers: Vec<_> = self.gateways.iter().map(|config| config.servers.len()).collect();
        let roles = if self.has_roles { ", roles" } else { "" };
        let scopes: Vec<_> = self.gateways.iter().map(|config| config.cache.scope).collect();
        let bytes: Vec<_> = self.gateways.iter().map(|config| config.cache.bytes.unwrap_or_default()).collect();
        write!(
            formatter,
            "{clients}{upstream}{upgrades}{roles}{peers}, scopes {scopes:?}, servers {servers:?}, bytes {bytes:?}, \
             history of {}",
            self.history
        )?;
        let Some(node) = self.nodes().first() else { return Ok(()) };
        let trusted = if self.has_speaking_nodes() { ", trusted" } else { "" };
        let sticky = if self.has_sticky_nodes { ", sticky" } else { "" };
        let peers = if node.cache.peers.is_some() { ", peers" } else { "" };
        write!(formatter, "; {} nodes{trusted}{sticky}{peers}", self.nodes().len())
    }
}

fn gateway(clients: ClientsConfig, rng: &mut Rng) -> Config {
    let mut config = Config::defaults(&Overrides::default()).unwrap();
    let address = Address::Tcp(([127, 0, 0, 1], GATEWAY_PORT).into());
    let max_connection_age = rng.bool().then_some(Duration::from_secs(30));
    config.listeners = vec![ListenerConfig { max_connection_age, ..ListenerConfig::plain(address) }];
    config.clients = clients;
    if rng.u32(..4) > 0 {
        // So small that the history loses changes that a slow watcher has not read; it keeps some hundred.
        config.cache.history.bytes = 1;
    }
    if rng.bool() {
        config.cache.history.age = Duration::from_secs(10);
    }
    config.cache.bridge = rng.u32(..4) > 0;
    if rng.u32(..3) == 0 {
        config.cache.idle_timeout = Duration::from_secs(5);
    }
    if rng.u32(..4) == 0 {
        // Longer than the time between two bookmarks.
        config.cache.max_staleness = Some(Duration::from_secs(100));
        config.cache.stale_watches = StaleWatches::End;
    }
    if rng.u32(..3) == 0 {
        config.cache.scope = CacheScope::Requested;
        config.cache.scopes_per_resource = *rng.choice(&[1, 2, 64]).unwrap();
    }
    if rng.bool() {
        // Each object, and each change of one, as soon as it is there.
        config.cache.compress_after = Some(Duration::ZERO);
    }
    if rng.bool() {
        config.reads.freshness_wait = Duration::from_secs(1);
    }
    let most_recent = [MostRecentReads::Forward, MostRecentReads::Auto, MostRecentReads::Prove];
    config.reads.most_recent = *rng.choice(&most_recent).unwrap();
    if rng.u32(..4) == 0 {
        config.reads.most_recent_watch = MostRecentWatch::Forward;
    }
    if rng.bool() {
        config.drain.timeout = Duration::from_secs(2);
    }
    config.limits.forwarded_per_client = 8;
    if rng.u32(..3) == 0 {
        // Too little for all caches, and at times for any.
        config.cache.bytes = Some(*rng.choice(&[10_000, 100_000, 400_000, 1_000_000]).unwrap());
    }
    config
}
