//! What each gateway has open: its tasks, and its connections to API servers, as these count them.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::world::GATEWAYS;

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open(Rc<[OfGateway; GATEWAYS]>);

#[derive(Debug, Default)]
struct OfGateway {
    /// The runtime of the gateway alone; `None` before its first start.
    runtime: RefCell<Option<RuntimeMetrics>>,
    connections: Cell<usize>,
}

/// A connection of a gateway, as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    open: Open,
    gateway: usize,
}

/// What a gateway has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) tasks: usize,
    pub(crate) connections: usize,
}

/// The most that a gateway keeps for itself, with some to spare: 5 to 8 tasks and 0 to 6 connections were seen in front
/// of one address, 14 tasks in front of several servers. Idle connections end after half a minute, or after twice that.
const AT_REST: Counts = Counts { tasks: 20, connections: 10 };

impl Counts {
    pub(crate) fn is_at_rest(self) -> bool {
        self.tasks <= AT_REST.tasks && self.connections <= AT_REST.connections
    }
}

impl Open {
    /// A gateway starts, in the current runtime.
    pub(crate) fn start(&self, gateway: usize) {
        self.0[gateway].runtime.replace(Some(Handle::current().metrics()));
    }

    /// A connection of a gateway has come to an API server.
    pub(crate) fn connected(&self, gateway: usize) -> OpenConnection {
        self.0[gateway].connections.update(|connections| connections + 1);
        OpenConnection { open: self.clone(), gateway }
    }

    pub(crate) fn counts(&self, gateway: usize) -> Counts {
        let OfGateway { runtime, connections } = &self.0[gateway];
        let tasks = runtime.borrow().as_ref().map_or(0, RuntimeMetrics::num_alive_tasks);
        Counts { tasks, connections: connections.get() }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.0[self.gateway].connections.update(|connections| connections - 1);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, connections } = self;
        write!(formatter, "{tasks} tasks and {connections} connections to API servers")
    }
}
