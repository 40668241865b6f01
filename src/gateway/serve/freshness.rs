//! The state from which a get or a list is answered (read-path 1.1, 1.2).

use std::time::Duration;

use super::{
    ForwardReason, Read, SMALL_ANSWER, Unanswered,
    concurrency::Work,
    most_recent::{Choice, Situation, choose},
};
use crate::cacher::{Instance, Unproven};
use base::{
    apimachinery::{Freshness, ResourceVersion},
    config::{MostRecentReads, ReadsConfig},
    fairness::UsedUp,
};
use engine::store::{Extract, Predicate, View};

/// How long a read of an exact version waits for upstream to say that the objects' schema has not changed.
const SCHEMA_WAIT: Duration = Duration::from_secs(3);

/// The state for a read or the start of a watch. Waits for a version that the cache has not reached, and has it proven.
/// Reads of the most recent state are always forwarded here: [`read_state`] decides about gets and lists, and watches
/// have theirs proven by their own code.
pub(super) async fn state(
    instance: &Instance,
    view: &View,
    freshness: Freshness,
    config: ReadsConfig,
) -> Result<Extract, ForwardReason> {
    match freshness {
        Freshness::MostRecent => Err(ForwardReason::MostRecent),
        Freshness::Any => {
            instance.agree(config.freshness_wait).await.map_err(|_| ForwardReason::NotReached)?;
            newest(instance, view, config).await
        }
        Freshness::NotOlderThan(version) => {
            let reached = instance.reach(version, config.freshness_wait).await;
            reached.map_err(unproven)?;
            newest(instance, view, config).await
        }
        Freshness::Exact(version) => {
            let state = view.exact(version).ok_or(ForwardReason::OutsideHistory)?;
            let is_current = instance.is_current_schema(version, SCHEMA_WAIT).await;
            if is_current == Some(true) { Ok(state) } else { Err(ForwardReason::Unproven) }
        }
    }
}

/// The newest state, which may be newer than the version that was proven. Fails if upstream says that its objects are
/// of an old schema. If upstream does not answer, the state is used all the same, since the client's version allows it.
pub(super) async fn newest(instance: &Instance, view: &View, config: ReadsConfig) -> Result<Extract, ForwardReason> {
    let state = view.newest();
    is_not_old(instance, state.version(), config).await?;
    Ok(state)
}

/// Fails if upstream says that the objects up to `version` are of an old schema.
pub(super) async fn is_not_old(
    instance: &Instance,
    version: ResourceVersion,
    config: ReadsConfig,
) -> Result<(), ForwardReason> {
    let is_current = instance.is_current_schema(version, config.freshness_wait).await;
    if is_current == Some(false) { Err(ForwardReason::Unproven) } else { Ok(()) }
}

/// The reason for forwarding a read whose version could not be proven.
fn unproven(why: Unproven) -> ForwardReason {
    if why == Unproven::Redefined { ForwardReason::Unproven } else { ForwardReason::NotReached }
}

/// The objects of a response, for an estimate of its size.
pub(super) enum Selected<'a> {
    /// One object. Upstream answers with it as fast as with its head version, so the size counts as zero.
    One,
    /// At most `limit` matching objects.
    Matching { predicate: &'a Predicate, limit: usize },
}

/// The state for a get or a list, including the most recent state. `work` is that of the response: its turns have one
/// time limit.
pub(super) async fn read_state(
    read: &Read<'_>,
    view: &View,
    freshness: Freshness,
    selected: Selected<'_>,
    work: &mut Work<'_>,
) -> Result<Extract, Unanswered> {
    if freshness != Freshness::MostRecent {
        return Ok(state(&read.instance, view, freshness, read.config).await?);
    }
    let instance = &read.instance;
    let choice = match read.config.most_recent {
        MostRecentReads::Auto => {
            let bytes = selected.bytes(read, &view.newest(), work).await?;
            let asking = instance.asked(bytes);
            let (recent, pace) = (instance.recent_proof(), instance.pace());
            choose(MostRecentReads::Auto, Situation { bytes, asking, recent, pace })
        }
        MostRecentReads::Prove => {
            choose(MostRecentReads::Prove, Situation { recent: instance.recent_proof(), ..Situation::default() })
        }
        MostRecentReads::Forward => choose(MostRecentReads::Forward, Situation::default()),
    };
    let (worth, within) = match choice {
        Choice::Forward(why) => return Err(why.into()),
        Choice::Prove(worth, within) => (worth, within),
    };
    tracing::trace!(resource = %instance.resource, ?worth, ?within, "most-recent read waits for a proof");
    // Neither is held while the read waits for the other.
    work.rest();
    let place = read.proofs.take().map_err(|UsedUp| ForwardReason::Unproven)?;
    let proven = instance.prove_within(within, worth.takes_if_failed(within)).await;
    drop(place);
    proven.map_err(|_| ForwardReason::Unproven)?;
    Ok(newest(instance, view, read.config).await?)
}

