//! Builds the status from the metrics and the state of the gateway.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    API_VERSION, CheckStatus, ClientStatus, Forwarded, Gateway, GatewayStatus, KIND, Limit, Peer, Reads, Reload,
    Resource, Samples, Savings, Setting, SlowWatcher, State, Trouble, Upstream, cache_rows,
    detail::Detail,
    estimate, peers, reasons,
    samples::{self, Difference, Totals},
    servers, troubles,
};
use crate::{cacher::Cachers, connector::TroubleKind, peers::Peers, upstream};
use base::telemetry::{self, ClientReading, Exposition, Readings, RequestsReading, TopClients};

/// Maximum number of clients in the status.
const CLIENTS_SHOWN: usize = 20;
/// Maximum number of watchers in the status.
const SLOW_WATCHERS_SHOWN: usize = 10;

/// The sources of the status. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    pub exposition: Exposition,
    pub samples: Samples,
    pub cachers: Cachers,
    pub top_clients: TopClients,
    pub upstream: upstream::Upstream,
    /// The other servers that answer reviews.
    pub reviewers: Vec<upstream::Upstream>,
    /// `trusted`, `delegated`.
    pub mode: &'static str,
    /// The configuration now.
    pub configuration: Arc<dyn Fn() -> Configured + Send + Sync>,
}

/// The configuration of a running gateway.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The fields that are in effect.
    pub settings: Vec<(String, String)>,
    /// When and why the file was refused after its last change; `None` if it was not.
    pub refused: Option<(SystemTime, String)>,
    /// The fields that have changed in the file and need a restart.
    pub needs_restart: Vec<String>,
}

impl Source {
    /// The current status. `checks` are those of readiness.
    pub fn collect(&self, checks: Vec<CheckStatus>, is_draining: bool, detail: Detail) -> GatewayStatus {
        let readings = self.exposition.read();
        let totals = Totals::of(&readings, Instant::now());
        let (minute, hour) = self.samples.last(&totals);
        let caches = self.cachers.statuses(SLOW_WATCHERS_SHOWN);
        let is_full = detail == Detail::Full;
        let configured = (self.configuration)();
        GatewayStatus {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            time: now(),
            gateway: self.gateway(&readings, &minute, checks, is_draining),
            upstream: self.upstream(detail),
            peers: self.peers(detail),
            savings: Savings { events_per_second: minute.events_per_second(), ..savings(&readings) },
            reads: reads(&readings, &minute, &hour),
            last_hour: self.samples.hour(),
            caches: caches.iter().map(|cache| cache_rows::row(cache, &readings, &self.samples, detail)).collect(),
            resources: resources(&readings),
            forwarded: forwarded(&readings),
            limits: limits(&readings),
            clients: clients(&self.top_clients, detail),
            slowest_watchers: slowest(
                caches.iter().flat_map(|cache| cache_rows::slow_watchers(cache, detail)).collect(),
            ),
            reload: reload(&configured, detail),
            configuration: if is_full { settings(configured.settings) } else { Vec::new() },
            names_withheld: !is_full,
        }
    }

    fn upstream(&self, detail: Detail) -> Upstream {
        Upstream {
            server: self.upstream.address(),
            version: self.upstream.last_version(),
            gateways: self.upstream.gateways_above().into(),
            servers: self.upstream.servers().into_iter().map(|state| servers::row(state, detail)).collect(),
            troubles: self.troubles(detail),
        }
    }

    fn peers(&self, detail: Detail) -> Vec<Peer> {
        let peers = self.cachers.peers().map(Peers::statuses).unwrap_or_default();
        peers.into_iter().map(|peer| peers::row(peer, detail)).collect()
    }

    fn troubles(&self, detail: Detail) -> Vec<Trouble> {
        let servers = std::iter::once(&self.upstream).chain(&self.reviewers);
        troubles::of(servers.flat_map(upstream::Upstream::troubles), SystemTime::now(), detail)
    }

    /// Brings the metrics up to date that are measured when they are read.
    pub fn show_troubles(&self) {
        let troubles = self.troubles(Detail::WithoutNames);
        telemetry::show_troubles(TroubleKind::ALL.map(|kind| {
            let kind = kind.as_str();
            (kind, troubles.iter().filter(|trouble| trouble.kind == kind).count())
        }));
    }

    fn gateway(
        &self,
        readings: &Readings,
        minute: &Difference,
        checks: Vec<CheckStatus>,
        is_draining: bool,
    ) -> Gateway {
        let is_ready = checks.iter().all(|check| check.ready || !check.required);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started = std::time::Duration::try_from_secs_f64(readings.started).unwrap_or_default();
        Gateway {
            version: readings.version.clone(),
            mode: self.mode.to_owned(),
            uptime_seconds: since_1970.saturating_sub(started).as_secs(),
            state: match (is_draining, is_ready) {
                (true, _) => State::Draining,
                (false, true) => State::Ready,
                (false, false) => State::NotReady,
            },
            checks,
            cpu_seconds: readings.cpu_seconds,
            cpu_cores: minute.cpu_cores(),
            memory_bytes: readings.memory_bytes,
            connections: readings.connections,
        }
    }
}

