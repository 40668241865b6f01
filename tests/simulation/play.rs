//! One run: the world, and what goes wrong in it.

use std::{rc::Rc, sync::Arc, time::Duration};

use fastrand::Rng;
use kube_fanout::sim::Sim;
use mad_turmoil::{rand::set_rng, time::SimClocksGuard};
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::watch;

use crate::{
    Given,
    api_server::serve,
    balancing::{Balancing, Sticky},
    clients::{Client, follow},
    faults::{Fault, Servers},
    gateway::{Host, front},
    open::Open,
    phase::{Director, Phase},
    probe::{PROBE, probe},
    reader::Reader,
    record::Record,
    selection::Selection,
    settings::Settings,
    world::{API_SERVERS, CutOff, REPLICAS, World, api_server, gateway, is_node, selection},
    writer::{NAMESPACES, write},
};

const INFORMERS: usize = 12;
const READERS: usize = 3;
/// The parties that have to do something in each phase: these, the writer, and a probe of each gateway.
const PARTIES: usize = INFORMERS + READERS + 1;
/// The longest time for which things go wrong, before all have to catch up.
const TROUBLED_MAX: Duration = Duration::from_secs(60);
/// How often things go wrong.
const TROUBLES: u32 = 10;
/// How long the whole run may take.
const WHOLE: Duration = Duration::from_secs(3_600);
/// The time that each host is given in its turn.
const TICK: Duration = Duration::from_millis(20);
/// The longest way of a message.
const LATENCY_MAX: Duration = Duration::from_millis(80);
/// Something goes wrong in one of this many ticks.
const FAULT_EVERY: u32 = 200;
/// The storage is restored from a backup after one calm of this many.
const RESTORE_EVERY: u32 = 4;
/// Clients close everything after one calm of this many, and after the last one.
const REST_EVERY: u32 = 3;
/// How far the caches of the API servers lag behind.
const LAGS: [Duration; API_SERVERS] = [Duration::ZERO, Duration::from_millis(400), Duration::from_millis(1_500)];

/// Distinguishes the random numbers for nodes from all others, which are the same without nodes.
const NODES_SEED: u64 = 0x6e6f_6465_7300_0000;

/// Plays a seed, and returns what happened.
pub(crate) fn play(seed: u64, given: Given) -> String {
    set_rng(StdRng::seed_from_u64(seed));
    fastrand::seed(seed);
    let _clocks = SimClocksGuard::init();
    let mut rng = Rng::with_seed(seed);
    let mut node_rng = Rng::with_seed(seed ^ NODES_SEED);
    let mut settings = Settings::draw(&mut rng);
    settings.add_nodes(given.nodes, &mut node_rng);
    if given.bytes.is_some() {
        settings.gateways.iter_mut().for_each(|config| config.cache.bytes = given.bytes);
    }
    let sim = Sim::with_history(settings.history);
    sim.set_features(settings.features);
    sim.lag_caches(&LAGS);
    if settings.has_roles {
        sim.grant_only(Some(&NAMESPACES));
    }
    let world = World {
        sim: sim.clone(),
        record: Record::default(),
        is_delegated: settings.is_delegated(),
        forwarded: Arc::default(),
        edition: Rc::default(),
        cut_off: CutOff::new(vec![false; settings.gateways.len()]),
        open: Open::new(&settings),
        gateways: settings.gateways.len(),
    };
    let director = Director::new();
    let mut network = network(seed);
    let up = (0..API_SERVERS).map(|number| api_server_host(&mut network, &world, number)).collect();
    let rolled = (0..world.gateways).map(|number| gateway_host(&mut network, &settings, &world, number)).collect();
    clients(&mut network, &world, &director, settings.has_roles, [&mut rng, &mut node_rng]);
    let servers = Servers::new(network, &world, up, rolled);
    let (record, gateways) = (world.record.clone(), world.gateways);
    let elapsed = Play { servers, record, has_upgrades: settings.has_upgrades, gateways, rng }.direct(&director);
    let lists = sim.counts().requests("list", "pods");
    format!("{}, {lists} lists upstream in {elapsed:?}; {settings}", world.record)
}

fn network<'a>(seed: u64) -> turmoil::Sim<'a> {
    turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(WHOLE)
        .tick_duration(TICK)
        .max_message_latency(LATENCY_MAX)
        .tcp_capacity(1_024)
        .enable_random_order()
        .build()
}

fn api_server_host(network: &mut turmoil::Sim<'_>, world: &World, number: usize) -> watch::Sender<bool> {
    let (up, is_up) = watch::channel(true);
    let world = world.clone();
    network.host(api_server(number), move || serve(world.clone(), number, is_up.clone()));
    up
}

