//! Several API servers of one cluster: which of them a new connection goes to.
//!
//! A server gets connections only after a check has found that it is of the cluster; who checks is not decided here
//! ([`Servers::found`]). One that does not take connections, or is found unwell, is set aside: others are preferred,
//! but if all are set aside, they are tried all the same. Nothing of a request has been sent while a connection is
//! opened, so that trying the next server is safe for every request.
//!
//! Servers of `upstream.fallback` are checked, and used, only while none of the others is known to be of the cluster
//! ([`Fallback`]).

mod choice;
mod connect;
mod fallback;
#[cfg(test)]
mod tests;

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::uri::Authority;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use base::{
    config::{FallbackConfig, ServerAddress},
    telemetry::{server_connections, server_is_in_use, server_set_aside},
};

use super::{
    connection_closer::Breaks as ConnectionBreaks,
    health::{Recovery, bounded},
};

pub(super) use connect::{NoServer, Route};
use fallback::{Fallback, Turn};

/// How long a server that did not take a connection is set aside, the first time and at most; doubled each time that it
/// happens again.
const ASIDE_MIN: Duration = Duration::from_secs(1);
const ASIDE_MAX: Duration = Duration::from_secs(30);
/// A server that has taken connections for this long begins again with the shortest time.
const WELL_AFTER: Duration = Duration::from_secs(60);

/// The API servers of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Servers(Arc<Shared>);

struct Shared {
    addresses: Box<[ServerAddress]>,
    known: Mutex<Known>,
    /// The number of checks that have ended.
    checks: watch::Sender<u64>,
    /// Told of when a server is ready after none was.
    recovery: Recovery,
    /// Notified when a connection finds no server that it may go to.
    wanted: Notify,
}

struct Known {
    servers: Vec<Server>,
    /// The `/version` of the servers that the gateway's own requests go to; `None` before the first.
    followed: Option<Version>,
    /// `None` if all servers are equal.
    fallback: Option<Fallback>,
}

/// What a server says of its version; `None` if it does not.
type Version = Option<Arc<str>>;

/// What is known of one server.
struct Server {
    is_fallback: bool,
    finding: Finding,
    refused: Option<Refused>,
    version: Version,
    connections: usize,
    breaks: Breaks,
    /// The state that was last logged; `None` before the first check.
    told: Option<Usage>,
}

/// When it did not take a connection, and until when it is set aside for that.
struct Refused {
    until: Instant,
    times: u32,
    error: String,
}

/// Break the open connections to a server.
struct Breaks {
    all: CancellationToken,
    /// Of the gateway's own requests; a child of `all`.
    own: CancellationToken,
    /// Does not break them, but no other request is sent on those that carry one at a time.
    left: CancellationToken,
}

/// What the last check has found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is of the cluster and well. `version` is what it says of its version.
    Ready { version: Option<String> },
    /// It is of the cluster, but others are to be preferred.
    Unwell { reason: &'static str, error: String },
    /// Whether it is of the cluster is not known: it is not used.
    Unknown { reason: &'static str, error: String },
    /// The same, because nothing answers there.
    Gone { reason: &'static str, error: String },
    /// Whether it is of the cluster is not known, since it does not tell that to the gateway: it is not used.
    Denied { denial: Denial, error: String },
    /// It is not of the cluster: it is never used.
    Foreign { error: String },
}

/// Why a server does not tell the gateway who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// 401.
    Unauthorized,
    /// 403: the gateway may not list namespaces.
    Forbidden,
}

/// Which of the servers a connection may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Each that is of the cluster.
    Any,
    /// Those of one `/version`, as long as there is one: what caches hold is written by one program.
    OneVersion,
    /// This one, whatever is known of it: to check it.
    Only(usize),
}

/// The state of one server, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Host and port.
    pub server: String,
    pub state: Usage,
    /// `gitVersion`.
    pub version: Option<String>,
    pub connections: usize,
    /// Why it is not in use. Foreign text, of bounded length; empty if it is in use.
    pub error: String,
}

/// Whether a server gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    InUse,
    /// Only if none is in use.
    Aside,
    /// None, since it is not known whether it is of the cluster.
    Unknown,
    /// None.
    Foreign,
    /// None, since others can be used: it is of `upstream.fallback`.
    Standby,
}

