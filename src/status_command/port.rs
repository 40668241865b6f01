//! A gateway's admin port, from which the status is requested.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use futures_util::future::join;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube_client::client::Body;
use tokio::{net::UnixStream, time::timeout};

use super::{StatusError, StatusOptions};
use crate::{config::TokenFile, status::GatewayStatus};

const PATH: &str = "/status.json";
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The maximum size of the status, in bytes. A thousand caches take less than 1 MiB.
const BYTES_MAX: usize = 16 << 20;

/// An admin port.
pub(super) struct Port {
    name: String,
    way: Way,
}

enum Way {
    Unix(PathBuf),
    Network { client: kube_client::Client, token: Option<TokenFile> },
}

impl Port {
    pub(super) fn new(options: &StatusOptions) -> Result<Self, StatusError> {
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

    pub(super) async fn ask(&self) -> Result<GatewayStatus, StatusError> {
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
