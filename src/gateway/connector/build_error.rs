//! Errors in the configuration of the connection to upstream.

use super::client_certificate::CertificateError;
use base::config::{Redacted, TokenFileError};

/// Why the configuration of the connection to upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the API server's address {0} lacks a scheme or a host; write it like https://api.example:6443")]
    Address(Redacted),
    /// The scheme; the rest of the URL may have a password.
    #[error("the kubeconfig's proxy-url has the unsupported scheme {0:?}; allowed: http, https, socks5")]
    Proxy(String),
    #[error("cannot use the credentials for the API server")]
    Credentials(#[source] Redacted),
    #[error("cannot start the credential plugin {command:?}, the `exec` of the kubeconfig's user")]
    Plugin { command: String, source: Redacted },
    #[error("cannot use the token of the kubeconfig's user")]
    Token(#[source] TokenFileError),
    #[error("cannot set up TLS to the API server")]
    Tls(#[source] Redacted),
    #[error("{0} is not a valid TLS server name; allowed: a DNS name or an IP address")]
    ServerName(String),
    #[error("cannot use the client certificate")]
    Certificate(#[source] CertificateError),
    /// Anyone on the network path could read tokens, and a certificate cannot assert a user without TLS.
    #[error("refusing to send client credentials to {0} without TLS")]
    ClearText(Redacted),
    /// Anyone on the network path could pose as upstream and obtain them.
    #[error(
        "refusing to send client credentials to {0}, whose certificate is not verified: take insecure-skip-tls-verify \
         out of the kubeconfig, and set certificate-authority, or tls-server-name for a certificate of another name"
    )]
    Unverified(Redacted),
    #[error(
        "the kubeconfig's user impersonates another one (`as`), so the gateway cannot impersonate clients; remove `as`"
    )]
    Impersonates,
}