/// The place of a connection to one of the servers, from before it is opened.
pub(super) struct Held {
    servers: Servers,
    index: usize,
    breaks: ConnectionBreaks,
}

impl Servers {
    /// `None` without addresses.
    pub(super) fn new(addresses: &[ServerAddress], fallback: Option<&FallbackConfig>) -> Option<Self> {
        if addresses.is_empty() {
            return None;
        }
        addresses.iter().for_each(|address| server_is_in_use(&address.to_string(), false));
        let others = fallback.map_or(&[][..], |fallback| &fallback.servers);
        let servers = addresses.iter().map(|_| false).chain(others.iter().map(|_| true)).map(Server::unchecked);
        let fallback = fallback.map(|fallback| Fallback::new(fallback.percent));
        let known = Mutex::new(Known { servers: servers.collect(), followed: None, fallback });
        let addresses = addresses.iter().chain(others).cloned().collect();
        let (checks, recovery, wanted) = (watch::Sender::new(0), Recovery::new(), Notify::new());
        Some(Self(Arc::new(Shared { addresses, known, checks, recovery, wanted })))
    }

    pub fn addresses(&self) -> &[ServerAddress] {
        &self.0.addresses
    }

    /// The number of servers that are not of the fallback: the first ones.
    pub fn without_fallback(&self) -> usize {
        self.lock().servers.iter().filter(|server| !server.is_fallback).count()
    }

    /// Records what a check of all servers has found out; `None` for a server that was not asked. Breaks the
    /// connections to servers that are not to be used any more.
    pub fn found(&self, findings: Vec<Option<Finding>>) {
        let now = Instant::now();
        let mut known = self.lock();
        let was_usable = known.servers.iter().any(Server::is_ready);
        for (address, (server, finding)) in self.0.addresses.iter().zip(known.servers.iter_mut().zip(findings)) {
            if let Some(finding) = finding {
                server.note(address, finding, now);
            }
        }
        let is_usable = known.servers.iter().any(Server::is_ready);
        known.judge_fallback(now);
        drop(known);
        self.0.checks.send_modify(|checks| *checks += 1);
        if is_usable && !was_usable {
            self.0.recovery.tell();
        }
    }

    /// Resolves when a check has found a server ready, after none was, after `time`.
    pub(super) async fn recovered_since(&self, time: Instant) {
        self.0.recovery.since(time).await;
    }

    /// Breaks all connections.
    pub fn break_all(&self) {
        self.lock().servers.iter_mut().for_each(|server| server.breaks.all());
    }

    /// Whether the server at that place in the configuration is to be checked now: one of the fallback, if it is used.
    pub fn is_checked(&self, index: usize) -> bool {
        let known = self.lock();
        known.servers.get(index).is_some_and(|server| !known.is_on_standby(server))
    }

    /// Whether the server at that place in the configuration is known to be of the cluster.
    pub(super) fn is_member(&self, index: usize) -> bool {
        self.lock().servers.get(index).is_some_and(Server::is_member)
    }

    /// Resolves when the next check after this call has ended.
    pub(super) fn next_check(&self) -> impl Future<Output = ()> + '_ {
        let mut checks = self.0.checks.subscribe();
        checks.mark_unchanged();
        async move {
            // The sender lives as long as `self`.
            checks.changed().await.ok();
        }
    }

    /// Resolves when a connection waits for a check.
    pub async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// The state of each, in the order of the configuration.
    pub fn states(&self) -> Vec<ServerState> {
        let (known, now) = (self.lock(), Instant::now());
        let servers = self.0.addresses.iter().zip(&known.servers);
        let state = |(address, server): (&ServerAddress, &Server)| {
            let is_idle = known.is_on_standby(server) && server.is_blameless();
            ServerState {
                server: address.to_string(),
                state: if is_idle { Usage::Standby } else { server.state(now) },
                version: server.shown_version().map(str::to_owned),
                connections: server.connections,
                error: if is_idle { String::new() } else { server.error(now).to_owned() },
            }
        };
        servers.map(state).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Begins or ends the use of the fallback, if it is time. The requests of clients that are under way there end by
    /// themselves: a forwarded request is the API server's in any case.
    fn judge_fallback(&mut self, now: Instant) {
        let are_others_usable = self.servers.iter().any(|server| !server.is_fallback && server.is_member());
        match self.fallback.as_mut().map_or(Turn::None, |fallback| fallback.judge(are_others_usable, now)) {
            Turn::None => {}
            Turn::Begin => tracing::warn!("none of the servers can be used: those of upstream.fallback are used"),
            Turn::End => {
                for server in self.servers.iter_mut().filter(|server| server.is_fallback) {
                    server.breaks.own();
                    server.breaks.leave();
                    (server.finding, server.told) = (Finding::unchecked(), None);
                }
                tracing::info!("other servers can be used again: those of upstream.fallback are not used any more");
            }
        }
    }

    fn is_on_standby(&self, server: &Server) -> bool {
        server.is_fallback && !self.fallback.as_ref().is_some_and(Fallback::is_used)
    }
}

