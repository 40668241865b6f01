//! What is held against a client for an answer from memory: its share of the watches, and an event in the audit log.

use jiff::Timestamp;

use super::{
    audited::Audited,
    refusal::{Refusal, Unserved},
    route::ReadVerb,
};
use crate::{
    apimachinery::UserInfo,
    audit::{AuditLog, Event, Place, Request, User},
    fairness::{ClientKey, Share, Shares},
    serve::ForwardReason,
};

/// Where it is held. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    watches: Shares,
    audit: Option<AuditLog>,
}

/// Before there is an answer: everything that it needs is there.
#[derive(Debug)]
pub(super) struct Account {
    lasts: bool,
    share: Option<Share>,
    audit: Option<Audit>,
}

/// Room for the event, and when its request came.
#[derive(Debug)]
struct Audit {
    log: AuditLog,
    place: Place,
    received: Timestamp,
}

/// For as long as the answer lasts.
#[derive(Debug)]
pub(super) struct Held {
    _share: Option<Share>,
    _audited: Option<Audited>,
}

impl Accounts {
    /// `watches` of each client; `audit` is told of every answer, if there is one.
    pub fn new(watches: Shares, audit: Option<AuditLog>) -> Self {
        Self { watches, audit }
    }

    /// A further place among the watches of `client`; none is needed if clients are not told apart.
    pub(super) fn take(&self, client: Option<ClientKey>) -> Result<Option<Share>, Refusal> {
        client.map(|client| self.watches.take(client).ok_or(Refusal::TooManyWatches)).transpose()
    }

    /// For a read of `client`, who is only asked for where it counts: None if clients are not told apart. `waited` is the place
    /// that the read has had while it waited. Waits for room in the audit log.
    pub(super) async fn open(
        &self,
        verb: ReadVerb,
        waited: Option<Share>,
        client: impl FnOnce() -> Option<ClientKey>,
    ) -> Result<Account, Unserved> {
        let lasts = verb == ReadVerb::Watch;
        let share = match (lasts, waited) {
            (false, _) => None,
            (true, Some(share)) => Some(share),
            (true, None) => self.take(client())?,
        };
        let audit = match &self.audit {
            Some(log) => {
                let (log, received) = (log.clone(), Timestamp::now());
                let place = log.place().await.ok_or(ForwardReason::Unaudited)?;
                Some(Audit { log, place, received })
            }
            None => None,
        };
        Ok(Account { lasts, share, audit })
    }
}

impl Account {
    /// The request is answered with `code`.
    pub(super) fn hold(self, request: Request<'_>, user: Option<&UserInfo>, audit_id: &str, code: u16) -> Held {
        let audited = self.audit.map(|Audit { log, place, received }| {
            let user = user.map(User::from).unwrap_or_default();
            let event = Event::new(request, user, audit_id.to_owned(), code, received);
            if self.lasts { Audited::lasts(log, place, event) } else { Audited::ends_soon(log, place, event) }
        });
        Held { _share: self.share, _audited: audited }
    }
}
