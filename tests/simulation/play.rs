//! One run: the world, and what goes wrong between its servers.

use std::time::Duration;

use fastrand::Rng;
use kube_fanout::{config::MostRecentReads, sim::Sim};
use mad_turmoil::{rand::set_rng, time::SimClocksGuard};
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::watch;

use crate::{
    clients::{Client, follow},
    informer::Informer,
    phase::{Director, Phase},
    reader::Reader,
    record::Record,
    selection::Selection,
    servers::{api_server, front, gateway, serve},
    writer::{APPS, write},
};

const API_SERVERS: usize = 3;
const GATEWAYS: usize = 2;
const INFORMERS: usize = 12;
const READERS: usize = 3;
/// Who has to catch up: these, and the writer.
const PARTIES: usize = INFORMERS + READERS + 1;
/// The longest time for which things go wrong, before all have to catch up.
const TROUBLED_MAX: Duration = Duration::from_secs(60);
/// How often they do.
const TROUBLES: u32 = 10;
/// How long the whole run may take.
const WHOLE: Duration = Duration::from_secs(3_600);
/// The time that each host is given in its turn.
const TICK: Duration = Duration::from_millis(20);
/// The longest way of a message.
const LATENCY_MAX: Duration = Duration::from_millis(80);
/// One tick in so many, something goes wrong.
const FAULT_EVERY: u32 = 250;
/// The longest time that a fault lasts, in ticks.
const FAULT_TICKS: u32 = 1_000;
/// Changes that a watch of upstream can still be told of.
const HISTORY: usize = 200;
/// How far the caches of the API servers are behind.
const LAGS: [Duration; API_SERVERS] = [Duration::ZERO, Duration::from_millis(400), Duration::from_millis(1_500)];

/// What is not a matter of the network.
struct Switches {
    /// Whether each API server is up.
    up: Vec<watch::Sender<bool>>,
    /// How often each gateway was rolled.
    rolled: Vec<watch::Sender<u32>>,
}

/// What goes wrong between servers, until it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// kill -9.
    GatewayDown(usize),
    /// SIGTERM, and a new process once it has drained.
    GatewayRolled(usize),
    ApiServerDown(usize),
    /// Nothing arrives, until everything does: shorter than connections live without an answer.
    Held {
        gateway: usize,
        api_server: usize,
    },
}

/// Plays a seed, and returns what happened.
pub(crate) fn play(seed: u64) -> String {
    set_rng(StdRng::seed_from_u64(seed));
    fastrand::seed(seed);
    let _clocks = SimClocksGuard::init();
    let mut rng = Rng::with_seed(seed);
    let (sim, record) = (Sim::with_history(HISTORY), Record::default());
    let director = Director::new();
    sim.lag_caches(&LAGS);
    let mut network = network(seed);
    let switches = Switches {
        up: (0..API_SERVERS).map(|number| api_server_host(&mut network, &sim, number)).collect(),
        rolled: (0..GATEWAYS).map(|number| gateway_host(&mut network, &mut rng, number)).collect(),
    };
    network.client("writer", write((sim.clone(), GATEWAYS), rng.fork(), record.clone(), director.phases()));
    for number in 0..INFORMERS {
        let client = Client { number, gateways: GATEWAYS, record: record.clone() };
        let informer = Informer::new(client, sim.clone(), selection(&mut rng));
        network.client(format!("informer-{number}"), follow(informer, director.phases()));
    }
    for number in 0..READERS {
        let client = Client { number: INFORMERS + number, gateways: GATEWAYS, record: record.clone() };
        let reader = Reader::new(client, sim.clone(), selection(&mut rng), rng.fork());
        network.client(format!("reader-{number}"), reader.read(director.phases()));
    }
    let troubles = Troubles { network, switches, lasting: Vec::new(), record: record.clone(), rng };
    let elapsed = troubles.direct(&director);
    let lists = sim.counts().requests("list", "pods");
    format!("{record}, {lists} lists upstream in {elapsed:?}")
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

/// Starts an API server.
fn api_server_host(network: &mut turmoil::Sim<'_>, sim: &Sim, number: usize) -> watch::Sender<bool> {
    let (up, is_up) = watch::channel(true);
    let sim = sim.clone();
    network.host(api_server(number), move || serve(sim.clone(), number, is_up.clone()));
    up
}

/// Starts a gateway.
fn gateway_host(network: &mut turmoil::Sim<'_>, rng: &mut Rng, number: usize) -> watch::Sender<u32> {
    let (rolled, is_rolled) = watch::channel(0);
    let reads = *rng.choice(&[MostRecentReads::Forward, MostRecentReads::Auto, MostRecentReads::Prove]).unwrap();
    network.host(gateway(number), move || front(API_SERVERS, reads, is_rolled.clone()));
    rolled
}

fn selection(rng: &mut Rng) -> Selection {
    let app = *rng.choice(&APPS).unwrap();
    match rng.u32(..4) {
        0 => Selection::pods().of_app(app),
        1 => Selection::pods().on_node(&format!("node-{app}")),
        2 => Selection::pods().in_namespace("default"),
        _ => Selection::pods(),
    }
}

/// What goes wrong, and when.
struct Troubles<'a> {
    network: turmoil::Sim<'a>,
    switches: Switches,
    /// Each with the ticks that it lasts.
    lasting: Vec<(Fault, u32)>,
    record: Record,
    rng: Rng,
}

