//! `kube-fanout status`: requests the status of a gateway from its admin port, and prints it as text.

mod port;
mod trouble;

use std::{io, path::PathBuf, time::Duration};

use http::StatusCode;
use tokio::time::sleep;

use crate::status;
use base::{
    config::{PemError, Redacted, TokenFileError},
    telemetry::Chain,
};
use port::Port;

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
    /// The second part is a hint, or empty.
    #[error("{0} is not an address; allowed: a URL, HOST:PORT, a port of this machine, or unix:/PATH{1}")]
    Address(Redacted, String),
    #[error("the URL of {0} contains a user or a password; --token-file names a file with a bearer token")]
    UserInfo(Redacted),
    #[error("cannot read the admin port's certificate authority")]
    ReadAuthority(#[source] io::Error),
    #[error("cannot use the admin port's certificate authority")]
    Authority(#[source] PemError),
    /// As in the image of the gateway.
    #[error(
        "no TLS with the admin port at {0}: this system has no trusted authorities; name the file of the admin port's \
         with --certificate-authority"
    )]
    NoAuthorities(Redacted, #[source] kube_client::Error),
    #[error("cannot set up the connection")]
    Connection(#[source] kube_client::Error),
    #[error("cannot use the token")]
    Token(#[source] TokenFileError),
    #[error("cannot reach the gateway's admin port at {0}; --admin names another one{1}")]
    Unreachable(Redacted, &'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// With what to do.
    #[error("no TLS with the admin port at {0}: {1}")]
    Tls(Redacted, &'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the admin port at {0} speaks TLS, and --admin does not: write https:// in front of the address")]
    NeedsTls(Redacted),
    #[error("the gateway's admin port at {0} does not answer within {1:?}")]
    TimedOut(Redacted, Duration),
    #[error("the gateway's admin port answers {0}: {1}{2}")]
    Refused(StatusCode, String, &'static str),
    #[error("there is no status at {0} ({1}): {2}")]
    NotFound(Redacted, StatusCode, &'static str),
    #[error("the answer is not a status; is {0} the admin port of a kube-fanout with a status?")]
    NotStatus(Redacted, #[source] serde_json::Error),
    #[error("nothing could be written")]
    Output(#[source] io::Error),
}

/// The interval between requests with `watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Writes the status to `out`, as long as it is read. Whether the gateway is ready, as seen last.
///
/// # Errors
/// There is no status. With `watch`, an error after the first status is printed, and the request is repeated.
pub async fn status(options: &StatusOptions, out: &mut (dyn io::Write + Send)) -> Result<bool, StatusError> {
    let port = Port::new(options).await?;
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
