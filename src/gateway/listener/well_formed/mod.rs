//! Rejects requests that two servers could read differently (request smuggling), before any other code reads them.
//!
//! hyper accepts some requests that other servers refuse or read differently. A request that passes here has one
//! method, one path, one authority and one body for every reader. hyper's own behaviour is tested here too, since this
//! relies on it: given both `Content-Length` and `Transfer-Encoding`, it drops the former and closes the connection
//! after the request.

use http::{HeaderMap, Method, Request, Uri, Version, header, uri::Authority};

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("CONNECT is not supported")]
    Connect,
    #[error("the request target must be a path or an absolute URL")]
    Target,
    #[error("the request needs exactly one Host: a name or an address, with an optional port")]
    Host,
    #[error("the host in the request target differs from the Host header")]
    TwoHosts,
    #[error("Transfer-Encoding must be chunked, given once")]
    TransferEncoding,
    #[error("Content-Length must not be given more than once")]
    ContentLength,
    #[error("an upgrade to HTTP/2 cannot be combined with another protocol")]
    Upgrade,
}

impl Malformed {
    /// The reason for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "malformed_connect",
            Self::Target => "malformed_target",
            Self::Host => "malformed_host",
            Self::TwoHosts => "malformed_two_hosts",
            Self::TransferEncoding => "malformed_transfer_encoding",
            Self::ContentLength => "malformed_content_length",
            Self::Upgrade => "malformed_upgrade",
        }
    }
}

/// Checks that a request can be read in one way only. Pure.
///
/// # Errors
/// The first reason why it cannot.
pub fn check_well_formed<B>(request: &Request<B>) -> Result<(), Malformed> {
    if request.method() == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    check_target(request.uri())?;
    check_host(request)?;
    check_body(request.headers())?;
    check_upgrade(request.headers())
}

/// The host names of a request, in its target and in its `Host` headers, as written but without the port.
pub fn hosts<B>(request: &Request<B>) -> impl Iterator<Item = String> {
    let target = request.uri().authority().cloned();
    let headers = request.headers().get_all(header::HOST).into_iter();
    let named = headers.filter_map(|host| Authority::try_from(host.as_bytes()).ok());
    target.into_iter().chain(named).map(|authority| authority.host().to_owned())
}

/// Only `*` and `host:port` have no path; API servers give neither a meaning.
fn check_target(uri: &Uri) -> Result<(), Malformed> {
    let http = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    if http && uri.path().starts_with('/') { Ok(()) } else { Err(Malformed::Target) }
}

fn check_host<B>(request: &Request<B>) -> Result<(), Malformed> {
    let has_user = |authority: &Authority| authority.as_str().contains('@');
    let target = request.uri().authority();
    if target.is_some_and(has_user) {
        return Err(Malformed::Host);
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let Some(host) = hosts.next() else {
        return if request.version() == Version::HTTP_11 { Err(Malformed::Host) } else { Ok(()) };
    };
    if hosts.next().is_some() {
        return Err(Malformed::Host);
    }
    if host.is_empty() && target.is_none() {
        return Ok(());
    }
    let host = Authority::try_from(host.as_bytes()).map_err(|_| Malformed::Host)?;
    match target {
        _ if has_user(&host) => Err(Malformed::Host),
        // Authorities are compared without regard to case.
        Some(target) if *target != host => Err(Malformed::TwoHosts),
        _ => Ok(()),
    }
}

fn check_body(headers: &HeaderMap) -> Result<(), Malformed> {
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let chunked = encodings.next().is_none_or(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !chunked || encodings.next().is_some() {
        return Err(Malformed::TransferEncoding);
    }
    if headers.get_all(header::CONTENT_LENGTH).iter().count() > 1 {
        return Err(Malformed::ContentLength);
    }
    Ok(())
}

/// `h2c` alone is not forwarded as an upgrade. Alongside another protocol, upstream could pick it, and would then read
/// the client's bytes as HTTP on a connection that has the gateway's identity.
fn check_upgrade(headers: &HeaderMap) -> Result<(), Malformed> {
    let values = headers.get_all(header::UPGRADE).into_iter();
    let protocols: Vec<_> = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).collect();
    let http = protocols.iter().filter(|protocol| is_http(protocol)).count();
    if http == 0 || http == protocols.len() { Ok(()) } else { Err(Malformed::Upgrade) }
}

fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.trim_ascii().split(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

#[cfg(test)]
mod tests;
