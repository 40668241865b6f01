//! Asks other gateways of the same cluster for the state of a resource, so that a new replica costs the API server no
//! list (the manual's chapter `consistency`, "Peers").
//!
//! A question is an ordinary list with the gateway's own credentials and two headers. One requires an answer from
//! memory or none; the other one asks for the state as it is kept, compressed, if both keep it in the same format.
//! It is never forwarded and never starts a cache, so a question never causes another one.

mod answer;
mod health;
mod search;

use std::{error::Error as _, fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, StatusCode, header, response::Parts};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use crate::{
    connector::{BuildError, Connector, PeerRequests, RequestBody, ResponseBody, SendError},
    upstream::{Crd, Upstream},
};
use base::{
    apimachinery::{
        ElectionRank, Encoding, GroupVersionResource, PEER, Provenance, Representation, ResourceVersion, ResponseKind,
        STATE_FORMAT, View,
    },
    telemetry::{Chain, limit_reached, peer_asked, peer_searched, show_limit},
};
use engine::{
    reflector::{self, PeerOutcome, StateForm},
    store::PACKED_FORMAT,
};

use health::{Failed, PeerHealth};
use search::{End, Question, SEARCH_MAX, Search};

pub use answer::PeerAnswer;
pub use health::{PeerStatus, PeerTrouble, PeerTroubleKind};
pub use search::LowestRank;

/// The maximum time for one question, until an answer begins: a peer waits up to 3 s for a proof.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The number of states that are read at the same time. They are large, and the peers have clients of their own.
const FILLS_MAX: usize = 4;
/// The maximum time that an answer waits to be read: a peer gives a client at least a second.
const PLACE_MAX: Duration = Duration::from_secs(10);

/// The other gateways of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

struct Shared {
    /// A random name in this gateway's questions and answers: by it the gateway recognizes its own questions, and
    /// others tell its answers apart from those of further gateways.
    name: Uuid,
    addresses: Vec<PeerAddress>,
    upstream: Upstream,
    fills: Arc<Semaphore>,
}

/// The gateways behind one address, and what is known of them.
struct PeerAddress {
    requests: PeerRequests,
    health: PeerHealth,
}

impl Peers {
    /// The gateways behind the addresses of these connectors, at least one.
    ///
    /// # Errors
    /// The gateway's credentials would cross a network without TLS or over unverified TLS.
    pub fn new(upstream: Upstream, connectors: &[Connector]) -> Result<Self, BuildError> {
        connectors.iter().try_for_each(Connector::refuse_exposed)?;
        let name = Uuid::new_v4();
        let addresses = connectors.iter().map(Connector::peer_requests).map(PeerAddress::new).collect();
        let fills = Arc::new(Semaphore::new(FILLS_MAX));
        let shown = Arc::downgrade(&fills);
        let used = move || Some(FILLS_MAX - shown.upgrade()?.available_permits());
        show_limit("peer_fills", move || Some((used()? as u64, FILLS_MAX as u64)));
        Ok(Self(Arc::new(Shared { name, addresses, upstream, fills })))
    }

    /// What is known of each address.
    pub fn statuses(&self) -> Vec<PeerStatus> {
        self.0.addresses.iter().map(|peer| peer.health.now()).collect()
    }

    /// Asks behind each address once, for the namespaces, which every cluster has. No state is used. None is asked if
    /// upstream does not say which cluster it is of.
    pub async fn ask_each(&self) -> Vec<PeerStatus> {
        let resource = GroupVersionResource::new("", "v1", "namespaces");
        let namespaces = ResourcePeers::new(Some(self.clone()), resource, Encoding::Json, None, Arc::default());
        let any = ResourceVersion::new(1).expect("1 is a version");
        let (server, since) = (self.0.upstream.last_version(), Instant::now());
        if let Some(expected) = reflector::Peers::provenance(&namespaces, server.as_deref(), since).await {
            for peer in &self.0.addresses {
                let question = namespaces.ask(self.0.name, &peer.requests, any, &expected);
                let failed = match timeout(ANSWER_MAX, question).await {
                    Ok(Ok(_)) => PeerOutcome::NoState.into(),
                    Ok(Err(failed)) => failed,
                    Err(_) => PeerOutcome::TimedOut.into(),
                };
                peer.health.note("namespaces", &failed);
            }
        }
        self.statuses()
    }

    /// Whether the headers are those of a question of this gateway itself.
    pub fn are_asked_with(&self, headers: &HeaderMap) -> bool {
        name_in(headers) == Some(self.0.name)
    }

    /// The name that this gateway tells those that ask it.
    pub fn name(&self) -> HeaderValue {
        in_header(self.0.name)
    }
}

impl PeerAddress {
    fn new(requests: PeerRequests) -> Self {
        Self { health: PeerHealth::new(requests.address()), requests }
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
    /// The uid and generation of a custom resource's definition; `None` for a built-in resource.
    definition: Option<Box<str>>,
    /// The lowest rank that the current search has heard of, for gateways that ask this one meanwhile.
    lowest: Arc<LowestRank>,
}

impl ResourcePeers {
    /// `definition` is the one under which the resource was discovered; `None` for a built-in resource. `lowest` is
    /// kept up to date while a search runs.
    pub fn new(
        peers: Option<Peers>,
        resource: GroupVersionResource,
        encoding: Encoding,
        definition: Option<&Crd>,
        lowest: Arc<LowestRank>,
    ) -> Self {
        let definition = definition.map(|Crd { uid, generation, .. }| format!("{uid}/{generation}").into());
        Self { peers, resource, encoding, definition, lowest }
    }

