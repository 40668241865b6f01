//! The embedded API server behind users, rights and reviews, like a real server with RBAC.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use kube_fanout::{
    apimachinery::{RequestInfo, Target},
    sim::{self, Sim},
};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use super::serving;

/// The gateway's own token: allowed everything, including reviews.
pub(crate) const GATEWAY_TOKEN: &str = "gateway-token";

/// A running server; ends with its test.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) address: SocketAddr,
    guard: Arc<Guard>,
    _connections: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Guard {
    rules: Mutex<Rules>,
    /// Whether reviews are held.
    held: watch::Sender<bool>,
}

/// The users, their rights, and the requests so far.
#[derive(Debug, Default)]
struct Rules {
    /// Users by token.
    users: HashMap<&'static str, &'static str>,
    grants: HashSet<Grant>,
    no_reviews: bool,
    token_reviews: usize,
    access_reviews: usize,
    /// `Authorization` of requests from other clients than the gateway, by user agent.
    asked: HashMap<String, Option<String>>,
    /// Headers of every request, by user agent.
    headers: HashMap<String, HeaderMap>,
    groups: HashMap<&'static str, &'static str>,
}

/// A right in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    user: &'static str,
    verb: &'static str,
    resource: &'static str,
    /// `None` for any name.
    name: Option<&'static str>,
}

type Body = Either<Full<Bytes>, sim::Body>;

impl Guarded {
    pub(crate) async fn start(sim: Sim) -> Self {
        Self::listen(sim, None).await
    }

    /// Starts with TLS, so that the gateway uses HTTP/2. Also returns the configuration for connecting to it.
    pub(crate) async fn start_with_tls(sim: Sim) -> (Self, kube_client::Config) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
        let mut tls = tls.unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server = Self::listen(sim, Some(TlsAcceptor::from(Arc::new(tls)))).await;
        let mut access = kube_client::Config::new(format!("https://{}", server.address).parse().unwrap());
        access.root_cert = Some(vec![certificate.der().to_vec()]);
        (server, access)
    }

    async fn listen(sim: Sim, tls: Option<TlsAcceptor>) -> Self {
        let (listener, address) = serving::listener().await;
        let guard = Arc::new(Guard::default());
        let guarding = guard.clone();
        let connections =
            serving::accepting(listener, move |stream| serve(stream, tls.clone(), sim.clone(), guarding.clone()));
        Self { address, guard, _connections: connections }
    }

    pub(crate) fn add_user(&self, token: &'static str, name: &'static str) {
        self.rules().users.insert(token, name);
    }

    pub(crate) fn add_to_group(&self, user: &'static str, group: &'static str) {
        self.rules().groups.insert(user, group);
    }

    pub(crate) fn grant(&self, user: &'static str, verb: &'static str, resource: &'static str) {
        self.rules().grants.insert(Grant { user, verb, resource, name: None });
    }

    /// Grants a right on the objects of that name only, like `resourceNames` of a role.
    pub(crate) fn grant_named(
        &self,
        user: &'static str,
        verb: &'static str,
        resource: &'static str,
        name: &'static str,
    ) {
        self.rules().grants.insert(Grant { user, verb, resource, name: Some(name) });
    }

    pub(crate) fn revoke(&self, user: &'static str, verb: &'static str, resource: &'static str) {
        assert!(self.rules().grants.remove(&Grant { user, verb, resource, name: None }), "{user} had no such right");
    }

    /// Makes reviews fail from now on.
    pub(crate) fn stop_reviews(&self) {
        self.rules().no_reviews = true;
    }

    /// Answers reviews again.
    pub(crate) fn start_reviews(&self) {
        self.rules().no_reviews = false;
    }

    /// Sets whether reviews are held without a response.
    pub(crate) fn hold_reviews(&self, held: bool) {
        self.guard.held.send_replace(held);
    }

    /// The numbers of token reviews and access reviews so far.
    pub(crate) fn reviews(&self) -> (usize, usize) {
        let rules = self.rules();
        (rules.token_reviews, rules.access_reviews)
    }

    /// The `Authorization` of a forwarded request, which may be `None`. The outer `Option` is `None` if the request
    /// never arrived.
    pub(crate) fn asked(&self, user_agent: &str) -> Option<Option<String>> {
        self.rules().asked.get(user_agent).cloned()
    }

    /// The headers with which a request arrived, from any client.
    pub(crate) fn headers(&self, user_agent: &str) -> Option<HeaderMap> {
        self.rules().headers.get(user_agent).cloned()
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.guard.rules.lock().unwrap()
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, sim: Sim, guard: Arc<Guard>) {
    let answer = move |request| {
        let (sim, guard) = (sim.clone(), guard.clone());
        async move { answer(&sim, &guard, request).await }
    };
    match tls {
        None => serving::serve(stream, answer).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serving::serve(stream, answer).await;
            }
        }
    }
}

