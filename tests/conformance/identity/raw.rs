//! Requests that no client library sends: two lengths, folded headers, requests in the bodies of others.
//!
//! A gateway may close such a connection where the server continues, but nothing more may result: no response that the
//! server does not give, no execution of a request hidden in a body, and no response that goes to another client.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use futures_util::future;
use http::Method;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Duration, timeout},
};

use super::{gateways::Delegated, http2, users::User};
use crate::{
    certificates::Certificates,
    client::{Ask, Protocol, tls_config},
    report::Tally,
    servers::Server,
};

/// A hidden write in the name of a user who may do it. It would be executed on a connection that asserts users.
const HIDDEN: &str = "DELETE /api/v1/namespaces/conf/configmaps/victim HTTP/1.1\r\nHost: a\r\nX-Remote-User: admin\r\n\
    X-Remote-Group: system:masters\r\nImpersonate-User: admin\r\nConnection: close\r\n\r\n";
const VICTIM: &str = "/api/v1/namespaces/conf/configmaps/victim";
/// The bytes to send. `~` is a line end, `{id}` the client's token if it has no certificate, and `{hidden}` another
/// request.
const RAW: [(&str, &str); 28] = [
    (
        "a length and chunks",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Content-Type: application/json~Content-Length: 5~Transfer-Encoding: chunked~~0~~{hidden}",
    ),
    (
        "chunks and a length",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: chunked~Content-Length: 400~~0~~{hidden}",
    ),
    (
        "chunks and a length, read from memory",
        "GET /api/v1/namespaces/conf/pods?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: chunked~Content-Length: 3~~0~~{hidden}",
    ),
    (
        "two lengths",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}Content-Length: 0~Content-Length: 400~~{hidden}",
    ),
    (
        "two lengths in one",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}Content-Length: 0, 400~~{hidden}",
    ),
    (
        "a length with a sign",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}Content-Length: +0~~{hidden}",
    ),
    ("a negative length", "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}Content-Length: -1~~{hidden}"),
    (
        "another coding",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: xchunked~Content-Length: 0~~{hidden}",
    ),
    (
        "chunks, then another coding",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: chunked, identity~~0~~{hidden}",
    ),
    (
        "two codings",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: identity~Transfer-Encoding: chunked~~0~~{hidden}",
    ),
    (
        "chunks in HTTP/1.0",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.0~Host: a~{id}\
         Transfer-Encoding: chunked~Content-Length: 5~~0~~{hidden}",
    ),
    (
        "a space before the colon",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding : chunked~Content-Length: 5~~0~~{hidden}",
    ),
    (
        "a chunk without an end",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}\
         Transfer-Encoding: chunked~~FFFFFFFFFFFFFFFF0~{hidden}",
    ),
    (
        "a chunk with an extension",
        "POST /api/v1/namespaces/conf/configmaps HTTP/1.1~Host: a~{id}Transfer-Encoding: chunked~~0;a=b\n~~{hidden}",
    ),
    (
        "a request in a body",
        "GET /api/v1/namespaces/conf/pods/pod-00/status HTTP/1.1~Host: a~{id}Content-Length: {length}~~{hidden}",
    ),
    (
        "a request in the body of a read",
        "GET /api/v1/namespaces/conf/pods?resourceVersion=0 HTTP/1.1~Host: a~{id}Content-Length: {length}~~{hidden}",
    ),
    (
        "a request after an upgrade",
        "GET /api/v1/namespaces/conf/pods?watch=0 HTTP/1.1~Host: a~{id}\
         Connection: Upgrade~Upgrade: websocket~~{hidden}",
    ),
    (
        "a request after HTTP/2's settings",
        "GET /api/v1/namespaces/conf/pods HTTP/1.1~Host: a~{id}\
         Connection: Upgrade, HTTP2-Settings~Upgrade: h2c~HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA~~{hidden}",
    ),
    (
        "a folded token",
        "GET /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         X-Other: a~ Authorization: Bearer conformance-keeper~Connection: close~~",
    ),
    (
        "a folded user",
        "GET /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         X-Remote-User:~ admin~X-Remote-Group:~\tsystem:masters~Connection: close~~",
    ),
    (
        "a user after a space",
        "GET /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         X-Remote-User : admin~X-Remote-Group : system:masters~Connection: close~~",
    ),
    (
        "a user behind a line feed",
        "GET /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         X-Other: a\nX-Remote-User: admin\nX-Remote-Group: system:masters~Connection: close~~",
    ),
    (
        "another host in the target",
        "GET https://127.0.0.1:1/api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}\
         Connection: close~~",
    ),
    (
        "two hosts",
        "GET /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~Host: b~{id}Connection: close~~",
    ),
    (
        "a method in small letters",
        "get /api/v1/namespaces/conf/secrets?resourceVersion=0 HTTP/1.1~Host: a~{id}Connection: close~~",
    ),
    (
        "a token in a subprotocol",
        "GET /api/v1/namespaces/conf/secrets?watch=1&timeoutSeconds=1 HTTP/1.1~Host: a~\
         Origin: http://a~Connection: Upgrade~Upgrade: websocket~Sec-WebSocket-Version: 13~\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==~\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.Y29uZm9ybWFuY2Uta2VlcGVy, \
         base64.binary.k8s.io~~",
    ),
    (
        "a bad token in a subprotocol",
        "GET /api/v1/namespaces/conf/pods?watch=1&timeoutSeconds=1 HTTP/1.1~Host: a~\
         Origin: http://a~Connection: Upgrade~Upgrade: websocket~Sec-WebSocket-Version: 13~\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==~\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.bm9uc2Vuc2U, base64.binary.k8s.io~~",
    ),
    ("a tunnel", "CONNECT 127.0.0.1:443 HTTP/1.1~Host: a~{id}~{hidden}"),
];
/// Requests that can only be interpreted in one way: the gateway responds like the server.
const CLEAR: [&str; 5] = [
    "a request in a body",
    "a request in the body of a read",
    "a method in small letters",
    "a token in a subprotocol",
    "a bad token in a subprotocol",
];
/// Longer than any silence between two responses.
const SILENCE: Duration = Duration::from_secs(6);

