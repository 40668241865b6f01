//! When servers are asked whether they accept the front proxy's certificate, and what follows from their verdicts.
//!
//! Of several servers, each shows it for itself, if it is of the cluster. Another certificate in the files is first
//! shown by probes only: it takes the place of the one in use when a server accepts it, and at least as many as accept
//! the one in use. Connections that have shown the previous one then break, since later probes say nothing of that one.

use std::{future::pending, sync::Arc, time::Duration};

use rustls::sign::CertifiedKey;
use tokio::time::{Instant, timeout};

use super::{AsFrontProxy, NotBelieved, Verdict, probe::Probes};
use crate::connector::{
    acceptance::AcceptanceState,
    presented::{Presented, is_same},
};
use base::{
    lifecycle::Tasks,
    telemetry::{Chain, certificate_reloaded, front_proxy_accepted},
};

/// How often it is decided whether to probe again.
const TICK: Duration = Duration::from_secs(1);
/// Pause after a probe without a verdict, the first time and at most; doubled each time.
const UNDECIDED_MIN: Duration = Duration::from_secs(1);
const UNDECIDED_MAX: Duration = Duration::from_secs(4);
/// Pause after a negative verdict, and between the probes of another certificate in the files.
const REFUSED: Duration = Duration::from_secs(10);
/// Pause after a positive one: flags can change.
const ACCEPTED: Duration = Duration::from_secs(60);

/// When what was asked, and what the log has been told.
struct Progress {
    servers: Vec<Asked>,
    /// The certificate in the files that is not in use; `None` if the one in use is in the files.
    other: Option<Other>,
}

/// Another certificate in the files, which was not accepted.
struct Other {
    certificate: Arc<CertifiedKey>,
    /// When it was last asked for.
    at: Instant,
    /// Why each server did not accept it then, as the log was told; empty for one that did.
    told: Vec<String>,
}

/// The last probe of one server.
struct Asked {
    at: Instant,
    /// Until the next one, as long as there is no verdict.
    pause: Duration,
    /// Why there was no verdict, if it was logged.
    told: String,
}

impl AsFrontProxy {
    /// Asks upstream whether it accepts the certificate, each of several servers for itself. A task of `tasks`
    /// continues to ask: without a verdict soon, and otherwise from time to time.
    ///
    /// # Errors
    /// A server does not accept the certificate, and no server does.
    pub async fn start(&self, tasks: &Tasks) -> Result<(), NotBelieved> {
        let progress = self.begin().await?;
        let (proxy, token) = (self.clone(), tasks.token().clone());
        tasks.spawn("front proxy probe", async move {
            let _ended = token.run_until_cancelled(proxy.keep_probing(progress)).await;
        });
        Ok(())
    }

    async fn begin(&self) -> Result<Progress, NotBelieved> {
        let verdicts = self.probe().await;
        let accepted = verdicts.contains(&Verdict::Accepted);
        let mut progress = Progress { servers: Vec::new(), other: None };
        for (server, verdict) in verdicts.into_iter().enumerate() {
            if let Verdict::Refused(why) = &verdict
                && !accepted
            {
                return Err(why.clone());
            }
            progress.servers.push(self.asked_first(server, verdict));
        }
        self.probes.show();
        Ok(progress)
    }

    /// The verdict of each of several servers, in the order of the configuration, or that of the only one, on the
    /// certificate in use.
    pub async fn probe(&self) -> Vec<Verdict> {
        self.probe_servers(&self.probes.all()).await
    }

