//! Forged requests over a whole connection: each is refused, or read as exactly one request.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;
use crate::listener::{Connection, ConnectionContext, Handler, Protocol, serve_connection};
use base::lifecycle::Tasks;

/// Records how each request was read, or why it was rejected.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Vec<String>>>);

impl Handler for Reader {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
        let read = match check_well_formed(&request) {
            Err(why) => why.as_str().to_owned(),
            Ok(()) => {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let hosts: Vec<_> = hosts(&request).collect();
                let body = match request.into_body().collect().await {
                    Ok(body) => String::from_utf8(body.to_bytes().to_vec()).unwrap(),
                    Err(_) => "broken".to_owned(),
                };
                format!("{method} {path} {} {body:?}", hosts.join("="))
            }
        };
        self.0.lock().unwrap().push(read);
        Response::new(Full::default())
    }
}

/// The requests read from the bytes that a client sends, and the bytes of the answers.
async fn read(protocol: Protocol, sent: &[u8]) -> (Vec<String>, Vec<u8>) {
    let (mut client, server) = duplex(1 << 20);
    let tasks = Tasks::new();
    let reader = Reader::default();
    let connection = Connection {
        number: 0,
        peer: None,
        tls: false,
        client_certificate: None,
        draining: tasks.token().child_token(),
    };
    let (handler, spawner) = (reader.clone(), tasks.clone());
    tasks.spawn("connection", async move {
        serve_connection(
            Box::new(server),
            protocol,
            connection,
            handler,
            ConnectionContext::alone(std::time::Duration::from_secs(60)),
            &spawner,
        )
        .await;
    });
    client.write_all(sent).await.unwrap();
    // Time is paused, so that an idle connection times out at once.
    let mut answers = Vec::new();
    let end = client.read_to_end(&mut answers).await;
    assert!(end.is_ok(), "{end:?}");
    let read = reader.0.lock().unwrap().clone();
    (read, answers)
}

