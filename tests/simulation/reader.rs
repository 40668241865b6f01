//! Clients that list and get: every answer equals upstream's at its version, and versions are as new as was asked for.

use std::time::Duration;

use fastrand::Rng;
use kube_fanout::sim::Sim;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    clients::{Client, within},
    phase::Phases,
    selection::Selection,
    upstream::directly,
};

/// The longest pause between two requests.
const PAUSE: Duration = Duration::from_millis(500);
/// Objects on a page.
const LIMIT: usize = 3;

/// Reads one selection.
pub(crate) struct Reader {
    client: Client,
    sim: Sim,
    selection: Selection,
    rng: Rng,
    /// The newest version that it was given.
    newest: u64,
}

/// What a list asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    MostRecent,
    Any,
    NotOlderThan(u64),
}

impl Reader {
    pub(crate) fn new(client: Client, sim: Sim, selection: Selection, rng: Rng) -> Self {
        Self { client, sim, selection, rng, newest: 0 }
    }

    /// Reads as long as things go wrong; in each calm it has to get an answer.
    pub(crate) async fn read(mut self, mut phases: Phases) -> turmoil::Result {
        loop {
            while phases.is_troubled() {
                sleep(PAUSE.mul_f64(self.rng.f64())).await;
                self.list().await;
            }
            let answered = async { while !self.list().await {} };
            within("an answer", answered).await;
            phases.report_in_sync();
            if !phases.goes_on().await {
                return Ok(());
            }
        }
    }

    /// Whether there was an answer.
    async fn list(&mut self) -> bool {
        let asked = match self.rng.u32(..3) {
            0 => Asked::MostRecent,
            1 => Asked::Any,
            _ => Asked::NotOlderThan(self.newest),
        };
        let acknowledged = self.sim.revision();
        // At "0", API servers leave the limit out of account.
        let is_limited = asked == Asked::MostRecent && self.rng.bool();
        let limit = if is_limited { format!("&limit={LIMIT}") } else { String::new() };
        let answer = self.client.get(&self.selection.path(&format!("{}{limit}", asked.parameters()))).await;
        if answer.status != 200 {
            return false;
        }
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version <= self.sim.revision(), "{version} is an invention");
        let least = match asked {
            Asked::MostRecent => acknowledged,
            Asked::Any => 0,
            Asked::NotOlderThan(version) => version,
        };
        assert!(version >= least, "{asked:?} is answered with {version}, {least} was acknowledged before");
        self.newest = self.newest.max(version);
        self.assert_equal(&list, version, &limit).await;
        true
    }

    /// Asserts that the list is upstream's at that version, if upstream still knows the version.
    async fn assert_equal(&self, list: &Value, version: u64, limit: &str) {
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact{limit}");
        let (status, body) = directly(&self.sim, &self.selection.path(&exact)).await;
        if status == 200 {
            let expected: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(short(list), short(&expected), "{:?} at {version}", self.selection);
            assert!(list["items"] == expected["items"], "{list}, not {expected}");
        }
    }
}

/// The names and versions of a list's objects.
fn short(list: &Value) -> Vec<String> {
    let item = |item: &Value| {
        let text = |key: &str| item["metadata"][key].as_str().unwrap().to_owned();
        format!("{}/{}@{}", text("namespace"), text("name"), text("resourceVersion"))
    };
    list["items"].as_array().unwrap().iter().map(item).collect()
}

impl Asked {
    fn parameters(self) -> String {
        match self {
            Self::MostRecent => String::new(),
            Self::Any => "resourceVersion=0".to_owned(),
            Self::NotOlderThan(version) => format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        }
    }
}
