//! Tests when a certificate of the front proxy is taken for accepted, and when it is replaced.

use std::{collections::HashMap, path::Path, sync::Mutex};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::sync::Barrier;

use super::*;
use crate::connector::{
    Connector, Finding, IdentityError, RequestBody, SendError,
    test_authority::Authority,
    test_server::{Shown, TestBody, TestServer, full},
};
use base::{
    apimachinery::UserInfo,
    config::{ProxyHeaders, ServerAddress},
    telemetry::{ThreadLog, recorder},
    test_certificates::Issued,
};

const PROBES: &str = "/apis/authentication.k8s.io/";

/// What a server sees in a certificate.
#[derive(Clone, Copy)]
enum Sees {
    /// A front proxy.
    Proxy,
    /// A user, as a server does whose client CA has issued it.
    Admin,
    /// It cannot say.
    Error,
}

#[derive(Clone, Default)]
struct World(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// What the server sees in each certificate.
    sees: HashMap<Vec<u8>, Sees>,
    /// Those of the clients' requests that came.
    came: Vec<Vec<u8>>,
    probes: usize,
}

impl World {
    fn sees(&self, certificate: &Issued, sees: Sees) {
        self.0.lock().unwrap().sees.insert(certificate.der().to_vec(), sees);
    }

    /// The certificates of the clients' requests since the last time.
    fn came(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap().came)
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<TestBody> {
        let Shown(certificate) = request.extensions().get().unwrap();
        let certificate = certificate.clone().unwrap();
        let mut world = self.0.lock().unwrap();
        if !request.uri().path().starts_with(PROBES) {
            world.came.push(certificate);
            let first = stream::once(async { Ok(Frame::data(Bytes::from_static(b"first"))) });
            return match request.uri().path() {
                "/kept" => Response::new(full("")),
                "/watch" => Response::new(StreamBody::new(first.chain(stream::pending())).boxed_unsync()),
                _ => Response::builder().header("connection", "close").body(full("")).unwrap(),
            };
        }
        world.probes += 1;
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let (user, group) = match world.sees[&certificate] {
            Sees::Proxy => (header("x-remote-user"), header("x-remote-group")),
            Sees::Admin => ("admin".to_owned(), "system:masters".to_owned()),
            Sees::Error => {
                let answer = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
                return answer.body(full("")).unwrap();
            }
        };
        let review = serde_json::json!({"status": {"userInfo": {"username": user, "groups": [group]}}});
        Response::builder().status(StatusCode::CREATED).body(full(review.to_string())).unwrap()
    }
}

/// A front proxy with a certificate in a folder, and its server.
struct Scene {
    world: World,
    authority: Authority,
    connector: Connector,
    proxy: AsFrontProxy,
    progress: Progress,
    folder: tempfile::TempDir,
    first: Issued,
    _server: TestServer,
}

impl Scene {
    async fn begin(protocols: &[&[u8]], sees: Sees) -> Self {
        let (world, authority, folder) = (World::default(), Authority::new(), tempfile::tempdir().unwrap());
        let answers = world.clone();
        let server = TestServer::start_tls_with(&authority, protocols, move |request: Request<Incoming>| {
            let answer = answers.answer(&request);
            async move { answer }
        })
        .await;
        let first = authority.client("first");
        world.sees(&first, sees);
        let (files, headers) = (first.write(folder.path()), ProxyHeaders::default());
        let connector = Connector::new(&server.config).unwrap();
        let proxy = connector.as_front_proxy(&files, headers, &Tasks::new()).unwrap();
        let progress = proxy.begin().await.unwrap();
        Self { world, authority, connector, proxy, progress, folder, first, _server: server }
    }

    /// Puts another certificate into the files.
    async fn renew(&self, sees: Sees) -> Issued {
        let next = self.authority.client("next");
        self.world.sees(&next, sees);
        next.write(Path::new(self.folder.path()));
        self.proxy.probes.files.reload_once().await;
        next
    }

    async fn look_after(&mut self, time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
        self.proxy.look(&mut self.progress).await;
    }

    async fn send(&self) -> Result<(), IdentityError> {
        self.proxy.outbound(get("/api"), &jane())?.send().await.unwrap();
        Ok(())
    }
}

