//! Counts the server's requests and open watches for tests, and lets tests control watches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// The numbers of requests and open watches at one moment. Resources are named like `pods` or `deployments.apps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    requests: BTreeMap<(&'static str, String), u64>,
    open_watches: BTreeMap<String, usize>,
}

impl Counts {
    /// The number of requests so far; `verb` is Kubernetes' verb.
    pub fn requests(&self, verb: &'static str, resource: &str) -> u64 {
        self.requests.get(&(verb, resource.to_owned())).copied().unwrap_or(0)
    }

    pub fn open_watches(&self, resource: &str) -> usize {
        self.open_watches.get(resource).copied().unwrap_or(0)
    }

    pub fn all_open_watches(&self) -> usize {
        self.open_watches.values().sum()
    }
}

/// What an open watch must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Deliver nothing, but stay open.
    Hold,
    /// End as at a timeout.
    End,
    /// Break the connection.
    Cut,
}

#[derive(Debug, Default)]
pub(crate) struct Census {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    requests: BTreeMap<(&'static str, String), u64>,
    watches: BTreeMap<u64, Open>,
    next: u64,
    hold_new: bool,
}

#[derive(Debug)]
struct Open {
    resource: String,
    order: watch::Sender<Order>,
}

impl Census {
    pub(crate) fn count(&self, verb: &'static str, resource: &str) {
        *self.state().requests.entry((verb, resource.to_owned())).or_default() += 1;
        self.changed.send_replace(());
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.state();
        let mut open_watches = BTreeMap::new();
        for open in state.watches.values() {
            *open_watches.entry(open.resource.clone()).or_default() += 1;
        }
        Counts { requests: state.requests.clone(), open_watches }
    }

    /// Waits until `wanted` returns true for the counts.
    pub(crate) async fn until(&self, wanted: impl Fn(&Counts) -> bool) {
        let mut changed = self.changed.subscribe();
        while !wanted(&self.counts()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends an order to the open watches of a resource, or to all of them.
    pub(crate) fn order(&self, resource: Option<&str>, order: Order) {
        for open in self.state().watches.values() {
            if resource.is_none_or(|resource| resource == open.resource) {
                open.order.send_replace(order);
            }
        }
    }

    /// Sets whether watches opened from now on are held from their start.
    pub(crate) fn hold_new(&self, hold: bool) {
        self.state().hold_new = hold;
    }

    /// Counts a watch as open for as long as the result lives.
    pub(crate) fn open(self: &Arc<Self>, resource: &str) -> OpenWatch {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let order = watch::Sender::new(if state.hold_new { Order::Hold } else { Order::Run });
        let orders = order.subscribe();
        state.watches.insert(id, Open { resource: resource.to_owned(), order });
        drop(state);
        self.changed.send_replace(());
        OpenWatch { census: self.clone(), id, orders }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open watch in the census; removed from it when dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    census: Arc<Census>,
    id: u64,
    pub(crate) orders: watch::Receiver<Order>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.census.state().watches.remove(&self.id);
        self.census.changed.send_replace(());
    }
}
