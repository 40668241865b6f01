//! The stages of the request path, as one value that every request shares.

use super::{
    accounting::Accounting, admission::Admission, kept_discovery::KeptDiscovery, permission::Permission,
    request_record::Journal, settings::Settings,
};
use crate::{cacher::Cachers, forward::Forward, serve::ReadConcurrency};
use base::fairness::ByteBudget;

/// The stages that a request goes through.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) admission: Admission,
    pub(super) permission: Permission,
    pub(super) accounts: Accounting,
    pub(super) room: ByteBudget,
    pub(super) turns: ReadConcurrency,
    pub(super) cachers: Cachers,
    pub(super) forward: Forward,
    pub(super) discovery: KeptDiscovery,
    pub(super) settings: Settings,
    pub(super) journal: Journal,
}
