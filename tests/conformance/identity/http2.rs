//! HTTP/2 requests that no library sends: if they were translated to HTTP/1.1, they would mean something else or
//! contain another request.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use futures_util::future;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::gateways::Delegated;
use crate::{certificates::Certificates, client::tls_config, gateway::PATIENCE, report::Tally, servers::Server};

/// Header fields after `:method: GET`, `:scheme: https`, `:authority: a` and a `:path`, and a body. `~` is a line end.
/// A field without a name replaces the fields that are sent in front of the others.
type Trick = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const SECRETS: &str = "/api/v1/namespaces/conf/secrets?resourceVersion=0";
const PODS: &str = "/api/v1/namespaces/conf/pods/pod-00/status";
const HIDDEN: &str = "~~DELETE /api/v1/namespaces/conf/configmaps/victim HTTP/1.1~Host: a~X-Remote-User: admin~\
    X-Remote-Group: system:masters~~";
/// Sent by a user who may read pods, but neither their status nor secrets.
const TRICKS: [Trick; 22] = [
    ("as it should be", &[(":path", SECRETS)], ""),
    ("a header of connections", &[(":path", SECRETS), ("connection", "x-remote-user, x-remote-group")], ""),
    ("chunks", &[(":path", SECRETS), ("transfer-encoding", "chunked")], "0~~{hidden}"),
    ("an upgrade", &[(":path", SECRETS), ("upgrade", "websocket"), ("connection", "upgrade")], "{hidden}"),
    ("capitals", &[(":path", SECRETS), ("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")], ""),
    ("two paths", &[(":path", PODS), (":path", SECRETS)], ""),
    ("a path after others", &[(":path", PODS), ("a", "b"), (":path", SECRETS)], ""),
    ("a path without a slash", &[(":path", "api/v1/namespaces/conf/secrets")], ""),
    ("no path", &[(":path", "")], ""),
    ("a whole address as a path", &[(":path", "https://b/api/v1/namespaces/conf/secrets")], ""),
    (
        "a line's end in a path",
        &[(":path", "/api/v1/namespaces/conf/pods HTTP/1.1~X-Remote-User: admin~X-Remote-Group: system:masters~A: ")],
        "",
    ),
    ("a request in a path", &[(":path", "/version HTTP/1.1~Host: a{hidden}")], ""),
    ("a space in a path", &[(":path", "/api/v1/namespaces/conf/pods /x")], ""),
    (
        "a line's end in a value",
        &[(":path", SECRETS), ("a", "b~X-Remote-User: admin~X-Remote-Group: system:masters")],
        "",
    ),
    ("a request in a value", &[(":path", SECRETS), ("a", "b{hidden}")], ""),
    ("a line's end in a name", &[(":path", SECRETS), ("a: b~x-remote-user", "admin")], ""),
    ("a colon in a name", &[(":path", SECRETS), ("x-remote-user:", "admin")], ""),
    ("another pseudo-header", &[(":path", SECRETS), (":x-remote-user", "admin")], ""),
    ("another method", &[(":path", SECRETS), (":method", "GET /version HTTP/1.1~X-Remote-User: admin~A:")], ""),
    (
        "another authority",
        &[(":path", SECRETS), (":authority", "b/api/v1/namespaces/conf/secrets?"), ("host", "c")],
        "",
    ),
    ("a body longer than its length", &[(":path", SECRETS), ("content-length", "0")], "{hidden}"),
    ("a body shorter than its length", &[(":path", SECRETS), ("content-length", "400")], "{hidden}"),
];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Status(u16),
    /// The stream or the connection was ended.
    Reset,
}

/// Sends all tricks to the server and the gateways: a trick must not achieve more through a gateway than directly.
pub(super) async fn run(
    server: &Server,
    gateways: &[&Delegated],
    certificates: &Certificates,
    tally: &mut Tally,
) -> Result<()> {
    let bases = [&server.endpoint.base].into_iter().chain(gateways.iter().map(|gateway| &gateway.secure));
    let all = future::try_join_all(bases.map(|base| replies(base, certificates))).await?;
    let (direct, through) = all.split_first().context("no replies")?;
    for through in through {
        for (((name, ..), direct), through) in TRICKS.iter().zip(direct).zip(through) {
            // An invalid request need not be answered.
            let is_refused = matches!(through, Reply::Reset | Reply::Status(400));
            let details = || format!("{direct:?} from the server, {through:?} from the gateway");
            tally.holds(&format!("HTTP/2, {name}"), direct == through || is_refused, details);
        }
    }
    Ok(())
}

