//! Opens a connection to one of the servers, and to the next one if that fails.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Uri, uri::Authority};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Choice, Denial, Finding, Held, Servers, Usage};
use crate::connector::{
    BoxError, TroubleKind,
    acceptance::{Acceptance, NotAccepted},
    connection_closer::Breaks,
    connection_closer::Broken,
};
use base::telemetry::{Chain, server_connections};

/// Time limit for one server while there is another one to try.
const ATTEMPT_MAX: Duration = Duration::from_secs(3);

/// The way to the servers, for connections of one kind.
#[derive(Clone, Debug)]
pub(in crate::connector) struct Route {
    pub(in crate::connector) servers: Servers,
    pub(in crate::connector) choice: Choice,
    /// Only those that accept an identity; `None` for all.
    pub(in crate::connector) acceptance: Option<Acceptance>,
}

/// There is no server to connect to.
#[derive(Debug, thiserror::Error)]
#[error("no server of upstream is usable{}: {servers}", self.why())]
pub(in crate::connector) struct NoServer {
    /// Why the servers refuse the question of which cluster they are; `None` if none refuses it.
    denial: Option<Denial>,
    /// Whether nothing answers at any of them.
    are_gone: bool,
    /// The servers, each with its error.
    servers: String,
}

impl NoServer {
    /// What is wrong, as far as the gateway's credentials and rights are concerned.
    pub(in crate::connector) fn trouble(&self) -> TroubleKind {
        match self.denial {
            Some(Denial::Unauthorized) => TroubleKind::Unauthorized,
            Some(Denial::Forbidden) => TroubleKind::Forbidden,
            None => TroubleKind::Unreachable,
        }
    }

    /// Whether nothing answers at any of them.
    pub(in crate::connector) fn are_gone(&self) -> bool {
        self.are_gone
    }

    fn why(&self) -> &'static str {
        match self.denial {
            Some(Denial::Unauthorized) => ": they do not accept the gateway's own credentials (401)",
            Some(Denial::Forbidden) => {
                ": the gateway may not list namespaces, which shows that they are of one cluster: grant it"
            }
            None => "",
        }
    }
}

/// A server accepted no connection in time; the next one is tried.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection within {ATTEMPT_MAX:?}")]
struct AttemptTimedOut;

impl Route {
    /// Opens a connection with `open`, to `address` with the host and port of a server. It also breaks with the
    /// token of `renewed`. The caller limits the time.
    pub(in crate::connector) async fn connect<S>(
        &self,
        open: impl Fn(Uri) -> BoxFuture<'static, Result<S, BoxError>>,
        renewed: impl Fn() -> Option<CancellationToken>,
        address: Uri,
    ) -> Result<(S, Held), BoxError> {
        // Those that do not accept the identity count as tried.
        let mut tried = self.acceptance.as_ref().map(Acceptance::others).unwrap_or_default();
        if tried.len() == self.servers.addresses().len() {
            return Err(Box::new(NotAccepted));
        }
        let (mut last, mut waited): (Option<BoxError>, _) = (None, false);
        loop {
            let Some(mut held) = self.servers.hold(self.choice, &tried) else {
                match last {
                    Some(error) => return Err(error),
                    None if waited => return Err(Box::new(self.servers.none())),
                    None => self.servers.checked().await,
                }
                waited = true;
                continue;
            };
            tried.push(held.index);
            let accepted = self.acceptance.as_ref().map(|acceptance| acceptance.token(held.index));
            [renewed(), accepted].into_iter().flatten().for_each(|token| held.breaks.push(token));
            // Since the others were looked at.
            if let Err(error) = self.check(held.index) {
                last = Some(Box::new(error));
                continue;
            }
            let connecting = open(with_authority(&address, held.authority())?);
            let connected = if self.servers.are_left(self.choice, &tried) {
                timeout(ATTEMPT_MAX, connecting).await.unwrap_or_else(|_| Err(Box::new(AttemptTimedOut)))
            } else {
                connecting.await
            };
            match connected {
                // In the meantime the server was found to be of another cluster.
                Ok(_) if held.breaks.is_broken() => last = Some(Box::new(Broken)),
                Ok(stream) => match self.check(held.index) {
                    Ok(()) => return Ok((stream, held)),
                    // Or has shown that it does not accept the identity.
                    Err(error) => last = Some(Box::new(error)),
                },
                Err(error) => {
                    self.servers.refused(held.index, &error);
                    last = Some(error);
                }
            }
        }
    }

    fn check(&self, server: usize) -> Result<(), NotAccepted> {
        self.acceptance.as_ref().map_or(Ok(()), |acceptance| acceptance.check(server))
    }
}

impl Servers {
    /// A place for the next connection.
    pub(super) fn hold(&self, choice: Choice, tried: &[usize]) -> Option<Held> {
        let mut known = self.lock();
        let index = known.choose(choice, tried, Instant::now())?;
        let server = &mut known.servers[index];
        server.connections += 1;
        let token = if choice == Choice::OneVersion { &server.breaks.own } else { &server.breaks.all }.clone();
        let left = server.breaks.left.clone();
        server_connections(&self.0.addresses[index].to_string(), server.connections);
        drop(known);
        Some(Held { servers: self.clone(), index, breaks: Breaks::by([token]).or_left(left) })
    }

    /// Whether there is another server to try.
    fn are_left(&self, choice: Choice, tried: &[usize]) -> bool {
        let known = self.lock();
        let mut others = known.servers.iter().enumerate().filter(|(index, _)| !tried.contains(index));
        !matches!(choice, Choice::Only(_)) && others.any(|(_, server)| server.is_member())
    }

    fn refused(&self, index: usize, error: &BoxError) {
        let error = Chain(&**error).to_string();
        self.lock().servers[index].refused(&self.0.addresses[index], &error, Instant::now());
    }

    /// Returns after the next check.
    async fn checked(&self) {
        let ended = self.next_check();
        self.0.wanted.notify_one();
        ended.await;
    }

    pub(super) fn none(&self) -> NoServer {
        let states = self.states().into_iter().filter(|state| state.state != Usage::Standby);
        let reasons = states.map(|state| format!("{}: {}", state.server, state.error));
        let servers = reasons.collect::<Vec<_>>().join("; ");
        let known = self.lock();
        let denials = known.servers.iter().filter_map(|server| server.denial());
        let mut used = known.servers.iter().filter(|server| !known.is_on_standby(server));
        let are_gone = used.all(|server| matches!(server.finding, Finding::Gone { .. }));
        NoServer { denial: denials.min_by_key(|denial| *denial == Denial::Forbidden), are_gone, servers }
    }
}

fn with_authority(address: &Uri, server: &Authority) -> Result<Uri, BoxError> {
    let mut parts = address.clone().into_parts();
    parts.authority = Some(server.clone());
    Uri::from_parts(parts).map_err(|error| Box::new(error) as BoxError)
}