impl Selected<'_> {
    /// The bytes of the objects of that state, as they are in memory.
    async fn bytes(&self, read: &Read<'_>, state: &Extract, work: &mut Work<'_>) -> Result<usize, Unanswered> {
        let (predicate, limit) = match *self {
            Self::One => return Ok(0),
            Self::Matching { predicate, limit } => (predicate, limit),
        };
        match (read.instance.bytes(), state.leaves()) {
            (few @ ..=SMALL_ANSWER, _) => Ok(few),
            (_, Some(leaves)) if predicate.is_everything() && limit == usize::MAX => {
                Ok(leaves.iter().map(|leaf| leaf.bytes()).sum())
            }
            _ => {
                let search = state.search("", limit, predicate);
                Ok(work.find(search).await?.bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, pin::pin};

    use futures_util::FutureExt;
    use http::{HeaderMap, Method};
    use serde_json::json;
    use tokio::{
        select,
        task::yield_now,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::{
        authz::{Attributes, Authorizer},
        cacher::{self, Cachers, Scopes, StalenessLimit},
        connector::{Connector, test_server},
        serve::{self, Downstream, ReadConcurrency},
        upstream::{Discovery, Upstream},
    };
    use base::{
        apimachinery::{Encoding, IncludeObject, ListOptions, Representation, RequestInfo, Target},
        config::{CacheScope, MostRecentWatch, Shards},
        fairness::{ByteBudget, ClientKey, Shares},
        lifecycle::Tasks,
        telemetry::TopClients,
    };
    use engine::store::HistoryLimits;
    use sim::Sim;

    const LONG: Duration = Duration::from_secs(300);

    /// More than upstream answers as quickly as it proves memory, in more objects than are looked at without a turn.
    fn large() -> Sim {
        let sim = Sim::new();
        for number in 0..1000 {
            let annotations = json!({"filler": "x".repeat(SMALL_ANSWER / 500)});
            let metadata = json!({"name": format!("c-{number}"), "namespace": "default", "annotations": annotations});
            sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})).unwrap();
        }
        sim
    }

    fn cachers(upstream: &Upstream, tasks: &Tasks) -> Cachers {
        let config = cacher::Config {
            exclude: HashSet::new().into(),
            prewarm: Vec::new(),
            idle_timeout: LONG,
            list_bytes_timeout: LONG,
            compress_after: None,
            bytes: None,
            history: HistoryLimits { age: LONG, bytes: 64 << 20 },
            bridge: true,
            staleness: StalenessLimit { max: None, ends_watches: false },
            scopes: Scopes { policy: CacheScope::Auto, per_resource: 64 },
            trusted_groups: HashSet::new().into(),
        };
        Cachers::new(upstream.clone(), Discovery::new(upstream.clone()), (None, None), config, tasks.clone())
    }

    /// With `auto`, a list has to be found before it is decided whether it is worth a proof.
    #[tokio::test]
    async fn a_list_holds_no_place_among_provers_before_it_waits_for_its_proof() {
        let (sim, tasks) = (large(), Tasks::new());
        let server = sim.start().await.unwrap();
        let upstream = Upstream::new(Connector::new(&test_server::config(server.address())).unwrap());
        let cachers = cachers(&upstream, &tasks);
        let query = (0..60).map(|number| format!("!k{number}")).collect::<Vec<_>>().join(",");
        let query = format!("labelSelector={query}");
        let info = RequestInfo::parse(&Method::GET, "/api/v1/configmaps", Some(&query));
        let Target::Resource(request) = &info.target else { panic!("{info:?}") };
        let filled = async {
            loop {
                match cachers.find(request, None, Encoding::Json) {
                    Ok(instance) => break instance,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let instance = timeout(LONG, filled).await.expect("the cache is filled");
        let client = Some(ClientKey::user("jane"));
        let (proofs, turns) = (Shares::new(1, "test").of(client), ReadConcurrency::default().of(client));
        let read = Read {
            request,
            headers: &HeaderMap::new(),
            instance,
            representation: Representation::JSON,
            include_object: IncludeObject::Metadata,
            client: TopClients::default().find(b"test", Some("jane")),
            downstream: Downstream::Client,
            room: ByteBudget::undivided(u64::MAX).of(client),
            turns: turns.clone(),
            proofs: proofs.clone(),
            config: ReadsConfig {
                freshness_wait: Duration::ZERO,
                fill_wait: Duration::ZERO,
                most_recent_watch: MostRecentWatch::Prove,
                most_recent: MostRecentReads::Auto,
                shards: Shards::Upstream,
            },
        };
        let attributes = Attributes::of(info.verb, request, Some(&query));
        let permit = Authorizer::trusted().authorize_gateway(attributes).unwrap();
        let options = ListOptions::parse(Some(&query)).unwrap();
        sim.hold_requests("list", "configmaps");
        let taken: Vec<_> = std::iter::from_fn(|| turns.take().now_or_never()).collect();
        let mut list = pin!(serve::list(&read, &options, permit));
        assert!((&mut list).now_or_never().is_none(), "it waits for a turn");
        assert!(proofs.take().is_ok(), "and holds no place meanwhile");
        drop(taken);
        let proving = async {
            while proofs.take().is_ok() {
                yield_now().await;
            }
        };
        select! {
            biased;
            listed = list => panic!("not before it is proven: {listed:?}"),
            () = proving => {}
        }
    }
}
