//! What can be wrong with how upstream is to be reached.

use super::client_certificate::CertificateError;

/// Why upstream cannot be asked as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the address of the cluster, {0}, lacks a scheme or a host")]
    Address(http::Uri),
    #[error("the scheme of the proxy {0} is none of http, https, socks5")]
    Proxy(http::Uri),
    #[error("the credentials cannot be used")]
    Credentials(#[source] Box<kube_client::Error>),
    #[error("TLS to the API server cannot be set up")]
    Tls(#[source] Box<kube_client::Error>),
    #[error("{0} is not a name that a certificate can have")]
    ServerName(String),
    #[error("the client certificate cannot be used")]
    Certificate(#[source] CertificateError),
    /// Whoever is on the way could read tokens, and nobody can be asserted by a certificate.
    #[error("refusing to send client credentials to {0} without TLS")]
    ClearText(http::Uri),
    /// Whoever is on the way could pretend to be upstream, and do the same.
    #[error(
        "refusing to send client credentials to {0}, whose certificate is not verified: take insecure-skip-tls-verify \
         out of the kubeconfig, and set certificate-authority, or tls-server-name for a certificate of another name"
    )]
    Unverified(http::Uri),
    #[error("credentials that impersonate already cannot impersonate clients")]
    Impersonates,
}
