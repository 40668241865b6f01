//! What an answer says, and what arrives at upstream before a certificate is accepted, and after.

use std::{collections::HashMap, sync::Mutex};

use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use tokio::sync::Barrier;

use super::*;
use crate::connector::{
    Connector, Finding, IdentityError, Outbound, SendError,
    test_authority::Authority,
    test_server::{Shown, TestBody, TestServer, full},
};
use base::{
    config::{ProxyHeaders, ServerAddress},
    test_certificates::Issued,
};

fn probe() -> UserInfo {
    UserInfo { name: "p".to_owned(), groups: vec!["g".to_owned(), AUTHENTICATED.to_owned()], ..UserInfo::default() }
}

/// What an answer shows, in one word; empty for nothing.
fn shows(said: fn(StatusCode, &[u8], &UserInfo) -> Verdict, status: u16, body: &str) -> String {
    match said(StatusCode::from_u16(status).unwrap(), body.as_bytes(), &probe()) {
        Verdict::Accepted => "accepted".to_owned(),
        Verdict::Refused(NotBelieved::Unknown) => "unknown".to_owned(),
        Verdict::Refused(NotBelieved::Groups) => "groups".to_owned(),
        Verdict::Refused(NotBelieved::Another(name)) => format!("another: {name}"),
        Verdict::Doubtful(_) => "doubtful".to_owned(),
        Verdict::Undecided(_) => String::new(),
    }
}

