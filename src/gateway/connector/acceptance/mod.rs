//! The proof that upstream's servers accept a front proxy's certificate: what each has shown, when it is asked again,
//! and which certificate is in use. None is assumed to accept it. Without IO: `identity::probe` asks, and tells the
//! verdicts.
//!
//! Invariant: nothing is written to a server on a connection of the identity unless the server has shown that it
//! accepts the certificate that the connection has shown. What a server has shown lasts as long as a token of its own,
//! which a connection takes before it is opened ([`Acceptance::token`]); the state is looked at before and after that
//! ([`Acceptance::check`]). The token ends when the server shows something else, when it is not known any more to be of
//! the cluster, and when the cluster is replaced; when the certificate is replaced, that of the certificate ends.
//!
//! Of several servers, each shows it for itself, if it is of the cluster. Another certificate in the files is asked for
//! at first: it takes the place of the one in use when a server accepts it, and at least as many as accept the one in
//! use. The connections of the previous one then break, since later answers say nothing of that one.

use std::{
    fmt::{self, Display},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    client_certificate::{Presented, is_same},
    connection_closer::ConnectionCloser,
};
use base::telemetry::{Chain, certificate_reloaded, front_proxy_accepted};

/// Pause after an answer without a verdict, the first time and at most; doubled each time.
const UNDECIDED_MIN: Duration = Duration::from_secs(1);
const UNDECIDED_MAX: Duration = Duration::from_secs(4);
/// Pause after a negative verdict, and between questions about another certificate in the files.
const REFUSED: Duration = Duration::from_secs(10);
/// Pause after a positive one: flags can change.
const ACCEPTED: Duration = Duration::from_secs(60);

/// What is known of each of several servers, or of the only one. Clones share it.
#[derive(Clone)]
pub(super) struct Acceptance(Arc<Mutex<Known>>);

struct Known {
    cluster: ConnectionCloser,
    /// The cluster that is being asked: cancelled when it is replaced.
    asked: CancellationToken,
    in_use: Arc<Presented>,
    servers: Box<[Server]>,
    /// The certificate in the files that is not in use; `None` if the one in use is in the files.
    other: Option<Other>,
}

struct Server {
    name: String,
    /// Whether it is known to be of the cluster. One that is not has no say.
    is_member: bool,
    shown: AcceptanceState,
    /// Cancelled when it does not hold any more what the server has shown: breaks the connections.
    holds: CancellationToken,
    /// When it was last asked, and how long a pause follows as long as there is no verdict.
    at: Instant,
    pause: Duration,
    /// Why there was no verdict, if it was logged.
    told: String,
}

/// Another certificate in the files, which was not accepted.
struct Other {
    certificate: Arc<CertifiedKey>,
    at: Instant,
    /// Why each server did not accept it, as the log was told; empty for one that did.
    told: Vec<String>,
}

/// What a server has shown. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AcceptanceState {
    Undecided,
    Refused,
    Accepted,
}

/// A server's verdict on a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused(NotBelieved),
    /// An answer as of a server that takes every client for the certificate's own user, and of one that allows
    /// everything: the certificate is not used, whatever the server has shown before.
    Doubtful(String),
    /// No verdict, and why: what the server has shown before remains.
    Undecided(String),
}

/// Why a certificate is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    #[error(
        "the API server does not accept it as a front proxy's: its certificate authority must be in \
         --requestheader-client-ca-file, and its common name in --requestheader-allowed-names"
    )]
    Unknown,
    #[error(
        "the API server authenticates it as the user {0:?}, so every client would act as that user: its certificate \
         authority must be in --requestheader-client-ca-file, not in --client-ca-file, and its common name in \
         --requestheader-allowed-names"
    )]
    Another(String),
    #[error(
        "the API server ignores the users' groups: --requestheader-group-headers must include the groupHeader of \
         clients.identity.frontProxy"
    )]
    Groups,
}

/// A connection cannot be used for an identity.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server has not shown that it accepts the gateway's certificate")]
pub(super) struct NotAccepted;