/// Sends all requests to the server and the gateways, and checks the results.
pub(super) async fn run(
    server: &Server,
    gateways: &[&Delegated],
    certificates: &Certificates,
    tally: &mut Tally,
) -> Result<()> {
    let victim = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "victim"}});
    server.endpoint.create("/api/v1/namespaces/conf/configmaps", &victim).await?;
    // All exchanges wait for silence concurrently.
    let bases = || [&server.endpoint.base].into_iter().chain(gateways.iter().map(|gateway| &gateway.secure));
    let all = [None, Some("cert")].into_iter().flat_map(|certificate| bases().map(move |base| (certificate, base)));
    let answers = all.map(|(certificate, base)| statuses(base, certificate, certificates));
    let answers = future::try_join_all(answers).await?;
    for (certificate, answers) in [None, Some("cert")].into_iter().zip(answers.chunks(bases().count())) {
        let (direct, through) = answers.split_first().context("no answers")?;
        for through in through {
            for (((name, _), direct), through) in RAW.iter().zip(direct).zip(through) {
                // A certificate and such a token are two identities: the gateway removes the token together with the
                // certificate.
                if certificate.is_some() && name.ends_with("in a subprotocol") {
                    continue;
                }
                let details = || format!("{direct:?} from the server, {through:?} from the gateway");
                let is_right = if CLEAR.contains(name) { direct == through } else { gains_nothing(direct, through) };
                tally.holds(&format!("{name}, {certificate:?}"), is_right, details);
            }
        }
    }
    http2::run(server, gateways, certificates, tally).await?;
    for gateway in gateways {
        unharmed(server, gateway, certificates, tally).await?;
    }
    server.endpoint.write(Method::DELETE, VICTIM, &json!({})).await.map(drop)
}

/// Whether the responses are the same, except for those that the gateway refuses, and no more of them. The gateway
/// treats an unreadable body like a lost connection.
fn gains_nothing(direct: &[u16], through: &[u16]) -> bool {
    let is_right = |(direct, through): (&u16, &u16)| direct == through || [400, 501, 503].contains(through);
    !through.is_empty() && through.len() <= direct.len() && direct.iter().zip(through).all(is_right)
}

/// The statuses of all responses to each request.
async fn statuses(base: &str, certificate: Option<&str>, certificates: &Certificates) -> Result<Vec<Vec<u16>>> {
    let path = certificate.map(|file| certificates.file(&format!("{file}.crt")));
    let tls = Arc::new(tls_config(Some(Path::new(&certificates.file("ca.crt"))), path.as_deref().map(Path::new))?);
    let id = if certificate.is_some() { "" } else { "Authorization: Bearer conformance-reader\r\n" };
    let sent = RAW.iter().map(|(name, text)| {
        let text = text.replace("{id}", id).replace('~', "\r\n");
        let text = text.replace("{length}", &HIDDEN.len().to_string()).replace("{hidden}", HIDDEN);
        let tls = tls.clone();
        async move { exchange(base, tls, &text).await.with_context(|| *name) }
    });
    future::try_join_all(sent).await
}

async fn exchange(base: &str, tls: Arc<rustls::ClientConfig>, text: &str) -> Result<Vec<u16>> {
    let stream = TcpStream::connect(base.trim_start_matches("https://")).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let mut stream = tokio_rustls::TlsConnector::from(tls).connect(name, stream).await?;
    stream.write_all(text.as_bytes()).await?;
    // With many exchanges in one task, its turn may end in the middle of a write, whose rest would then not be sent.
    stream.flush().await?;
    let mut answers = Vec::new();
    // The other side may close the connection in any way, or not at all.
    while let Ok(Ok(1..)) = timeout(SILENCE, stream.read_buf(&mut answers)).await {}
    let answers = String::from_utf8_lossy(&answers);
    let lines = answers.match_indices("HTTP/1.").filter_map(|(at, _)| answers.get(at + 9..at + 12)?.parse().ok());
    Ok(lines.collect())
}

/// Checks that the hidden request was not executed, and that other clients get their own responses on connections that
/// may have been misled.
async fn unharmed(server: &Server, gateway: &Delegated, certificates: &Certificates, tally: &mut Tally) -> Result<()> {
    let victim = server.endpoint.get(VICTIM).await?;
    tally.equal("what was hidden in a body is not done", &200, &victim.status);
    let status = Ask::get("/api/v1/namespaces/conf/pods/pod-00/status");
    for row in ["keeper | | authorization: Bearer conformance-keeper", "outsider | cert-outsider |"] {
        let user = User::forger(row)?;
        let direct = user.calls(&server.endpoint.base, certificates, Protocol::Http1)?.send(&status).await?;
        let caller = user.calls(&gateway.secure, certificates, Protocol::Http2)?;
        for answer in future::try_join_all((0..8).map(|_| caller.send(&status))).await? {
            let same = (answer.status, &answer.body) == (direct.status, &direct.body);
            tally.holds("an answer after it", same, || format!("{answer:?}"));
        }
    }
    Ok(())
}
