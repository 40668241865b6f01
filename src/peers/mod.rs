//! Asks other gateways of the same cluster for the state of a resource, so that a new replica costs the API server no
//! list ([`crate::manual::consistency`], "Peers").
//!
//! A question is an ordinary list with the gateway's own credentials and one header, which requires an answer from
//! memory or none. It is never forwarded and never starts a cache, so a question never causes another one.

mod answer;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout, timeout_at},
};
use uuid::Uuid;

use crate::{
    apimachinery::{
        Encoding, GroupVersionResource, PEER, Provenance, Representation, ResourceVersion, ResponseKind, View,
    },
    connector::{BuildError, Connector, PeerRequests, RequestBody, ResponseBody},
    reflector::PeerOutcome,
    telemetry::{Chain, limit_reached, peer_asked, show_limit},
    upstream::{Crd, Upstream},
};

pub use answer::PeerAnswer;

/// The number of questions for one cache, unless a gateway has answered that it has no state yet. Each has a new
/// connection, since an address usually leads to several gateways, among them this one.
const QUESTIONS_MAX: usize = 3;
/// How long peers are asked again if one of them has no state yet: others may have one, and it may soon have one itself.
/// The time is random, so that of many gateways that start together, none of which has a state, a few ask upstream, and
/// the others get it from them.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(4);
/// The pause between two such questions; varied by half.
const PAUSE: Duration = Duration::from_millis(60);
/// The maximum time for all questions for one cache, until an answer begins: a peer waits up to 3 s for a proof.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The number of states that are read at the same time. They are large, and the peers have clients of their own.
const FILLS_MAX: usize = 4;
/// The maximum time that an answer waits to be read: a peer gives a client at least a second.
const PLACE_MAX: Duration = Duration::from_secs(10);

/// The other gateways of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

struct Shared {
    /// A random name, by which this gateway recognizes its own questions.
    name: HeaderValue,
    addresses: Vec<PeerRequests>,
    upstream: Upstream,
    /// Whether upstream did not tell the uid of its cluster when it was last asked.
    is_nameless: AtomicBool,
    fills: Arc<Semaphore>,
}

impl Peers {
    /// The gateways behind the addresses of these connectors, at least one.
    ///
    /// # Errors
    /// The gateway's credentials would cross a network without TLS or over unverified TLS.
    pub fn new(upstream: Upstream, connectors: &[Connector]) -> Result<Self, BuildError> {
        connectors.iter().try_for_each(Connector::refuse_exposed)?;
        let name = HeaderValue::try_from(Uuid::new_v4().simple().to_string()).expect("a UUID is a header value");
        let addresses = connectors.iter().map(Connector::peer_requests).collect();
        let fills = Arc::new(Semaphore::new(FILLS_MAX));
        let shown = Arc::downgrade(&fills);
        let used = move || Some(FILLS_MAX - shown.upgrade()?.available_permits());
        show_limit("peer_fills", move || Some((used()? as u64, FILLS_MAX as u64)));
        Ok(Self(Arc::new(Shared { name, addresses, upstream, is_nameless: AtomicBool::default(), fills })))
    }

    /// Whether the headers are those of a question of this gateway itself.
    pub fn are_asked_with(&self, headers: &HeaderMap) -> bool {
        headers.get(PEER) == Some(&self.0.name)
    }

    /// The uid of upstream's cluster, requested no earlier than `since`.
    async fn cluster(&self, since: Instant) -> Option<Box<str>> {
        let uid = self.0.upstream.cluster(since).await;
        // Logged once, as long as nothing changes.
        let was_nameless = self.0.is_nameless.swap(uid.is_none(), Ordering::Relaxed);
        if uid.is_none() && !was_nameless {
            tracing::warn!("cannot read the uid of the namespace kube-system: peers are neither asked nor answered");
        }
        uid
    }
}

impl Shared {
    /// A place among the states that are read. Taken once an answer has begun: until then a question costs little, and
    /// may take seconds, in which the peer proves a quiet resource.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = timeout(PLACE_MAX, self.fills.clone().acquire_owned()).await;
        if place.is_err() {
            limit_reached("peer_fills");
        }
        place.ok()?.ok()
    }
}

/// The peers, asked about one resource in one encoding.
#[derive(Clone, Debug)]
pub struct ResourcePeers {
    /// `None`: there are no peers.
    peers: Option<Peers>,
    resource: GroupVersionResource,
    encoding: Encoding,
    definition: Option<Box<str>>,
}