impl Server {
    fn unchecked(is_fallback: bool) -> Self {
        let (finding, breaks) = (Finding::unchecked(), Breaks::new());
        Self { is_fallback, finding, refused: None, version: None, connections: 0, breaks, told: None }
    }

    /// Whether nothing is known that would keep it from being used.
    fn is_blameless(&self) -> bool {
        self.is_ready() || self.finding == Finding::unchecked()
    }

    /// Whether it is of the cluster.
    fn is_member(&self) -> bool {
        matches!(self.finding, Finding::Ready { .. } | Finding::Unwell { .. })
    }

    /// Whether the last check found it to be well.
    fn is_ready(&self) -> bool {
        matches!(self.finding, Finding::Ready { .. })
    }

    fn is_set_aside(&self, now: Instant) -> bool {
        !self.is_ready() || self.is_refusing(now)
    }

    /// Whether it did not take a connection a short time ago.
    fn is_refusing(&self, now: Instant) -> bool {
        self.refused.as_ref().is_some_and(|refused| now < refused.until)
    }

    fn state(&self, now: Instant) -> Usage {
        match self.finding {
            Finding::Foreign { .. } => Usage::Foreign,
            Finding::Unknown { .. } | Finding::Gone { .. } | Finding::Denied { .. } => Usage::Unknown,
            Finding::Ready { .. } | Finding::Unwell { .. } if self.is_set_aside(now) => Usage::Aside,
            Finding::Ready { .. } | Finding::Unwell { .. } => Usage::InUse,
        }
    }

    /// `gitVersion`, without what else tells two programs apart.
    fn shown_version(&self) -> Option<&str> {
        self.version.as_deref()?.split(' ').next()
    }

    /// Why it does not tell the gateway who it is, if it does not.
    fn denial(&self) -> Option<Denial> {
        if let Finding::Denied { denial, .. } = self.finding { Some(denial) } else { None }
    }

    fn error(&self, now: Instant) -> &str {
        match (&self.finding, &self.refused) {
            (Finding::Ready { .. }, Some(refused)) if now < refused.until => &refused.error,
            (Finding::Ready { .. }, _) => "",
            (
                Finding::Unwell { error, .. }
                | Finding::Unknown { error, .. }
                | Finding::Gone { error, .. }
                | Finding::Denied { error, .. }
                | Finding::Foreign { error },
                _,
            ) => error,
        }
    }

    /// Records a finding, and logs a change of the state.
    fn note(&mut self, address: &ServerAddress, finding: Finding, now: Instant) {
        let was_member = self.is_member();
        if let Finding::Ready { version } = &finding {
            let version: Version = version.as_deref().map(Arc::from);
            // Another program answers at its address: caches find that out when their watches end. One that does not
            // say its version now, for example because it throttles the question, is no other program for that.
            if self.version.is_some() && version.is_some() && self.version != version {
                self.breaks.own();
            }
            self.version = version.or_else(|| self.version.take());
        }
        self.finding = finding.bounded();
        if was_member && !self.is_member() {
            self.breaks.all();
        }
        let state = self.state(now);
        self.show_usage(address, state);
        if self.told.replace(state) == Some(state) {
            return;
        }
        let error = self.error(now);
        match &self.finding {
            Finding::Ready { .. } if state == Usage::InUse => {
                tracing::info!(server = %address, version = self.shown_version(), "API server in use");
            }
            Finding::Ready { .. } => {}
            Finding::Unwell { reason, .. } => {
                server_set_aside(&address.to_string(), reason);
                tracing::warn!(server = %address, error, "API server set aside; others are preferred");
            }
            Finding::Unknown { .. } | Finding::Gone { .. } | Finding::Denied { .. } => {
                server_set_aside(&address.to_string(), self.finding.reason());
                tracing::warn!(server = %address, error, "API server not used, because it cannot be checked");
            }
            Finding::Foreign { .. } => {
                server_set_aside(&address.to_string(), "foreign");
                tracing::error!(
                    server = %address,
                    error,
                    "API server excluded: it belongs to a different cluster than the others"
                );
            }
        }
    }

