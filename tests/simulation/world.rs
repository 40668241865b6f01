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
pub(crate) const GATEWAYS: usize = 2;
pub(crate) const GATEWAY_PORT: u16 = 8001;

/// Whether each gateway is refused by all API servers.
pub(crate) type CutOff = watch::Sender<[bool; GATEWAYS]>;

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The storage of all API servers.
    pub(crate) sim: Sim,
    pub(crate) record: Record,
    pub(crate) is_delegated: bool,
    /// The user agents of probes' requests that reached upstream.
    pub(crate) forwarded: Arc<Mutex<Vec<String>>>,
    /// The newest program that an API server runs.
    pub(crate) edition: Rc<Cell<usize>>,
    pub(crate) cut_off: CutOff,
    pub(crate) open: Open,
}

impl World {
    /// Whether a request of this user agent reached upstream since the last question.
    pub(crate) fn was_forwarded(&self, user_agent: &str) -> bool {
        let mut forwarded = self.forwarded.lock().unwrap();
        let before = forwarded.len();
        forwarded.retain(|other| other != user_agent);
        forwarded.len() < before
    }
}

pub(crate) fn gateway(number: usize) -> String {
    format!("gateway-{number}")
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
