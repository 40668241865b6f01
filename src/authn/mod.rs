//! Who asks: from a connection and its headers to a user.
//!
//! In `trusted` mode everybody who reaches the listener (loopback or a Unix socket, see
//! [`crate::config`]) acts with the gateway's own credentials, as with `kubectl proxy`.

mod credentials;
mod front_proxy;

use http::HeaderMap;

pub use crate::apimachinery::UserInfo;
use crate::listener::ClientCertificate;
pub use credentials::{BearerToken, Credentials};

use front_proxy::Asserted;

/// Says who a request is from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator(());

impl Authenticator {
    /// Believes nobody, and lets everybody act with the gateway's own credentials.
    pub fn trusted() -> Self {
        Self(())
    }

    /// Takes the client's credentials off a request: nothing behind this sees them, or may take them for its own.
    pub fn credentials(&self, headers: &mut HeaderMap, _certificate: Option<&ClientCertificate>) -> Credentials {
        let impersonates = credentials::impersonates(headers);
        let _asserted = Asserted::take(headers);
        let _authorization = credentials::take_authorization(headers);
        Credentials::Gateway { impersonates }
    }
}
