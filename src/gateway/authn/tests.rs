//! The order and the outcomes of read-path 8.1.

use std::fs;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::{self, TokenReview, TokenReviewStatus};
use rcgen::DnType;
use tempfile::TempDir;

use super::*;
use crate::connector::test_server::{TestServer, full};
use base::test_certificates::{Issued, authority, client, leaf};

/// Authorities: one for clients, one for front proxies, one trusted for both, and one trusted for neither.
struct World {
    clients: Issued,
    proxies: Issued,
    both: Issued,
    strangers: Issued,
    folder: TempDir,
    server: TestServer,
}

impl World {
    async fn new() -> Self {
        let server = TestServer::start(|request| async {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: TokenReview = serde_json::from_slice(&body).unwrap();
            let user = v1::UserInfo { username: Some("tom".to_owned()), ..v1::UserInfo::default() };
            let authenticated = review.spec.token.as_deref() == Some("good");
            let status =
                TokenReviewStatus { authenticated: Some(authenticated), user: Some(user), ..Default::default() };
            review.status = Some(status);
            let mut answer = Response::new(full(serde_json::to_vec(&review).unwrap()));
            *answer.status_mut() = StatusCode::CREATED;
            answer
        })
        .await;
        let world = Self {
            clients: authority("clients"),
            proxies: authority("proxies"),
            both: authority("both"),
            strangers: authority("strangers"),
            folder: tempfile::tempdir().unwrap(),
            server,
        };
        let write =
            |name, bundle: [&Issued; 2]| fs::write(world.folder.path().join(name), bundle.map(Issued::pem).concat());
        write("clients", [&world.clients, &world.both]).unwrap();
        write("proxies", [&world.proxies, &world.both]).unwrap();
        world
    }

    fn config(&self) -> Config {
        let file = |name| PemFile(self.folder.path().join(name));
        Config {
            client_ca: Some(file("clients")),
            request_header: Some(RequestHeader {
                ca: file("proxies"),
                allowed_names: vec!["front-proxy".to_owned()],
                headers: ProxyHeaders::default(),
            }),
            asserted_upstream: None,
            anonymous: true,
            ..Config::default()
        }
    }

