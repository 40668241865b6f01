//! Accounting for answers from memory: the client's share of the watches, and an event in the audit log.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderValue, Request};

use super::{refusal::Refusal, route::ReadVerb};
use crate::{
    audit::{self, AuditLog, Event, Place, Stage, User},
    cacher::{FILL_WAITERS_MAX, PROOF_WAITERS_MAX},
    serve::{self, ForwardReason},
};
use base::{
    apimachinery::{RequestInfo, Status, UserInfo},
    fairness::{ClientKey, ClientShares, Share, Shares, share_of},
};

/// The bounds on watches, and the audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounting {
    watches: Shares,
    /// Each client's reads that wait for a cache to be filled.
    waits: Shares,
    /// Each client's gets and lists that wait for a proof.
    proofs: Shares,
    audit: Option<AuditLog>,
}

/// The parts of a request's head that the gateway's own answer needs: the rest may be on its way upstream by then.
/// Shares the head's bytes.
#[derive(Debug)]
pub(super) struct Asked {
    audit_id: Option<HeaderValue>,
    /// `None` if there is no audit log.
    audit: Option<audit::Request>,
}

/// What a read has reserved before there is an answer.
#[derive(Debug)]
pub(super) struct Reserved {
    long_running: bool,
    share: Option<Share>,
}

/// What an answer has reserved before it begins.
#[derive(Debug)]
pub(super) struct Account {
    long_running: bool,
    share: Option<Share>,
    /// Room for the event; `None` without an audit log.
    audit: Option<(AuditLog, Place)>,
}

/// Held until the answer has ended.
#[derive(Debug)]
pub(super) struct InFlight {
    _share: Option<Share>,
    _audited: Option<Audited>,
}

/// The audit event of a long-running answer: logs its end when dropped.
#[derive(Debug)]
struct Audited {
    log: AuditLog,
    event: Option<Box<Event>>,
}

impl Accounting {
    /// `watches` is each client's share; every answer of the gateway's own is logged to `audit`, if there is one.
    pub fn new(watches: Shares, audit: Option<AuditLog>) -> Self {
        let of = |waiters, limit| Shares::new(share_of(waiters), limit);
        let (waits, proofs) =
            (of(FILL_WAITERS_MAX, "client_fill_waiters"), of(PROOF_WAITERS_MAX, "client_proof_waiters"));
        Self { watches, waits, proofs, audit }
    }

    /// Fails while no answer from memory could be logged. To be called before a read costs anything: its place in the
    /// log is only taken once there is an answer ([`Self::open`]).
    pub(super) fn can_log(&self) -> Result<(), ForwardReason> {
        let permits = self.audit.as_ref().is_none_or(AuditLog::permits_answers);
        if permits { Ok(()) } else { Err(ForwardReason::Unaudited) }
    }

    /// Copies what is needed of a request that has just come from `client`.
    pub(super) fn asked<B>(&self, request: &Request<B>, client: Option<IpAddr>) -> Asked {
        Asked {
            audit_id: request.headers().get(serve::AUDIT_ID).cloned(),
            audit: self.audit.is_some().then(|| audit::Request::of(request, client)),
        }
    }

    /// Logs that the request is refused with `status`. Returns the answer's audit ID.
    pub(super) fn refuse(
        &self,
        asked: Asked,
        info: &RequestInfo,
        user: Option<&Arc<UserInfo>>,
        status: &Status,
    ) -> HeaderValue {
        let audit_id = serve::new_audit_id(asked.audit_id);
        if let (Some(log), Some(request)) = (&self.audit, &asked.audit) {
            let user = || user.cloned().map(User::from).unwrap_or_default();
            let id = || String::from_utf8_lossy(audit_id.as_bytes()).into_owned();
            log.offer_refusal(|| Event::refused(request, info, user(), id(), status));
        }
        audit_id
    }

    /// A further place among the watches of `client`; `None` if clients are not told apart.
    pub(super) fn take(&self, client: Option<ClientKey>) -> Result<Option<Share>, Refusal> {
        client.map(|client| self.watches.take(client).ok_or(Refusal::TooManyWatches)).transpose()
    }

    /// A place among the reads of `client` that wait for a cache to be filled; `None` if clients are not told apart.
    pub(super) fn wait(&self, client: Option<ClientKey>) -> Result<Option<Share>, ForwardReason> {
        client.map(|client| self.waits.take(client).ok_or(ForwardReason::CacheFilling)).transpose()
    }