fn get(path: &str) -> Request<RequestBody> {
    Request::builder().uri(path).body(RequestBody::Empty).unwrap()
}

fn jane() -> UserInfo {
    UserInfo { name: "jane".to_owned(), ..UserInfo::default() }
}

#[tokio::test]
async fn another_certificate_is_used_once_a_server_accepts_it() {
    let mut scene = Scene::begin(&[b"http/1.1"], Sees::Proxy).await;
    scene.send().await.unwrap();
    for sees in [Sees::Admin, Sees::Error] {
        scene.renew(sees).await;
        scene.send().await.unwrap();
        for _ in 0..2 {
            scene.look_after(REFUSED).await;
            scene.send().await.unwrap();
        }
    }
    assert!(scene.world.came().iter().all(|shown| *shown == scene.first.der().to_vec()));
    let next = scene.renew(Sees::Proxy).await;
    scene.look_after(TICK).await;
    scene.send().await.unwrap();
    assert_eq!(scene.world.came(), [next.der().to_vec()]);
}

#[tokio::test]
async fn another_certificate_takes_the_place_of_one_without_a_verdict_once_it_is_accepted() {
    let mut scene = Scene::begin(&[b"http/1.1"], Sees::Error).await;
    assert_eq!(scene.send().await, Err(IdentityError::Undecided));
    scene.renew(Sees::Admin).await;
    scene.look_after(TICK).await;
    assert_eq!(scene.send().await, Err(IdentityError::Undecided), "the first may be accepted yet");
    assert!(scene.proxy.doubt().is_some());
    let good = scene.renew(Sees::Proxy).await;
    scene.look_after(TICK).await;
    assert_eq!(scene.send().await, Ok(()));
    assert_eq!(scene.world.came(), [good.der().to_vec()]);
    assert!(scene.proxy.doubt().is_none());
}

/// An alert asks for it: a gateway that is not ready gets no requests that could be counted.
#[tokio::test]
async fn the_metrics_show_whether_the_certificate_in_use_is_accepted() {
    let recorder = recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let shown = || {
        let text = recorder.handle().render();
        let lines = text.lines().filter(|line| line.starts_with("kube_fanout_upstream_front_proxy_accepted{"));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
    };
    let mut scene = Scene::begin(&[b"http/1.1"], Sees::Error).await;
    assert_eq!(shown(), ["0"]);
    for (sees, value) in [(Sees::Proxy, "1"), (Sees::Admin, "0"), (Sees::Proxy, "1")] {
        scene.world.sees(&scene.first, sees);
        scene.look_after(ACCEPTED).await;
        assert_eq!(shown(), [value]);
    }
}

/// A server that cannot be asked for a moment must not hide that it refuses the certificate.
#[tokio::test]
async fn the_log_has_each_reason_why_another_certificate_is_not_used_once() {
    let (log, _guard) = ThreadLog::start();
    let mut scene = Scene::begin(&[b"http/1.1"], Sees::Proxy).await;
    let next = scene.renew(Sees::Error).await;
    let refused = "new front-proxy certificate not used";
    for (sees, expected) in [(Sees::Error, 1), (Sees::Error, 0), (Sees::Admin, 1), (Sees::Admin, 0)] {
        scene.world.sees(&next, sees);
        scene.look_after(REFUSED).await;
        assert_eq!(log.lines(refused), expected);
    }
}

#[tokio::test]
async fn a_server_without_a_verdict_is_asked_ever_less_often() {
    let mut scene = Scene::begin(&[b"http/1.1"], Sees::Proxy).await;
    scene.connector.break_all();
    scene.world.sees(&scene.first, Sees::Error);
    let before = scene.world.0.lock().unwrap().probes;
    for _ in 0..8 {
        scene.look_after(TICK).await;
    }
    let probes = scene.world.0.lock().unwrap().probes - before;
    assert!((1..8).contains(&probes), "{probes} in as many seconds");
}

