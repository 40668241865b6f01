//! A server under load: its address, TLS and credentials.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, Uri, header,
    uri::{Authority, Scheme},
};
use http_body_util::Full;
use kube_client::client::ConfigExt;
use rustls::pki_types::ServerName;
use tower::{
    ServiceBuilder, ServiceExt, service_fn,
    util::{BoxCloneSyncService, option_layer},
};

use base::config::{Redacted, TokenFile, has_host_and_port};

use crate::{
    connection::Tls,
    failure::{ErrorKind, Failure},
};

/// The user agent of the tool.
const USER_AGENT: &str = concat!("kube-fanout-load/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type LoadRequest = Request<Full<Bytes>>;
type Credentials = BoxCloneSyncService<LoadRequest, Response<LoadRequest>, BoxError>;

/// The address of requests and their credentials.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// The name in the report.
    pub(super) name: &'static str,
    host: String,
    port: u16,
    /// Other addresses of the server, tried in this order if it refuses a connection at its first one. May be empty.
    fallbacks: Vec<Fallback>,
    /// Counts connections if each begins at the address behind the one of the last; else all begin at the first.
    spread: Option<Arc<AtomicUsize>>,
    pub(super) tls: Option<Tls>,
    /// Host and port, for the `Host` header.
    authority: HeaderValue,
    /// Scheme, host, port and path in front of the path of every request's URI.
    base: String,
    /// The path in front of the path of every request, if the server URL of a kubeconfig has one.
    prefix: String,
    /// Adds credentials and configured headers to a request. Tokens that expire are renewed.
    credentials: Option<Credentials>,
}

/// Another address of a server, like that of a second replica. TLS and credentials are those of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The text is not a [`Fallback`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allowed: HOST:PORT, as in 10.0.0.2:6443")]
pub struct NotAFallback;

impl FromStr for Fallback {
    type Err = NotAFallback;

    fn from_str(text: &str) -> Result<Self, NotAFallback> {
        let authority: Authority = text.parse().map_err(|_| NotAFallback)?;
        let port = authority.port_u16().ok_or(NotAFallback)?;
        if authority.host().is_empty() || text.contains('@') {
            return Err(NotAFallback);
        }
        Ok(Self { host: without_brackets(authority.host()), port })
    }
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error(
        "{0} is not the address of a server; allowed: a URL like https://api.example:6443 or http://127.0.0.1:8001"
    )]
    Url(Redacted),
    #[error("the URL of {0} contains a user or a password; put credentials into the kubeconfig")]
    UserInfo(Redacted),
    #[error("cannot use the kubeconfig's TLS for {0}")]
    Tls(Redacted, #[source] Redacted),
    #[error("cannot use the kubeconfig's credentials for {0}")]
    Credentials(Redacted, #[source] BoxError),
    #[error("{0} is reached through a proxy, which is not supported")]
    Proxy(Redacted),
}

impl Endpoint {
    /// The server of `config`. Credentials are only sent over TLS.
    pub(super) fn new(name: &'static str, config: &kube_client::Config) -> Result<Self, EndpointError> {
        let url = Redacted::url(&config.cluster_url);
        // Also in the path: an unescaped / in a password begins one.
        if config.cluster_url.to_string().contains('@') {
            return Err(EndpointError::UserInfo(url));
        }
        if config.proxy_url.is_some() {
            return Err(EndpointError::Proxy(url));
        }
        let address = Address::of(&config.cluster_url).ok_or_else(|| EndpointError::Url(url.clone()))?;
        let (tls, credentials) = if address.is_tls {
            let server_name = config.tls_server_name.clone().unwrap_or_else(|| address.host.clone());
            let name = ServerName::try_from(server_name).map_err(|_| EndpointError::Url(url.clone()))?;
            let tls = tls(config, name).map_err(|error| EndpointError::Tls(url.clone(), Redacted::new(&error)))?;
            let credentials = credentials(config);
            (Some(tls), Some(credentials.map_err(|error| EndpointError::Credentials(url.clone(), error))?))
        } else {
            (None, None)
        };
        let authority = config.cluster_url.authority().map_or("", |authority| authority.as_str());
        Ok(Self {
            name,
            authority: HeaderValue::from_str(authority).map_err(|_| EndpointError::Url(url.clone()))?,
            base: format!("{}://{authority}{}", if address.is_tls { "https" } else { "http" }, address.prefix),
            prefix: address.prefix,
            host: address.host,
            port: address.port,
            fallbacks: Vec::new(),
            spread: None,
            tls,
            credentials,
        })
    }

    pub(super) fn with_fallbacks(self, fallbacks: Vec<Fallback>, is_spread: bool) -> Self {
        Self { fallbacks, spread: is_spread.then(Arc::default), ..self }
    }

    /// The addresses for a new connection, in the order in which they are tried.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&str, u16)> {
        let count = self.fallbacks.len() + 1;
        let begin = self.spread.as_ref().map_or(0, |spread| spread.fetch_add(1, Relaxed) % count);
        let others = self.fallbacks.iter().map(|Fallback { host, port }| (&**host, *port));
        let all = std::iter::once((&*self.host, self.port)).chain(others);
        all.clone().skip(begin).chain(all.take(begin))
    }

    /// Its first address alone.
    pub(super) fn first(&self) -> Self {
        Self { fallbacks: Vec::new(), spread: None, ..self.clone() }
    }

    /// Its other addresses, each as an endpoint of its own.
    pub(super) fn others(&self) -> impl Iterator<Item = Self> + '_ {
        self.fallbacks.iter().map(|Fallback { host, port }| {
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let base = format!("{scheme}://{shown}:{port}{}", self.prefix);
            Self { host: host.clone(), port: *port, base, ..self.first() }
        })
    }

    /// The address, without credentials.
    pub(super) fn url(&self) -> &str {
        &self.base
    }

    /// Builds a request for the protocol, with credentials.
    pub(super) async fn request(&self, ask: &RequestSpec<'_>, http2: bool) -> Result<LoadRequest, Failure> {
        let builder = Request::builder()
            .method(ask.method.clone())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, ask.accept);
        let builder = if http2 {
            builder.uri(format!("{}{}", self.base, ask.path))
        } else {
            builder.uri(format!("{}{}", self.prefix, ask.path)).header(header::HOST, &self.authority)
        };
        let builder = if ask.gzip { builder.header(header::ACCEPT_ENCODING, "gzip") } else { builder };
        let builder = match &ask.body {
            None => builder,
            Some((content_type, _)) => builder.header(header::CONTENT_TYPE, *content_type),
        };
        let body = ask.body.as_ref().map_or_else(Bytes::new, |(_, body)| body.clone());
        let request = builder.body(Full::new(body)).map_err(|error| Failure::new(ErrorKind::Handshake, &error))?;
        match &self.credentials {
            None => Ok(request),
            Some(credentials) => {
                let added = credentials.clone().oneshot(request).await;
                added.map(Response::into_body).map_err(|error| Failure::of(ErrorKind::Handshake, error.to_string()))
            }
        }
    }
}