    async fn authenticator(&self, config: Config) -> Authenticator {
        Authenticator::delegated(config, self.server.upstream(), &Tasks::new()).await.unwrap()
    }
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

/// The outcome of a request: the user's name, or else why there is none.
async fn outcome(authenticator: &Authenticator, certificate: Option<&Issued>, headers: &HeaderMap) -> String {
    let mut headers = headers.clone();
    let shown = certificate.map(ClientCertificate::of);
    let credentials = authenticator.credentials(&mut headers, shown.as_ref());
    let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    assert!(!left.iter().any(|name| *name == "authorization" || name.starts_with("x-remote-")), "{left:?}");
    match (&credentials, authenticator.user(&credentials, None).await) {
        (Credentials::Refused, Err(Unauthenticated::NoCredentials)) => "refused".to_owned(),
        (Credentials::Passed { authorization: Some(_), .. }, Err(Unauthenticated::NoCredentials)) => {
            "passed".to_owned()
        }
        (Credentials::Bearer { .. }, Err(Unauthenticated::Rejected)) => "rejected".to_owned(),
        (_, Ok(user)) => user.name.clone(),
        (credentials, Err(error)) => panic!("{credentials:?}: {error:?}"),
    }
}

const NOTHING: [&[(&str, &str)]; 5] = [
    &[],
    &[("authorization", "Bearer ")],
    &[("authorization", "Bearer  good")],
    &[("authorization", "Basic dTpw")],
    &[("authorization", "Other x")],
];
const GOOD: &[(&str, &str)] = &[("authorization", "Bearer good")];
const BAD: &[(&str, &str)] = &[("authorization", "Bearer bad")];
const ASSERTED: &[(&str, &str)] = &[("x-remote-user", "ann"), ("x-remote-group", "devs")];
const ANONYMOUS_GROUP: &[(&str, &str)] = &[("x-remote-group", "system:masters")];

/// A label, the certificate, and the outcomes without and with a user asserted by headers; each alone, with a valid
/// token and with an invalid one.
type Row<'a> = (&'static str, Option<&'a Issued>, [&'static str; 3], [&'static str; 3]);

#[tokio::test]
async fn every_combination_of_credentials_has_its_outcome() {
    let world = World::new().await;
    let authenticator = world.authenticator(world.config()).await;
    let jane = client(&world.clients, "jane", "devs");
    let nameless = leaf(&world.clients, |_| {});
    let stranger = client(&world.strangers, "jane", "system:masters");
    let expired = leaf(&world.clients, |params| {
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    let proxy = client(&world.proxies, "front-proxy", "proxies");
    let other_proxy = client(&world.proxies, "other", "proxies");
    let known_proxy = client(&world.both, "front-proxy", "proxies");
    let known_other = client(&world.both, "other", "proxies");
    let without = ["system:anonymous", "tom", "rejected"];
    #[rustfmt::skip]
    let rows: [Row<'_>; 9] = [
        ("none",        None,               without,                             without),
        ("client",      Some(&jane),        ["jane"; 3],                         ["jane"; 3]),
        // Not an error of the client authenticator, but one of the front proxy authenticator.
        ("nameless",    Some(&nameless),    ["refused", "tom", "rejected"],      ["refused", "tom", "rejected"]),
        ("stranger",    Some(&stranger),    ["refused", "tom", "rejected"],      ["refused", "tom", "rejected"]),
        ("expired",     Some(&expired),     ["refused", "tom", "rejected"],      ["refused", "tom", "rejected"]),
        ("proxy",       Some(&proxy),       ["refused", "tom", "rejected"],      ["ann"; 3]),
        ("other proxy", Some(&other_proxy), ["refused", "tom", "rejected"],      ["refused", "tom", "rejected"]),
        ("known proxy", Some(&known_proxy), ["front-proxy"; 3],                  ["ann"; 3]),
        ("known other", Some(&known_other), ["other"; 3],                        ["other"; 3]),
    ];
    for (name, certificate, plain, asserting) in rows {
        for (asserted, [alone, good, bad]) in [(&[][..], plain), (ASSERTED, asserting), (ANONYMOUS_GROUP, plain)] {
            let check = async |authorization: &[(&'static str, &'static str)], expected: &str| {
                let headers = headers(&[asserted, authorization].concat());
                assert_eq!(outcome(&authenticator, certificate, &headers).await, expected, "{name}: {headers:?}");
            };
            for nothing in NOTHING {
                // What the header may mean beside a token is upstream's to say.
                let is_passed = alone == "system:anonymous" && !nothing.is_empty();
                check(nothing, if is_passed { "passed" } else { alone }).await;
            }
            check(GOOD, good).await;
            check(BAD, bad).await;
            check(&[GOOD, BAD].concat(), good).await;
            check(&[BAD, GOOD].concat(), bad).await;
        }
    }
}

#[tokio::test]
async fn credentials_of_methods_not_configured_are_ignored() {
    let world = World::new().await;
    let known_proxy = client(&world.both, "front-proxy", "proxies");
    let nameless = leaf(&world.clients, |_| {});
    let asserted = headers(ASSERTED);
    let none = world.authenticator(Config { anonymous: true, ..Config::default() }).await;
    assert_eq!(outcome(&none, Some(&known_proxy), &asserted).await, "system:anonymous");
    let clients = world.authenticator(Config { request_header: None, ..world.config() }).await;
    assert_eq!(outcome(&clients, Some(&known_proxy), &asserted).await, "front-proxy");
    assert_eq!(outcome(&clients, Some(&nameless), &asserted).await, "system:anonymous");
    let proxies = world.authenticator(Config { client_ca: None, ..world.config() }).await;
    assert_eq!(outcome(&proxies, Some(&known_proxy), &asserted).await, "ann");
    assert_eq!(outcome(&proxies, Some(&known_proxy), &HeaderMap::new()).await, "system:anonymous");
    assert_eq!(outcome(&proxies, Some(&nameless), &asserted).await, "refused");
    let mut config = world.config();
    config.request_header.as_mut().unwrap().allowed_names.clear();
    let any_name = world.authenticator(config).await;
    assert_eq!(outcome(&any_name, Some(&client(&world.proxies, "other", "x")), &asserted).await, "ann");
}

#[tokio::test]
async fn requests_are_not_anonymous_unless_configured() {
    let world = World::new().await;
    let authenticator = world.authenticator(Config { anonymous: false, ..world.config() }).await;
    for lines in NOTHING {
        let credentials = authenticator.credentials(&mut headers(lines), None);
        let came = lines.first().map(|(_, value)| *value);
        let Credentials::Passed { authorization, .. } = &credentials else { panic!("{credentials:?}") };
        assert_eq!(authorization.as_ref().map(|value| value.to_str().unwrap()), came);
        assert_eq!(authenticator.user(&credentials, None).await, Err(Unauthenticated::NoCredentials));
    }
}

/// The user's groups, joined by commas.
async fn groups(
    authenticator: &Authenticator,
    certificate: Option<&Issued>,
    lines: &[(&'static str, &'static str)],
) -> String {
    let shown = certificate.map(ClientCertificate::of);
    let credentials = authenticator.credentials(&mut headers(lines), shown.as_ref());
    authenticator.user(&credentials, None).await.unwrap().groups.join(",")
}

#[tokio::test]
async fn authenticated_users_are_in_the_common_group() {
    let world = World::new().await;
    let authenticator = world.authenticator(world.config()).await;
    let jane = client(&world.clients, "jane", "devs");
    let settled = client(&world.clients, "jane", "system:authenticated");
    let proxy = client(&world.proxies, "front-proxy", "proxies");
    assert_eq!(groups(&authenticator, Some(&jane), &[]).await, "devs,system:authenticated");
    assert_eq!(groups(&authenticator, Some(&settled), &[]).await, "system:authenticated");
    assert_eq!(groups(&authenticator, None, GOOD).await, "system:authenticated");
    assert_eq!(groups(&authenticator, None, &[]).await, "system:unauthenticated");
    for (lines, expected) in [
        (&[("x-remote-user", "ann")][..], "system:authenticated"),
        (ASSERTED, "devs,system:authenticated"),
        (&[("x-remote-user", "ann"), ("x-remote-group", "system:authenticated")], "system:authenticated"),
        (&[("x-remote-user", "ann"), ("x-remote-group", "system:unauthenticated")], "system:unauthenticated"),
        (&[("x-remote-user", "system:anonymous")], ""),
        (&[("x-remote-user", "system:anonymous"), ("x-remote-group", "devs")], "devs"),
    ] {
        assert_eq!(groups(&authenticator, Some(&proxy), lines).await, expected, "{lines:?}");
    }
}

#[tokio::test]
async fn assertions_that_are_not_utf8_are_refused() {
    let world = World::new().await;
    let authenticator = world.authenticator(world.config()).await;
    let proxy = client(&world.both, "front-proxy", "proxies");
    for lines in [GOOD, &[]] {
        let mut headers = headers(lines);
        headers.insert("x-remote-user", HeaderValue::from_bytes(b"j\xff").unwrap());
        assert_eq!(outcome(&authenticator, Some(&proxy), &headers).await, "refused");
        assert_ne!(outcome(&authenticator, None, &headers).await, "refused");
    }
}

/// The API server verifies them as it does any other.
#[tokio::test]
async fn tokens_in_subprotocols_of_websockets_count_as_unknown_credentials() {
    const TOKEN: (&str, &str) = ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.Z29vZA, x");
    let world = World::new().await;
    let authenticator = world.authenticator(world.config()).await;
    let peer = Some(([192, 0, 2, 7], 1024).into());
    let connection = Connection {
        number: 0,
        peer,
        tls: true,
        client_certificate: None,
        draining: tokio_util::sync::CancellationToken::new(),
    };
    let address = Some([192, 0, 2, 7].into());
    let of = |lines| authenticator.credentials(&mut headers(lines), None);
    let (shown, plain) = (of(&[TOKEN, ("upgrade", "websocket")]), of(&[TOKEN]));
    let requester = authenticator.requester(&shown, &connection);
    assert_eq!(requester.client, Some(unknown_tokens(address)));
    assert_eq!(authenticator.known(&shown, Instant::now()), Some(Err(Unauthenticated::NoCredentials)));
    let anonymous = authenticator.requester(&plain, &connection);
    assert!(anonymous.unverified.is_none() && anonymous.client == Some(ClientKey::address(address)), "no WebSocket");
    for (credentials, are_many) in [(&plain, false), (&shown, true)] {
        for _ in 0..100 {
            authenticator.learn(credentials, address, StatusCode::UNAUTHORIZED);
        }
        assert_eq!(requester.unverified.as_ref().unwrap().are_many(), are_many);
    }
    // What else the request proves its user by counts first, as for the API server.
    let jane = ClientCertificate::of(&client(&world.clients, "jane", "devs"));
    let verified = authenticator.credentials(&mut headers(&[TOKEN, ("upgrade", "websocket")]), Some(&jane));
    assert!(matches!(verified, Credentials::Verified { .. }), "{verified:?}");
}

#[tokio::test]
async fn impersonating_requests_have_no_user_here() {
    let world = World::new().await;
    let delegated = world.authenticator(world.config()).await;
    let jane = client(&world.clients, "jane", "devs");
    let stranger = client(&world.strangers, "jane", "devs");
    for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-x"] {
        for authenticator in [&delegated, &Authenticator::trusted()] {
            for certificate in [None, Some(&jane)] {
                for lines in NOTHING.into_iter().chain([GOOD, BAD]) {
                    let mut headers = headers(lines);
                    headers.insert(HeaderName::from_static(name), HeaderValue::from_static(""));
                    let credentials =
                        authenticator.credentials(&mut headers, certificate.map(ClientCertificate::of).as_ref());
                    assert!(credentials.impersonates());
                    assert_eq!(authenticator.user(&credentials, None).await, Err(Unauthenticated::Impersonates));
                    assert!(headers.contains_key(name));
                }
            }
        }
        let credentials = delegated.credentials(&mut headers(&[(name, "x")]), Some(&ClientCertificate::of(&stranger)));
        assert!(matches!(credentials, Credentials::Refused));
        assert!(delegated.user(&credentials, None).await.is_err());
    }
}

#[tokio::test]
async fn the_gateways_own_credentials_have_no_user() {
    let world = World::new().await;
    let trusted = Authenticator::trusted();
    let jane = ClientCertificate::of(&client(&world.clients, "jane", "devs"));
    let mut headers = headers(&[GOOD, ASSERTED, &[("accept", "x")]].concat());
    let credentials = trusted.credentials(&mut headers, Some(&jane));
    assert!(matches!(credentials, Credentials::Gateway { impersonates: false }), "{credentials:?}");
    assert_eq!(headers.keys().collect::<Vec<_>>(), [&header::ACCEPT]);
    assert_eq!(trusted.user(&credentials, None).await, Err(Unauthenticated::NoCredentials));
}

#[tokio::test]
async fn a_gateway_without_its_authorities_does_not_start() {
    let world = World::new().await;
    for name in ["clients", "proxies"] {
        fs::remove_file(world.folder.path().join(name)).unwrap();
        let started = Authenticator::delegated(world.config(), world.server.upstream(), &Tasks::new()).await;
        assert!(matches!(started.unwrap_err(), AuthoritiesError::Read(_)));
    }
}
