//! Accounts for answers from memory: the client's share of the watches, and an event in the audit log.

use std::net::IpAddr;

use http::{HeaderValue, Request};

use super::{
    audited::{self, Audited},
    refusal::{Refusal, Unserved},
    route::ReadVerb,
};
use crate::{
    apimachinery::{RequestInfo, Status, UserInfo},
    audit::{self, AuditLog, Event, Place, User},
    fairness::{ClientKey, Share, Shares},
    serve::{self, ForwardReason},
};

/// The bounds on watches, and the audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    watches: Shares,
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

/// What an answer has reserved before it exists.
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

impl Accounts {
    /// `watches` is each client's share; every answer of the gateway's own is logged to `audit`, if there is one.
    pub fn new(watches: Shares, audit: Option<AuditLog>) -> Self {
        Self { watches, audit }
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
        user: Option<&UserInfo>,
        status: &Status,
    ) -> HeaderValue {
        let audit_id = serve::new_audit_id(asked.audit_id);
        if let (Some(log), Some(request)) = (&self.audit, &asked.audit) {
            let user = || user.map(User::from).unwrap_or_default();
            let id = || String::from_utf8_lossy(audit_id.as_bytes()).into_owned();
            log.offer_refusal(|| Event::refused(request, info, user(), id(), status));
        }
        audit_id
    }

    /// A further place among the watches of `client`; `None` if clients are not told apart.
    pub(super) fn take(&self, client: Option<ClientKey>) -> Result<Option<Share>, Refusal> {
        client.map(|client| self.watches.take(client).ok_or(Refusal::TooManyWatches)).transpose()
    }

    /// Reserves what a read needs. `waited` is the place that the read held while it waited; `client` is `None` if
    /// clients are not told apart. Waits for room in the audit log.
    pub(super) async fn open(
        &self,
        verb: ReadVerb,
        waited: Option<Share>,
        client: Option<ClientKey>,
    ) -> Result<Account, Unserved> {
        let long_running = verb == ReadVerb::Watch;
        let share = match (long_running, waited) {
            (false, _) => None,
            (true, Some(share)) => Some(share),
            (true, None) => self.take(client)?,
        };
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

impl Account {
    /// Logs that the request is answered with `code`.
    pub(super) fn answered(
        self,
        asked: &Asked,
        info: &RequestInfo,
        user: Option<&UserInfo>,
        audit_id: &str,
        code: u16,
    ) -> InFlight {
        let audited = self.audit.zip(asked.audit.as_ref()).and_then(|((log, place), request)| {
            let user = user.map(User::from).unwrap_or_default();
            let event = Event::served(request, info, user, audit_id.to_owned(), code);
            if self.long_running {
                return Some(Audited::started(log, place, event));
            }
            audited::ends_soon(place, event);
            None
        });
        InFlight { _share: self.share, _audited: audited }
    }
}
