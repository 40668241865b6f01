//! The most active clients: a fixed number of clients, with what each of them requested.
//!
//! Clients choose their user agents, so the table is bounded. When it is full, a new client replaces the one with the
//! fewest requests among those without watches, and inherits its count. So a frequent client is always in the table,
//! and a count is too high by [`ClientReading::uncertain`] at most (the space-saving algorithm of Metwally, Agrawal and
//! El Abbadi, 2005).

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::telemetry::{Outcome, limit_reached};

/// The maximum number of clients in the table.
const CLIENTS_MAX: usize = 200;
/// The number of bytes that are kept of a user agent or user name; the rest is ignored when clients are compared.
const NAME_BYTES_MAX: usize = 200;

/// The table of clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TopClients(Arc<Table>);

#[derive(Debug)]
struct Table {
    hasher: RandomState,
    /// By the keyed hash of user agent and user.
    clients: Mutex<HashMap<u64, Arc<Client>>>,
}

/// One client: a user agent, and its user if it is known.
#[derive(Debug)]
pub struct Client {
    pub user_agent: Box<str>,
    pub user: Option<Box<str>>,
    /// The count of the client that it replaced in the table.
    uncertain: u64,
    served: AtomicU64,
    forwarded: AtomicU64,
    rejected: AtomicU64,
    bytes: AtomicU64,
    watches: AtomicU64,
}

/// The counts of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientReading {
    pub user_agent: String,
    pub user: Option<String>,
    /// Finished requests, by the origin of the response.
    pub served: u64,
    pub forwarded: u64,
    pub rejected: u64,
    /// Requests that may have come from other clients: those of the client that it replaced.
    pub uncertain: u64,
    pub bytes: u64,
    /// Open watches.
    pub watches: u64,
}

/// An open watch, counted until it is dropped.
#[derive(Debug)]
pub struct OpenWatch(Arc<Client>);

impl Default for TopClients {
    fn default() -> Self {
        Self(Arc::new(Table { hasher: RandomState::new(), clients: Mutex::default() }))
    }
}

impl TopClients {
    /// The client with this user agent and user.
    pub fn find(&self, user_agent: &[u8], user: Option<&str>) -> Arc<Client> {
        let (user_agent, user) = (beginning(user_agent), user.map(|user| beginning(user.as_bytes())));
        let key = self.0.hasher.hash_one((user_agent, user));
        let mut clients = self.0.lock();
        if let Some(client) = clients.get(&key) {
            return client.clone();
        }
        let uncertain = if clients.len() < CLIENTS_MAX { 0 } else { make_room(&mut clients) };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned().into_boxed_str();
        let client = Arc::new(Client {
            user_agent: text(user_agent),
            user: user.map(text),
            uncertain,
            served: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            watches: AtomicU64::new(0),
        });
        clients.insert(key, client.clone());
        client
    }

    /// The clients with the most requests and watches come first.
    pub fn read(&self) -> Vec<ClientReading> {
        let mut readings: Vec<_> = self.0.lock().values().map(|client| client.read()).collect();
        readings.sort_by(|a, b| {
            let weight = |client: &ClientReading| client.asked() + client.watches;
            weight(b).cmp(&weight(a)).then_with(|| (&a.user_agent, &a.user).cmp(&(&b.user_agent, &b.user)))
        });
        readings
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the client with the fewest requests, if possible one without watches. Returns its count.
fn make_room(clients: &mut HashMap<u64, Arc<Client>>) -> u64 {
    limit_reached("top_clients");
    let weight = |client: &Client| (client.watches.load(Relaxed) > 0, client.weight());
    let least = clients.iter().map(|(key, client)| (weight(client), *key)).min();
    let Some(((_, weight), key)) = least else { return 0 };
    clients.remove(&key);
    weight
}

/// The part of a name that is kept. Ends at a character boundary if the name is UTF-8.
fn beginning(name: &[u8]) -> &[u8] {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while end < name.len() && end > 0 && name[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &name[..end]
}

impl Client {
    /// Counts a finished request.
    pub fn finished(&self, outcome: Outcome, bytes: u64) {
        let count = match outcome {
            Outcome::Served => &self.served,
            Outcome::Forwarded => &self.forwarded,
            Outcome::Rejected => &self.rejected,
        };
        count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a watch until the result is dropped.
    pub fn watches(self: &Arc<Self>) -> OpenWatch {
        self.watches.fetch_add(1, Relaxed);
        OpenWatch(self.clone())
    }

    /// The count by which clients are replaced. Does not copy names, because invented names make it run for every
    /// client.
    fn weight(&self) -> u64 {
        let asked = [&self.served, &self.forwarded, &self.rejected].map(|count| count.load(Relaxed));
        self.uncertain + asked.iter().sum::<u64>()
    }

    fn read(&self) -> ClientReading {
        ClientReading {
            user_agent: self.user_agent.to_string(),
            user: self.user.as_deref().map(str::to_owned),
            served: self.served.load(Relaxed),
            forwarded: self.forwarded.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            uncertain: self.uncertain,
            bytes: self.bytes.load(Relaxed),
            watches: self.watches.load(Relaxed),
        }
    }
}

impl ClientReading {
    /// Finished requests that are certainly its own.
    pub fn asked(&self) -> u64 {
        self.served + self.forwarded + self.rejected
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_distinguished_by_agent_and_user() {
        let top = TopClients::default();
        top.find(b"kubectl", None).finished(Outcome::Served, 10);
        top.find(b"kubectl", Some("jane")).finished(Outcome::Forwarded, 1);
        top.find(b"kubectl", Some("jane")).finished(Outcome::Served, 2);
        let watch = top.find(b"kubectl", Some("jane")).watches();
        let jane = || top.read().into_iter().find(|client| client.user.as_deref() == Some("jane")).unwrap();
        assert_eq!((jane().served, jane().forwarded, jane().bytes, jane().watches), (1, 1, 3, 1));
        assert_eq!(top.read()[0], jane(), "who has asked most comes first");
        drop(watch);
        assert_eq!(jane().watches, 0);
        assert_eq!(top.read().len(), 2);
    }

    #[test]
    fn invented_agents_neither_fill_memory_nor_displace_frequent_clients_and_watchers() {
        let top = TopClients::default();
        let _watch = top.find(b"informer", None).watches();
        for _ in 0..50 {
            top.find(b"dashboard", None).finished(Outcome::Served, 1);
        }
        for number in 0..5_000 {
            top.find(format!("made up {number}").as_bytes(), None).finished(Outcome::Rejected, 0);
        }
        let read = top.read();
        assert_eq!(read.len(), CLIENTS_MAX);
        let asked = |name: &str| read.iter().find(|client| client.user_agent == name).map(ClientReading::asked);
        assert_eq!((asked("dashboard"), asked("informer")), (Some(50), Some(0)));
        assert!(read.iter().all(|client| client.uncertain <= 5_000 / (CLIENTS_MAX as u64 - 2) + 1));
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let top = TopClients::default();
        let name = format!("{}ä and more", "x".repeat(NAME_BYTES_MAX - 1));
        let client = top.find(name.as_bytes(), None);
        assert_eq!(&*client.user_agent, "x".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(&*top.find(b"\xff\xfe", None).user_agent, "\u{fffd}\u{fffd}");
    }
}