    /// The places of `client` among the gets and lists that wait for a proof; `None` if clients are not told apart.
    pub(super) fn proofs(&self, client: Option<ClientKey>) -> ClientShares {
        self.proofs.of(client)
    }

    /// Reserves what a read needs before it waits for anything. `waited` is the place that the read held while it
    /// waited for its cache; `client` is `None` if clients are not told apart.
    pub(super) fn reserve(
        &self,
        verb: ReadVerb,
        waited: Option<Share>,
        client: Option<ClientKey>,
    ) -> Result<Reserved, Refusal> {
        let long_running = verb == ReadVerb::Watch;
        let share = match (long_running, waited) {
            (false, _) => None,
            (true, Some(share)) => Some(share),
            (true, None) => self.take(client)?,
        };
        Ok(Reserved { long_running, share })
    }

    /// Reserves the rest, for an answer that may begin now. Waits for room in the audit log. A read that waits for
    /// something else must not hold such room: there is as much as one client may have watches.
    pub(super) async fn open(&self, reserved: Reserved) -> Result<Account, ForwardReason> {
        let Reserved { long_running, share } = reserved;
        let audit = match &self.audit {
            Some(log) => {
                let place = log.place().await.map_err(|_| ForwardReason::Unaudited)?;
                place.map(|place| (log.clone(), place))
            }
            None => None,
        };
        Ok(Account { long_running, share, audit })
    }
}

impl Asked {
    /// Bytes that a watch holds for the event of its end, beyond what usual requests have.
    pub(super) fn unusual_bytes(&self) -> usize {
        self.audit.as_ref().map_or(0, audit::Request::unusual_bytes)
    }
}

impl Account {
    /// Logs that the request is answered with `code`.
    pub(super) fn answered(
        self,
        asked: &Asked,
        info: &RequestInfo,
        user: Option<&Arc<UserInfo>>,
        audit_id: &str,
        code: u16,
    ) -> InFlight {
        let audited = self.audit.zip(asked.audit.as_ref()).and_then(|((log, place), request)| {
            let user = user.cloned().map(User::from).unwrap_or_default();
            let event = Event::served(request, info, user, audit_id.to_owned(), code);
            if self.long_running {
                return Some(Audited::started(log, place, event));
            }
            ends_soon(place, event);
            None
        });
        InFlight { _share: self.share, _audited: audited }
    }
}

impl Audited {
    /// For a long-running answer: logs its beginning now.
    fn started(log: AuditLog, place: Place, event: Event) -> Self {
        place.fill(event.clone().at(Stage::ResponseStarted));
        Self { log, event: Some(Box::new(event)) }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.log.offer(event.at(Stage::ResponseComplete));
        }
    }
}

/// Logs an answer that ends by itself as soon as it has a head: a client that does not read must not hold room in the
/// log.
fn ends_soon(place: Place, event: Event) {
    place.fill(event.at(Stage::ResponseComplete));
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{config::AuditMode, lifecycle::Tasks};

    #[test]
    fn one_client_has_a_quarter_of_the_reads_that_wait() {
        let accounts = Accounting::new(Shares::new(10, "test"), None);
        let [jane, john] = ["jane", "john"].map(|name| Some(ClientKey::user(name)));
        let waits: Vec<_> = std::iter::from_fn(|| accounts.wait(jane).ok()).take(FILL_WAITERS_MAX).collect();
        let hers = accounts.proofs(jane);
        let proofs: Vec<_> = std::iter::from_fn(|| hers.take().ok()).take(PROOF_WAITERS_MAX).collect();
        assert_eq!((waits.len(), proofs.len()), (FILL_WAITERS_MAX / 4, PROOF_WAITERS_MAX / 4));
        assert!(accounts.wait(john).is_ok() && accounts.proofs(john).take().is_ok());
    }

    #[tokio::test]
    async fn reads_that_wait_hold_no_room_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&folder.path().join("audit.log"), AuditMode::Blocking, &Tasks::new()).await.unwrap();
        let accounts = Accounting::new(Shares::new(100_000, "test"), Some(log));
        let jane = Some(ClientKey::user("jane"));
        let waiting: Vec<_> = (0..20_000).map(|_| accounts.reserve(ReadVerb::Watch, None, jane).unwrap()).collect();
        let other = accounts.reserve(ReadVerb::Get, None, None).unwrap();
        assert!(accounts.open(other).await.is_ok());
        drop(waiting);
    }
}
