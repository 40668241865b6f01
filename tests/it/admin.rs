//! The admin port, as probes and scrapers see it.

use std::{io, path::Path, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use kube_fanout::{
    RunError, Sockets,
    config::{Address, Config, ListenerTls, MetricsAuthorization, Overrides, TlsFiles, TlsPolicy},
    lifecycle::Drained,
    listener, run,
    sim::Sim,
    status::{GatewayStatus, State},
    telemetry,
};
use rcgen::IsCa;
use rustls::{
    ALL_VERSIONS, CipherSuite, ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    join,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::harness::{
    certificates::write_certificate,
    guarded::{GATEWAY_TOKEN, Guarded},
    within,
};

/// A gateway in `trusted` mode whose admin port is tested.
pub(crate) struct Scene {
    upstream: Guarded,
    pub(crate) address: Address,
    _running: JoinSet<Result<Drained, RunError>>,
}

impl Scene {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let upstream = Guarded::start(Sim::new()).await;
        let mut access = kube_client::Config::new(format!("http://{}", upstream.address).parse().unwrap());
        access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
        let any = Some("127.0.0.1:0".to_owned());
        let overrides = Overrides { listen: any.clone(), admin_listen: any, ..Overrides::default() };
        let mut config = Config::defaults(&overrides).unwrap();
        change(&mut config);
        let bound = listener::bind(&config.listeners[0]).await.unwrap();
        let admin = listener::bind(&config.admin.listener()).await.unwrap();
        let address = admin.address().clone();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let sockets =
                Sockets { upstream: None, listeners: vec![bound], admin: Some((admin, telemetry::install().unwrap())) };
            run(&config, &access, sockets, std::future::pending()).await
        });
        Self { upstream, address, _running: running }
    }

    async fn connect(&self) -> TcpStream {
        let Address::Tcp(address) = self.address else { panic!("{}", self.address) };
        TcpStream::connect(("127.0.0.1", address.port())).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        get(self.connect().await, path, token).await
    }
}

async fn get<I>(stream: I, path: &str, token: Option<&str>) -> (StatusCode, String)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    get_as(stream, path, "localhost", token).await
}

