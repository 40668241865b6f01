//! `kube-fanout status`: requests the status of a gateway from its admin port, and prints it as text.

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use futures_util::future::join;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube_client::client::Body;
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};

use crate::{
    config::{TokenFile, TokenFileError},
    status::{self, GatewayStatus},
    telemetry::Chain,
};

/// Options of the request and the output.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// The admin port: `http://127.0.0.1:9090`, `https://gateway:9090`, `127.0.0.1:9090`, `9090`,
    /// `unix:/run/admin.sock`.
    pub admin: String,
    /// The authorities of its certificate, in PEM; `None` for those that the system trusts.
    pub certificate_authority: Option<PathBuf>,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
    /// Whether to repeat the request until the process ends.
    pub watch: bool,
    /// Whether to clear the terminal before each output.
    pub clears: bool,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("{0:?} is not an address; allowed: a URL, HOST:PORT, a port of this machine, or unix:/PATH")]
    Address(String),
    #[error("cannot use the credentials or authorities")]
    Credentials(#[source] kube_client::Error),
    #[error("cannot use the token")]
    Token(#[source] TokenFileError),
    #[error("cannot reach the gateway's admin port at {0}; --admin names another one")]
    Unreachable(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the gateway's admin port at {0} does not answer within {1:?}")]
    TimedOut(String, Duration),
    #[error("the gateway's admin port answers {0}: {1}")]
    Refused(StatusCode, String),
    #[error("there is no status at {0} ({1}): it is not the admin port of a gateway; --admin names another one")]
    NotFound(String, StatusCode),
    #[error("the answer is not a status; is {0} the admin port of a kube-fanout with a status?")]
    NotStatus(String, #[source] serde_json::Error),
    #[error("nothing could be written")]
    Output(#[source] io::Error),
}

const PATH: &str = "/status.json";
/// The interval between requests with `watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The maximum size of the status, in bytes. A thousand caches take less than 1 MiB.
const BYTES_MAX: usize = 16 << 20;
/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Writes the status to `out`, as long as it is read. Whether the gateway is ready, as seen last.
///
/// # Errors
/// There is no status. With `watch`, an error after the first status is printed, and the request is repeated.
pub async fn status(options: &StatusOptions, out: &mut (dyn io::Write + Send)) -> Result<bool, StatusError> {
    let port = Port::new(options)?;
    if !options.watch {
        let status = port.ask().await?;
        written(out.write_all(status::text(&status).as_bytes()))?;
        return Ok(status.is_healthy());
    }
    let mut text = status::text(&port.ask().await?);
    loop {
        let separator = if options.clears { CLEAR } else { "\n" };
        if written(write!(out, "{separator}{text}").and_then(|()| out.flush()))? == Reader::Gone {
            return Ok(true);
        }
        sleep(WATCH_EVERY).await;
        text = match port.ask().await {
            Ok(status) => status::text(&status),
            Err(error) => format!("{}; trying again\n", Chain(&error)),
        };
    }
}

/// Of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Reads,
    /// As `head` goes when it has its lines: no error.
    Gone,
}

fn written(written: io::Result<()>) -> Result<Reader, StatusError> {
    match written {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(StatusError::Output(error)),
    }
}

/// An admin port.
struct Port {
    name: String,
    way: Way,
}

enum Way {
    Unix(PathBuf),
    Network { client: kube_client::Client, token: Option<TokenFile> },
}

impl Port {
    fn new(options: &StatusOptions) -> Result<Self, StatusError> {
        let name = options.admin.clone();
        if let Some(path) = name.strip_prefix("unix:") {
            let way = Way::Unix(path.into());
            return Ok(Self { name, way });
        }
        let url = match name.parse::<u16>() {
            Ok(port) => format!("http://127.0.0.1:{port}"),
            Err(_) if name.contains("://") => name.clone(),
            Err(_) => format!("http://{name}"),
        };
        let url: Uri = url.parse().map_err(|_| StatusError::Address(name.clone()))?;
        let is_url = matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
        if !is_url {
            return Err(StatusError::Address(name));
        }
        let mut access = kube_client::Config::new(url);
        access.root_cert_file.clone_from(&options.certificate_authority);
        let token = options.token_file.as_deref().map(TokenFile::read).transpose().map_err(StatusError::Token)?;
        let client = kube_client::Client::try_from(access).map_err(StatusError::Credentials)?;
        Ok(Self { name, way: Way::Network { client, token } })
    }

    async fn ask(&self) -> Result<GatewayStatus, StatusError> {
        let answer = match &self.way {
            Way::Unix(path) => timeout(ANSWER_MAX, over_unix(path)).await,
            Way::Network { client, token } => timeout(ANSWER_MAX, over_network(client, token.as_ref())).await,
        };
        let answer = answer.map_err(|_| StatusError::TimedOut(self.name.clone(), ANSWER_MAX))?;
        let (status, body) = answer.map_err(|error| StatusError::Unreachable(self.name.clone(), error))?;
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED) {
            return Err(StatusError::NotFound(self.name.clone(), status));
        }
        if status != StatusCode::OK {
            return Err(StatusError::Refused(status, String::from_utf8_lossy(&body).trim_end().to_owned()));
        }
        serde_json::from_slice(&body).map_err(|error| StatusError::NotStatus(self.name.clone(), error))
    }
}

/// The status and the body of a response.
type Fetched = Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>>;

async fn over_network(client: &kube_client::Client, token: Option<&TokenFile>) -> Fetched {
    let mut request = Request::get(PATH).body(Body::empty())?;
    if let Some(token) = token {
        request.headers_mut().insert(header::AUTHORIZATION, token.header());
    }
    let answer = client.send(request).await?;
    let status = answer.status();
    Ok((status, Limited::new(answer.into_body(), BYTES_MAX).collect().await?.to_bytes()))
}

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
