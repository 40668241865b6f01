//! Whether they may: from a user and a request to a permit, or not.

use crate::authn::Credentials;

/// Leave to read from memory. Only this module makes one; [`crate::serve`] asks for it, so that
/// forgetting to authorize does not compile.
#[derive(Debug)]
pub struct Permit(());

/// Leave for whoever acts as the gateway itself: the caches hold what its credentials may read.
/// Everybody else is decided upon by upstream.
pub fn authorize_trusted(credentials: &Credentials) -> Option<Permit> {
    matches!(credentials, Credentials::Gateway { impersonates: false }).then_some(Permit(()))
}