/// An API server looks at the certificate of a connection with each request, and its authorities can change.
#[tokio::test]
async fn connections_that_have_shown_an_earlier_certificate_are_not_used_again() {
    for (protocols, long_running) in [(&[b"h2".as_slice()][..], true), (&[b"http/1.1"], false)] {
        let mut scene = Scene::begin(protocols, Sees::Proxy).await;
        let send = async |scene: &Scene| {
            let outbound = scene.proxy.outbound(get("/kept"), &jane()).unwrap().long_running(long_running);
            outbound.send().await.unwrap().into_body().collect().await.unwrap();
        };
        send(&scene).await;
        let next = scene.renew(Sees::Proxy).await;
        scene.look_after(TICK).await;
        scene.world.sees(&scene.first, Sees::Admin);
        scene.world.came();
        send(&scene).await;
        assert_eq!(scene.world.came(), [next.der().to_vec()]);
    }
}

/// An operator takes back a certificate that upstream does not accept.
#[tokio::test]
async fn restored_files_break_no_connection() {
    let mut scene = Scene::begin(&[b"h2"], Sees::Proxy).await;
    let open = scene.proxy.outbound(get("/watch"), &jane()).unwrap().long_running(true).send().await.unwrap();
    let mut body = open.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    scene.renew(Sees::Admin).await;
    scene.look_after(TICK).await;
    let (log, _guard) = ThreadLog::start();
    scene.first.write(scene.folder.path());
    scene.proxy.probes.files.reload_once().await;
    scene.look_after(REFUSED).await;
    assert!(body.frame().now_or_never().is_none(), "goes on");
    assert!(scene.progress.other.is_none() && log.lines("front-proxy certificate") == 0);
}

#[tokio::test]
async fn a_certificate_is_replaced_when_as_many_servers_of_the_cluster_accept_the_next_one() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let [first, next] = ["first", "next"].map(|name| authority.client(name));
    let worlds: [World; 3] = Default::default();
    let (mut addresses, mut running, mut config) = (Vec::new(), Vec::new(), None);
    for world in &worlds {
        world.sees(&first, Sees::Proxy);
        world.sees(&next, Sees::Error);
        let answers = world.clone();
        let server = TestServer::start_tls_with(&authority, &[b"http/1.1"], move |request: Request<Incoming>| {
            let answer = answers.answer(&request);
            async move { answer }
        })
        .await;
        addresses.push(server.config.cluster_url.authority().unwrap().as_str().parse::<ServerAddress>().unwrap());
        config = Some(server.config.clone());
        running.push(server);
    }
    let connector = Connector::to_servers(&config.unwrap(), &addresses, None).unwrap();
    let (files, headers) = (first.write(folder.path()), ProxyHeaders::default());
    let proxy = connector.as_front_proxy(&files, headers, &Tasks::new()).unwrap();
    let mut progress = proxy.begin().await.unwrap();
    assert!(proxy.doubt().is_some(), "none is known to be of the cluster");
    let ready = || Some(Finding::Ready { version: None });
    let foreign = || Some(Finding::Foreign { error: "another cluster".to_owned() });
    connector.servers().unwrap().found(vec![ready(), ready(), foreign()]);
    proxy.look(&mut progress).await;
    assert!(proxy.doubt().is_none());
    let acceptance =
        || proxy.probes.all().into_iter().map(|server| proxy.probes.acceptance.of(server)).collect::<Vec<_>>();
    assert_eq!(acceptance(), [AcceptanceState::Accepted, AcceptanceState::Accepted, AcceptanceState::Undecided]);
    next.write(folder.path());
    proxy.probes.files.reload_once().await;
    let in_use = || proxy.probes.accepted.current().cert[0].clone();
    // By one of two, and by one that is of another cluster.
    for world in [&worlds[0], &worlds[2]] {
        world.sees(&next, Sees::Proxy);
        progress.other = None;
        proxy.look(&mut progress).await;
        assert_eq!(in_use(), first.der());
    }
    worlds[1].sees(&next, Sees::Proxy);
    progress.other = None;
    proxy.look(&mut progress).await;
    assert_eq!(in_use(), next.der());
    assert_eq!(acceptance(), [AcceptanceState::Accepted, AcceptanceState::Accepted, AcceptanceState::Undecided]);
    // All are away for a moment, while a certificate is in the files that none accepts.
    let refused = authority.client("refused");
    worlds.iter().for_each(|world| world.sees(&refused, Sees::Admin));
    refused.write(folder.path());
    proxy.probes.files.reload_once().await;
    let unknown = || Some(Finding::Unknown { reason: "unreachable", error: "refused".to_owned() });
    for found in [vec![unknown(), unknown(), None], vec![ready(), ready(), None]] {
        let is_there = found[0] == ready();
        connector.servers().unwrap().found(found);
        progress.other = None;
        proxy.look(&mut progress).await;
        assert_eq!((in_use(), proxy.doubt().is_none()), (next.der(), is_there));
    }
}

