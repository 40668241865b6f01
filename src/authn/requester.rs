//! For whom a request counts where clients share something.

use std::net::IpAddr;

use super::groups::is_anonymous;
use crate::{apimachinery::UserInfo, fairness::ClientKey};

/// Where a request comes from, and for whom it counts.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// None for a Unix socket.
    pub address: Option<IpAddr>,
    /// None if clients are not told apart.
    pub client: Option<ClientKey>,
}

/// All tokens from an address of which no review has told whose they are count as one client, apart from what comes from
/// there without any: neither keeps the other out.
pub(super) fn unknown_tokens(address: Option<IpAddr>) -> ClientKey {
    ClientKey::of(&("tokens", ClientKey::address(address)))
}

/// A user counts as a user, wherever its requests come from and whatever shows that they are the user's. Anybody can be
/// anonymous: those are told apart by their addresses.
pub fn client_of(user: &UserInfo, address: Option<IpAddr>) -> ClientKey {
    if is_anonymous(user) { ClientKey::address(address) } else { ClientKey::user(&user.name) }
}