    /// Why the certificate is not used at any server.
    pub fn doubt(&self) -> Option<&'static str> {
        match self.probes.acceptance.best() {
            AcceptanceState::Accepted => None,
            AcceptanceState::Refused => Some(
                "the API server does not accept the certificate of clients.identity.frontProxy; clients that it would \
                 have to name are not forwarded (the log says why)",
            ),
            AcceptanceState::Undecided => Some(
                "the API server has not shown yet whether it accepts the certificate of clients.identity.frontProxy; \
                 clients that it would have to name are not forwarded until then (the log says why)",
            ),
        }
    }

    async fn probe_servers(&self, servers: &[usize]) -> Vec<Verdict> {
        let asked = self.probes.asked.lock().await;
        self.probe_locked(&asked, servers).await
    }

    async fn probe_locked(&self, asked: &Presented, servers: &[usize]) -> Vec<Verdict> {
        let (generation, certificate) = (self.probes.acceptance.generation(), self.probes.accepted.current());
        let note = |server, verdict: &Verdict| self.probes.note(server, generation, verdict);
        self.ask(asked, certificate, servers, note).await
    }

    async fn keep_probing(&self, mut progress: Progress) {
        loop {
            // A server is found to be of the cluster by a check.
            let checked = async {
                match &self.probes.servers {
                    Some(servers) => servers.next_check().await,
                    None => pending().await,
                }
            };
            timeout(TICK, checked).await.ok();
            self.look(&mut progress).await;
        }
    }

    /// Asks what is due, and shows what is known then.
    async fn look(&self, progress: &mut Progress) {
        self.probes.forget_others(progress);
        self.look_at_files(progress).await;
        self.look_at_servers(progress).await;
        self.probes.show();
    }

    async fn look_at_servers(&self, progress: &mut Progress) {
        let due: Vec<_> = self.probes.members().into_iter().filter(|server| self.is_due(*server, progress)).collect();
        if due.is_empty() {
            return;
        }
        let verdicts = self.probe_servers(&due).await;
        for (server, verdict) in due.into_iter().zip(verdicts) {
            let asked = &mut progress.servers[server];
            asked.at = Instant::now();
            match verdict {
                Verdict::Accepted | Verdict::Refused(_) => (asked.pause, asked.told) = (UNDECIDED_MIN, String::new()),
                Verdict::Doubtful(why) | Verdict::Undecided(why) => {
                    asked.pause = (asked.pause * 2).clamp(UNDECIDED_MIN, UNDECIDED_MAX);
                    if self.probes.acceptance.of(server) == AcceptanceState::Undecided && asked.told != why {
                        self.probes.warn(server, &why);
                        asked.told = why;
                    }
                }
            }
        }
    }

    fn is_due(&self, server: usize, progress: &Progress) -> bool {
        let asked = &progress.servers[server];
        let pause = match self.probes.acceptance.of(server) {
            AcceptanceState::Undecided => asked.pause,
            AcceptanceState::Refused => REFUSED,
            AcceptanceState::Accepted => ACCEPTED,
        };
        asked.at.elapsed() >= pause
    }

    /// Asks for another certificate in the files, and uses it in place of the one in use if a server accepts it, and at
    /// least as many as accept the one in use.
    async fn look_at_files(&self, progress: &mut Progress) {
        let Probes { files, accepted, acceptance, asked, .. } = &*self.probes;
        let asked = asked.lock().await;
        let other = files.current();
        if is_same(&other, &accepted.current()) {
            progress.other = None;
            return;
        }
        let before = progress.other.take().filter(|before| is_same(&before.certificate, &other));
        if before.as_ref().is_some_and(|before| before.at.elapsed() < REFUSED) {
            progress.other = before;
            return;
        }
        // Those that have just become members may accept the one in use.
        let is_undecided = |server: &usize| acceptance.of(*server) == AcceptanceState::Undecided;
        let undecided: Vec<_> = self.probes.members().into_iter().filter(is_undecided).collect();
        self.probe_locked(&asked, &undecided).await;
        let (generation, servers) = (acceptance.generation(), self.probes.all());
        let verdicts = self.ask(&asked, other.clone(), &servers, |_, _| {}).await;
        let (now, members) = (Instant::now(), self.probes.members());
        let accepting = members.iter().filter(|server| verdicts[**server] == Verdict::Accepted).count();
        if accepting > 0 && accepting >= acceptance.accepting(&members) {
            self.probes.replace(other, generation, &verdicts);
            progress.servers.iter_mut().for_each(|asked| asked.at = now);
        } else {
            certificate_reloaded(false);
            let told = self.probes.tell(&verdicts, before.as_ref().map_or(&[], |before| &before.told));
            progress.other = Some(Other { certificate: other, at: now, told });
        }
    }

    fn asked_first(&self, server: usize, verdict: Verdict) -> Asked {
        let is_accepted = verdict == Verdict::Accepted;
        let told = match verdict {
            Verdict::Doubtful(why) | Verdict::Undecided(why) => why,
            Verdict::Refused(_) | Verdict::Accepted => String::new(),
        };
        if !told.is_empty() {
            self.probes.warn(server, &told);
        }
        // One that is not checked yet is asked again as soon as it is.
        let pause = if is_accepted { Duration::ZERO } else { UNDECIDED_MIN };
        Asked { at: Instant::now(), pause, told }
    }
}