/// Each answers when both have been asked. Otherwise one that does not answer would delay the verdicts of others.
#[tokio::test]
async fn servers_are_asked_at_the_same_time() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let (world, certificate, both) = (World::default(), authority.client("proxy"), Arc::new(Barrier::new(2)));
    world.sees(&certificate, Sees::Proxy);
    let start = async || {
        let (world, both) = (world.clone(), both.clone());
        TestServer::start_tls_with(&authority, &[b"http/1.1"], move |request: Request<Incoming>| {
            let (answer, both) = (world.answer(&request), both.clone());
            async move {
                both.wait().await;
                answer
            }
        })
        .await
    };
    let servers = [start().await, start().await];
    let address = |server: &TestServer| server.config.cluster_url.authority().unwrap().to_string();
    let addresses = servers.each_ref().map(|server| address(server).parse::<ServerAddress>().unwrap());
    let connector = Connector::to_servers(&servers[0].config, &addresses, None).unwrap();
    let files = certificate.write(folder.path());
    let proxy = connector.as_front_proxy(&files, ProxyHeaders::default(), &Tasks::new()).unwrap();
    assert_eq!(proxy.probe().await, [Verdict::Accepted, Verdict::Accepted]);
}

#[tokio::test]
async fn servers_that_accept_the_certificate_may_be_out_of_reach_alone() {
    let authority = Authority::new();
    let server = TestServer::start_tls_with(&authority, &[b"http/1.1"], |_| async { Response::new(full("")) }).await;
    let folder = tempfile::tempdir().unwrap();
    let open = server.config.cluster_url.authority().unwrap().to_string();
    let addresses = [open, "127.0.0.1:1".to_owned()].map(|address| address.parse::<ServerAddress>().unwrap());
    let connector = Connector::to_servers(&server.config, &addresses, None).unwrap();
    connector.servers().unwrap().found(vec![Some(Finding::Ready { version: None }); 2]);
    let (files, headers) = (authority.client("proxy").write(folder.path()), ProxyHeaders::default());
    let proxy = connector.as_front_proxy(&files, headers, &Tasks::new()).unwrap();
    proxy.probes.acceptance.note(1, AcceptanceState::Accepted, proxy.probes.acceptance.generation());
    let error = proxy.outbound(get("/api"), &jane()).unwrap().send().await.unwrap_err();
    assert!(error.is_unreachable() && !connector.is_unreachable(), "{error:?}");
}

#[tokio::test]
async fn a_refusal_breaks_open_connections_and_nothing_more_is_sent() {
    for (protocols, long_running) in [(&[b"h2".as_slice()][..], true), (&[b"http/1.1"], true), (&[b"http/1.1"], false)]
    {
        let mut scene = Scene::begin(protocols, Sees::Proxy).await;
        let watch = || scene.proxy.outbound(get("/watch"), &jane()).unwrap().long_running(long_running);
        let (open, late) = (watch().send().await.unwrap(), [watch(), watch()]);
        let mut body = open.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        scene.world.came();
        scene.world.sees(&scene.first, Sees::Admin);
        scene.look_after(ACCEPTED).await;
        assert!(body.frame().await.unwrap().is_err(), "broken, and not at its end");
        for late in late {
            let error = late.send().await.unwrap_err();
            assert!(matches!(error, SendError::NotAccepted | SendError::ConnectionLost { .. }), "{error:?}");
        }
        assert_eq!(scene.send().await, Err(IdentityError::NotBelieved));
        assert_eq!(scene.world.came(), Vec::<Vec<u8>>::new());
        // The same certificate may be accepted again.
        scene.world.sees(&scene.first, Sees::Proxy);
        scene.look_after(REFUSED).await;
        assert_eq!(scene.send().await, Ok(()));
    }
}
