//! What arrives at upstream under each identity: certificates and headers.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt, future};
use http::{HeaderValue, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use super::super::connection_closer::ConnectionCloser;
use super::*;
use crate::connector::{
    Connector,
    pool::{LANE_REQUESTS_MAX, NoPlace},
    socket::tcp,
    test_authority::Authority,
    test_server::{Shown, TestBody, TestServer, full},
};
use base::{
    apimachinery::UserInfo,
    config::{ProxyHeaders, TlsFiles},
    lifecycle::Tasks,
};

/// Names of certificates, by their DER bytes.
type Known = Vec<(Vec<u8>, &'static str)>;

/// A server that answers with the name of the certificate shown and with all headers that carry an identity.
async fn server(authority: &Authority, protocols: &[&[u8]], known: Known) -> TestServer {
    TestServer::start_tls_with(authority, protocols, move |request| {
        let answer = describe(&request, &known);
        async move { answer }
    })
    .await
}

fn describe(request: &Request<Incoming>, known: &Known) -> Response<TestBody> {
    let Shown(certificate) = request.extensions().get().unwrap();
    let name = |shown: &Vec<u8>| known.iter().find(|(known, _)| known == shown).map_or("unknown", |(_, name)| name);
    let mut lines = vec![format!("certificate: {}", certificate.as_ref().map_or("none", name))];
    for (name, value) in request.headers() {
        if !["accept", "host", "via"].contains(&name.as_str()) {
            lines.push(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
    }
    Response::builder().header("seen-version", format!("{:?}", request.version())).body(full(lines.join("\n"))).unwrap()
}

/// A request with every header that a client could use to pose as another user.
fn forged() -> Request<RequestBody> {
    let mut request = Request::builder().uri("/api");
    for (name, value) in [
        ("authorization", "Bearer forged"),
        ("x-remote-user", "admin"),
        ("x-remote-uid", "0"),
        ("x-remote-group", "system:masters"),
        ("X-Remote-Extra-Scopes%2fall", "yes"),
        ("x-remote-anything", "x"),
    ] {
        request = request.header(name, value);
    }
    request.body(RequestBody::Empty).unwrap()
}

fn plain() -> Request<RequestBody> {
    Request::builder().uri("/api").body(RequestBody::Empty).unwrap()
}

fn jane() -> UserInfo {
    UserInfo {
        name: "jane/ö".to_owned(),
        uid: "u-1".to_owned(),
        groups: ["devs", "system:authenticated"].map(str::to_owned).to_vec(),
        extra: BTreeMap::from([
            ("authentication.kubernetes.io/credential-id".to_owned(), vec!["X509SHA256=1".to_owned()]),
            ("scopes/Ö".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
        ]),
    }
}

async fn seen(answer: Result<Response<ResponseBody>, SendError>) -> Vec<String> {
    let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap().lines().map(str::to_owned).collect()
}

/// The configuration of a gateway with every kind of credentials, its certificate in files.
fn gateway(server: &TestServer, files: &TlsFiles) -> Config {
    let mut config = server.config.clone();
    config.auth_info.client_certificate = Some(files.cert_file.display().to_string());
    config.auth_info.client_key = Some(files.key_file.display().to_string());
    config.auth_info.token = Some("gateway".to_owned().into());
    config
}

struct Setup {
    server: TestServer,
    gateway: Config,
    front_proxy: TlsFiles,
    _folders: [tempfile::TempDir; 2],
}

async fn setup(protocols: &[&[u8]]) -> Setup {
    let authority = Authority::new();
    let (gateway_certificate, proxy_certificate) = (authority.client("gateway"), authority.client("proxy"));
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let known = vec![(gateway_certificate.der().to_vec(), "gateway"), (proxy_certificate.der().to_vec(), "proxy")];
    let server = server(&authority, protocols, known).await;
    let gateway = gateway(&server, &gateway_certificate.write(folders[0].path()));
    let front_proxy = proxy_certificate.write(folders[1].path());
    Setup { server, gateway, front_proxy, _folders: folders }
}

#[tokio::test]
async fn each_identity_arrives_as_itself_over_every_protocol() {
    for protocols in [&[b"h2".as_slice(), b"http/1.1"][..], &[b"http/1.1"]] {
        let Setup { gateway, front_proxy, .. } = &setup(protocols).await;
        let connector = Connector::new(gateway).unwrap();
        let (as_gateway, as_client) = (connector.as_gateway(), Connector::new(gateway).unwrap().as_client().unwrap());
        let as_front_proxy = as_front_proxy(gateway, front_proxy).unwrap();
        let as_impersonator = connector.as_impersonator().unwrap();

        let own = ["certificate: gateway", "authorization: Bearer gateway"];
        let token = || HeaderValue::from_static("Bearer mine");
        for upgrade in [false, true] {
            let ask = async |outbound: Outbound| {
                seen(if upgrade { outbound.send_http1().await } else { outbound.send().await }).await
            };
            assert_eq!(ask(as_gateway.outbound(forged()).unwrap()).await, own);
            let mine = ["certificate: none", "authorization: Bearer mine"];
            assert_eq!(ask(as_client.outbound(forged(), token(), ClientKey::of(&"mine"))).await, mine);
            assert_eq!(ask(as_client.unidentified(forged(), None)).await, ["certificate: none"]);
            let asserted = ask(as_front_proxy.outbound(forged(), &jane()).unwrap()).await;
            assert_eq!(asserted, ASSERTED, "{protocols:?}");
            let impersonated = ask(as_impersonator.outbound(forged(), &jane()).unwrap()).await;
            assert_eq!(impersonated, IMPERSONATED, "{protocols:?}");
        }
    }
}

const ASSERTED: [&str; 8] = [
    "certificate: proxy",
    "x-remote-user: jane/ö",
    "x-remote-uid: u-1",
    "x-remote-group: devs",
    "x-remote-group: system:authenticated",
    "x-remote-extra-authentication.kubernetes.io%2fcredential-id: X509SHA256=1",
    "x-remote-extra-scopes%2f%c3%96: a",
    "x-remote-extra-scopes%2f%c3%96: b",
];
const IMPERSONATED: [&str; 7] = [
    "certificate: gateway",
    "impersonate-user: jane/ö",
    "impersonate-uid: u-1",
    "impersonate-group: devs",
    "impersonate-extra-scopes%2f%c3%96: a",
    "impersonate-extra-scopes%2f%c3%96: b",
    "authorization: Bearer gateway",
];

#[tokio::test]
async fn a_front_proxy_uses_the_configured_header_names() {
    let Setup { gateway, front_proxy, .. } = &setup(&[b"http/1.1"]).await;
    let name = |name| vec![http::HeaderName::from_static(name)];
    let headers = ProxyHeaders {
        user: name("x-who"),
        uid: name("x-which"),
        group: name("x-team"),
        extra_prefixes: vec!["x-more-".to_owned()],
    };
    let proxy =
        Connector::new(gateway).unwrap().as_front_proxy(front_proxy, headers, &Tasks::new()).unwrap().accepted();
    let mut request = forged();
    for name in ["x-who", "x-which", "x-team", "x-more-scopes"] {
        request.headers_mut().insert(name, HeaderValue::from_static("forged"));
    }
    let expected = ASSERTED.map(|line| {
        let line = line.replace("x-remote-user", "x-who").replace("x-remote-uid", "x-which");
        line.replace("x-remote-group", "x-team").replace("x-remote-extra-", "x-more-")
    });
    assert_eq!(seen(proxy.outbound(request, &jane()).unwrap().send().await).await, expected);
}

#[tokio::test]
async fn upgrades_are_asked_for_over_http1() {
    let Setup { gateway, .. } = &setup(&[b"h2", b"http/1.1"]).await;
    let as_client = Connector::new(gateway).unwrap().as_client().unwrap();
    let version =
        async |answer: Result<Response<ResponseBody>, SendError>| answer.unwrap().headers()["seen-version"].clone();
    let mine = || as_client.outbound(plain(), HeaderValue::from_static("Bearer mine"), ClientKey::of(&"mine"));
    let (first, second) = (format!("{:?}", Version::HTTP_11), format!("{:?}", Version::HTTP_2));
    // Long-running requests share a connection once their token was accepted.
    assert_eq!(version(mine().long_running(true).send().await).await, first);
    assert_eq!(version(mine().long_running(true).send().await).await, second);
    assert_eq!(version(mine().send().await).await, first);
    assert_eq!(version(mine().send_http1().await).await, first);
    // Requests without an accepted token use HTTP/1.1 too: upstream would end the connection that others use.
    assert_eq!(version(as_client.unidentified(plain(), None).send().await).await, first);
    assert_eq!(version(as_client.refused(plain()).send().await).await, first);
    assert_eq!(version(as_client.unidentified(plain(), None).send_http1().await).await, first);
}

/// An invented token costs upstream a TLS handshake and a look at the token.
#[tokio::test]
async fn few_requests_with_unknown_tokens_of_one_client_are_under_way_at_once() {
    let came = Arc::new(Semaphore::new(0));
    let answers = Arc::new(Semaphore::new(0));
    let shared = (came.clone(), answers.clone());
    let server = TestServer::start(move |request: Request<Incoming>| {
        let (came, answers) = shared.clone();
        async move {
            if request.headers()["authorization"] != "Bearer known" {
                came.add_permits(1);
                answers.acquire().await.unwrap().forget();
            }
            Response::new(full(""))
        }
    })
    .await;
    let mut as_client = Connector::new(&server.config).unwrap().as_client().unwrap();
    // Waits longer than this test takes on a busy machine.
    as_client.turns = Arc::new(ConcurrencyLimit::new(8, Duration::from_secs(3600), "test"));
    let send = |token: &str, client: &str| {
        let authorization = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
        let outbound = as_client.outbound(plain(), authorization, ClientKey::of(&token));
        let outbound = outbound.counted(Some(ClientKey::of(&client)));
        async move {
            let _turn = outbound.turn().await;
            outbound.send().await
        }
    };
    send("known", "hostile").await.unwrap();
    let of_hostile = future::join_all((0..20).map(|number| send(&number.to_string(), "hostile")));
    let others = async {
        came.acquire_many(8).await.unwrap().forget();
        send("known", "hostile").await.unwrap();
        assert_eq!(came.available_permits(), 0, "the others wait, also while the server answers");
        // Another client has turns of its own.
        let (other, ()) = tokio::join!(send("new", "jane"), async {
            came.acquire().await.unwrap().forget();
            answers.add_permits(21);
        });
        other.unwrap();
    };
    let (all, ()) = tokio::join!(of_hostile, others);
    assert!(all.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_token_in_a_subprotocol_waits_for_a_turn_like_other_unknown_ones() {
    let Setup { gateway, .. } = &setup(&[b"http/1.1"]).await;
    let mut as_client = Connector::new(gateway).unwrap().as_client().unwrap();
    as_client.turns = Arc::new(ConcurrencyLimit::new(1, Duration::from_secs(3600), "test"));
    let counted = |outbound: Outbound| outbound.counted(Some(ClientKey::of(&"hostile")));
    let [first, second] = [plain(), plain()].map(|request| counted(as_client.with_subprotocol(request)));
    let _turn = first.turn().await;
    assert!(second.turn().now_or_never().is_none());
    assert!(counted(as_client.unidentified(plain(), None)).turn().now_or_never().is_some(), "nothing to verify");
}

#[tokio::test]
async fn a_refused_request_carries_another_random_token_each_time() {
    let Setup { gateway, .. } = &setup(&[b"h2", b"http/1.1"]).await;
    let as_client = Connector::new(gateway).unwrap().as_client().unwrap();
    let first = seen(as_client.refused(forged()).send().await).await;
    let second = seen(as_client.refused(forged()).send().await).await;
    assert_eq!((first.len(), first[0].as_str()), (2, "certificate: none"));
    assert!(first[1].starts_with("authorization: Bearer ") && first[1].len() == 58, "{first:?}");
    assert_ne!(first, second);
}

#[tokio::test]
async fn no_plugin_runs_and_nothing_of_the_kubeconfig_is_sent_for_a_client() {
    let Setup { server, front_proxy, .. } = &setup(&[b"h2", b"http/1.1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let mut config = server.config.clone();
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
        "args": ["-c", format!("touch {}", ran.display())],
    });
    config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    config.auth_info.impersonate = Some("somebody".to_owned());
    config.auth_info.username = Some("basic".to_owned());
    config.auth_info.password = Some("secret".to_owned().into());
    config.headers = vec![("x-tenant".parse().unwrap(), HeaderValue::from_static("t"))];
    let as_client = Connector::new(&config).unwrap().as_client().unwrap();
    assert_eq!(seen(as_client.unidentified(plain(), None).send().await).await, ["certificate: none"]);
    let as_front_proxy = as_front_proxy(&config, front_proxy).unwrap();
    assert_eq!(seen(as_front_proxy.outbound(plain(), &jane()).unwrap().send().await).await, ASSERTED);
    assert!(!ran.exists());
}

#[tokio::test]
async fn a_request_is_impersonated_once() {
    let Setup { gateway, front_proxy, .. } = &setup(&[b"h2"]).await;
    let impersonating = || {
        let request = Request::builder().uri("/").header("impersonate-extra-x", "y");
        request.body(RequestBody::Empty).unwrap()
    };
    let as_impersonator = Connector::new(gateway).unwrap().as_impersonator().unwrap();
    let refused = as_impersonator.outbound(impersonating(), &jane()).unwrap_err();
    assert_eq!(refused, IdentityError::Impersonation);
    let as_front_proxy = as_front_proxy(gateway, front_proxy).unwrap();
    let passed = seen(as_front_proxy.outbound(impersonating(), &jane()).unwrap().send().await).await;
    assert!(passed.contains(&"impersonate-extra-x: y".to_owned()), "{passed:?}");

    let mut impersonating_gateway = gateway.clone();
    impersonating_gateway.auth_info.impersonate = Some("somebody".to_owned());
    let connector = Connector::new(&impersonating_gateway).unwrap();
    assert!(matches!(connector.as_impersonator(), Err(BuildError::Impersonates)));
    assert_eq!(connector.as_gateway().outbound(impersonating()).unwrap_err(), IdentityError::Impersonation);
}

#[tokio::test]
async fn credentials_are_not_sent_in_clear_text() {
    let at = |address: &str| Config::new(address.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let files = Authority::new().client("proxy").write(folder.path());
    for local in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://elsewhere"] {
        assert!(Connector::new(&at(local)).unwrap().as_client().is_ok(), "{local}");
    }
    assert!(matches!(Connector::new(&at("http://elsewhere")).unwrap().as_client(), Err(BuildError::ClearText(_))));
    let plain = as_front_proxy(&at("http://127.0.0.1:1"), &files);
    assert!(matches!(plain, Err(BuildError::ClearText(_))));
    let connector = || Connector::new(&at("http://elsewhere")).unwrap();
    assert!(matches!(connector().as_impersonator(), Err(BuildError::ClearText(_))));
    assert!(matches!(connector().refuse_exposed(), Err(BuildError::ClearText(_))));
}

#[tokio::test]
async fn credentials_are_not_sent_to_an_unverified_server() {
    let folder = tempfile::tempdir().unwrap();
    let files = Authority::new().client("proxy").write(folder.path());
    for address in ["https://elsewhere", "https://127.0.0.1:1"] {
        let mut config = Config::new(address.parse().unwrap());
        let connector = |config: &Config| Connector::new(config).unwrap();
        assert!(as_front_proxy(&config, &files).is_ok());
        assert!(connector(&config).as_impersonator().is_ok() && connector(&config).refuse_exposed().is_ok());
        config.accept_invalid_certs = true;
        assert!(matches!(Connector::new(&config).unwrap().as_client(), Err(BuildError::Unverified(_))), "{address}");
        let as_front_proxy = as_front_proxy(&config, &files);
        assert!(matches!(as_front_proxy, Err(BuildError::Unverified(_))), "{address}");
        assert!(matches!(connector(&config).as_impersonator(), Err(BuildError::Unverified(_))), "{address}");
        assert!(matches!(connector(&config).refuse_exposed(), Err(BuildError::Unverified(_))), "{address}");
    }
    // Where clients are trusted, this is the operator's own risk, as it is with kubectl.
    let mut config = Config::new("https://elsewhere".parse().unwrap());
    config.accept_invalid_certs = true;
    Connector::new(&config).unwrap().as_gateway();
}

#[tokio::test]
async fn requests_beyond_an_identity_s_limit_are_refused_until_an_answer_is_dropped() {
    let Setup { gateway, .. } = &setup(&[b"h2", b"http/1.1"]).await;
    let access =
        Access::new(gateway.clone(), tcp(), None, ConnectionCloser::default()).unwrap().without_credentials().unwrap();
    let limits = Limits { requests: "upstream_client_requests", upgrades: "upstream_client_upgrades" };
    let connections = Connections::new(&access, Target::of(gateway).unwrap(), limits);
    let most = UPGRADE_LANES * LANE_REQUESTS_MAX as usize;
    let slots: Vec<_> = std::iter::from_fn(|| connections.upgrades.admit(None).ok()).take(most + 1).collect();
    assert_eq!(slots.len(), most);
    let error = connections.outbound(plain()).send_http1().await.unwrap_err();
    assert!(matches!(error, SendError::Saturated), "{error:?}");
    assert!(connections.outbound(plain()).send().await.is_ok());
    drop(slots);
    assert!(connections.outbound(plain()).send_http1().await.is_ok());
}

#[tokio::test]
async fn one_client_gets_a_share_of_the_upgrades() {
    let Setup { gateway, .. } = &setup(&[b"h2", b"http/1.1"]).await;
    let access =
        Access::new(gateway.clone(), tcp(), None, ConnectionCloser::default()).unwrap().without_credentials().unwrap();
    let limits = Limits { requests: "upstream_client_requests", upgrades: "upstream_client_upgrades" };
    let connections = Connections::new(&access, Target::of(gateway).unwrap(), limits);
    let [first, second] = ["jane", "john"].map(|name| Some(ClientKey::user(name)));
    let share = UPGRADE_LANES * LANE_REQUESTS_MAX as usize / 4;
    let mut held: Vec<_> = std::iter::from_fn(|| connections.upgrades.admit(first).ok()).take(share + 1).collect();
    assert_eq!(held.len(), share);
    assert!(matches!(connections.upgrades.admit(first), Err(NoPlace::ClientShare)));
    let error = connections.outbound(plain()).counted(first).send_http1().await.unwrap_err();
    assert!(matches!(error, SendError::ClientShare), "{error:?}");
    assert!(connections.upgrades.admit(second).is_ok());
    held.pop();
    assert!(connections.upgrades.admit(first).is_ok());
}

fn as_front_proxy(config: &Config, certificate: &TlsFiles) -> Result<AsFrontProxy, BuildError> {
    Connector::new(config)
        .unwrap()
        .as_front_proxy(certificate, ProxyHeaders::default(), &Tasks::new())
        .map(AsFrontProxy::accepted)
}

/// Sends requests until the certificate of that client arrives. With paused time, a connection may time out: that is
/// retried too.
async fn until_shown(certificate: &[u8], outbound: impl Fn() -> Outbound) {
    loop {
        if let Ok(answer) = outbound().send().await
            && answer.into_body().collect().await.unwrap().to_bytes() == certificate
        {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_show_the_certificate_that_is_in_the_files() {
    let authority = Authority::new();
    let server = TestServer::start_tls_with(&authority, &[b"http/1.1"], |request| {
        let Shown(certificate) = request.extensions().get().unwrap();
        let answer = Response::new(full(certificate.clone().unwrap()));
        async move { answer }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let config = gateway(&server, &authority.client("first").write(folder.path()));
    let tasks = Tasks::new();
    let connector = Connector::new(&config).unwrap();
    connector.follow_files(&tasks);
    let (as_gateway, as_impersonator) = (connector.as_gateway(), connector.as_impersonator().unwrap());
    for _ in 0..3 {
        let next = authority.client("next");
        next.write(folder.path());
        let next = next.der();
        until_shown(&next, || as_gateway.outbound(plain()).unwrap()).await;
        until_shown(&next, || as_impersonator.outbound(plain(), &jane()).unwrap()).await;
    }
}