/// The time now, to the second.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// The load that the API server is spared, without rates, which need samples.
pub fn savings(readings: &Readings) -> Savings {
    let of = |field: fn(&telemetry::CacheReadings) -> u64| readings.caches.values().map(field).sum::<u64>();
    let served = |verb: &str| {
        let those = readings.requests.iter().filter(|requests| requests.outcome == "served" && requests.verb == verb);
        those.map(|requests| requests.count).sum()
    };
    let bytes = readings.response_bytes.iter().filter(|bytes| bytes.outcome == "served");
    let (watchers, upstream_watches) = (of(|cache| cache.watchers), of(|cache| cache.upstream_watches));
    Savings {
        watchers,
        upstream_watches,
        watches_avoided: watchers.saturating_sub(upstream_watches),
        gets: served("get"),
        lists: served("list"),
        watches: served("watch"),
        events_sent: of(|cache| cache.events_sent),
        events_per_second: 0.0,
        bytes: bytes.map(|bytes| bytes.bytes).sum(),
        estimated_api_server_cpu_seconds: estimate::api_server_cpu_seconds(readings),
    }
}

fn reads(readings: &Readings, minute: &Difference, hour: &Difference) -> Reads {
    let of = |outcome: &str| {
        let those = readings.requests.iter().filter(|all| samples::is_read(all) && all.outcome == outcome);
        those.map(|requests| requests.count).sum()
    };
    let (served, forwarded, rejected) = (of("served"), of("forwarded"), of("rejected"));
    Reads {
        served,
        forwarded,
        rejected,
        hit_ratio: samples::hit_ratio(served, forwarded),
        hit_ratio_last_minute: minute.hit_ratio(),
        hit_ratio_last_hour: hour.hit_ratio(),
    }
}

fn resources(readings: &Readings) -> Vec<Resource> {
    let mut resources = BTreeMap::<&str, Resource>::new();
    for RequestsReading { resource, outcome, reason, count, .. } in
        readings.requests.iter().filter(|all| samples::is_read(all))
    {
        let row =
            resources.entry(resource).or_insert_with(|| Resource { resource: resource.clone(), ..Resource::default() });
        match outcome.as_str() {
            "served" => row.served += count,
            "forwarded" => {
                row.forwarded += count;
                *row.reasons.entry(reason.clone()).or_default() += count;
            }
            _ => {}
        }
    }
    let mut resources: Vec<_> = resources.into_values().filter(|row| row.served + row.forwarded > 0).collect();
    resources.sort_by_key(|row| std::cmp::Reverse(row.served + row.forwarded));
    for row in &mut resources {
        row.hit_ratio = samples::hit_ratio(row.served, row.forwarded);
    }
    resources
}

fn forwarded(readings: &Readings) -> Vec<Forwarded> {
    let mut reasons = BTreeMap::<&str, u64>::new();
    let those = readings.requests.iter().filter(|all| samples::is_read(all) && all.outcome == "forwarded");
    for requests in those {
        *reasons.entry(&requests.reason).or_default() += requests.count;
    }
    let row = |(reason, requests): (&str, u64)| Forwarded {
        reason: reason.to_owned(),
        meaning: reasons::meaning(reason),
        requests,
    };
    let mut rows: Vec<_> = reasons.into_iter().filter(|(_, requests)| *requests > 0).map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.requests));
    rows
}

/// The limits that were reached come first, then the most used ones.
fn limits(readings: &Readings) -> Vec<Limit> {
    let row = |(name, limit): (&String, &telemetry::LimitReading)| Limit {
        name: name.clone(),
        used: limit.used,
        most: limit.most,
        reached: limit.reached,
    };
    // A limit whose owner is gone is left with a maximum of zero.
    let is_there = |limit: &Limit| limit.most != Some(0) || limit.reached > 0;
    let mut limits: Vec<_> = readings.limits.iter().map(row).filter(is_there).collect();
    limits.sort_by(|a, b| b.reached.cmp(&a.reached).then(b.share().total_cmp(&a.share())));
    limits
}

fn clients(top_clients: &TopClients, detail: Detail) -> Vec<ClientStatus> {
    let row = |client: ClientReading| ClientStatus {
        user_agent: client.user_agent,
        user: client.user.filter(|_| detail == Detail::Full),
        watches: client.watches,
        served: client.served,
        forwarded: client.forwarded,
        rejected: client.rejected,
        uncertain: client.uncertain,
        bytes: client.bytes,
    };
    top_clients.read().into_iter().take(CLIENTS_SHOWN).map(row).collect()
}

fn slowest(mut watchers: Vec<SlowWatcher>) -> Vec<SlowWatcher> {
    watchers.sort_by_key(|watcher| std::cmp::Reverse(watcher.behind_seconds));
    watchers.truncate(SLOW_WATCHERS_SHOWN);
    watchers
}

fn reload(configured: &Configured, detail: Detail) -> Reload {
    let refused = configured.refused.as_ref();
    let at = refused.and_then(|(at, _)| Timestamp::try_from(*at).ok());
    Reload {
        failed_at: at.and_then(|at| Timestamp::from_second(at.as_second()).ok()).map(|at| at.to_string()),
        error: refused.filter(|_| detail == Detail::Full).map_or_else(String::new, |(_, error)| error.clone()),
        needs_restart: configured.needs_restart.clone(),
    }
}

fn settings(fields: Vec<(String, String)>) -> Vec<Setting> {
    fields.into_iter().map(|(field, value)| Setting { field, value }).collect()
}

impl std::fmt::Debug for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Source").field("mode", &self.mode).finish_non_exhaustive()
    }
}
