//! The URI of an upstream request: the address of the cluster and the request's own path, byte for byte.

use std::fmt;

use bytes::{BufMut, BytesMut};
use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::{BuildError, health::Health};
use base::config::{Redacted, ServerAddress};

/// The address of the API server, with a path prefix if a proxy in front of it needs one.
///
/// Joins bytes and never normalizes: `//api`, `%2F` and a bare `?` reach upstream as the client wrote them.
#[derive(Clone, Debug)]
pub(super) struct Target {
    scheme: Scheme,
    authority: Authority,
    /// Without its final slash; usually empty.
    prefix: Box<str>,
    pub(super) health: Health,
}

/// The request has no path (its target is `*` or an authority), or the joined path is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidTarget;

impl Target {
    pub(super) fn of(config: &kube_client::Config) -> Result<Self, BuildError> {
        Self::new(&config.cluster_url).ok_or_else(|| BuildError::Address(Redacted::url(&config.cluster_url)))
    }

    /// `None` if the address lacks a scheme or a host.
    fn new(cluster: &Uri) -> Option<Self> {
        let (scheme, authority) = (cluster.scheme()?.clone(), cluster.authority()?.clone());
        Some(Self { scheme, authority, prefix: cluster.path().trim_end_matches('/').into(), health: Health::default() })
    }

    /// The value of `Host`.
    pub(super) fn host(&self) -> HeaderValue {
        let default = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        let port = self.authority.port_u16().filter(|port| *port != default);
        let host =
            port.map_or_else(|| self.authority.host().to_owned(), |port| format!("{}:{port}", self.authority.host()));
        HeaderValue::from_str(&host).expect("a host of a URI is a header value")
    }

    /// The address as that of one of several servers.
    pub(super) fn server(&self) -> ServerAddress {
        let default = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        ServerAddress::of(self.authority.host(), self.authority.port_u16().unwrap_or(default))
    }

    /// The upstream URI of a request; the host that the request names is ignored.
    pub(super) fn join(&self, request: &Uri) -> Result<Uri, InvalidTarget> {
        let path = request.path_and_query().filter(|path| path.as_str().starts_with('/')).ok_or(InvalidTarget)?;
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(self.prefixed(path)?);
        Uri::from_parts(parts).map_err(|_| InvalidTarget)
    }

    fn prefixed(&self, path: &PathAndQuery) -> Result<PathAndQuery, InvalidTarget> {
        if self.prefix.is_empty() {
            return Ok(path.clone());
        }
        let mut joined = BytesMut::with_capacity(self.prefix.len() + path.as_str().len());
        joined.put_slice(self.prefix.as_bytes());
        joined.put_slice(path.as_str().as_bytes());
        PathAndQuery::from_maybe_shared(joined.freeze()).map_err(|_| InvalidTarget)
    }
}

impl fmt::Display for Target {
    /// Without the credentials that the address may contain.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority.as_str();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        write!(formatter, "{}://{host}{}", self.scheme, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(cluster: &str, request: &str) -> Result<String, InvalidTarget> {
        let target = Target::new(&cluster.parse().unwrap()).unwrap();
        let request = Uri::builder().path_and_query(request).build().unwrap();
        target.join(&request).map(|uri| uri.to_string())
    }

    #[test]
    fn odd_paths_survive_byte_for_byte() {
        for path in [
            "/",
            "//api",
            "/api/v1//namespaces",
            "/api/v1/namespaces/a%2Fb/pods/..%2f",
            "/a/./../b/",
            "/api?",
            "/api??x=%20+&=&y",
            "/x?a=http://h/p//q",
            "/api/v1/pods/p/exec?command=a&command=b&",
        ] {
            assert_eq!(joined("https://10.0.0.1:6443", path).unwrap(), format!("https://10.0.0.1:6443{path}"));
            assert_eq!(joined("https://h/k8s/clusters/c/", path).unwrap(), format!("https://h/k8s/clusters/c{path}"));
        }
    }

    #[test]
    fn displayed_urls_have_no_credentials() {
        let target = Target::new(&"https://jane:secret@cluster:6443/prefix/".parse().unwrap()).unwrap();
        assert_eq!(target.to_string(), "https://cluster:6443/prefix");
    }

    #[test]
    fn the_host_of_the_request_does_not_matter() {
        let target = Target::new(&"https://cluster:6443".parse().unwrap()).unwrap();
        let absolute = "http://elsewhere:80/api/v1".parse().unwrap();
        assert_eq!(target.join(&absolute).unwrap(), "https://cluster:6443/api/v1");
    }

    #[test]
    fn invalid_paths_are_refused() {
        let target = Target::new(&"https://cluster".parse().unwrap()).unwrap();
        for request in ["*", "elsewhere:443"] {
            assert_eq!(target.join(&request.parse().unwrap()), Err(InvalidTarget), "{request}");
        }
        let long = format!("/{}", "a".repeat(65_000));
        assert!(joined("https://h", &long).is_ok());
        assert_eq!(joined(&format!("https://h/{}", "p".repeat(1_000)), &long), Err(InvalidTarget));
    }
}