impl Troubles<'_> {
    /// Plays all phases; how long they took.
    fn direct(mut self, director: &Director) -> Duration {
        let (mut left, mut until) = (TROUBLES, self.next_calm());
        while !self.network.step().unwrap_or_else(|error| panic!("{error}")) {
            match director.phase() {
                Phase::Troubled if self.network.elapsed() > until => {
                    left -= 1;
                    self.end(|_| true);
                    director.begin(if left == 0 { Phase::Over } else { Phase::Calm });
                }
                Phase::Troubled => self.tick(),
                Phase::Calm if director.in_sync() == PARTIES => {
                    until = self.next_calm();
                    director.begin(Phase::Troubled);
                }
                Phase::Calm | Phase::Over => {}
            }
        }
        self.network.elapsed()
    }

    fn next_calm(&mut self) -> Duration {
        self.network.elapsed() + TROUBLED_MAX.mul_f64(self.rng.f64())
    }

    fn tick(&mut self) {
        self.lasting.iter_mut().for_each(|(_, ticks)| *ticks = ticks.saturating_sub(1));
        self.end(|ticks| ticks == 0);
        if self.rng.u32(..FAULT_EVERY) == 0 {
            let fault = Fault::random(&mut self.rng);
            if !self.lasting.iter().any(|(other, _)| *other == fault) {
                self.record.fault(&(self.network.elapsed(), fault));
                fault.begin(&mut self.network, &self.switches);
                self.lasting.push((fault, self.rng.u32(..FAULT_TICKS)));
            }
        }
    }

    /// Ends the faults with so many ticks left.
    fn end(&mut self, is_over: impl Fn(u32) -> bool) {
        for (fault, _) in self.lasting.extract_if(.., |(_, ticks)| is_over(*ticks)) {
            fault.end(&mut self.network, &self.switches);
        }
    }
}

impl Fault {
    fn random(rng: &mut Rng) -> Self {
        let (gateway, api_server) = (rng.usize(..GATEWAYS), rng.usize(..API_SERVERS));
        match rng.u32(..4) {
            0 => Self::GatewayDown(gateway),
            1 => Self::GatewayRolled(gateway),
            2 => Self::ApiServerDown(api_server),
            _ => Self::Held { gateway, api_server },
        }
    }

    fn begin(self, network: &mut turmoil::Sim<'_>, switches: &Switches) {
        match self {
            Self::GatewayDown(number) => network.crash(gateway(number)),
            Self::GatewayRolled(number) => switches.rolled[number].send_modify(|times| *times += 1),
            Self::ApiServerDown(number) => drop(switches.up[number].send_replace(false)),
            Self::Held { gateway: from, api_server: to } => network.hold(gateway(from), api_server(to)),
        }
    }

    fn end(self, network: &mut turmoil::Sim<'_>, switches: &Switches) {
        match self {
            Self::GatewayDown(number) => network.bounce(gateway(number)),
            Self::GatewayRolled(_) => {}
            Self::ApiServerDown(number) => drop(switches.up[number].send_replace(true)),
            Self::Held { gateway: from, api_server: to } => network.release(gateway(from), api_server(to)),
        }
    }
}