async fn answer(sim: &Sim, guard: &Guard, request: Request<Incoming>) -> Response<Body> {
    let authorization = text(request.headers(), header::AUTHORIZATION.as_str());
    if let Some(agent) = text(request.headers(), header::USER_AGENT.as_str()) {
        guard.rules.lock().unwrap().headers.insert(agent, request.headers().clone());
    }
    let token = authorization.as_deref().and_then(|text| text.strip_prefix("Bearer "));
    // Parsed like in an API server (read-path 8.1).
    let token = token.and_then(|text| text.split(' ').next());
    let of_websocket = of_websocket(request.headers());
    let token = token.or(of_websocket.as_deref());
    if token == Some(GATEWAY_TOKEN) {
        return match request.uri().path().rsplit('/').next() {
            Some(kind @ ("tokenreviews" | "subjectaccessreviews")) => {
                let is_token = kind == "tokenreviews";
                let review = request.into_body().collect().await.unwrap().to_bytes();
                guard.held.subscribe().wait_for(|held| !held).await.unwrap();
                guard.review(serde_json::from_slice(&review).unwrap(), is_token)
            }
            _ => sim.handle(request).await.map(Either::Right),
        };
    }
    if let Some(agent) = text(request.headers(), header::USER_AGENT.as_str()) {
        guard.rules.lock().unwrap().asked.insert(agent, authorization.clone());
    }
    let user = match token {
        None => "system:anonymous",
        Some(token) => match guard.rules.lock().unwrap().users.get(token) {
            Some(user) => user,
            None => return status(StatusCode::UNAUTHORIZED, "Unauthorized"),
        },
    };
    let info = RequestInfo::parse(request.method(), request.uri().path(), request.uri().query());
    let (resource, name) = match &info.target {
        Target::Resource(target) => (target.resource.resource.to_string(), target.name.clone()),
        Target::NonResource | Target::Ambiguous => (String::new(), None),
    };
    if !guard.rules.lock().unwrap().may(user, info.verb.as_str(), &resource, name.as_deref()) {
        return status(
            StatusCode::FORBIDDEN,
            &format!("{resource} is forbidden: User \"{user}\" cannot {} resource \"{resource}\"", info.verb.as_str()),
        );
    }
    sim.handle(request).await.map(Either::Right)
}

impl Guard {
    fn review(&self, mut review: Value, is_token: bool) -> Response<Body> {
        let mut rules = self.rules.lock().unwrap();
        if rules.no_reviews {
            return status(StatusCode::SERVICE_UNAVAILABLE, "no reviews");
        }
        review["status"] = if is_token {
            rules.token_reviews += 1;
            match rules.users.get(review["spec"]["token"].as_str().unwrap()) {
                Some(user) => {
                    let groups: Vec<_> = rules.groups.get(user).into_iter().chain([&"system:authenticated"]).collect();
                    json!({"authenticated": true, "user": {"username": user, "groups": groups}})
                }
                None => json!({"authenticated": false, "error": "unknown"}),
            }
        } else {
            rules.access_reviews += 1;
            let spec = &review["spec"];
            // For a path that is not a resource, the path replaces the resource.
            let (attributes, what) = match spec.get("nonResourceAttributes") {
                Some(attributes) => (attributes, "path"),
                None => (&spec["resourceAttributes"], "resource"),
            };
            let word = |field: &str| attributes[field].as_str().unwrap_or_default();
            let user = spec["user"].as_str().unwrap();
            json!({"allowed": rules.may(user, word("verb"), word(what), attributes["name"].as_str())})
        };
        let mut response = Response::new(Either::Left(review.to_string().into()));
        *response.status_mut() = StatusCode::CREATED;
        response
    }
}

impl Rules {
    fn may(&self, user: &str, verb: &str, resource: &str, name: Option<&str>) -> bool {
        let allows = |grant: &Grant| {
            (grant.user, grant.verb, grant.resource) == (user, verb, resource)
                && grant.name.is_none_or(|granted| name == Some(granted))
        };
        self.grants.iter().any(allows)
    }
}

fn status(code: StatusCode, message: &str) -> Response<Body> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code.as_u16()});
    let mut response = Response::new(Either::Left(status.to_string().into()));
    *response.status_mut() = code;
    response
}

/// The token among the subprotocols of a WebSocket.
fn of_websocket(headers: &HeaderMap) -> Option<String> {
    text(headers, header::UPGRADE.as_str()).filter(|protocol| protocol == "websocket")?;
    let protocols = text(headers, header::SEC_WEBSOCKET_PROTOCOL.as_str())?;
    let mut protocols = protocols.split(',').map(str::trim);
    let token = protocols.find_map(|protocol| protocol.strip_prefix("base64url.bearer.authorization.k8s.io."))?;
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}