fn gateway_host(
    network: &mut turmoil::Sim<'_>,
    settings: &Settings,
    world: &World,
    number: usize,
) -> watch::Sender<u32> {
    let (rolled, is_rolled) = watch::channel(0);
    let is_sticky = if is_node(number) { settings.has_sticky_nodes } else { settings.has_upgrades };
    let balancing = if is_sticky { Balancing::Sticky(Sticky::default()) } else { Balancing::EachConnection };
    let World { forwarded, cut_off, open, gateways, .. } = world.clone();
    let config = settings.gateways[number].clone();
    let host = Host { number, config, balancing, forwarded, cut_off, open, gateways };
    network.host(gateway(number), move || front(host.clone(), is_rolled.clone()));
    rolled
}

/// Starts all clients, and the writer. Where there are nodes, half of the clients are at these, and half anywhere.
fn clients(
    network: &mut turmoil::Sim<'_>,
    world: &World,
    director: &Director,
    has_roles: bool,
    [rng, node_rng]: [&mut Rng; 2],
) {
    network.client("writer", write(world.clone(), rng.fork(), director.phases()));
    let all = world.gateways;
    let mut client = |name: String, selection: &Selection, rng: &mut Rng| {
        let (lists, watches) = (selection.accept_list(), selection.accept_watch());
        let gateways = if all > REPLICAS && node_rng.bool() { REPLICAS..all } else { 0..all };
        Client { name, world: world.clone(), gateways, lists, watches, is_http2: rng.u32(..3) == 0 }
    };
    for number in 0..INFORMERS {
        let (name, selection) = (format!("informer-{number}"), selection(has_roles, rng));
        let client = client(name.clone(), &selection, rng);
        network.client(name, follow(client, selection, director.phases()));
    }
    for number in 0..READERS {
        let (name, selection) = (format!("reader-{number}"), selection(has_roles, rng));
        let client = client(name.clone(), &selection, rng);
        network.client(name, Reader::new(client, selection, rng.fork()).read(director.phases()));
    }
    for number in 0..all {
        let name = format!("{PROBE}{number}");
        let selection = Selection::pods();
        let selection = if has_roles { selection.in_namespace(NAMESPACES[0]) } else { selection };
        let client = Client { gateways: number..number + 1, ..client(name.clone(), &selection, rng) };
        network.client(name, probe(client, selection, director.phases()));
    }
}

/// What goes wrong, and when.
struct Play<'a> {
    servers: Servers<'a>,
    record: Record,
    has_upgrades: bool,
    gateways: usize,
    rng: Rng,
}

impl Play<'_> {
    /// Plays all phases; how long they took.
    fn direct(mut self, director: &Director) -> Duration {
        let (mut left, mut until) = (TROUBLES, self.next_calm());
        while !self.servers.network.step().unwrap_or_else(|error| panic!("{error}")) {
            self.servers.tick();
            let is_done = director.in_sync() == PARTIES + self.gateways && self.servers.lasting.is_empty();
            match director.phase() {
                Phase::Troubled if self.servers.network.elapsed() > until => {
                    left -= 1;
                    self.servers.mend();
                    director.begin(Phase::Calm);
                }
                Phase::Troubled => self.trouble(),
                Phase::Calm if is_done && left > 0 && self.restores() => director.begin(Phase::Restored),
                Phase::Calm if is_done && (left == 0 || self.rng.u32(..REST_EVERY) == 0) => {
                    director.begin(Phase::Resting);
                }
                Phase::Resting if is_done && left == 0 => director.begin(Phase::Over),
                Phase::Calm | Phase::Resting | Phase::Restored if is_done => {
                    until = self.next_calm();
                    director.begin(Phase::Troubled);
                }
                Phase::Calm | Phase::Resting | Phase::Restored | Phase::Over => {}
            }
        }
        self.servers.network.elapsed()
    }

    fn next_calm(&mut self) -> Duration {
        self.servers.network.elapsed() + TROUBLED_MAX.mul_f64(self.rng.f64())
    }

    fn trouble(&mut self) {
        if self.rng.u32(..FAULT_EVERY) == 0 {
            let fault = Fault::random(self.has_upgrades, self.gateways, &mut self.rng);
            if self.servers.break_down(fault, &mut self.rng) {
                self.record.fault(&(self.servers.network.elapsed(), fault));
            }
        }
    }

    /// Whether the storage is restored now.
    fn restores(&mut self) -> bool {
        let is_restored = self.rng.u32(..RESTORE_EVERY) == 0 && self.servers.restore(&mut self.rng);
        if is_restored {
            self.record.restore();
        }
        is_restored
    }
}
