//! Asks other gateways of the same cluster for the state of a resource, so that a new replica costs the API server no
//! list ([`crate::manual::consistency`], "Peers").
//!
//! A question is an ordinary list with the gateway's own credentials and one header, which requires an answer from
//! memory or none. It is never forwarded and never starts a cache, so a question never causes another one.

mod answer;
mod standing;

use std::{error::Error as _, fmt, sync::Arc, time::Duration};

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
    connector::{BuildError, Connector, PeerRequests, RequestBody, ResponseBody, SendError},
    reflector::{self, PeerOutcome},
    telemetry::{Chain, limit_reached, peer_asked, show_limit},
    upstream::{Crd, Upstream},
};

use standing::{Failed, Standing};

pub use answer::PeerAnswer;
pub use standing::{PeerStanding, PeerTrouble, PeerTroubleKind};

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
    addresses: Vec<PeerAddress>,
    upstream: Upstream,
    fills: Arc<Semaphore>,
}

/// The gateways behind one address, and what is known of them.
struct PeerAddress {
    requests: PeerRequests,
    standing: Standing,
}

impl Peers {
    /// The gateways behind the addresses of these connectors, at least one.
    ///
    /// # Errors
    /// The gateway's credentials would cross a network without TLS or over unverified TLS.
    pub fn new(upstream: Upstream, connectors: &[Connector]) -> Result<Self, BuildError> {
        connectors.iter().try_for_each(Connector::refuse_exposed)?;
        let name = HeaderValue::try_from(Uuid::new_v4().simple().to_string()).expect("a UUID is a header value");
        let addresses = connectors.iter().map(Connector::peer_requests).map(PeerAddress::new).collect();
        let fills = Arc::new(Semaphore::new(FILLS_MAX));
        let shown = Arc::downgrade(&fills);
        let used = move || Some(FILLS_MAX - shown.upgrade()?.available_permits());
        show_limit("peer_fills", move || Some((used()? as u64, FILLS_MAX as u64)));
        Ok(Self(Arc::new(Shared { name, addresses, upstream, fills })))
    }

    /// What is known of each address.
    pub fn standings(&self) -> Vec<PeerStanding> {
        self.0.addresses.iter().map(|peer| peer.standing.now()).collect()
    }

    /// Asks behind each address once, for the namespaces, which every cluster has. No state is used. None is asked if
    /// upstream does not say which cluster it is of.
    pub async fn ask_each(&self) -> Vec<PeerStanding> {
        let resource = GroupVersionResource::new("", "v1", "namespaces");
        let namespaces = ResourcePeers::new(Some(self.clone()), resource, Encoding::Json, None);
        let any = ResourceVersion::new(1).expect("1 is a version");
        let (server, since) = (self.0.upstream.last_version(), Instant::now());
        if let Some(expected) = reflector::Peers::provenance(&namespaces, server.as_deref(), since).await {
            for peer in &self.0.addresses {
                let question = namespaces.ask((&self.0.name, &peer.requests), any, &expected);
                let failed = match timeout(ANSWER_MAX, question).await {
                    Ok(Ok(_)) => PeerOutcome::NoState.into(),
                    Ok(Err(failed)) => failed,
                    Err(_) => PeerOutcome::TimedOut.into(),
                };
                peer.standing.note("namespaces", &failed);
            }
        }
        self.standings()
    }

    /// Whether the headers are those of a question of this gateway itself.
    pub fn are_asked_with(&self, headers: &HeaderMap) -> bool {
        headers.get(PEER) == Some(&self.0.name)
    }
}