/// The parts of a request that vary.
#[derive(Clone, Debug)]
pub(super) struct RequestSpec<'a> {
    pub(super) method: Method,
    /// Includes the query.
    pub(super) path: &'a str,
    pub(super) accept: &'a str,
    pub(super) gzip: bool,
    /// The media type and the body.
    pub(super) body: Option<(&'static str, Bytes)>,
}

impl<'a> RequestSpec<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, accept: "application/json", gzip: false, body: None }
    }
}

/// The parts of a URL.
struct Address {
    is_tls: bool,
    host: String,
    port: u16,
    prefix: String,
}

impl Address {
    fn of(url: &Uri) -> Option<Self> {
        let is_tls = url.scheme() == Some(&Scheme::HTTPS);
        if !is_tls && url.scheme() != Some(&Scheme::HTTP) {
            return None;
        }
        if !has_host_and_port(url) {
            return None;
        }
        let host = without_brackets(url.host()?);
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Some(Self { is_tls, host, port, prefix: url.path().trim_end_matches('/').to_owned() })
    }
}

/// The host of a URL, where an IPv6 address is in brackets.
fn without_brackets(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

fn credentials(config: &kube_client::Config) -> Result<Credentials, BoxError> {
    let unchanged = service_fn(|request: LoadRequest| async move { Ok::<_, BoxError>(Response::new(request)) });
    let mut config = config.clone();
    let token = TokenFile::taken(&mut config.auth_info)?;
    let credentials = config.auth_layer().map_err(|error| Redacted::new(&error))?;
    let headers = config.extra_headers_layer()?;
    let unchanged = unchanged.map_request(move |mut request: LoadRequest| {
        if let Some(token) = &token {
            request.headers_mut().insert(header::AUTHORIZATION, token.header());
        }
        request
    });
    Ok(BoxCloneSyncService::new(
        ServiceBuilder::new()
            .map_err(Redacted::service)
            .layer(option_layer(credentials))
            .layer(headers)
            .map_err(BoxError::from)
            .service(unchanged),
    ))
}

fn tls(config: &kube_client::Config, name: ServerName<'static>) -> Result<Tls, kube_client::Error> {
    Ok(Tls::new(config.rustls_client_config()?, name))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").field("name", &self.name).field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_a_host_with_a_port() {
        let fallback = |host: &str| Ok::<_, NotAFallback>(Fallback { host: host.to_owned(), port: 6443 });
        for (text, expected) in [
            ("10.0.0.2:6443", fallback("10.0.0.2")),
            ("[::1]:6443", fallback("::1")),
            ("api.example:6443", fallback("api.example")),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["", "10.0.0.2", ":6443", "user@10.0.0.2:6443", "http://10.0.0.2:6443", "10.0.0.2:65536"] {
            assert_eq!(text.parse::<Fallback>(), Err(NotAFallback), "{text}");
        }
    }

    #[test]
    fn spread_connections_begin_at_each_address_in_turn() {
        let endpoint = Endpoint::new("url", &kube_client::Config::new("http://10.0.0.1:1".parse().unwrap())).unwrap();
        let fallbacks = || ["10.0.0.2:2", "10.0.0.3:3"].map(|text| text.parse().unwrap()).to_vec();
        let ports = |endpoint: &Endpoint| endpoint.addresses().map(|(_, port)| port).collect::<Vec<_>>();
        let spread = endpoint.clone().with_fallbacks(fallbacks(), true);
        assert_eq!([(); 4].map(|()| ports(&spread)), [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]);
        assert_eq!([(); 2].map(|()| ports(&spread.first())), [[1], [1]]);
        let fixed = endpoint.with_fallbacks(fallbacks(), false);
        assert_eq!([(); 2].map(|()| ports(&fixed)), [[1, 2, 3], [1, 2, 3]]);
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        for (url, words) in [
            ("http://user:secret@127.0.0.1:8001", "http://127.0.0.1:8001/ contains a user or a password"),
            ("http://user:/secret@127.0.0.1:8001", "http://127.0.0.1:8001 contains a user or a password"),
            ("http://127.0.0.1:65536", "http://127.0.0.1:65536/ is not the address of a server"),
            ("http://127.0.0.1:port?token=secret", "http://127.0.0.1:port/ is not the address of a server"),
        ] {
            let error = Endpoint::new("url", &kube_client::Config::new(url.parse().unwrap())).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