async fn get_as<I>(stream: I, path: &str, host: &str, token: Option<&str>) -> (StatusCode, String)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let mut request = Request::get(path).header(header::HOST, host);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let answer = within("an answer", sender.send_request(request)).await.unwrap();
    let status = answer.status();
    let body = within("the whole answer", answer.collect()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn metrics_require_permission_and_health_does_not() {
    let scene = Scene::start(|config| config.admin.metrics_authorization = MetricsAuthorization::Delegated).await;
    scene.upstream.add_user("prometheus-token", "prometheus");
    scene.upstream.add_user("jane-token", "jane");
    scene.upstream.grant("prometheus", "get", "/metrics");

    let status = async |token| scene.get("/metrics", token).await.0;
    assert_eq!(status(None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(Some("nonsense")).await, StatusCode::UNAUTHORIZED);
    let (forbidden, why) = scene.get("/metrics", Some("jane-token")).await;
    assert_eq!((forbidden, why.as_str()), (StatusCode::FORBIDDEN, "user \"jane\" cannot get path \"/metrics\"\n"));
    let (allowed, metrics) = scene.get("/metrics", Some("prometheus-token")).await;
    assert_eq!(allowed, StatusCode::OK);
    assert!(metrics.contains("kube_fanout_build_info"), "{metrics}");
    assert_eq!(scene.get("/livez", None).await, (StatusCode::OK, "ok".to_owned()));
    assert_eq!(scene.get("/readyz", None).await, (StatusCode::OK, "ok".to_owned()));

    scene.upstream.stop_reviews();
    assert_eq!(status(Some("prometheus-token")).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scene.get("/livez", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_address_that_scrapes_endlessly_does_not_block_others() {
    let scene = Scene::start(|config| config.admin.metrics_authorization = MetricsAuthorization::Delegated).await;
    scene.upstream.add_user("prometheus-token", "prometheus");
    scene.upstream.grant("prometheus", "get", "/metrics");
    scene.upstream.hold_reviews(true);
    // For five, reviews are sent to upstream; the others are refused at once.
    let mut scrapes: FuturesUnordered<_> = (0..20).map(|_| scene.get("/metrics", Some("prometheus-token"))).collect();
    for _ in 0..15 {
        assert_eq!(scrapes.next().await.unwrap().0, StatusCode::TOO_MANY_REQUESTS);
    }
    let elsewhere = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let Address::Tcp(address) = scene.address else { panic!("{}", scene.address) };
        get(socket.connect(address).await.unwrap(), "/metrics", Some("prometheus-token")).await.0
    };
    let released = async { scene.upstream.hold_reviews(false) };
    assert_eq!(join!(elsewhere, released).0, StatusCode::OK);
    let statuses: Vec<_> = scrapes.map(|(status, _)| status).collect().await;
    assert_eq!(statuses, [StatusCode::OK; 5]);
}

#[tokio::test]
async fn the_status_names_users_and_has_its_own_permission() {
    let scene = Scene::start(|config| config.admin.metrics_authorization = MetricsAuthorization::Delegated).await;
    scene.upstream.add_user("prometheus-token", "prometheus");
    scene.upstream.add_user("jane-token", "jane");
    scene.upstream.grant("prometheus", "get", "/metrics");
    scene.upstream.grant("jane", "get", "/status.json");
    for path in ["/", "/status.json"] {
        let status = async |token| scene.get(path, token).await.0;
        assert_eq!(status(None).await, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(status(Some("prometheus-token")).await, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(status(Some("jane-token")).await, StatusCode::OK, "{path}");
    }
    let (_, json) = scene.get("/status.json", Some("jane-token")).await;
    let status: GatewayStatus = serde_json::from_str(&json).unwrap();
    assert!(!status.names_withheld && !status.configuration.is_empty());
    assert_eq!((status.gateway.state, status.gateway.mode.as_str()), (State::Ready, "trusted"));
    assert_eq!(status.upstream.server, format!("http://{}", scene.upstream.address));
    assert!(!json.contains(GATEWAY_TOKEN), "{json}");
    // The stylesheet of the status page contains nothing about the cluster and needs no credentials.
    assert_eq!(scene.get("/status.css", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn names_are_shown_only_locally_without_authorization() {
    let status = async |scene: &Scene, host| {
        let (code, json) = get_as(scene.connect().await, "/status.json", host, None).await;
        assert_eq!(code, StatusCode::OK);
        serde_json::from_str::<GatewayStatus>(&json).unwrap()
    };
    let near = Scene::start(|_| {}).await;
    for (host, is_withheld) in [
        ("localhost:9090", false),
        ("127.0.0.1", false),
        ("[::1]:9090", false),
        ("evil.example", true),
        ("a{.evil", true),
    ] {
        let status = status(&near, host).await;
        assert_eq!((status.names_withheld, status.configuration.is_empty()), (is_withheld, is_withheld), "{host}");
    }
    let far = Scene::start(|config| config.admin.address = "0.0.0.0:0".parse().unwrap()).await;
    assert!(status(&far, "localhost").await.names_withheld);
}

#[tokio::test]
async fn the_page_allows_only_its_own_script() {
    let scene = Scene::start(|_| {}).await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(scene.connect().await)).await.unwrap();
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let request = Request::get("/").header(header::HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
    let answer = within("the page", sender.send_request(request)).await.unwrap();
    let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
}

#[tokio::test]
async fn metrics_need_no_permission_by_default() {
    let scene = Scene::start(|_| {}).await;
    assert_eq!(scene.get("/metrics", None).await.0, StatusCode::OK);
    assert_eq!(scene.upstream.reviews(), (0, 0));
}

/// A certificate for `localhost` in that folder, and roots that trust it.
fn certificate(folder: &Path) -> (TlsFiles, RootCertStore) {
    let files = write_certificate(folder, "localhost", IsCa::NoCa);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.cert_file).unwrap()).unwrap();
    (files, roots)
}

/// A session of a client that speaks these versions, in these cipher suites if there are any.
async fn session(
    scene: &Scene,
    roots: &RootCertStore,
    versions: &[&'static SupportedProtocolVersion],
    suites: &[CipherSuite],
) -> io::Result<TlsStream<TcpStream>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suites.is_empty() || suites.contains(&suite.suite()));
    let client = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(client)).connect(name, scene.connect().await).await
}

#[tokio::test]
async fn the_operator_s_port_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (files, roots) = certificate(folder.path());
    let tls = ListenerTls { files, policy: TlsPolicy::default(), client_certificates: false };
    let scene = Scene::start(|config| config.admin.tls = Some(tls)).await;
    let secured = async || session(&scene, &roots, ALL_VERSIONS, &[]).await.unwrap();
    assert_eq!(get(secured().await, "/metrics", None).await.0, StatusCode::OK);
    assert_eq!(get(secured().await, "/livez", None).await, (StatusCode::OK, "ok".to_owned()));
}

#[tokio::test]
async fn metrics_are_read_only_with_the_configured_tls_version_and_cipher_suites() {
    let folder = tempfile::tempdir().unwrap();
    let (files, roots) = certificate(folder.path());
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nadmin: {{address: '127.0.0.1:0', tls: \
         {{certFile: '{}', keyFile: '{}', minVersion: VersionTLS13, cipherSuites: [TLS_AES_256_GCM_SHA384]}}}}\n",
        files.cert_file.display(),
        files.key_file.display()
    );
    let written = Config::parse(&text, &Overrides::default()).unwrap();
    let scene = Scene::start(|config| config.admin.tls = written.admin.tls).await;
    let accepted = session(&scene, &roots, ALL_VERSIONS, &[]).await.unwrap();
    let suite = accepted.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(suite.suite(), CipherSuite::TLS13_AES_256_GCM_SHA384);
    assert_eq!(get(accepted, "/metrics", None).await.0, StatusCode::OK);
    for (versions, suites, alert) in [
        (&[&TLS12][..], &[][..], "ProtocolVersion"),
        (&[&TLS13], &[CipherSuite::TLS13_CHACHA20_POLY1305_SHA256], "HandshakeFailure"),
    ] {
        let refused = session(&scene, &roots, versions, suites).await.unwrap_err();
        assert!(refused.to_string().contains(alert), "{refused}");
    }
}
