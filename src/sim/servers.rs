//! Several servers behind one address, on one storage: each has its own cache, and its own program.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{definition::Definition, stored::Stored};

/// One of the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server(pub(crate) usize);

/// What a newer program writes differently, in an object of any resource.
pub type Rewrite = fn(&mut Value);

/// What distinguishes the servers. One that was never mentioned has no lag, and has been running since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Servers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How far their caches are behind; a server beyond the last one starts again at the first.
    lags: Vec<Duration>,
    connections: usize,
    /// The revisions at which they were started, if that was later than the storage: their caches know nothing older.
    started_at: BTreeMap<usize, u64>,
    /// `/version`, and how the program writes objects.
    programs: BTreeMap<usize, (String, Rewrite)>,
}

impl Servers {
    pub(crate) fn set_lags(&self, lags: &[Duration]) {
        self.state().lags = lags.to_vec();
    }

    /// The server for the next connection: each in turn.
    pub(crate) fn next(&self) -> Server {
        let mut state = self.state();
        state.connections += 1;
        Server(state.connections)
    }

    /// How far the cache of that server is behind.
    pub(crate) fn lag(&self, server: Option<Server>) -> Duration {
        let state = self.state();
        let lag = server.and_then(|Server(number)| state.lags.get(number % state.lags.len().max(1)));
        lag.copied().unwrap_or_default()
    }

    pub(crate) fn start_at(&self, Server(number): Server, revision: u64) {
        self.state().started_at.insert(number, revision);
    }

    /// The oldest revision that the cache of that server has seen.
    pub(crate) fn started_at(&self, server: Option<Server>) -> u64 {
        server.and_then(|Server(number)| self.state().started_at.get(&number).copied()).unwrap_or_default()
    }

    /// All caches begin at this revision at the latest: the storage was set back to it.
    pub(crate) fn set_back(&self, revision: u64) {
        self.state().started_at.values_mut().for_each(|started_at| *started_at = revision.min(*started_at));
    }

    pub(crate) fn upgrade(&self, Server(number): Server, git_version: &str, rewrite: Rewrite) {
        self.state().programs.insert(number, (git_version.to_owned(), rewrite));
    }

    pub(crate) fn git_version(&self, server: Option<Server>) -> Option<String> {
        let Server(number) = server?;
        self.state().programs.get(&number).map(|(version, _)| version.clone())
    }

    /// The object as that server writes it.
    pub(crate) fn written_by(
        &self,
        server: Option<Server>,
        definition: &Definition,
        object: Arc<Stored>,
    ) -> Arc<Stored> {
        let rewrite = server.and_then(|Server(number)| self.state().programs.get(&number).map(|(_, rewrite)| *rewrite));
        let Some(rewrite) = rewrite else { return object };
        let mut value = object.value("");
        rewrite(&mut value);
        Arc::new(Stored::new(definition, value, object.revision))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
