//! What goes wrong between servers, until it is mended.

use std::{cell::Cell, rc::Rc};

use fastrand::Rng;
use kube_fanout::sim::Sim;
use tokio::sync::watch;

use crate::{
    api_server::{EDITION_MAX, upgrade},
    world::{API_SERVERS, CutOff, REPLICAS, World, api_server, gateway, is_node},
};

/// The longest time that a fault lasts, in ticks.
const TICKS_MAX: u32 = 1_000;
/// How long a plain restart of an API server takes.
const RESTART_TICKS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9.
    GatewayDown(usize),
    /// SIGTERM, and a new process once it has drained.
    GatewayRolled(usize),
    ApiServerDown(usize),
    /// It comes back as the newest program; if all are that already, as a newer one.
    ApiServerUpgraded(usize),
    /// All API servers refuse it, or it is a node that reaches no replica. Afterwards API servers have forgotten the
    /// changes that it missed; other gateways got them.
    GatewayCutOff(usize),
    /// Nothing arrives for a while, then everything: shorter than the timeout of connections without an answer.
    Held {
        gateway: usize,
        api_server: usize,
    },
    /// The same between a node and a replica.
    HeldAbove {
        node: usize,
        replica: usize,
    },
}

/// The servers of a run, as far as faults concern them.
pub(crate) struct Servers<'a> {
    pub(crate) network: turmoil::Sim<'a>,
    sim: Sim,
    /// The revision at the start: no backup is older.
    first: u64,
    cut_off: CutOff,
    /// Whether each API server is up.
    up: Vec<watch::Sender<bool>>,
    /// How often each gateway was rolled.
    rolled: Vec<watch::Sender<u32>>,
    /// The program of each API server.
    editions: [usize; API_SERVERS],
    newest: Rc<Cell<usize>>,
    /// Whether there are watches that were opened before the last upgrade.
    has_old_watches: bool,
    /// Each with the ticks that it lasts.
    pub(crate) lasting: Vec<(Fault, u32)>,
}

impl Fault {
    pub(crate) fn random(has_upgrades: bool, gateways: usize, rng: &mut Rng) -> Self {
        let (gateway, api_server) = (rng.usize(..gateways), rng.usize(..API_SERVERS));
        match rng.u32(..20) {
            0..4 => Self::GatewayDown(gateway),
            4..8 => Self::GatewayRolled(gateway),
            8..12 => Self::ApiServerDown(api_server),
            12..14 if has_upgrades => Self::ApiServerUpgraded(api_server),
            14..16 => Self::GatewayCutOff(gateway),
            _ if is_node(gateway) => Self::HeldAbove { node: gateway, replica: api_server % REPLICAS },
            _ => Self::Held { gateway, api_server },
        }
    }
}

impl<'a> Servers<'a> {
    pub(crate) fn new(
        network: turmoil::Sim<'a>,
        world: &World,
        up: Vec<watch::Sender<bool>>,
        rolled: Vec<watch::Sender<u32>>,
    ) -> Self {
        let (sim, cut_off, newest) = (world.sim.clone(), world.cut_off.clone(), world.edition.clone());
        let (editions, has_old_watches, lasting) = ([0; API_SERVERS], false, Vec::new());
        let first = sim.revision();
        Self { network, sim, first, cut_off, up, rolled, editions, newest, has_old_watches, lasting }
    }

    /// Begins a fault, unless it lasts already. Whether it began.
    pub(crate) fn break_down(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        if self.lasting.iter().any(|(other, _)| *other == fault) {
            return false;
        }
        let ticks = rng.u32(..TICKS_MAX);
        self.begin(fault, ticks);
        true
    }

    fn begin(&mut self, fault: Fault, ticks: u32) {
        match fault {
            Fault::GatewayDown(number) => self.network.crash(gateway(number)),
            Fault::GatewayRolled(number) => self.rolled[number].send_modify(|times| *times += 1),
            Fault::ApiServerDown(number) => drop(self.up[number].send_replace(false)),
            Fault::ApiServerUpgraded(number) => {
                self.up[number].send_replace(false);
                self.upgrade(number);
            }
            Fault::GatewayCutOff(number) => self.cut_off.send_modify(|cut_off| cut_off[number] = true),
            Fault::Held { gateway: from, api_server: to } => self.network.hold(gateway(from), api_server(to)),
            Fault::HeldAbove { node, replica } => self.network.hold(gateway(node), gateway(replica)),
        }
        self.lasting.push((fault, ticks));
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::GatewayDown(number) => self.network.bounce(gateway(number)),
            Fault::GatewayRolled(_) => {}
            Fault::ApiServerDown(number) | Fault::ApiServerUpgraded(number) => {
                self.up[number].send_replace(true);
            }
            Fault::GatewayCutOff(number) => {
                self.sim.forget_history();
                self.cut_off.send_modify(|cut_off| cut_off[number] = false);
            }
            Fault::Held { gateway: from, api_server: to } => self.network.release(gateway(from), api_server(to)),
            Fault::HeldAbove { node, replica } => self.network.release(gateway(node), gateway(replica)),
        }
    }

    /// Ends the faults whose time is over. Behind an upgrade of all API servers, watches end as their timeout would end
    /// them: gateways then see what they could not see while there were servers of both kinds.
    pub(crate) fn tick(&mut self) {
        self.lasting.iter_mut().for_each(|(_, ticks)| *ticks = ticks.saturating_sub(1));
        let over: Vec<_> = self.lasting.extract_if(.., |(_, ticks)| *ticks == 0).collect();
        over.into_iter().for_each(|(fault, _)| self.end(fault));
        if self.has_old_watches && self.lasting.is_empty() && self.is_upgraded() {
            self.sim.end_watches(None);
            self.has_old_watches = false;
        }
    }

    /// Ends all faults, and an upgrade that has begun.
    pub(crate) fn mend(&mut self) {
        for (fault, _) in std::mem::take(&mut self.lasting) {
            self.end(fault);
        }
        let old: Vec<_> = (0..API_SERVERS).filter(|number| self.editions[*number] < self.newest.get()).collect();
        old.into_iter().for_each(|number| self.begin(Fault::ApiServerUpgraded(number), RESTART_TICKS));
    }

    /// Restores the storage from a backup, and restarts all API servers. Whether there is a backup.
    pub(crate) fn restore(&mut self, rng: &mut Rng) -> bool {
        let lost = rng.u64(1..100);
        let revision = self.sim.revision().saturating_sub(lost).max(self.first);
        if self.sim.rewind(revision).is_err() {
            return false;
        }
        (0..API_SERVERS).for_each(|number| self.begin(Fault::ApiServerDown(number), RESTART_TICKS));
        true
    }

    fn upgrade(&mut self, number: usize) {
        if self.editions[number] == self.newest.get() {
            if self.newest.get() == EDITION_MAX || !self.is_upgraded() {
                return;
            }
            self.newest.set(self.newest.get() + 1);
        }
        self.editions[number] = self.newest.get();
        self.has_old_watches = true;
        upgrade(&self.sim, number, self.editions[number]);
    }

    fn is_upgraded(&self) -> bool {
        self.editions.iter().all(|edition| *edition == self.newest.get())
    }
}