impl ResourcePeers {
    /// `definition` is that under which the resource was discovered; `None` for a built-in resource.
    pub fn new(
        peers: Option<Peers>,
        resource: GroupVersionResource,
        encoding: Encoding,
        definition: Option<&Crd>,
    ) -> Self {
        let definition = definition.map(|Crd { uid, generation, .. }| format!("{uid}/{generation}").into());
        Self { peers, resource, encoding, definition }
    }

    fn content_type(&self) -> &'static str {
        Representation { encoding: self.encoding, view: View::Whole }.content_type(ResponseKind::List)
    }

    async fn ask(
        &self,
        (name, peer): (&HeaderValue, &PeerRequests),
        version: ResourceVersion,
        expected: &Provenance,
    ) -> Result<ResponseBody, PeerOutcome> {
        let path = self.resource.collection_path();
        let request = Request::get(format!("{path}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
            .header(header::ACCEPT, self.content_type())
            .header(PEER, name)
            .body(RequestBody::Empty)
            .map_err(|_| PeerOutcome::Refused)?;
        let answer = peer.send(request).await.map_err(|error| {
            tracing::debug!(address = peer.address(), error = %Chain(&error), "cannot ask a peer");
            PeerOutcome::Unreachable
        })?;
        let (head, body) = answer.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::LOOP_DETECTED => return Err(PeerOutcome::Itself),
            StatusCode::SERVICE_UNAVAILABLE => return Err(PeerOutcome::NoState),
            _ => return Err(PeerOutcome::Refused),
        }
        let is_of_encoding = head.headers.get(header::CONTENT_TYPE).is_some_and(|is| is == self.content_type());
        let stated = Provenance::read(&head.headers).filter(|_| is_of_encoding).ok_or(PeerOutcome::Foreign)?;
        compare(&stated, expected).map_or(Ok(body), Err)
    }
}

/// The first difference between what a peer states and what upstream says.
fn compare(stated: &Provenance, expected: &Provenance) -> Option<PeerOutcome> {
    match stated {
        Provenance { cluster, .. } if *cluster != expected.cluster => Some(PeerOutcome::Cluster),
        Provenance { server, .. } if *server != expected.server => Some(PeerOutcome::Server),
        Provenance { definition, .. } if *definition != expected.definition => Some(PeerOutcome::Definition),
        _ => None,
    }
}

impl crate::reflector::Peers for ResourcePeers {
    type Stream = PeerAnswer;

    async fn provenance(&self, server: Option<&str>, since: Instant) -> Option<Provenance> {
        let (peers, server) = (self.peers.as_ref()?, server?);
        let cluster = peers.cluster(since).await?;
        Some(Provenance { cluster, server: server.into(), definition: self.definition.clone() })
    }

    async fn list(&self, not_older_than: ResourceVersion, expected: &Provenance) -> Option<PeerAnswer> {
        let Peers(shared) = self.peers.as_ref()?;
        let began = Instant::now();
        let deadline = began + ANSWER_MAX;
        let patience = PATIENCE_MIN + (PATIENCE_MAX - PATIENCE_MIN).mul_f64(fastrand::f64());
        let (first, mut is_one_cold) = (fastrand::usize(..shared.addresses.len()), false);
        for turn in 0.. {
            if turn >= QUESTIONS_MAX {
                if !is_one_cold || began.elapsed() >= patience {
                    return None;
                }
                sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
            }
            let peer = &shared.addresses[(first + turn) % shared.addresses.len()];
            let asked = timeout_at(deadline, self.ask((&shared.name, peer), not_older_than, expected)).await;
            match asked.unwrap_or(Err(PeerOutcome::TimedOut)) {
                Ok(body) => return shared.place().await.map(|place| PeerAnswer::new(body, place)),
                Err(outcome) => {
                    self.note(outcome);
                    match outcome {
                        PeerOutcome::TimedOut => return None,
                        PeerOutcome::NoState => is_one_cold = true,
                        _ => {}
                    }
                }
            }
        }
        None
    }

    fn note(&self, outcome: PeerOutcome) {
        peer_asked(outcome.as_str());
        if outcome.is_odd() {
            tracing::warn!(resource = %self.resource, error = %outcome, "a peer's state is not used");
        } else {
            tracing::debug!(resource = %self.resource, %outcome, "a peer was asked for its state");
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.0.addresses.iter().map(PeerRequests::address).collect();
        formatter.debug_struct("Peers").field("addresses", &addresses).finish_non_exhaustive()
    }
}