impl Probes {
    /// Sets back servers that are not known any more to be of the cluster.
    fn forget_others(&self, progress: &mut Progress) {
        let generation = self.acceptance.generation();
        for server in self.all() {
            if self.acceptance.of(server) != AcceptanceState::Undecided && !self.is_member(server) {
                self.acceptance.note(server, AcceptanceState::Undecided, generation);
                // Asked as soon as it is known to be of the cluster again.
                progress.servers[server].pause = Duration::ZERO;
            }
        }
    }

    /// AcceptanceState in the metrics which servers accept the certificate in use.
    fn show(&self) {
        for server in self.all() {
            front_proxy_accepted(&self.name(server), self.acceptance.of(server) == AcceptanceState::Accepted);
        }
    }

    /// Keeps a verdict on the certificate in use, and logs it if it is a new one.
    fn note(&self, server: usize, generation: u64, verdict: &Verdict) {
        let state = match verdict {
            Verdict::Accepted if !self.is_member(server) => return,
            Verdict::Accepted => AcceptanceState::Accepted,
            Verdict::Refused(_) => AcceptanceState::Refused,
            Verdict::Doubtful(_) => AcceptanceState::Undecided,
            Verdict::Undecided(_) => return,
        };
        if self.acceptance.note(server, state, generation) == state {
            return;
        }
        let server = self.name(server);
        match verdict {
            Verdict::Refused(error) => {
                tracing::error!(server, error = %Chain(error), "front-proxy certificate not used");
            }
            Verdict::Doubtful(why) => {
                tracing::error!(server, error = why, "front-proxy certificate no longer used");
            }
            Verdict::Accepted | Verdict::Undecided(_) => {
                tracing::info!(server, "the API server accepts the front-proxy certificate");
            }
        }
    }

    /// Uses another certificate, about which these are all servers' verdicts.
    ///
    /// Servers that have not accepted it are set back before connections show it; all connections break after that.
    /// So one that is just being opened either breaks, or shows the other certificate to a server that accepts it.
    fn replace(&self, certificate: Arc<CertifiedKey>, generation: u64, verdicts: &[Verdict]) {
        for (server, verdict) in verdicts.iter().enumerate() {
            match verdict {
                Verdict::Accepted => {}
                Verdict::Refused(_) => self.note(server, generation, verdict),
                Verdict::Doubtful(why) | Verdict::Undecided(why) => {
                    self.acceptance.note(server, AcceptanceState::Undecided, generation);
                    self.warn(server, why);
                }
            }
        }
        self.accepted.set(certificate);
        self.acceptance.break_connections();
        certificate_reloaded(true);
        tracing::info!(file = %self.files.name(), "front-proxy certificate replaced");
        for (server, verdict) in verdicts.iter().enumerate() {
            if *verdict == Verdict::Accepted {
                self.note(server, generation, verdict);
            }
        }
    }

    /// Logs why another certificate is not used, as far as that is not what the log was `told` of a server the last
    /// time. Returns what it has been told now.
    fn tell(&self, verdicts: &[Verdict], told: &[String]) -> Vec<String> {
        let why = |verdict: &Verdict| match verdict {
            Verdict::Accepted => String::new(),
            Verdict::Refused(error) => Chain(error).to_string(),
            Verdict::Doubtful(why) | Verdict::Undecided(why) => why.clone(),
        };
        let errors: Vec<_> = verdicts.iter().map(why).collect();
        for (server, error) in errors.iter().enumerate() {
            if error.is_empty() || told.get(server) == Some(error) {
                continue;
            }
            let (server, file) = (self.name(server), self.files.name());
            tracing::error!(server, %file, error, "new front-proxy certificate not used in place of the previous one");
        }
        errors
    }

    fn warn(&self, server: usize, why: &str) {
        tracing::warn!(
            server = self.name(server),
            error = why,
            "cannot check whether the API server accepts the front-proxy certificate, which is not used until then; \
             trying again"
        );
    }
}

#[cfg(test)]
mod tests;
