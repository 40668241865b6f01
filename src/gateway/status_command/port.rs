//! A gateway's admin port, from which the status is requested.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube_client::client::Body;
use tokio::{net::UnixStream, time::timeout};

use super::{StatusError, StatusOptions, trouble};
use crate::status::GatewayStatus;
use base::config::{PemFile, Redacted, TokenFile, has_host_and_port, unexpanded, with_needed_authorities};

const PATH: &str = "/status.json";
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The maximum size of the status, in bytes. A thousand caches take less than 1 MiB.
const BYTES_MAX: usize = 16 << 20;

/// An admin port.
pub(super) struct Port {
    name: Redacted,
    way: Way,
}

enum Way {
    Unix(PathBuf),
    Network(Box<Network>),
}

struct Network {
    client: kube_client::Client,
    token: Option<TokenFile>,
    has_path: bool,
    has_authority: bool,
}

impl Port {
    pub(super) async fn new(options: &StatusOptions) -> Result<Self, StatusError> {
        let name = Redacted::text(&options.admin);
        let way = match options.admin.strip_prefix("unix:") {
            Some(path) => Way::Unix(path.into()),
            None => Way::Network(Box::new(Network::new(name.clone(), options).await?)),
        };
        Ok(Self { name, way })
    }

    pub(super) async fn ask(&self) -> Result<GatewayStatus, StatusError> {
        let answer = match &self.way {
            Way::Unix(path) => timeout(ANSWER_MAX, over_unix(path)).await,
            Way::Network(network) => timeout(ANSWER_MAX, network.fetch()).await,
        };
        let answer = answer.map_err(|_| StatusError::TimedOut(self.name.clone(), ANSWER_MAX))?;
        let (status, body) = answer.map_err(|error| self.trouble(error))?;
        match status {
            StatusCode::OK => {
                serde_json::from_slice(&body).map_err(|error| StatusError::NotStatus(self.name.clone(), error))
            }
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Err(self.not_found(status)),
            StatusCode::BAD_REQUEST if trouble::is_refusal_of_http(&body) => {
                Err(StatusError::NeedsTls(self.name.clone()))
            }
            status => {
                let told = String::from_utf8_lossy(&body).trim_end().to_owned();
                let hint = if status == StatusCode::UNAUTHORIZED { NEEDS_TOKEN } else { "" };
                Err(StatusError::Refused(status, told, hint))
            }
        }
    }

    /// Why there is no answer, with what to do.
    fn trouble(&self, error: BoxError) -> StatusError {
        let name = self.name.clone();
        let network = match &self.way {
            Way::Network(network) => network,
            Way::Unix(path) => return StatusError::Unreachable(name, unexpanded(path), error),
        };
        match trouble::advice(&*error, network.has_authority) {
            Some(advice) => StatusError::Tls(name, advice, error),
            None => StatusError::Unreachable(name, "", error),
        }
    }

    fn not_found(&self, status: StatusCode) -> StatusError {
        let has_path = matches!(&self.way, Way::Network(network) if network.has_path);
        StatusError::NotFound(self.name.clone(), status, if has_path { HAS_PATH } else { NO_GATEWAY })
    }
}

const NEEDS_TOKEN: &str = "; --token-file names a file with a bearer token that the gateway accepts";
const NO_GATEWAY: &str = "it is not the admin port of a gateway; --admin names another one";
const HAS_PATH: &str = "/status.json is added to the path of --admin, which is only needed if a proxy takes a part of \
                        it off; otherwise write the address without a path";

impl Network {
    async fn new(name: Redacted, options: &StatusOptions) -> Result<Self, StatusError> {
        let url = url(&options.admin)?;
        let has_path = url.path() != "/";
        let mut access = with_needed_authorities(kube_client::Config::new(url));
        if let Some(path) = &options.certificate_authority {
            let bundle = PemFile(path.clone());
            let pem = bundle.read().await.map_err(StatusError::ReadAuthority)?;
            let authorities = bundle.authorities(&pem).map_err(StatusError::Authority)?;
            access.root_cert = Some(authorities.iter().map(|authority| authority.to_vec()).collect());
        }
        let has_authority = options.certificate_authority.is_some();
        let token = options.token_file.as_deref().map(TokenFile::read).transpose().map_err(StatusError::Token)?;
        let has_none = access.root_cert.is_none();
        let client = kube_client::Client::try_from(access);
        let client = client.map_err(|error| {
            if has_none && matches!(error, kube_client::Error::RustlsTls(_)) {
                StatusError::NoAuthorities(name, error)
            } else {
                StatusError::Connection(error)
            }
        })?;
        Ok(Self { client, token, has_path, has_authority })
    }

    async fn fetch(&self) -> Fetched {
        let mut request = Request::get(PATH).body(Body::empty())?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.header());
        }
        let answer = self.client.send(request).await.map_err(cause)?;
        let status = answer.status();
        Ok((status, Limited::new(answer.into_body(), BYTES_MAX).collect().await?.to_bytes()))
    }
}

/// The URL that `--admin` stands for.
fn url(admin: &str) -> Result<Uri, StatusError> {
    let text = match admin.parse::<u16>() {
        Ok(port) => format!("http://127.0.0.1:{port}"),
        Err(_) if admin.contains("://") => admin.to_owned(),
        Err(_) => format!("http://{admin}"),
    };
    let no_address = || StatusError::Address(Redacted::text(admin), hint(admin));
    let url: Uri = text.parse().map_err(|_| no_address())?;
    if admin.contains('@') {
        return Err(StatusError::UserInfo(Redacted::text(admin)));
    }
    let is_url = matches!(url.scheme_str(), Some("http" | "https")) && !is_path(admin) && !is_number(admin);
    if is_url && has_host_and_port(&url) { Ok(url) } else { Err(no_address()) }
}

/// What was probably meant by a text that is no address.
fn hint(admin: &str) -> String {
    if is_path(admin) {
        let path = Path::new(admin);
        format!("; for the socket at this path, write unix:{admin}{}", unexpanded(path))
    } else if is_number(admin) {
        "; a port is at most 65535".to_owned()
    } else {
        String::new()
    }
}

/// Whether the text is the path of a file, which has no prefix as an address.
fn is_path(admin: &str) -> bool {
    admin.starts_with(['/', '.', '~']) && !admin.starts_with("//")
}

/// Whether the text is a number, and no port. The resolver would take it for an address.
fn is_number(admin: &str) -> bool {
    admin.parse::<u16>().is_err() && admin.bytes().all(|byte| byte.is_ascii_digit())
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What kube-client's error was made of, which it repeats.
fn cause(error: kube_client::Error) -> BoxError {
    if let kube_client::Error::Service(error) = error { error } else { error.into() }
}

/// The status and the body of a response.
type Fetched = Result<(StatusCode, Bytes), BoxError>;

async fn over_unix(path: &PathBuf) -> Fetched {
    let stream = UnixStream::connect(path).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let request = Request::get(PATH).header(header::HOST, "localhost").body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Ok((status, Limited::new(answer.into_body(), BYTES_MAX).collect().await?.to_bytes()))
    };
    // The connection ends with its sender; its errors appear in the exchange.
    join(exchange, connection).await.0
}