    /// The uid and generation of a custom resource's definition.
    pub fn definition(&self) -> Option<Box<str>> {
        self.definition.clone()
    }

    fn content_type(&self) -> &'static str {
        Representation { encoding: self.encoding, view: View::Whole }.content_type(ResponseKind::List)
    }

    async fn ask(
        &self,
        name: Uuid,
        peer: &PeerRequests,
        version: ResourceVersion,
        expected: &Provenance,
    ) -> Result<(StateForm, ResponseBody), Failed> {
        let path = self.resource.collection_path();
        let request = Request::get(format!("{path}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
            .header(header::ACCEPT, self.content_type())
            .header(PEER, in_header(name))
            .header(STATE_FORMAT, PACKED_FORMAT)
            .body(RequestBody::Empty)
            .map_err(|_| PeerOutcome::Refused)?;
        let answer = peer.send(request).await.map_err(|error| unreachable(&error))?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            return Err(unanswered(&head));
        }
        let is_packed = head.headers.get(STATE_FORMAT).is_some_and(|format| format == PACKED_FORMAT);
        let is_of_encoding = head.headers.get(header::CONTENT_TYPE).is_some_and(|is| is == self.content_type());
        let stated = Provenance::read(&head.headers).filter(|_| is_packed || is_of_encoding);
        let form = if is_packed { StateForm::Packed } else { StateForm::List };
        compare(&stated.ok_or(PeerOutcome::Foreign)?, expected).map_or(Ok((form, body)), Err)
    }

    /// Asks until a gateway has the state. Returns its answer, and the place of its address.
    async fn search(
        &self,
        shared: &Shared,
        not_older_than: ResourceVersion,
        expected: &Provenance,
    ) -> Result<(usize, StateForm, ResponseBody), End> {
        let (own, addresses) = (ElectionRank::drawn(fastrand::u64(..u64::MAX)), &shared.addresses);
        let began = Instant::now();
        let mut search = Search::new(shared.name, own, addresses.len(), fastrand::f64(), began);
        loop {
            self.lowest.set(search.lowest());
            let next = search.next(Instant::now(), |address| addresses[address].health.is_due());
            let Question { address, pause } = next?;
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            let (peer, left) = (&addresses[address], SEARCH_MAX.saturating_sub(began.elapsed()));
            let question = self.ask(shared.name, &peer.requests, not_older_than, expected);
            let asked = timeout(ANSWER_MAX.min(left), question).await;
            let failed = match asked {
                Ok(Ok((form, body))) => return Ok((address, form, body)),
                Ok(Err(failed)) => failed,
                Err(_) => PeerOutcome::TimedOut.into(),
            };
            self.record(peer, &failed);
            search.heard(address, failed.heard());
        }
    }

    /// Counts and records what came of a question to an address.
    fn record(&self, peer: &PeerAddress, failed: &Failed) {
        let Failed { outcome, error, .. } = failed;
        peer_asked(outcome.as_str());
        let resource = self.resource.to_string();
        tracing::debug!(address = peer.requests.address(), resource, %outcome, error, "a peer was asked for its state");
        peer.health.note(&resource, failed);
    }
}

/// What a response without a state shows.
fn unanswered(head: &Parts) -> Failed {
    let (status, headers) = (head.status, &head.headers);
    // Without the header: a gateway without `cache.peers`, or a load balancer in front of none.
    let is_gateway = headers.contains_key(PEER);
    let gateway =
        |outcome| Failed { gateway: name_in(headers), rank: ElectionRank::read(headers), ..Failed::from(outcome) };
    match status {
        StatusCode::LOOP_DETECTED => PeerOutcome::Itself.into(),
        StatusCode::SERVICE_UNAVAILABLE if is_gateway && ElectionRank::read(headers).is_some() => {
            gateway(PeerOutcome::Filling)
        }
        StatusCode::SERVICE_UNAVAILABLE if is_gateway => gateway(PeerOutcome::NoState),
        StatusCode::SERVICE_UNAVAILABLE => Failed::new(PeerOutcome::Foreign, status_of(status)),
        StatusCode::TOO_MANY_REQUESTS if is_gateway => gateway(PeerOutcome::Busy),
        StatusCode::UNAUTHORIZED => {
            let trouble = Some(PeerTroubleKind::Unauthorized);
            Failed { trouble, ..Failed::new(PeerOutcome::Refused, status_of(status)) }
        }
        status => Failed::new(PeerOutcome::Refused, status_of(status)),
    }
}

/// The name of a gateway: of one that asks, or of one that answers.
fn name_in(headers: &HeaderMap) -> Option<Uuid> {
    Uuid::try_parse_ascii(headers.get(PEER)?.as_bytes()).ok()
}

fn in_header(name: Uuid) -> HeaderValue {
    HeaderValue::try_from(name.simple().to_string()).expect("a UUID is a header value")
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

    async fn state(
        &self,
        not_older_than: ResourceVersion,
        expected: &Provenance,
    ) -> Option<(usize, StateForm, PeerAnswer)> {
        let Peers(shared) = self.peers.as_ref()?;
        let began = Instant::now();
        let found = self.search(shared, not_older_than, expected).await;
        // From a peer or from upstream: others need not ask upstream now.
        self.lowest.set(ElectionRank::FIRST);
        peer_searched(found.as_ref().map_or_else(|end| end.as_str(), |_| "found"), began.elapsed());
        if found.as_ref().is_err_and(|end| *end == End::Late) {
            limit_reached("peer_search");
        }
        let (index, form, body) = found.ok()?;
        shared.place().await.map(|place| (index, form, PeerAnswer::new(body, place)))
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
