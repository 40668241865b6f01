//! In `delegated` mode a client's request arrives under the client's identity, whatever it contains, and never under
//! the gateway's.

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderValue;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::connector::{
    test_authority::Authority,
    test_server::{Shown, TestServer},
};
use base::{
    apimachinery::UserInfo,
    config::{ProxyHeaders, TlsFiles},
};

/// A gateway whose own credentials are a certificate and a token.
struct Setup {
    authority: Authority,
    own: kube_client::Config,
    proxy: TlsFiles,
    names: Vec<(Vec<u8>, &'static str)>,
    _folders: [tempfile::TempDir; 2],
}

impl Setup {
    fn new() -> Self {
        let authority = Authority::new();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (gateway, proxy) = (authority.client("gateway"), authority.client("proxy"));
        let names = vec![(gateway.der().to_vec(), "gateway"), (proxy.der().to_vec(), "proxy")];
        let files = gateway.write(folders[0].path());
        let mut own = kube_client::Config::new("https://localhost".parse().unwrap());
        own.root_cert = Some(vec![authority.certificate().to_vec()]);
        own.auth_info.client_certificate = Some(files.cert_file.display().to_string());
        own.auth_info.client_key = Some(files.key_file.display().to_string());
        own.auth_info.token = Some("gateway".to_owned().into());
        let proxy = proxy.write(folders[1].path());
        Self { authority, own, proxy, names, _folders: folders }
    }

    /// A server that answers with the identity that a request shows.
    async fn server(&mut self, protocols: &[&[u8]]) -> TestServer {
        let names = self.names.clone();
        let server = TestServer::start_tls_with(&self.authority, protocols, move |request: Request<Incoming>| {
            let Shown(certificate) = request.extensions().get().unwrap();
            let shown = named(&names, certificate.as_deref()) + &identity(request.headers());
            async move { Response::builder().status(403).body(full(shown)).unwrap() }
        })
        .await;
        self.own.cluster_url = server.config.cluster_url.clone();
        server
    }

    fn delegated(&self, assertion: Option<Assertion>) -> Forward {
        Forward::delegated(
            Connector::new(&self.own).unwrap().as_client().unwrap(),
            assertion,
            Shares::new(10, "test"),
            Tasks::new(),
        )
    }

    fn front_proxy(&self) -> Option<Assertion> {
        Some(Assertion::FrontProxy(
            Connector::new(&self.own)
                .unwrap()
                .as_front_proxy(&self.proxy, ProxyHeaders::default(), &Tasks::new())
                .unwrap()
                .accepted(),
        ))
    }