async fn replies(base: &str, certificates: &Certificates) -> Result<Vec<Reply>> {
    let file = |name: &str| certificates.file(name);
    let (authority, certificate) = (file("ca.crt"), file("cert.crt"));
    let mut tls = tls_config(Some(Path::new(&authority)), Some(Path::new(&certificate)))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = Arc::new(tls);
    future::try_join_all(TRICKS.iter().map(|trick| reply(base, tls.clone(), trick))).await
}

async fn reply(base: &str, tls: Arc<rustls::ClientConfig>, (name, fields, body): &Trick) -> Result<Reply> {
    let stream = TcpStream::connect(base.trim_start_matches("https://")).await?;
    let mut stream = tokio_rustls::TlsConnector::from(tls).connect(ServerName::try_from("127.0.0.1")?, stream).await?;
    let text = |text: &str| text.replace("{hidden}", HIDDEN).replace('~', "\r\n");
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "a")] {
        if !fields.iter().any(|(other, _)| *other == name) {
            literal(&mut block, name, value)?;
        }
    }
    for (name, value) in *fields {
        literal(&mut block, &text(name), &text(value))?;
    }
    let body = text(body);
    let mut sent = PREFACE.to_vec();
    frame(&mut sent, SETTINGS, 0, 0, &[])?;
    let ends = if body.is_empty() { END_STREAM } else { 0 };
    frame(&mut sent, HEADERS, END_HEADERS | ends, 1, &block)?;
    if !body.is_empty() {
        frame(&mut sent, DATA, END_STREAM, 1, body.as_bytes())?;
    }
    stream.write_all(&sent).await?;
    // See `raw::exchange`.
    stream.flush().await?;
    timeout(PATIENCE, read(&mut stream)).await.with_context(|| format!("{name}: no reply"))?.with_context(|| *name)
}

/// Writes a literal header field, without indexing.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) -> Result<()> {
    block.push(0);
    for part in [name, value] {
        match u8::try_from(part.len()) {
            Ok(length @ ..127) => block.push(length),
            // The rest of a length that exceeds seven bits, in groups of seven bits.
            _ => {
                let rest = part.len() - 127;
                block.extend([127, u8::try_from(rest % 128)? | 128, u8::try_from(rest / 128)?]);
            }
        }
        block.extend(part.as_bytes());
    }
    Ok(())
}

fn frame(sent: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
    sent.extend(&u32::try_from(payload.len())?.to_be_bytes()[1..]);
    sent.extend([kind, flags]);
    sent.extend(stream.to_be_bytes());
    sent.extend(payload);
    Ok(())
}

/// The result of stream 1.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Reply> {
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return Ok(Reply::Reset);
        }
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c]))?];
        if stream.read_exact(&mut payload).await.is_err() {
            return Ok(Reply::Reset);
        }
        match kind {
            HEADERS => return Ok(Reply::Status(status(&payload).with_context(|| format!("status in {payload:?}"))?)),
            RST_STREAM | GOAWAY => return Ok(Reply::Reset),
            _ => {}
        }
    }
}

/// The first field of a response: indexed, literal, or Huffman-coded.
fn status(block: &[u8]) -> Option<u16> {
    let at = block.iter().position(|byte| byte & 0xe0 != 0x20)?;
    match &block[at..] {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500].get(usize::from(indexed - 0x88)).copied(),
        [_, 0x82, 0x68, 0x01, ..] => Some(401),
        [_, 0x83, 0x68, 0x0c, 0xff, ..] => Some(403),
        [_, 3, digits @ ..] => std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok(),
        // Any other refusal.
        [_, coded, ..] if coded & 0x80 != 0 => Some(499),
        _ => None,
    }
}
