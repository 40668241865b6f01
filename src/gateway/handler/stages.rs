//! The stages of the request path, as one value that every request shares.

use super::{account::Accounts, admission::Admission, permission::Permission, record::Journal, settings::Settings};
use crate::{cacher::Cachers, forward::Forward, serve::WorkTurns};
use base::fairness::AnswerRoom;

/// The stages that a request goes through.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) admission: Admission,
    pub(super) permission: Permission,
    pub(super) accounts: Accounts,
    pub(super) room: AnswerRoom,
    pub(super) turns: WorkTurns,
    pub(super) cachers: Cachers,
    pub(super) forward: Forward,
    pub(super) settings: Settings,
    pub(super) journal: Journal,
}
