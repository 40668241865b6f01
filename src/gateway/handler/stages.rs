//! The stages of the request path, as one value that every request shares.

use super::{
    accounting::Accounting, host_check::HostCheck, kept_discovery::KeptDiscovery, permission::Permission,
    request_record::Journal, settings::Settings,
};
use crate::{cacher::Cachers, forward::Forward, serve::ReadConcurrency};
use base::fairness::ByteBudget;

/// The stages that a request goes through.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) host_check: HostCheck,
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
