//! Errors in the configuration of the connection to upstream.

use super::client_certificate::CertificateError;

/// Why upstream cannot be reached as the configuration says.
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
    /// Anyone on the network path could read tokens, and a certificate cannot assert a user without TLS.
    #[error("refusing to send client credentials to {0} without TLS")]
    ClearText(http::Uri),
    /// Anyone on the network path could pose as upstream and obtain the same.
    #[error(
        "refusing to send client credentials to {0}, whose certificate is not verified: take insecure-skip-tls-verify \
         out of the kubeconfig, and set certificate-authority, or tls-server-name for a certificate of another name"
    )]
    Unverified(http::Uri),
    #[error("credentials that impersonate already cannot impersonate clients")]
    Impersonates,
}