    /// The series says which servers ought to be in use, and those of the fallback ought not to be.
    fn show_usage(&self, address: &ServerAddress, state: Usage) {
        if !self.is_fallback {
            server_is_in_use(&address.to_string(), state == Usage::InUse);
        }
    }

    /// Records that it did not take a connection.
    fn refused(&mut self, address: &ServerAddress, error: &str, now: Instant) {
        let before = self.refused.take().filter(|before| now.duration_since(before.until) < WELL_AFTER);
        // Of connections that fail at the same time, only the first counts.
        let times = match before {
            Some(before) if now < before.until => before.times,
            Some(before) => before.times + 1,
            None => 0,
        };
        let aside = ASIDE_MIN.saturating_mul(1 << times.min(5)).min(ASIDE_MAX);
        self.refused = Some(Refused { until: now + aside, times, error: bounded(error) });
        if self.told == Some(Usage::InUse) {
            self.told = Some(Usage::Aside);
            self.show_usage(address, Usage::Aside);
            server_set_aside(&address.to_string(), "connect");
            tracing::warn!(server = %address, error = self.error(now), "API server set aside; others are preferred");
        }
    }
}

impl Usage {
    /// The word for the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InUse => "inUse",
            Self::Aside => "aside",
            Self::Unknown => "unknown",
            Self::Foreign => "foreign",
            Self::Standby => "standby",
        }
    }

    pub const fn in_words(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::Aside => "set aside, other servers are preferred",
            Self::Unknown => "not used, since it cannot be checked",
            Self::Foreign => "never used, since it is not of the cluster",
            Self::Standby => "used only if no other server can be",
        }
    }
}

impl Finding {
    /// Before the first check.
    fn unchecked() -> Self {
        Self::Unknown { reason: "unchecked", error: "it was not checked yet".to_owned() }
    }

    fn bounded(self) -> Self {
        match self {
            Self::Ready { version } => Self::Ready { version },
            Self::Unwell { reason, error } => Self::Unwell { reason, error: bounded(&error) },
            Self::Unknown { reason, error } => Self::Unknown { reason, error: bounded(&error) },
            Self::Gone { reason, error } => Self::Gone { reason, error: bounded(&error) },
            Self::Denied { denial, error } => Self::Denied { denial, error: bounded(&error) },
            Self::Foreign { error } => Self::Foreign { error: bounded(&error) },
        }
    }

    /// The value of the metric label; empty for a server that is well.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "",
            Self::Unwell { reason, .. } | Self::Unknown { reason, .. } | Self::Gone { reason, .. } => reason,
            Self::Denied { denial, .. } => denial.as_str(),
            Self::Foreign { .. } => "foreign",
        }
    }
}

impl Denial {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
        }
    }
}

impl Breaks {
    fn new() -> Self {
        let all = CancellationToken::new();
        Self { own: all.child_token(), all, left: CancellationToken::new() }
    }

    fn leave(&mut self) {
        mem::take(&mut self.left).cancel();
    }

    fn all(&mut self) {
        mem::replace(self, Self::new()).all.cancel();
    }

    fn own(&mut self) {
        mem::replace(&mut self.own, self.all.child_token()).cancel();
    }
}

impl Held {
    fn authority(&self) -> &Authority {
        self.servers.0.addresses[self.index].authority()
    }

    /// What tells that the connection is not to be used any more.
    pub(super) fn breaks(&self) -> ConnectionBreaks {
        self.breaks.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut known = self.servers.lock();
        let server = &mut known.servers[self.index];
        server.connections = server.connections.saturating_sub(1);
        server_connections(&self.servers.0.addresses[self.index].to_string(), server.connections);
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Servers").field(&self.states()).finish()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").field("server", &self.servers.0.addresses[self.index]).finish_non_exhaustive()
    }
}
