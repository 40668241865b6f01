//! One run: the world, and what goes wrong in it.

use std::{rc::Rc, sync::Arc, time::Duration};

use fastrand::Rng;
use kube_fanout::sim::Sim;
use mad_turmoil::{rand::set_rng, time::SimClocksGuard};
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::watch;

use crate::{
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
    world::{API_SERVERS, CutOff, GATEWAYS, World, api_server, gateway, selection},
    writer::{NAMESPACES, write},
};

const INFORMERS: usize = 12;
const READERS: usize = 3;
/// The parties that have to do something in each phase: these, and the writer.
const PARTIES: usize = INFORMERS + READERS + GATEWAYS + 1;
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

/// Plays a seed, and returns what happened.
pub(crate) fn play(seed: u64, bytes: Option<u64>) -> String {
    set_rng(StdRng::seed_from_u64(seed));
    fastrand::seed(seed);
    let _clocks = SimClocksGuard::init();
    let mut rng = Rng::with_seed(seed);
    let mut settings = Settings::draw(&mut rng);
    if bytes.is_some() {
        settings.gateways.iter_mut().for_each(|config| config.cache.bytes = bytes);
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
        cut_off: CutOff::default(),
        open: Open::new(&settings),
    };
    let director = Director::new();
    let mut network = network(seed);
    let up = (0..API_SERVERS).map(|number| api_server_host(&mut network, &world, number)).collect();
    let rolled = (0..GATEWAYS).map(|number| gateway_host(&mut network, &settings, &world.open, number)).collect();
    clients(&mut network, &world, &director, settings.has_roles, &mut rng);
    let servers = Servers::new(network, &world, up, rolled);
    let elapsed =
        Play { servers, record: world.record.clone(), has_upgrades: settings.has_upgrades, rng }.direct(&director);
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

fn gateway_host(network: &mut turmoil::Sim<'_>, settings: &Settings, open: &Open, number: usize) -> watch::Sender<u32> {
    let (rolled, is_rolled) = watch::channel(0);
    let balancing =
        if settings.has_upgrades { Balancing::Sticky(Sticky::default()) } else { Balancing::EachConnection };
    let host = Host { number, config: settings.gateways[number].clone(), balancing, open: open.clone() };
    network.host(gateway(number), move || front(host.clone(), is_rolled.clone()));
    rolled
}

/// Starts all clients, and the writer.
fn clients(network: &mut turmoil::Sim<'_>, world: &World, director: &Director, has_roles: bool, rng: &mut Rng) {
    network.client("writer", write(world.clone(), rng.fork(), director.phases()));
    let client = |name: String, selection: &Selection, rng: &mut Rng| {
        let (lists, watches) = (selection.accept_list(), selection.accept_watch());
        Client { name, world: world.clone(), gateway: None, lists, watches, is_http2: rng.u32(..3) == 0 }
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
    for number in 0..GATEWAYS {
        let name = format!("{PROBE}{number}");
        let selection = Selection::pods();
        let selection = if has_roles { selection.in_namespace(NAMESPACES[0]) } else { selection };
        let client = Client { gateway: Some(number), ..client(name.clone(), &selection, rng) };
        network.client(name, probe(client, selection, director.phases()));
    }
}

/// What goes wrong, and when.
struct Play<'a> {
    servers: Servers<'a>,
    record: Record,
    has_upgrades: bool,
    rng: Rng,
}

impl Play<'_> {
    /// Plays all phases; how long they took.
    fn direct(mut self, director: &Director) -> Duration {
        let (mut left, mut until) = (TROUBLES, self.next_calm());
        while !self.servers.network.step().unwrap_or_else(|error| panic!("{error}")) {
            self.servers.tick();
            let is_done = director.in_sync() == PARTIES && self.servers.lasting.is_empty();
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
            let fault = Fault::random(self.has_upgrades, &mut self.rng);
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
