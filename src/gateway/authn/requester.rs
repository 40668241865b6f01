//! The client that a request is accounted to where clients share a limit.

use std::net::IpAddr;

use super::{groups::is_anonymous, refusals::UnverifiedSender};
use base::{apimachinery::UserInfo, fairness::ClientKey};

/// The origin of a request.
#[derive(Clone, Debug)]
pub struct Requester {
    /// The client's IP address. `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// The key that the request is accounted to. `None` if clients are not told apart.
    pub client: Option<ClientKey>,
    /// `None` if the credentials are known to be valid, or there are none to verify.
    pub unverified: Option<UnverifiedSender>,
    pub cost: CostClass,
}

/// What a request costs upstream, compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostClass {
    Usual,
    /// Memory could not answer because too many reviews, of the client or of all, are on their way: such requests come
    /// all at once.
    Unreviewed,
    /// Upstream evaluates selectors that memory does not.
    Costly,
}

/// The key for all tokens of an address that no review has accepted yet. It differs from the key for requests of that
/// address without a token, so that neither uses up the other's share.
pub(super) fn unknown_tokens(address: Option<IpAddr>) -> ClientKey {
    ClientKey::of(&("tokens", ClientKey::address(address)))
}

/// The key of a user, whatever address and credentials its requests use. Any client can be anonymous, so anonymous
/// requests are keyed by address.
pub fn client_of(user: &UserInfo, address: Option<IpAddr>) -> ClientKey {
    if is_anonymous(user) { ClientKey::address(address) } else { ClientKey::user(&user.name) }
}