impl Acceptance {
    /// Of the certificate that is `in_use`, by servers of these names.
    pub(super) fn new(
        names: Vec<String>,
        are_members: bool,
        in_use: Arc<Presented>,
        cluster: ConnectionCloser,
    ) -> Self {
        let asked = cluster.current();
        let server = |name| Server {
            name,
            is_member: are_members,
            shown: AcceptanceState::Undecided,
            holds: asked.child_token(),
            at: Instant::now(),
            pause: Duration::ZERO,
            told: String::new(),
        };
        let servers = names.into_iter().map(server).collect();
        Self(Arc::new(Mutex::new(Known { cluster, asked, in_use, servers, other: None })))
    }

    /// # Errors
    /// The server has not shown that it accepts the identity.
    pub(super) fn check(&self, server: usize) -> Result<(), NotAccepted> {
        if self.lock().servers[server].accepts() { Ok(()) } else { Err(NotAccepted) }
    }

    /// For a connection that is opened now: cancelled when it is not to be used any more.
    pub(super) fn token(&self, server: usize) -> CancellationToken {
        self.lock().servers[server].holds.child_token()
    }

    /// The best that a server has shown: `Undecided` only if none has shown anything.
    pub(super) fn best(&self) -> AcceptanceState {
        self.lock().servers.iter().map(Server::state).max().unwrap_or(AcceptanceState::Undecided)
    }

    /// The servers that have not shown that they accept the identity.
    pub(super) fn others(&self) -> Vec<usize> {
        let known = self.lock();
        (0..known.servers.len()).filter(|server| !known.servers[*server].accepts()).collect()
    }

    /// All servers, by their places in the configuration: they are asked now, whatever is known of them.
    pub(super) fn all(&self) -> Vec<usize> {
        let mut known = self.lock();
        known.asked = known.cluster.current();
        (0..known.servers.len()).collect()
    }

    /// The servers to ask `now` about the certificate in use, and whether to ask all of them about the one in the files
    /// after that. Only `members` are of the cluster; the others are set back. Shows in the metrics what is known.
    pub(super) fn due(&self, in_files: &CertifiedKey, members: &[bool], now: Instant) -> (Vec<usize>, bool) {
        let Known { cluster, asked, in_use, servers, other } = &mut *self.lock();
        *asked = cluster.current();
        other.take_if(|other| !is_same(&other.certificate, in_files));
        let has_paused = other.as_ref().is_none_or(|other| now.duration_since(other.at) >= REFUSED);
        let is_other_due = has_paused && !is_same(in_files, &in_use.current());
        let mut due = Vec::new();
        for (index, (server, is_member)) in servers.iter_mut().zip(members).enumerate() {
            server.is_member = *is_member;
            if !is_member {
                server.show(AcceptanceState::Undecided, asked);
                // Asked as soon as it is known to be of the cluster.
                server.pause = Duration::ZERO;
            } else if server.is_due(now) || is_other_due && server.state() == AcceptanceState::Undecided {
                // The latter may accept the certificate in use, since it has just become a member.
                due.push(index);
            }
            front_proxy_accepted(&server.name, server.accepts());
        }
        (due, is_other_due)
    }

    /// Takes a verdict on the certificate in use, and logs it if it is a new one.
    pub(super) fn note(&self, server: usize, verdict: &Verdict, now: Instant) {
        let Known { asked, servers, .. } = &mut *self.lock();
        servers[server].note(verdict, asked, now);
    }

