//! Looks at one gateway from time to time: whether it works as it should once nothing goes wrong.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{
    api_server::edition_of,
    clients::{Client, IN_SYNC_MAX, within},
    phase::{Phase, Phases},
    selection::Selection,
    writer::AT_REST_MAX,
};

/// What user agents of probes begin with.
pub(crate) const PROBE: &str = "probe-";
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks in each calm, and after each restore.
pub(crate) async fn probe(client: Client, selection: Selection, mut phases: Phases) -> turmoil::Result {
    loop {
        let phase = phases.now();
        match phase {
            Phase::Troubled => {
                phases.until_not(phase).await;
                continue;
            }
            Phase::Calm => {
                let what = format!("{}: an answer from memory, as the newest program writes it", client.name);
                within(&what, is_at_rest(&client, &selection)).await;
            }
            Phase::Resting => has_closed(&client).await,
            Phase::Over => {}
            Phase::Restored => {
                if client.world.open.may_lack_memory(client.gateways.start) {
                    // What it forwards does not show whether what it has in memory is that of before.
                    sleep(IN_SYNC_MAX).await;
                }
                within("an answer from memory, of the restored storage", has_noticed(&client, &selection)).await
            }
        }
        if !phases.done_with(phase).await {
            return Ok(());
        }
    }
}

/// Waits until reads are answered from memory, with what the newest program writes.
async fn is_at_rest(client: &Client, selection: &Selection) {
    loop {
        client.world.was_forwarded(&client.name);
        if let Some(list) = list(client, selection).await {
            let edition = client.world.edition.get();
            let is_new = list["items"].as_array().unwrap().iter().all(|object| edition_of(object) == edition);
            if is_new && is_from_memory(client) {
                return;
            }
        }
        sleep(PAUSE).await;
    }
}

/// Waits until the gateway has closed everything that it had opened for clients.
async fn has_closed(client: &Client) {
    let counts = || client.world.open.counts(client.gateways.start);
    let closed = async {
        while !counts().is_at_rest() {
            sleep(PAUSE).await;
        }
    };
    let in_time = timeout(AT_REST_MAX, closed).await;
    in_time.unwrap_or_else(|_| panic!("{}: {} are left", client.name, counts()));
}

/// Waits until the gateway no longer answers with a version that upstream does not have.
async fn has_noticed(client: &Client, selection: &Selection) {
    loop {
        client.world.was_forwarded(&client.name);
        if let Some(list) = list(client, selection).await
            && is_from_memory(client)
        {
            let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            if version <= client.world.sim.revision() {
                return;
            }
        }
        sleep(PAUSE).await;
    }
}

/// Whether the last answer was from memory, or of a gateway that may not have the memory.
fn is_from_memory(client: &Client) -> bool {
    !client.world.was_forwarded(&client.name) || client.world.open.may_lack_memory(client.gateways.start)
}

async fn list(client: &Client, selection: &Selection) -> Option<Value> {
    let answer = client.get(&selection.path("resourceVersion=0")).await;
    if answer.status == 200 { serde_json::from_slice(&answer.body).ok() } else { None }
}