    fn impersonation(&self) -> Option<Assertion> {
        Some(Assertion::Impersonation(Connector::new(&self.own).unwrap().as_impersonator().unwrap()))
    }
}

fn named(names: &[(Vec<u8>, &'static str)], certificate: Option<&[u8]>) -> String {
    let name = |shown| names.iter().find(|(known, _)| known == shown).map_or("unknown", |(_, name)| name);
    certificate.map_or("none", name).to_owned()
}

/// The identity that the headers show.
fn identity(headers: &http::HeaderMap) -> String {
    let said = ["authorization", "x-remote-user", "x-remote-group", "impersonate-user", "sec-websocket-protocol"];
    let lines = said.into_iter().flat_map(|name| headers.get_all(name).into_iter().map(move |value| (name, value)));
    lines.map(|(name, value)| format!("; {name}={}", value.to_str().unwrap())).collect()
}

fn jane() -> Credentials {
    let user = UserInfo {
        name: "jane".to_owned(),
        uid: String::new(),
        groups: ["devs", "system:authenticated"].map(str::to_owned).to_vec(),
        extra: BTreeMap::new(),
    };
    Credentials::Verified { user: Arc::new(user), impersonates: false }
}

fn authorization(value: &'static str) -> Credentials {
    Credentials::of_authorization(Some(HeaderValue::from_static(value)), false)
}

/// Headers that a client might send to pose as another user.
const FORGED: &str = "authorization: Bearer forged\r\nx-remote-user: admin\r\nx-remote-group: system:masters\r\n\
                      x-remote-extra-scopes: all\r\n";

/// The identity that arrives with a request on its own connection, plain or for an upgrade.
async fn arrives(forward: &Forward, credentials: Credentials, headers: &str) -> [String; 2] {
    let gateway = forwarding(forward.clone(), credentials).await;
    let mut seen = ["connection: close\r\n", "connection: upgrade\r\nupgrade: websocket\r\n"].map(str::to_owned);
    for connection in &mut seen {
        let mut client = connect(&gateway).await;
        write(&mut client, &format!("GET /api HTTP/1.1\r\nhost: g\r\n{connection}{headers}\r\n")).await;
        let head = read_head(&mut client).await;
        let (_, length) = head.split_once("content-length: ").unwrap();
        let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
        client.read_exact(&mut body).await.unwrap();
        *connection = String::from_utf8(body).unwrap();
    }
    seen
}

#[tokio::test]
async fn a_request_arrives_as_its_client_s_over_every_protocol() {
    for protocols in [&[b"h2".as_slice(), b"http/1.1"][..], &[b"http/1.1"]] {
        let mut setup = Setup::new();
        let _server = setup.server(protocols).await;
        // The gateway's own requests use other connections to the same server.
        let own = Connector::new(&setup.own).unwrap().own_requests();
        assert_eq!(own.send(Request::new(RequestBody::Empty)).await.unwrap().status(), 403);

        let proxied = "proxy; x-remote-user=jane; x-remote-group=devs; x-remote-group=system:authenticated";
        let impersonated = "gateway; authorization=Bearer gateway; impersonate-user=jane";
        for (assertion, expected) in [(setup.front_proxy(), proxied), (setup.impersonation(), impersonated)] {
            let forward = setup.delegated(assertion);
            let nothing = Credentials::Passed { authorization: None, impersonates: false };
            assert_eq!(arrives(&forward, nothing, FORGED).await, ["none"; 2]);
            let mine = "none; authorization=Bearer mine";
            assert_eq!(arrives(&forward, authorization("Bearer mine"), FORGED).await, [mine; 2]);
            let basic = "none; authorization=Basic dTpw";
            assert_eq!(arrives(&forward, authorization("Basic dTpw"), FORGED).await, [basic; 2]);
            assert_eq!(arrives(&forward, jane(), FORGED).await, [expected; 2]);
            for refused in arrives(&forward, Credentials::Refused, FORGED).await {
                assert!(refused.starts_with("none; authorization=Bearer ") && refused.len() == 63, "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_as_a_subprotocol_is_the_client_s_own() {
    let mut setup = Setup::new();
    let _server = setup.server(&[b"http/1.1"]).await;
    let token = "sec-websocket-protocol: base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io\r\n";
    let passed = "; sec-websocket-protocol=base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io";
    let forward = setup.delegated(setup.impersonation());
    let shown = Credentials::Subprotocol { impersonates: false };
    assert_eq!(arrives(&forward, shown, token).await[1], format!("none{passed}"));
    let [_, asserted] = arrives(&forward, jane(), token).await;
    assert!(asserted.ends_with("; impersonate-user=jane; sec-websocket-protocol=v5.channel.k8s.io"), "{asserted}");
}

#[tokio::test]
async fn a_user_that_cannot_be_asserted_exactly_is_not_forwarded() {
    let mut setup = Setup::new();
    let _server = setup.server(&[b"h2"]).await;
    let user = |name: &str| {
        let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
        Credentials::Verified { user: Arc::new(user), impersonates: true }
    };
    let (proxied, impersonated) = (setup.delegated(setup.front_proxy()), setup.delegated(setup.impersonation()));
    let impersonate = "impersonate-user: admin\r\n";
    for (forward, credentials, headers, word) in [
        (&proxied, user(" admin"), "", "user"),
        (&proxied, user(""), "", "user"),
        (&impersonated, user("jane"), impersonate, "impersonation"),
        (&impersonated, user("jane"), "connection: impersonate-user\r\n", "identity_header"),
        (&setup.delegated(None), jane(), "", "no_identity"),
        (&proxied, Credentials::Gateway { impersonates: false }, "", "no_identity"),
        (&Forward::trusted(Connector::new(&setup.own).unwrap().as_gateway(), Tasks::new()), jane(), "", "no_identity"),
    ] {
        assert_eq!(arrives(forward, credentials, headers).await, [word; 2]);
    }
    // What upstream can check passes.
    let passed = "proxy; x-remote-user=jane; impersonate-user=admin";
    assert_eq!(arrives(&proxied, user("jane"), impersonate).await, [passed; 2]);
}

/// Answers one request on the first connection, closes the second without an answer, and answers all on the third.
/// Reports the identity each time.
async fn closes_after_one(listener: TcpListener, tls: TlsAcceptor, names: Vec<(Vec<u8>, &'static str)>) -> Vec<String> {
    let mut seen = Vec::new();
    for answers in [1, 2] {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls.accept(stream).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
        for answer in answers..=2 {
            let head = read_head(&mut stream).await;
            let said = head.lines().filter(|line| line.starts_with("authorization") || line.starts_with("x-remote"));
            let mut lines: Vec<_> = said.map(|line| format!("; {line}")).collect();
            lines.sort();
            seen.push(named(&names, shown.as_deref()) + &lines.concat());
            if answer == answers {
                write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    }
    seen
}

#[tokio::test]
async fn a_second_try_is_the_client_s_too() {
    let front_proxy: fn(&Setup) -> Option<Assertion> = Setup::front_proxy;
    let mine = "none; authorization: Basic mine";
    let asserted = "proxy; x-remote-group: devs; x-remote-group: system:authenticated; x-remote-user: jane";
    for (assertion, credentials, expected) in
        [(None, authorization("Basic mine"), mine), (Some(front_proxy), jane(), asserted)]
    {
        let mut setup = Setup::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        setup.own.cluster_url = address.parse().unwrap();
        let tls = TlsAcceptor::from(Arc::new(setup.authority.server()));
        let mut server = JoinSet::new();
        server.spawn(closes_after_one(listener, tls, setup.names.clone()));
        let gateway = forwarding(setup.delegated(assertion.and_then(|assertion| assertion(&setup))), credentials).await;
        for _ in 0..2 {
            let answer = ask(&gateway, "GET /api HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").await;
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        }
        assert_eq!(server.join_next().await.unwrap().unwrap(), [expected; 3]);
    }
}
