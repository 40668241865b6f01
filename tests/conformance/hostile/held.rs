//! Attacks that hold what they have got: answers that are not read, connections that stay open, watches.

use anyhow::Result;
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::{FORWARDED, LIST, PROBE_TIMEOUT, REQUESTS, SEVERAL, Scene, Times, connections::Kept};
use crate::{certificates::ADMIN_TOKEN, client::Endpoint, identity};

/// The number of streams on one connection.
const STREAMS: usize = 1000;
/// The number of watches that are not read.
const UNREAD_WATCHES: usize = 2000;
/// The number of watches of each of several users that are not read: more than their share of `limits.answerBytes`.
const UNREAD_EACH: usize = 200;
/// The number of watches of one user on all nodes of a cluster.
const OPEN_WATCHES: usize = 5000;
/// The number of connections to the admin port: more than it accepts.
const ADMIN_CONNECTIONS: usize = 150;
/// The number of upgraded connections that one client asks for: the whole pool.
const UPGRADES: usize = 1000;
/// One client's share of them.
const UPGRADES_SHARE: usize = 250;
/// `limits.connectionsPerAddress`.
const CONNECTIONS_SHARE: usize = 1000;
/// The number of connections of one address: more than its share.
const CONNECTIONS: usize = 1100;
/// The number of connections whose requests are refused, from one address.
const REFUSED_CONNECTIONS: usize = 20;
/// The number of connections that are opened concurrently.
const AT_ONCE: usize = 50;
/// The number of ways to write one token, and of the watches with each: together more than may be forwarded.
const SPELLINGS: u8 = 12;
const WATCHES_EACH: usize = 500;
/// `limits.forwardedPerClient`.
const FORWARDED_SHARE: usize = 1000;

/// A list by a selector, which takes tens of megabytes.
const SELECTED: &str = "/api/v1/namespaces/conf/configmaps?resourceVersion=0&labelSelector=hostile";
/// A watch of the same objects: half a megabyte for each initial event.
const SELECTED_WATCH: &str =
    "/api/v1/namespaces/conf/configmaps?watch=1&resourceVersion=0&labelSelector=hostile&timeoutSeconds=600";
/// A watch of config maps without initial events.
const CONFIG_MAPS: &str = "/api/v1/namespaces/conf/configmaps?watch=1&labelSelector=none&timeoutSeconds=600";
/// A watch by labels as long as those of kube-proxy, which selects nothing here.
const NODE_WATCH: &str = "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=600&\
    labelSelector=service.kubernetes.io%2Fheadless,service.kubernetes.io%2Fservice-proxy-name";
/// A watch over a WebSocket, which takes a connection upstream.
const WATCH: &str = "/api/v1/namespaces/conf/pods?watch=1&fieldSelector=metadata.name%3Dpod-00&timeoutSeconds=600";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost\r\nAuthorization: Bearer ";
/// A watch that is forwarded: these gateways do not cache events.
const EVENTS: &str = "/api/v1/namespaces/conf/events?watch=1&timeoutSeconds=600";

/// The addresses of the attacks; those of the spellings follow the last one.
const UNREAD: u8 = 2;
const UPGRADING: u8 = 3;
const IDLE: u8 = 4;
const DAEMON_SET: u8 = 5;
const REFUSED: u8 = 6;
const SPELLING: u8 = 10;