    /// Takes the verdicts of all servers on another certificate in `file`, which is then used or not.
    pub(super) fn judge(&self, other: Arc<CertifiedKey>, file: impl Display, verdicts: &[Verdict], now: Instant) {
        let mut known = self.lock();
        let (mut accepting, mut before) = (0, 0);
        for (server, verdict) in known.servers.iter().zip(verdicts).filter(|(server, _)| server.is_member) {
            accepting += usize::from(*verdict == Verdict::Accepted);
            before += usize::from(server.accepts());
        }
        if accepting > 0 && accepting >= before {
            known.replace(other, file, verdicts, now);
        } else {
            certificate_reloaded(false);
            let told = known.tell(file, verdicts);
            known.other = Some(Other { certificate: other, at: now, told });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Uses another certificate. Servers that have not accepted it are set back before connections show it; all
    /// connections break after that. So one that is just being opened either breaks, or shows the other certificate to
    /// a server that accepts it.
    fn replace(&mut self, other: Arc<CertifiedKey>, file: impl Display, verdicts: &[Verdict], now: Instant) {
        let Self { asked, servers, .. } = self;
        for (server, _) in servers.iter_mut().zip(verdicts).filter(|(_, verdict)| **verdict != Verdict::Accepted) {
            server.show(AcceptanceState::Undecided, asked);
        }
        self.in_use.replace(other);
        self.other = None;
        certificate_reloaded(true);
        tracing::info!(%file, "front-proxy certificate replaced");
        servers.iter_mut().zip(verdicts).for_each(|(server, verdict)| server.note(verdict, asked, now));
    }

    /// Logs why another certificate is not used, as far as that is not what the log was told of a server the last time.
    /// Returns what it has been told now.
    fn tell(&self, file: impl Display, verdicts: &[Verdict]) -> Vec<String> {
        let told = self.other.as_ref().map_or(&[][..], |other| &other.told);
        let why = |verdict: &Verdict| match verdict {
            Verdict::Accepted => String::new(),
            Verdict::Refused(error) => Chain(error).to_string(),
            Verdict::Doubtful(why) | Verdict::Undecided(why) => why.clone(),
        };
        let errors: Vec<_> = verdicts.iter().map(why).collect();
        for (index, error) in errors.iter().enumerate() {
            if !error.is_empty() && told.get(index) != Some(error) {
                let server = &self.servers[index].name;
                tracing::error!(
                    server, %file, error, "new front-proxy certificate not used in place of the previous one"
                );
            }
        }
        errors
    }
}

impl Server {
    fn state(&self) -> AcceptanceState {
        if self.holds.is_cancelled() { AcceptanceState::Undecided } else { self.shown }
    }

    fn accepts(&self) -> bool {
        self.state() == AcceptanceState::Accepted
    }

    fn is_due(&self, now: Instant) -> bool {
        let pause = match self.state() {
            AcceptanceState::Undecided => self.pause,
            AcceptanceState::Refused => REFUSED,
            AcceptanceState::Accepted => ACCEPTED,
        };
        now.duration_since(self.at) >= pause
    }

    fn note(&mut self, verdict: &Verdict, cluster: &CancellationToken, now: Instant) {
        self.at = now;
        match verdict {
            Verdict::Accepted => {
                if self.is_member && self.show(AcceptanceState::Accepted, cluster) {
                    tracing::info!(server = self.name, "the API server accepts the front-proxy certificate");
                }
            }
            Verdict::Refused(error) => {
                if self.show(AcceptanceState::Refused, cluster) {
                    tracing::error!(server = self.name, error = %Chain(error), "front-proxy certificate not used");
                }
            }
            Verdict::Doubtful(why) => {
                if self.show(AcceptanceState::Undecided, cluster) {
                    tracing::error!(server = self.name, error = why, "front-proxy certificate no longer used");
                }
                self.wait(why);
            }
            Verdict::Undecided(why) => self.wait(why),
        }
    }

    /// Records what the server has shown, being of that cluster, and returns whether that is news. Then its connections
    /// break.
    fn show(&mut self, shown: AcceptanceState, cluster: &CancellationToken) -> bool {
        if shown != AcceptanceState::Undecided {
            (self.pause, self.told) = (UNDECIDED_MIN, String::new());
        }
        let is_news = self.state() != shown;
        if is_news {
            self.shown = shown;
            mem::replace(&mut self.holds, cluster.child_token()).cancel();
        }
        is_news
    }

    /// There was no verdict.
    fn wait(&mut self, why: &str) {
        self.pause = (self.pause * 2).clamp(UNDECIDED_MIN, UNDECIDED_MAX);
        if self.state() == AcceptanceState::Undecided && self.told != why {
            tracing::warn!(
                server = self.name,
                error = why,
                "cannot check whether the API server accepts the front-proxy certificate, which is not used until \
                 then; trying again"
            );
            why.clone_into(&mut self.told);
        }
    }
}

impl fmt::Debug for Acceptance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acceptance").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