#[test]
fn an_answer_counts_only_if_it_says_which_user_upstream_sees() {
    let review = |info: &str| format!(r#"{{"status":{{"userInfo":{info}}}}}"#);
    let refusal = |user: &str| format!(r#"{{"message":"x is forbidden: User \"{user}\" cannot get resource"}}"#);
    for (status, body, to_review, to_secret) in [
        (201, review(r#"{"username":"p","groups":["g","system:authenticated"]}"#), "accepted", ""),
        (201, review(r#"{"username":"p","groups":["system:authenticated"]}"#), "groups", ""),
        (201, review(r#"{"username":"proxy","groups":["g"]}"#), "another: proxy", ""),
        (201, review(r#"{"username":"system:anonymous"}"#), "unknown", ""),
        (201, review("{}"), "another: ", ""),
        (200, "{}".to_owned(), "", ""),
        (403, refusal("p"), "accepted", "accepted"),
        (403, refusal("proxy"), "another: proxy", "another: proxy"),
        (403, refusal("system:anonymous"), "unknown", "unknown"),
        (403, r#"{"message":"User \"p\" is blocked"}"#.to_owned(), "", ""),
        (403, "no".to_owned(), "", ""),
        (401, String::new(), "unknown", "unknown"),
        (404, r#"{"message":"secrets \"s\" not found"}"#.to_owned(), "", "doubtful"),
        (429, String::new(), "", ""),
        (503, String::new(), "", ""),
    ] {
        let shown = [said, said_of_secret].map(|said| shows(said, status, &body));
        assert_eq!(shown, [to_review, to_secret], "{status} {body}");
    }
}

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
            let watch = StreamBody::new(first.chain(stream::pending()));
            return Response::new(if request.uri().path() == "/watch" { watch.boxed_unsync() } else { full("") });
        }
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
    proxy: AsFrontProxy,
    folder: tempfile::TempDir,
    first: Issued,
    _server: TestServer,
}

impl Scene {
    async fn start(protocols: &[&[u8]], sees: Sees) -> Self {
        let (world, authority, folder) = (World::default(), Authority::new(), tempfile::tempdir().unwrap());
        let answers = world.clone();
        let server = TestServer::start_tls_with(&authority, protocols, move |request: Request<Incoming>| {
            let answer = answers.answer(&request);
            async move { answer }
        })
        .await;
        let first = authority.client("first");
        world.sees(&first, sees);
        let proxy = front_proxy(&Connector::new(&server.config).unwrap(), &first, &folder);
        proxy.probe().await;
        Self { world, authority, proxy, folder, first, _server: server }
    }

    /// Puts another certificate into the files, which is asked for at once.
    async fn renew(&self, sees: Sees) -> Issued {
        let next = self.authority.client("next");
        self.world.sees(&next, sees);
        next.write(self.folder.path());
        self.proxy.prober.files.reload_once().await;
        self.proxy.look().await;
        next
    }

    /// When everything is due.
    async fn look_later(&self) {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
        self.proxy.look().await;
    }

    fn outbound(&self, path: &str) -> Result<Outbound, IdentityError> {
        let request = Request::builder().uri(path).body(RequestBody::Empty).unwrap();
        self.proxy.outbound(request, &UserInfo { name: "jane".to_owned(), ..UserInfo::default() })
    }
}

fn front_proxy(connector: &Connector, certificate: &Issued, folder: &tempfile::TempDir) -> AsFrontProxy {
    connector.as_front_proxy(&certificate.write(folder.path()), ProxyHeaders::default(), &Tasks::new()).unwrap()
}

/// An API server looks at the certificate of a connection with each request, and its authorities can change.
#[tokio::test]
async fn requests_show_only_a_certificate_that_is_accepted() {
    for (protocols, long_running) in [(&[b"h2".as_slice()][..], true), (&[b"http/1.1"], false)] {
        let scene = Scene::start(protocols, Sees::Error).await;
        assert_eq!(scene.outbound("/api").err(), Some(IdentityError::Undecided));
        let shown = async || {
            let outbound = scene.outbound("/api").unwrap().long_running(long_running);
            outbound.send().await.unwrap().into_body().collect().await.unwrap();
            scene.world.came()
        };
        scene.world.sees(&scene.first, Sees::Proxy);
        scene.look_later().await;
        assert_eq!(shown().await, [scene.first.der().to_vec()]);
        for sees in [Sees::Admin, Sees::Error] {
            scene.renew(sees).await;
            assert_eq!(shown().await, [scene.first.der().to_vec()]);
        }
        let next = scene.renew(Sees::Proxy).await;
        assert_eq!(shown().await, [next.der().to_vec()], "also on connections that were open");
    }
}

/// It answers when both have been asked. Otherwise one that does not answer would delay the verdicts of others.
#[tokio::test]
async fn servers_are_asked_at_the_same_time() {
    let (authority, folder, both) = (Authority::new(), tempfile::tempdir().unwrap(), Arc::new(Barrier::new(2)));
    let (world, certificate) = (World::default(), authority.client("proxy"));
    world.sees(&certificate, Sees::Proxy);
    let server = TestServer::start_tls_with(&authority, &[b"http/1.1"], move |request: Request<Incoming>| {
        let (answer, both) = (world.answer(&request), both.clone());
        async move {
            both.wait().await;
            answer
        }
    })
    .await;
    let address: ServerAddress = server.config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let connector = Connector::to_servers(&server.config, &[address.clone(), address], None, None).unwrap();
    let proxy = front_proxy(&connector, &certificate, &folder);
    assert_eq!(proxy.probe().await, [Verdict::Accepted, Verdict::Accepted]);
}

#[tokio::test]
async fn servers_that_accept_the_certificate_may_be_out_of_reach_alone() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let server = TestServer::start_tls_with(&authority, &[b"http/1.1"], |_| async { Response::new(full("")) }).await;
    let open = server.config.cluster_url.authority().unwrap().to_string();
    let addresses = ["127.0.0.1:1".to_owned(), open].map(|address| address.parse::<ServerAddress>().unwrap());
    let connector = Connector::to_servers(&server.config, &addresses, None, None).unwrap();
    connector.servers().unwrap().found(vec![Some(Finding::Ready { version: None }); 2]);
    let proxy = front_proxy(&connector, &authority.client("proxy"), &folder);
    let Prober { acceptance, files, .. } = &*proxy.prober;
    acceptance.due(&files.current(), &[true, true], Instant::now());
    acceptance.note(0, &Verdict::Accepted, Instant::now());
    let error = proxy.outbound(Request::new(RequestBody::Empty), &probe()).unwrap().send().await.unwrap_err();
    assert!(error.is_unreachable() && !connector.is_unreachable(), "{error:?}");
}

#[tokio::test]
async fn a_refusal_breaks_open_connections_and_nothing_more_is_sent() {
    for (protocols, long_running) in [(&[b"h2".as_slice()][..], true), (&[b"http/1.1"], true), (&[b"http/1.1"], false)]
    {
        let scene = Scene::start(protocols, Sees::Proxy).await;
        let watch = || scene.outbound("/watch").unwrap().long_running(long_running);
        let (open, late) = (watch().send().await.unwrap(), [watch(), watch()]);
        let mut body = open.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        scene.world.came();
        scene.world.sees(&scene.first, Sees::Admin);
        scene.look_later().await;
        assert!(body.frame().await.unwrap().is_err(), "broken, and not at its end");
        for late in late {
            let error = late.send().await.unwrap_err();
            assert!(matches!(error, SendError::NotAccepted | SendError::ConnectionLost { .. }), "{error:?}");
        }
        assert_eq!(scene.outbound("/api").err(), Some(IdentityError::NotBelieved));
        assert_eq!(scene.world.came(), Vec::<Vec<u8>>::new());
        // The same certificate may be accepted again.
        scene.world.sees(&scene.first, Sees::Proxy);
        scene.look_later().await;
        assert!(scene.outbound("/api").unwrap().send().await.is_ok());
    }
}