/// A further request, which must not be read from bytes that belong to the one before it.
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: h\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_body_has_one_length() {
    let chunked = "transfer-encoding: chunked";
    let post = |headers: &str, body: &str| format!("POST /a HTTP/1.1\r\nhost: h\r\n{headers}\r\n\r\n{body}");
    let smuggled = format!("0\r\n\r\n{NEXT}");
    let one = ["POST /a h \"\""];
    for (sent, expected) in [
        // With both headers the chunks count, and nothing after them is read.
        (post(&format!("content-length: 4\r\n{chunked}"), &smuggled), &one[..]),
        (post(&format!("{chunked}\r\ncontent-length: 4"), &smuggled), &one),
        (post("content-length: 0\r\ncontent-length: 4", NEXT), &[]),
        (post("content-length: 0\r\ncontent-length: 0", NEXT), &["POST /a h \"\"", "GET /next h \"\""]),
        (post("content-length: 0, 0", NEXT), &[]),
        (post("content-length: +0", NEXT), &[]),
        (post("content-length: 0x0", NEXT), &[]),
        (post("content-length: -1", NEXT), &[]),
        (post("content-length:", NEXT), &[]),
        (post("content-length: 99999999999999999999", NEXT), &[]),
        (post("content-length : 0", NEXT), &[]),
        (post("transfer-encoding : chunked", &smuggled), &[]),
        (post("transfer-encoding: identity", NEXT), &[]),
        (post("transfer-encoding: chunked, identity", NEXT), &[]),
        (post("transfer-encoding: xchunked", NEXT), &[]),
        (post("transfer-encoding: \u{b}chunked", NEXT), &[]),
        (post("transfer-encoding: gzip, chunked", "0\r\n\r\n"), &["malformed_transfer_encoding"]),
        (post(&format!("{chunked}\r\n{chunked}"), "0\r\n\r\n"), &["malformed_transfer_encoding"]),
        (post("transfer-encoding:\r\n chunked", &smuggled), &[]),
        (post(chunked, &format!("5\r\nhello\r\n0\r\n\r\n{NEXT}")), &["POST /a h \"hello\"", "GET /next h \"\""]),
        (post(chunked, &format!("0x0\r\n\r\n{NEXT}")), &["POST /a h \"broken\""]),
        (post(chunked, &format!("-0\r\n\r\n{NEXT}")), &["POST /a h \"broken\""]),
        (post(chunked, &format!("\r\n\r\n{NEXT}")), &["POST /a h \"broken\""]),
        (post(chunked, &format!("0\n\n{NEXT}")), &["POST /a h \"broken\""]),
        (post(chunked, &format!("10000000000000000\r\n\r\n{NEXT}")), &["POST /a h \"broken\""]),
        (post(chunked, &format!("1\r\nab\r\n0\r\n\r\n{NEXT}")), &["POST /a h \"broken\""]),
        (format!("POST /a HTTP/1.0\r\n{chunked}\r\n\r\n{smuggled}"), &[]),
    ] {
        for protocol in [Protocol::Any, Protocol::Http1] {
            let (read, _) = read(protocol, sent.as_bytes()).await;
            assert_eq!(read, expected, "{sent:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_is_read_in_one_way_only() {
    let get = |headers: &str| format!("GET /a HTTP/1.1\r\nhost: h\r\n{headers}\r\n\r\n");
    for (sent, expected) in [
        (get("x: y"), &["GET /a h \"\""][..]),
        (get("x: y\r\n z: folded"), &[]),
        (get("x: y\r\n\tfolded"), &[]),
        (get("x: a\rb"), &[]),
        (get("x: a\0b"), &[]),
        (get("x y: z"), &[]),
        (get(": z"), &[]),
        (get("no colon"), &[]),
        (get("upgrade: h2c"), &["GET /a h \"\""]),
        (get("upgrade: websocket"), &["GET /a h \"\""]),
        (get("upgrade: websocket, h2c"), &["malformed_upgrade"]),
        (get("upgrade: h2c\r\nupgrade: SPDY/3.1"), &["malformed_upgrade"]),
        (get("upgrade: HTTP/2.0, websocket"), &["malformed_upgrade"]),
        ("GET /a b HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), &[]),
        ("GET /a HTTP/1.1 \r\nhost: h\r\n\r\n".to_owned(), &[]),
        ("GET /a\r\nhost: h\r\n\r\n".to_owned(), &[]),
        ("GET /a HTTP/2.0\r\nhost: h\r\n\r\n".to_owned(), &[]),
    ] {
        let (read, _) = read(Protocol::Any, sent.as_bytes()).await;
        assert_eq!(read, expected, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_has_one_target_and_one_host() {
    for (target, hosts, expected) in [
        ("/a", "host: h:1", "GET /a h \"\""),
        ("/a", "host: [::1]:80", "GET /a [::1] \"\""),
        ("//other/a", "host: h", "GET //other/a h \"\""),
        ("/a", "host:", "GET /a  \"\""),
        ("/a", "x: y", "malformed_host"),
        ("/a", "host: h\r\nhost: h", "malformed_host"),
        ("/a", "host: h\r\nhost: other", "malformed_host"),
        ("/a", "host: a b", "malformed_host"),
        ("/a", "host: h/a", "malformed_host"),
        ("/a", "host: h,other", "GET /a h,other \"\""),
        ("/a", "host: user@h", "malformed_host"),
        ("http://h/a", "host: H", "GET /a h=H \"\""),
        ("http://h", "host: h", "GET / h=h \"\""),
        ("http://other/a", "host: h", "malformed_two_hosts"),
        ("http://h:1/a", "host: h", "malformed_two_hosts"),
        ("http://h/a", "x: y", "malformed_host"),
        ("http://user@h/a", "host: h", "malformed_host"),
        ("ftp://h/a", "host: h", "malformed_target"),
        ("h:80", "host: h", "malformed_target"),
        ("*", "host: h", "malformed_target"),
    ] {
        let sent = format!("GET {target} HTTP/1.1\r\n{hosts}\r\n\r\n");
        let (read, _) = read(Protocol::Any, sent.as_bytes()).await;
        assert_eq!(read, [expected], "{sent:?}");
    }
    for (target, expected) in [("h:80", &["malformed_connect"][..]), ("/a", &["malformed_connect"])] {
        let sent = format!("CONNECT {target} HTTP/1.1\r\nhost: h\r\n\r\n");
        assert_eq!(read(Protocol::Any, sent.as_bytes()).await.0, expected, "{target}");
    }
    let old = read(Protocol::Any, b"GET /a HTTP/1.0\r\n\r\n").await.0;
    assert_eq!(old, ["GET /a  \"\""]);
}

/// Frames written by hand, since a client library would not send invalid ones.
mod frames {
    pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;

    pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// Each as a literal field without indexing.
    pub(super) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
    }

    /// Type, stream and payload of each frame.
    pub(super) fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
        let mut frames = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let length = length.min(rest.len());
            frames.push((head[3], stream, rest[..length].to_vec()));
            bytes = &rest[length..];
        }
        frames
    }
}

/// How a request over HTTP/2 was read, or how it ended.
async fn read_http2(fields: &[(&str, &str)], body: Option<&str>) -> String {
    let flags = frames::END_HEADERS | if body.is_none() { frames::END_STREAM } else { 0 };
    let mut sent = frames::PREFACE.to_vec();
    sent.extend(frames::frame(frames::HEADERS, flags, 1, &frames::fields(fields)));
    if let Some(body) = body {
        sent.extend(frames::frame(frames::DATA, frames::END_STREAM, 1, body.as_bytes()));
    }
    let (read, answers) = read(Protocol::Any, &sent).await;
    if let Some(read) = read.first() {
        return read.clone();
    }
    let broken = [(frames::RST_STREAM, 1), (frames::GOAWAY, 0)];
    let ended = frames::frames(&answers).iter().any(|(kind, stream, _)| broken.contains(&(*kind, *stream)));
    if ended { "ended" } else { "nothing" }.to_owned()
}

#[tokio::test(start_paused = true)]
async fn http2_requests_are_read_in_one_way_only() {
    let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "h")];
    let with = |more: (&'static str, &'static str)| [&usual[..], &[more]].concat();
    let instead = |name: &str, value: &'static str| {
        usual.map(|(field, old)| if field == name { (field, value) } else { (field, old) }).to_vec()
    };
    let without = |name: &str| usual.into_iter().filter(|(field, _)| *field != name).collect::<Vec<_>>();
    let mut wrong = Vec::new();
    for (fields, expected) in [
        (usual.to_vec(), "GET /a h \"\""),
        (with(("host", "H")), "GET /a h=H \"\""),
        (with(("te", "trailers")), "GET /a h \"\""),
        (without(":authority"), "GET /a  \"\""),
        (with(("host", "other")), "malformed_two_hosts"),
        ([with(("host", "h")), vec![("host", "h")]].concat(), "malformed_host"),
        (instead(":authority", "user@h"), "malformed_host"),
        (instead(":method", "CONNECT"), "ended"),
        (vec![(":method", "CONNECT"), (":authority", "h:80")], "malformed_connect"),
        (instead(":path", "a"), "ended"),
        (instead(":path", "*"), "malformed_target"),
        (instead(":path", "http://other/a"), "ended"),
        (instead(":path", ""), "ended"),
        (instead(":path", "/a b"), "ended"),
        (instead(":authority", "a b"), "ended"),
        (instead(":method", "G ET"), "ended"),
        (without(":path"), "ended"),
        (without(":method"), "ended"),
        (without(":scheme"), "ended"),
        (with((":path", "/b")), "ended"),
        (with((":status", "200")), "ended"),
        ([with(("x", "y")), vec![(":path", "/b")]].concat(), "ended"),
        (with(("connection", "close")), "ended"),
        (with(("keep-alive", "1")), "ended"),
        (with(("proxy-connection", "close")), "ended"),
        (with(("upgrade", "h2c")), "ended"),
        (with(("transfer-encoding", "chunked")), "ended"),
        (with(("te", "gzip")), "ended"),
        (with(("content-length", "1")), "ended"),
        (with(("content-length", "x")), "ended"),
        (with(("X-Remote-User", "root")), "ended"),
        (with(("x", "a\r\nx-remote-user: root")), "ended"),
        (with(("x", "a\0")), "ended"),
        (with(("x\r\ny", "a")), "ended"),
    ] {
        let read = read_http2(&fields, None).await;
        if read != expected {
            wrong.push(format!("{fields:?}: {read}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let post = |length| [instead(":method", "POST"), vec![("content-length", length)]].concat();
    assert_eq!(read_http2(&post("2"), Some("ab")).await, "POST /a h \"ab\"");
    for length in ["1", "3"] {
        assert_eq!(read_http2(&post(length), Some("ab")).await, "POST /a h \"broken\"");
    }
    let twice = [post("2"), vec![("content-length", "2")]].concat();
    assert_eq!(read_http2(&twice, Some("ab")).await, "malformed_content_length");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_resets_ends_the_connection() {
    let fields = frames::fields(&[(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "h")]);
    let mut sent = frames::PREFACE.to_vec();
    for stream in (1..2000).step_by(2) {
        let flags = frames::END_HEADERS | frames::END_STREAM;
        sent.extend(frames::frame(frames::HEADERS, flags, stream, &fields));
        sent.extend(frames::frame(frames::RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    let (_, answers) = read(Protocol::Any, &sent).await;
    let calm =
        frames::frames(&answers).into_iter().any(|(kind, _, payload)| kind == frames::GOAWAY && payload[7] == 11);
    assert!(calm, "{:?}", frames::frames(&answers));
}
