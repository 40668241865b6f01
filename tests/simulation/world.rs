//! What all parties of a run share.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, Mutex},
};

use fastrand::Rng;
use kube_fanout::sim::Sim;
use tokio::sync::watch;

use crate::{
    open::Open,
    record::Record,
    selection::Selection,
    writer::{APPS, NAMESPACES},
};

pub(crate) const API_SERVERS: usize = 3;
/// The gateways in front of the API servers.
pub(crate) const REPLICAS: usize = 2;
/// The most gateways in front of the replicas.
pub(crate) const NODES_MAX: usize = 2;
pub(crate) const GATEWAY_PORT: u16 = 8001;

/// Whether each gateway is refused by all that it connects to: a replica by API servers, a node by replicas.
pub(crate) type CutOff = watch::Sender<Vec<bool>>;

/// User agents, for each request.
pub(crate) type Forwarded = Arc<Mutex<Vec<String>>>;

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The storage of all API servers.
    pub(crate) sim: Sim,
    pub(crate) record: Record,
    pub(crate) is_delegated: bool,
    /// The user agents of probes' requests that gateways have sent on.
    pub(crate) forwarded: Forwarded,
    /// The newest program that an API server runs.
    pub(crate) edition: Rc<Cell<usize>>,
    pub(crate) cut_off: CutOff,
    pub(crate) open: Open,
    /// How many there are: the replicas, and the nodes.
    pub(crate) gateways: usize,
}

impl World {
    /// Whether a request of this user agent was sent on since the last question.
    pub(crate) fn was_forwarded(&self, user_agent: &str) -> bool {
        let mut forwarded = self.forwarded.lock().unwrap();
        let before = forwarded.len();
        forwarded.retain(|other| other != user_agent);
        forwarded.len() < before
    }
}

/// The host of a gateway: first the replicas, then the nodes, whose upstream is the replicas.
pub(crate) fn gateway(number: usize) -> String {
    if is_node(number) { format!("node-{}", number - REPLICAS) } else { format!("gateway-{number}") }
}

/// Whether a gateway is in front of other gateways.
pub(crate) fn is_node(number: usize) -> bool {
    number >= REPLICAS
}

pub(crate) fn api_server(number: usize) -> String {
    format!("api-server-{number}")
}

/// What a client reads: of one namespace where its rights end there.
pub(crate) fn selection(has_roles: bool, rng: &mut Rng) -> Selection {
    let app = *rng.choice(&APPS).unwrap();
    let namespace = *rng.choice(&NAMESPACES).unwrap();
    let (all, node) = (Selection::pods(), format!("node-{app}"));
    let within = all.clone().in_namespace(namespace);
    let all = if has_roles { within.clone() } else { all };
    let selection = match rng.u32(..8) {
        0 => all.of_app(app),
        1 | 2 => all.on_node(&node),
        3 => within,
        4 => within.of_app(app),
        5 => within.named("a"),
        6 => within.on_node(&node),
        _ => all,
    };
    if rng.u32(..4) == 0 { selection.of_metadata() } else { selection }
}