impl Scene<'_> {
    /// A thousand requests without credentials on one connection that accepts no byte of a response.
    pub(super) async fn unknown_clients(&mut self, quiet: &Times) -> Result<()> {
        let attack = self.victim.unread(UNREAD).await?;
        let held = attack.ask(0..STREAMS, |_| (format!("{FORWARDED}?x=forwarded"), None)).await;
        self.beside("1,000 requests without credentials that are not read", quiet, REQUESTS).await?;
        drop(held);
        Ok(())
    }

    /// Requests that the gateway refuses itself, on connections that accept no byte of the refusals.
    pub(super) async fn unread_refusals(&mut self, quiet: &Times) -> Result<()> {
        let name = "20,000 refusals of one address that are not read";
        let before = self.reached("answers_per_address").await?;
        let mut held = Vec::new();
        for _ in 0..REFUSED_CONNECTIONS {
            let attack = self.victim.unread(REFUSED).await?.patient();
            let answers = attack.ask_malformed(STREAMS).await;
            held.push((attack, answers));
        }
        let of =
            |status: u16| held.iter().flat_map(|(_, answers)| answers).filter(|one| one.status() == status).count();
        let (begun, refused) = (of(400), of(429));
        self.tally.note(format!("{name}: {begun} were begun, {refused} got 429"));
        self.tally.equal(name, &(REFUSED_CONNECTIONS * STREAMS), &(begun + refused));
        self.beside(name, quiet, REQUESTS).await?;
        let reached = self.reached("answers_per_address").await? - before;
        self.tally.holds(name, reached > 0, || "no limit was reached".to_owned());
        Ok(())
    }

    /// Lists by a selector, each of tens of megabytes, on a connection that accepts no byte of them.
    pub(super) async fn unread_lists(&mut self, quiet: &Times) -> Result<()> {
        let attack = self.victim.unread(UNREAD).await?;
        let keeper = "Bearer conformance-keeper";
        let held = attack.ask(0..STREAMS, |_| (SELECTED.to_owned(), Some(keeper.to_owned()))).await;
        let name = "1,000 selected lists that are not read";
        self.beside(name, quiet, REQUESTS).await?;
        self.tally.note(format!("{name}: {} answers begun", held.len()));
        Ok(())
    }

    /// Watches whose initial events are not read.
    pub(super) async fn unread_watches(&mut self, quiet: &Times) -> Result<()> {
        let name = "2,000 watches whose initial events are not read";
        let keeper = "Bearer conformance-keeper";
        let before = self.reached("client_answer_bytes").await?;
        let mut held = Vec::new();
        for _ in 0..UNREAD_WATCHES / STREAMS {
            let attack = self.victim.unread(UNREAD).await?;
            let answers = attack.ask(0..STREAMS, |_| (SELECTED_WATCH.to_owned(), Some(keeper.to_owned()))).await;
            held.push((attack, answers));
        }
        self.beside(name, quiet, REQUESTS).await?;
        let begun = held.iter().flat_map(|(_, answers)| answers).filter(|answer| answer.status() == 200).count();
        self.tally.note(format!("{name}: {begun} were begun"));
        let reached = self.reached("client_answer_bytes").await? - before;
        self.tally.holds(name, reached > 0, || "no limit was reached".to_owned());
        Ok(())
    }

    /// The same of five users, who hold all the memory that is shared, while the bystander's user has as many watches
    /// as the service account of a DaemonSet.
    pub(super) async fn unread_watches_of_five(&mut self, quiet: &Times) -> Result<()> {
        let name = "1,000 watches of five users that are not read";
        let api = &self.side.server.endpoint;
        let mut open = Vec::new();
        for _ in 0..OPEN_WATCHES / STREAMS {
            let connection = self.victim.unread(DAEMON_SET).await?.patient();
            let reader = || Some("Bearer conformance-reader".to_owned());
            let answers = connection.ask(0..STREAMS, |_| (NODE_WATCH.to_owned(), reader())).await;
            self.tally.equal(&format!("{name}: the bystander's other watches"), &STREAMS, &answers.len());
            open.push((connection, answers));
        }
        identity::grant_keeper(api, &SEVERAL).await?;
        let before = self.reached("answer_bytes").await?;
        let mut held = Vec::new();
        for user in SEVERAL {
            drop(self.watch_when_allowed(CONFIG_MAPS, &format!("conformance-{user}")).await?);
            let attack = self.victim.unread(UNREAD).await?;
            let authorization = Some(format!("Bearer conformance-{user}"));
            let answers = attack.ask(0..UNREAD_EACH, |_| (SELECTED_WATCH.to_owned(), authorization.clone())).await;
            held.push((attack, answers));
        }
        self.beside(name, quiet, REQUESTS).await?;
        let reached = self.reached("answer_bytes").await? - before;
        self.tally.holds(name, reached > 0, || "the limit was not reached".to_owned());
        drop((held, open));
        identity::revoke_keeper(api).await
    }

    /// Connections to the admin port that send one request and stay open.
    pub(super) async fn idle_admin_connections(&mut self, quiet: &Times) -> Result<()> {
        let base = format!("http://{}", self.admin);
        let mut kept = Vec::new();
        for _ in 0..ADMIN_CONNECTIONS {
            let client = Endpoint::plain(&base)?;
            // The later ones may already have been closed in favour of others.
            timeout(PROBE_TIMEOUT, client.get("/livez")).await.ok();
            kept.push(client);
        }
        self.beside("idle connections to the admin port", quiet, REQUESTS).await?;
        drop(kept);
        Ok(())
    }

    /// Connections to the main port that send one request and stay open: more than an address may have.
    pub(super) async fn idle_connections(&mut self, quiet: &Times) -> Result<()> {
        let name = "1,100 connections of one address that have asked once";
        let kept = self.keep(IDLE, CONNECTIONS, LIST, "Authorization: Bearer conformance-keeper\r\n").await;
        let answered = count(&kept, 200);
        self.tally.note(format!("{name}: {answered} were answered"));
        let is_right = (1..=CONNECTIONS_SHARE).contains(&answered);
        self.tally.holds(name, is_right, || format!("{answered} were answered, {CONNECTIONS_SHARE} allowed"));
        self.beside(name, quiet, REQUESTS).await
    }

    /// Watches over WebSockets: as many as all clients together may have.
    pub(super) async fn upgrades(&mut self, quiet: &Times) -> Result<()> {
        let name = "1,000 upgrades of one client";
        let kept = self.keep(UPGRADING, UPGRADES, WATCH, &format!("{UPGRADE}conformance-keeper\r\n")).await;
        let (upgraded, refused) = (count(&kept, 101), count(&kept, 429));
        self.tally.note(format!("{name}: {upgraded} were upgraded, {refused} got 429"));
        self.tally.equal(name, &(UPGRADES_SHARE, UPGRADES - UPGRADES_SHARE), &(upgraded, refused));
        let other = self.victim.keep(1, WATCH, &format!("{UPGRADE}conformance-reader\r\n")).await;
        self.tally.equal(&format!("{name}: another client's upgrade"), &Some(101), &other.status);
        self.beside(name, quiet, REQUESTS).await
    }

    /// One token, written in twelve ways and sent from as many addresses. Each opens watches that are forwarded.
    pub(super) async fn spellings(&mut self, quiet: &Times) -> Result<()> {
        let name = "6,000 watches of one token in twelve spellings";
        let mut held = Vec::new();
        for spelling in 0..SPELLINGS {
            let authorization = Some(format!("Bearer {ADMIN_TOKEN} {spelling}"));
            let attack = self.victim.unread(SPELLING + spelling).await?;
            // A token that has not been reviewed counts for its address.
            drop(attack.ask(0..1, |_| (LIST.to_owned(), authorization.clone())).await);
            let answers = attack.ask(0..WATCHES_EACH, |_| (EVENTS.to_owned(), authorization.clone())).await;
            held.push((attack, answers));
        }
        let begun = held.iter().flat_map(|(_, answers)| answers).filter(|answer| answer.status() == 200).count();
        self.tally.note(format!("{name}: {begun} were begun"));
        let is_right = (1..=FORWARDED_SHARE).contains(&begun);
        self.tally.holds(name, is_right, || format!("{begun} were begun, {FORWARDED_SHARE} allowed"));
        self.beside(name, quiet, REQUESTS).await
    }

    async fn keep(&self, from: u8, connections: usize, path: &str, lines: &str) -> Vec<Kept> {
        let opened = (0..connections).map(|_| self.victim.keep(from, path, lines));
        stream::iter(opened).buffer_unordered(AT_ONCE).collect().await
    }
}

fn count(kept: &[Kept], status: u16) -> usize {
    kept.iter().filter(|kept| kept.status == Some(status)).count()
}