impl PeerAddress {
    fn new(requests: PeerRequests) -> Self {
        Self { standing: Standing::new(requests.address()), requests }
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
    ) -> Result<ResponseBody, Failed> {
        let path = self.resource.collection_path();
        let request = Request::get(format!("{path}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
            .header(header::ACCEPT, self.content_type())
            .header(PEER, name)
            .body(RequestBody::Empty)
            .map_err(|_| PeerOutcome::Refused)?;
        let answer = peer.send(request).await.map_err(|error| unreachable(&error))?;
        let (head, body) = answer.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::LOOP_DETECTED => return Err(PeerOutcome::Itself.into()),
            // Without the header: a gateway without `cache.peers`, or a load balancer in front of none.
            StatusCode::SERVICE_UNAVAILABLE if head.headers.contains_key(PEER) => {
                return Err(PeerOutcome::NoState.into());
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                return Err(Failed::new(PeerOutcome::Foreign, status_of(head.status)));
            }
            StatusCode::UNAUTHORIZED => {
                let trouble = Some(PeerTroubleKind::Unauthorized);
                return Err(Failed { trouble, ..Failed::new(PeerOutcome::Refused, status_of(head.status)) });
            }
            status => return Err(Failed::new(PeerOutcome::Refused, status_of(status))),
        }
        let is_of_encoding = head.headers.get(header::CONTENT_TYPE).is_some_and(|is| is == self.content_type());
        let stated = Provenance::read(&head.headers).filter(|_| is_of_encoding).ok_or(PeerOutcome::Foreign)?;
        compare(&stated, expected).map_or(Ok(body), Err)
    }

    /// Counts and records what came of a question to an address.
    fn record(&self, peer: &PeerAddress, failed: &Failed) {
        let Failed { outcome, error, .. } = failed;
        peer_asked(outcome.as_str());
        let resource = self.resource.to_string();
        tracing::debug!(address = peer.requests.address(), resource, %outcome, error, "a peer was asked for its state");
        peer.standing.note(&resource, failed);
    }
}

fn status_of(status: StatusCode) -> String {
    format!("the answer is {status}")
}

/// Why there is no answer, in the words of the connection: those of the connector are about the API server.
fn unreachable(sent: &SendError) -> Failed {
    let error = if let SendError::ConnectTimedOut(limit) = sent {
        format!("it took longer than {limit:?}")
    } else {
        sent.source().map_or_else(|| sent.as_str().to_owned(), |cause| Chain(cause).to_string())
    };
    let failed = Failed::new(PeerOutcome::Unreachable, error);
    if sent.is_unverified() { Failed { trouble: Some(PeerTroubleKind::Unverified), ..failed } } else { failed }
}

/// The first difference between what a peer states and what upstream says.
fn compare(stated: &Provenance, expected: &Provenance) -> Option<Failed> {
    let differ = |outcome, stated: &str, expected: &str| {
        let error = format!("the peer's is {stated:?}, this gateway's {expected:?}");
        Some(Failed::new(outcome, error))
    };
    match stated {
        Provenance { cluster, .. } if *cluster != expected.cluster => {
            differ(PeerOutcome::Cluster, cluster, &expected.cluster)
        }
        Provenance { server, .. } if *server != expected.server => {
            differ(PeerOutcome::Server, server, &expected.server)
        }
        Provenance { definition, .. } if *definition != expected.definition => Some(PeerOutcome::Definition.into()),
        _ => None,
    }
}

impl reflector::Peers for ResourcePeers {
    type Stream = PeerAnswer;
    /// The place of the address among all.
    type Origin = usize;

    async fn provenance(&self, server: Option<&str>, since: Instant) -> Option<Provenance> {
        let (peers, server) = (self.peers.as_ref()?, server?);
        let cluster = peers.0.upstream.cluster(since).await?;
        Some(Provenance { cluster, server: server.into(), definition: self.definition.clone() })
    }

    async fn list(&self, not_older_than: ResourceVersion, expected: &Provenance) -> Option<(usize, PeerAnswer)> {
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
            let index = (first + turn) % shared.addresses.len();
            let peer = &shared.addresses[index];
            if !peer.standing.is_due() {
                continue;
            }
            let asked = timeout_at(deadline, self.ask((&shared.name, &peer.requests), not_older_than, expected)).await;
            let failed = match asked {
                Ok(Ok(body)) => return shared.place().await.map(|place| (index, PeerAnswer::new(body, place))),
                Ok(Err(failed)) => failed,
                Err(_) => PeerOutcome::TimedOut.into(),
            };
            self.record(peer, &failed);
            if failed.outcome == PeerOutcome::TimedOut {
                return None;
            }
            is_one_cold |= failed.outcome == PeerOutcome::NoState;
        }
        None
    }

    fn note(&self, origin: usize, outcome: PeerOutcome) {
        let peer = self.peers.as_ref().and_then(|Peers(shared)| shared.addresses.get(origin));
        if let Some(peer) = peer {
            self.record(peer, &outcome.into());
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.0.addresses.iter().map(|peer| peer.requests.address()).collect();
        formatter.debug_struct("Peers").field("addresses", &addresses).finish_non_exhaustive()
    }
}
