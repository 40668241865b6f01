//! Writes to the storage, and the faults of upstream that are not those of a network.

use std::time::Duration;

use fastrand::Rng;
use kube_fanout::sim::{Refusal, Sim};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{
    open::Open,
    phase::{Phase, Phases},
    record::Record,
    upstream::{pod, pods},
    world::World,
};

pub(crate) const NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];
const NAMES: [&str; 5] = ["a", "a-b", "b", "c", "d"];
pub(crate) const APPS: [&str; 3] = ["x", "y", "z"];
/// The longest pause between two writes.
const PAUSE: Duration = Duration::from_millis(100);
/// How long anything may be left of watches that clients have closed: stores of namespaces and nodes end 90 s after a
/// wider one was filled, once a bookmark, which comes each minute, has shown that it has all that they have.
pub(crate) const AT_REST_MAX: Duration = Duration::from_secs(240);
/// The longest time that an event is late.
const DELAY_MILLISECONDS: u64 = 50;
/// One write in so many is followed by a fault.
const FAULT_EVERY: u32 = 240;

/// Writes as long as things go wrong; in each calm it ends upstream's own faults.
pub(crate) async fn write(world: World, mut rng: Rng, mut phases: Phases) -> turmoil::Result {
    let sim = &world.sim;
    loop {
        let phase = phases.now();
        match phase {
            Phase::Troubled => {
                sleep(PAUSE.mul_f64(rng.f64())).await;
                if phases.now() == phase {
                    trouble(&world, &mut rng);
                }
                continue;
            }
            Phase::Calm => heal(sim),
            Phase::Resting => until_at_rest(&world.open).await,
            Phase::Restored | Phase::Over => {}
        }
        if !phases.done_with(phase).await {
            return Ok(());
        }
    }
}

/// One change, and sometimes a fault, or its end.
fn trouble(world: &World, rng: &mut Rng) {
    change(&world.sim, rng);
    world.record.change();
    match rng.u32(..FAULT_EVERY) {
        0 => fault(&world.sim, rng, &world.record),
        1..4 => heal(&world.sim),
        _ => {}
    }
}

/// Waits until nothing is used of the gateways' limits but by their own watches.
async fn until_at_rest(open: &Open) {
    let at_rest = async {
        while !open.used().is_empty() {
            sleep(PAUSE).await;
        }
    };
    let in_time = timeout(AT_REST_MAX, at_rest).await;
    in_time.unwrap_or_else(|_| panic!("limits of which something is used: {:?}", open.used()));
}

/// Creates, changes or deletes a random pod.
fn change(sim: &Sim, rng: &mut Rng) {
    let (namespace, name) = (*rng.choice(&NAMESPACES).unwrap(), *rng.choice(&NAMES).unwrap());
    let app = *rng.choice(&APPS).unwrap();
    let key = format!("{namespace}/{name}");
    // A pod that does not exist is created, with or without a node; an existing one is changed or deleted.
    let mut new = pod(namespace, name, app);
    let node = new["spec"]["nodeName"].clone();
    if rng.bool() {
        new["spec"]["nodeName"] = "".into();
    }
    if sim.create(new).is_ok() {
        return;
    }
    if rng.u32(..4) == 0 {
        sim.delete(&pods(), &key).unwrap();
    } else {
        let change = |pod: &mut Value| {
            pod["metadata"]["labels"]["app"] = app.into();
            // A node is given once, as the scheduler does.
            if pod["spec"]["nodeName"] == "" {
                pod["spec"]["nodeName"] = node;
            }
        };
        sim.modify(&pods(), &key, change).unwrap();
    }
}

fn fault(sim: &Sim, rng: &mut Rng, record: &Record) {
    let fault = rng.u32(..11);
    record.fault(&fault);
    match fault {
        0 => sim.cut_watches(None),
        1 => sim.end_watches(None),
        2 => sim.hold_watches(None),
        3 => {
            sim.forget_history();
            // Else those notice whose connection ends for another reason.
            if rng.bool() {
                sim.cut_watches(None);
            }
        }
        4 => sim.compact(),
        5 => sim.skip_revisions(rng.u64(1..50)),
        6 => sim.delay_events(Duration::from_millis(rng.u64(..DELAY_MILLISECONDS))),
        7 => {
            let verb = *rng.choice(&["list", "watch", "get"]).unwrap();
            let status = *rng.choice(&[429, 500, 503]).unwrap();
            let (resource, times) = (Some("pods".to_owned()), Some(rng.u32(1..3)));
            sim.refuse(Refusal { verb: Some(verb), resource, times, status });
        }
        8 => sim.hold_new_watches(rng.bool()),
        9 => sim.spoil_events(1),
        // Unanswered until it is mended.
        _ => sim.hold_requests("watch", "pods"),
    }
}

/// Ends the faults that do not end by themselves.
fn heal(sim: &Sim) {
    sim.accept_all();
    sim.spoil_events(0);
    sim.hold_new_watches(false);
    sim.release_watches(None);
    sim.release_requests();
    sim.delay_events(Duration::ZERO);
}
