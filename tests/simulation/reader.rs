//! Clients that list: every answer equals upstream's at its version, and versions are as new as was asked for.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    clients::{Client, within},
    phase::{Phase, Phases},
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

/// What was listed.
#[derive(Debug)]
struct State {
    version: u64,
    /// By key.
    objects: Vec<(String, Value)>,
    /// The last page.
    body: Bytes,
    pages: u32,
}

impl Reader {
    pub(crate) fn new(client: Client, selection: Selection, rng: Rng) -> Self {
        Self { client, selection, rng, newest: 0 }
    }

    /// Reads as long as things go wrong; in each calm it has to get an answer.
    pub(crate) async fn read(mut self, mut phases: Phases) -> turmoil::Result {
        loop {
            let phase = phases.now();
            match phase {
                Phase::Troubled => {
                    sleep(PAUSE.mul_f64(self.rng.f64())).await;
                    tokio::select! {
                        _ = self.list() => {}
                        // Otherwise it might compare with the state before a restore.
                        () = phases.until_not(phase) => {}
                    }
                    continue;
                }
                Phase::Calm => {
                    let answered = async { while !self.list().await {} };
                    within("an answer", answered).await;
                }
                Phase::Restored => self.newest = 0,
                Phase::Resting | Phase::Over => {}
            }
            if !phases.done_with(phase).await {
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
        let acknowledged = self.client.world.sim.revision();
        // At "0", API servers leave the limit out of account.
        let is_limited = asked != Asked::Any && self.rng.bool();
        let Some(state) = self.pages(asked, is_limited).await else { return false };
        let version = state.version;
        assert!(version <= self.client.world.sim.revision(), "{version} was never assigned");
        let least = match asked {
            Asked::MostRecent => acknowledged,
            Asked::Any => 0,
            Asked::NotOlderThan(version) => version,
        };
        assert!(version >= least, "{asked:?} is answered with {version}, {least} was acknowledged before");
        self.newest = self.newest.max(version);
        self.assert_equal(&state).await;
        true
    }

    /// A list, or all pages of one, each from any gateway. `None` if one is refused.
    async fn pages(&self, asked: Asked, is_limited: bool) -> Option<State> {
        let limit = if is_limited { format!("&limit={LIMIT}") } else { String::new() };
        let mut state: Option<State> = None;
        let mut parameters = format!("{}{limit}", asked.parameters());
        loop {
            let answer = self.client.get(&self.selection.path(&parameters)).await;
            if answer.status != 200 {
                return None;
            }
            let list: Value = serde_json::from_slice(&answer.body).unwrap();
            let metadata = &list["metadata"];
            let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
            let none = State { version, objects: Vec::new(), body: Bytes::new(), pages: 0 };
            let page = state.get_or_insert(none);
            assert_eq!(version, page.version, "a page of another version");
            page.objects.extend(self.selection.entries(&list));
            (page.body, page.pages) = (answer.body, page.pages + 1);
            match metadata["continue"].as_str() {
                Some(token) if !token.is_empty() => parameters = format!("continue={token}{limit}"),
                _ => return state,
            }
        }
    }

    /// Asserts that the state is upstream's at its version, if upstream still knows the version.
    async fn assert_equal(&self, State { version, objects, body, pages }: &State) {
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let (status, upstream) = directly(&self.client.world.sim, &self.selection.path(&exact)).await;
        if status != 200 {
            return;
        }
        let expected = self.selection.entries(&serde_json::from_str(&upstream).unwrap());
        assert_eq!(*objects, expected, "{:?} at {version}", self.selection);
        // A write by a newer program, or of metadata only, has other bytes.
        if *pages == 1 && self.client.world.edition.get() == 0 && !self.selection.is_metadata() {
            assert_eq!(*body, upstream, "{:?} at {version}", self.selection);
        }
    }
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
