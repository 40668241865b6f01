//! Delegated mode, as clients see it: which user may read from memory, for how long, and with which credentials all
//! other requests are forwarded.

use std::{path::Path, pin::pin, time::Duration};

use bytes::Bytes;
use kube_fanout::{
    config::{ClientsConfig, Config, FallbackConfig, Overrides},
    sim::Sim,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::harness::{
    self, Answer, Gateway, Route, forwarded,
    guarded::{GATEWAY_TOKEN, Guarded},
    passing,
    process::{delegated_in_front_of, relay},
    skip, until,
    upstream::{directly, pod},
    within,
};

pub(crate) const PODS: &str = "/api/v1/pods?resourceVersion=0";
pub(crate) const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1800";
/// How long verdicts are kept, and the interval at which open watches are authorized again.
pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(300);
/// A watch that is refused is refused within this time.
const NO_ANSWER: Duration = Duration::from_millis(200);

/// Jane may list and watch pods; John may not.
pub(crate) struct Scene {
    pub(crate) sim: Sim,
    pub(crate) upstream: Guarded,
    pub(crate) gateway: Gateway,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let sim = Sim::new();
        sim.create(pod("default", "a", "x")).unwrap();
        let scene = Self::start_cold(sim, change).await;
        scene.warm().await;
        scene
    }

    /// A gateway that has not been asked for anything.
    pub(crate) async fn start_cold(sim: Sim, change: impl FnOnce(&mut Config)) -> Self {
        let upstream = Guarded::start(sim.clone()).await;
        upstream.add_user("jane-token", "jane");
        upstream.add_user("john-token", "john");
        for verb in ["list", "watch", "get"] {
            upstream.grant("jane", verb, "pods");
        }
        let mut access = kube_client::Config::new(format!("http://{}", upstream.address).parse().unwrap());
        access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
        let gateway = Gateway::start_in_front_of(access, |config| {
            config.clients = delegated();
            change(config);
        })
        .await;
        Self { sim, upstream, gateway }
    }

    /// Returns once Jane is served pods from memory.
    pub(crate) async fn warm(&self) {
        let warm = async || (self.get("jane-token", PODS).await.route == Route::Served).then_some(());
        until("the cache is filled", warm).await;
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Answer {
        self.ask("GET", path, &[("authorization", &format!("Bearer {token}"))]).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.gateway.client.request(method, path, headers, Bytes::new()).await
    }
}

pub(crate) fn delegated() -> ClientsConfig {
    harness::delegated::clients(TTL, WATCH_INTERVAL)
}

/// What the request and the configuration decide alone is decided before a review.
#[tokio::test]
async fn excluded_resources_and_invalid_parameters_cause_no_reviews() {
    let scene = Scene::start().await;
    let reviews = scene.upstream.reviews();
    for (path, reason) in [
        ("/api/v1/events?resourceVersion=0", "excluded"),
        ("/api/v1/pods?resourceVersion=x", "invalid_options"),
        ("/api/v1/pods?watch=1&sendInitialEvents=true", "invalid_options"),
    ] {
        let answer = scene.get("john-token", path).await;
        assert_eq!((answer.status.as_u16(), answer.route), (403, forwarded(reason)), "{path}");
    }
    assert_eq!(scene.upstream.reviews(), reviews);
}

/// A mistake in what a client may read would be worst with Secrets.
#[tokio::test]
async fn secrets_are_answered_from_memory_only_if_the_configuration_says_so() {
    const SECRETS: &str = "/api/v1/secrets?resourceVersion=0";
    for (cache, route) in [
        ("", forwarded("excluded")),
        ("cache: {exclude: [events]}", Route::Served),
        ("cache: {exclude: [events, secrets]}", forwarded("excluded")),
    ] {
        let text = format!(
            "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nclients: {{mode: delegated}}\n{cache}\n"
        );
        let written = Config::parse(&text, &Overrides::default()).unwrap();
        let scene = Scene::start_with(|config| config.cache.exclude = written.cache.exclude).await;
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "default"}});
        scene.sim.create(secret).unwrap();
        for verb in ["get", "list", "watch"] {
            scene.upstream.grant("jane", verb, "secrets");
        }
        let look = async || {
            let answer = scene.get("jane-token", SECRETS).await;
            (answer.route == route).then_some(answer)
        };
        let answer = until("the route of secrets", look).await;
        let (status, directly) = directly(&scene.sim, SECRETS).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (status, directly.as_str()), "{cache}");
        let is_cached = scene.sim.counts().open_watches("secrets") == 1;
        assert_eq!(is_cached, route == Route::Served, "{cache}");
    }
}

#[tokio::test]
async fn only_permitted_users_are_answered_from_memory() {
    let scene = Scene::start().await;
    // The second round reads remembered verdicts: the answers are the same.
    for _ in 0..2 {
        let jane = scene.get("jane-token", PODS).await;
        assert_eq!((jane.status.as_u16(), jane.route), (200, Route::Served));
        for (headers, status, reason) in [
            (&[("authorization", "Bearer john-token")][..], 403, "denied"),
            (&[("authorization", "Bearer unknown-token")], 401, "unauthenticated"),
            (&[("authorization", "Basic amFuZTpqYW5l")], 403, "unauthenticated"),
            (&[], 403, "unauthenticated"),
            (&[("x-remote-user", "jane")], 403, "unauthenticated"),
            (&[("authorization", "Bearer john-token"), ("x-remote-user", "jane")], 403, "denied"),
            (&[("authorization", "Bearer john-token"), ("impersonate-user", "jane")], 403, "impersonated"),
        ] {
            let answer = scene.ask("GET", PODS, headers).await;
            assert_eq!((answer.status.as_u16(), answer.route), (status, forwarded(reason)), "{headers:?}");
        }
        let other = scene.get("jane-token", "/api/v1/configmaps?resourceVersion=0").await;
        assert_eq!((other.status.as_u16(), other.route), (403, forwarded("denied")));
    }
}

/// `resourceNames` of a role that is bound in the whole cluster: it allows one name in each namespace and nothing else,
/// in whatever form the request names it.
#[tokio::test]
async fn a_user_with_a_right_on_one_name_reads_no_other() {
    let scene = Scene::start().await;
    for (namespace, name) in
        [("default", "allowed"), ("kube-system", "allowed"), ("default", "hidden"), ("kube-system", "hidden")]
    {
        scene.sim.create(pod(namespace, name, "x")).unwrap();
    }
    for verb in ["get", "list", "watch"] {
        scene.upstream.grant_named("john", verb, "pods", "allowed");
    }
    let seen = async || {
        let all = scene.get("jane-token", PODS).await;
        (all.text().matches(r#""name":"#).count() >= 5).then_some(())
    };
    until("the cache has seen them", seen).await;

    let (served, denied) = (Route::Served, forwarded("denied"));
    for (path, expected, objects) in [
        ("/api/v1/watch/pods/allowed?resourceVersion=0&timeoutSeconds=1", forwarded("unknown_resource"), 0),
        ("/api/v1/watch/pods/allowed?resourceVersion=1&timeoutSeconds=1", forwarded("unknown_resource"), 0),
        ("/api/v1/pods/allowed?resourceVersion=0", forwarded("unknown_resource"), 0),
        ("/api/v1/watch/namespaces/kube-system/pods/allowed?resourceVersion=0&timeoutSeconds=1", served.clone(), 1),
        ("/api/v1/namespaces/default/pods/allowed?resourceVersion=0", served.clone(), 1),
        (
            "/api/v1/namespaces/kube-system/pods?resourceVersion=0&fieldSelector=metadata.name%3Dallowed",
            served.clone(),
            1,
        ),
        ("/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dallowed", served.clone(), 2),
        (
            "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dallowed,metadata.name%3Dhidden",
            served.clone(),
            0,
        ),
        ("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dallowed", served, 2),
        ("/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dhidden", denied.clone(), 0),
        (
            "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dallowed&limit=x",
            forwarded("invalid_options"),
            0,
        ),
        ("/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name!%3Dallowed", denied.clone(), 0),
        ("/api/v1/watch/pods?resourceVersion=0&fieldSelector=metadata.name%3Dallowed", denied.clone(), 0),
        ("/api/v1/watch/namespaces/kube-system/pods/hidden?resourceVersion=0", denied.clone(), 0),
        ("/api/v1/namespaces/default/pods/hidden?resourceVersion=0", denied, 0),
    ] {
        let answer = scene.get("john-token", path).await;
        assert_eq!(answer.route, expected, "{path}");
        let text = answer.text();
        assert_eq!(
            (text.matches(r#""uid":"#).count(), text.matches("hidden\"").count()),
            (objects, 0),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn reviews_are_asked_for_once_in_their_time() {
    let scene = Scene::start().await;
    let before = scene.upstream.reviews();
    for _ in 0..20 {
        assert_eq!(scene.get("jane-token", PODS).await.route, Route::Served);
    }
    assert_eq!(scene.upstream.reviews(), before);
    skip(TTL + Duration::from_secs(1)).await;
    assert_eq!(scene.get("jane-token", PODS).await.route, Route::Served);
    assert_eq!(scene.upstream.reviews(), (before.0 + 1, before.1 + 1));
    // A request that is forwarded in any case is authorized by upstream: the gateway sends no reviews.
    let write =
        scene.ask("DELETE", "/api/v1/namespaces/default/pods/a", &[("authorization", "Bearer jane-token")]).await;
    assert_eq!((write.status.as_u16(), write.route), (403, forwarded("not_a_read")));
    for token in ["jane-token", "john-token"] {
        let most_recent = scene.get(token, "/api/v1/namespaces/default/pods/a").await;
        assert_eq!(most_recent.route, forwarded("most_recent"), "{token}");
    }
    assert_eq!(scene.upstream.reviews(), (before.0 + 1, before.1 + 1));
}

#[tokio::test]
async fn rights_that_come_and_go_count_within_their_time() {
    let scene = Scene::start().await;
    scene.upstream.revoke("jane", "list", "pods");
    scene.upstream.grant("john", "list", "pods");
    assert_eq!(scene.get("john-token", PODS).await.status.as_u16(), 200);
    skip(TTL + Duration::from_secs(1)).await;
    let jane = scene.get("jane-token", PODS).await;
    assert_eq!((jane.status.as_u16(), jane.route), (403, forwarded("denied")));
    assert_eq!(scene.get("john-token", PODS).await.route, Route::Served);
}

#[tokio::test]
async fn without_reviews_only_recently_allowed_reads_are_served() {
    let scene = Scene::start().await;
    scene.upstream.grant("john", "list", "pods");
    scene.upstream.stop_reviews();
    assert_eq!(scene.get("jane-token", PODS).await.route, Route::Served);
    // Upstream can authorize the request itself.
    let john = scene.get("john-token", PODS).await;
    assert_eq!((john.status.as_u16(), john.route), (200, forwarded("no_verdict")));
    skip(TTL + Duration::from_secs(1)).await;
    let jane = scene.get("jane-token", PODS).await;
    assert_eq!((jane.status.as_u16(), jane.route), (200, forwarded("no_verdict")));
}

#[tokio::test]
async fn a_watch_ends_when_its_right_is_revoked_but_not_when_reviews_fail() {
    let scene = Scene::start().await;
    let token = [("authorization", "Bearer jane-token")];
    let mut watch = scene.gateway.client.watch_with(WATCH, &token).await;
    assert!(watch.line().await.unwrap().unwrap().contains("ADDED"));
    skip(WATCH_INTERVAL * 2).await;
    scene.sim.create(pod("default", "b", "x")).unwrap();
    assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"b""#));
    scene.upstream.revoke("jane", "watch", "pods");
    let (rest, route) = passing(WATCH_INTERVAL / 4, watch.rest()).await;
    assert_eq!((rest.as_str(), route), ("", Route::Served));

    scene.upstream.grant("jane", "watch", "pods");
    skip(TTL * 2).await;
    let mut watch = scene.gateway.client.watch_with(WATCH, &token).await;
    scene.upstream.stop_reviews();
    skip(WATCH_INTERVAL * 2).await;
    scene.sim.create(pod("default", "c", "x")).unwrap();
    let found = async {
        loop {
            if watch.line().await.unwrap().expect("the watch goes on").contains(r#""name":"c""#) {
                return;
            }
        }
    };
    found.await;
}

#[tokio::test]
async fn upstream_gets_the_clients_credentials_and_never_the_gateways() {
    let scene = Scene::start().await;
    for (headers, expected) in [
        (&[("authorization", "Bearer john-token")][..], Some("Bearer john-token")),
        (&[("authorization", "Basic amFuZTpqYW5l")], Some("Basic amFuZTpqYW5l")),
        (&[], None),
    ] {
        for (method, path) in [("GET", PODS), ("GET", "/version"), ("DELETE", "/api/v1/namespaces/default/pods/a")] {
            let (agent, _) = scene.gateway.client.asked(method, path, headers).await;
            assert_eq!(scene.upstream.asked(&agent), Some(expected.map(str::to_owned)), "{method} {path} {headers:?}");
        }
    }
}

#[tokio::test]
async fn reads_from_memory_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let scene = Scene::start_with(|config| config.audit.path = Some(path.clone())).await;
    let served = scene.get("jane-token", "/api/v1/namespaces/default/pods/a?resourceVersion=0").await;
    assert_eq!(served.route, Route::Served);
    assert_eq!(scene.get("john-token", PODS).await.status.as_u16(), 403);
    let audit_id = served.headers["audit-id"].to_str().unwrap().to_owned();
    let watch = scene.gateway.client.watch_with(WATCH, &[("authorization", "Bearer jane-token")]).await;
    let mut stopping = scene.gateway.stop();
    watch.rest().await;
    stopping.drained().await;
    let events = events(&path);
    let of_get: Vec<_> = events.iter().filter(|event| event["auditID"] == audit_id.as_str()).collect();
    let [get] = of_get[..] else { panic!("{of_get:?}") };
    assert_eq!((&get["verb"], &get["stage"]), (&"get".into(), &"ResponseComplete".into()));
    assert_eq!(get["user"]["username"], "jane");
    assert_eq!(get["objectRef"]["name"], "a");
    assert_eq!(get["responseStatus"]["code"], 200);
    assert_eq!(get["requestURI"], "/api/v1/namespaces/default/pods/a?resourceVersion=0");
    let stages: Vec<_> = events.iter().filter(|event| event["verb"] == "watch").map(|event| &event["stage"]).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
    assert!(events.iter().all(|event| event["user"]["username"] == "jane"), "{events:?}");
}

#[tokio::test]
async fn no_client_takes_more_than_its_share() {
    let scene = Scene::start_with(|config| {
        config.limits.watches_per_client = 1;
        config.limits.forwarded_per_client = 1;
    })
    .await;
    // Events are never cached: this watch is forwarded.
    const FORWARDED: &str = "/api/v1/events?watch=1&timeoutSeconds=1800";
    for user in ["jane", "john"] {
        scene.upstream.grant(user, "watch", "events");
    }
    let jane = [("authorization", "Bearer jane-token")];
    for (path, reason) in [(WATCH, "client_watches"), (FORWARDED, "client_share")] {
        let first = scene.gateway.client.watch_with(path, &jane).await;
        let second = scene.ask("GET", path, &jane).await;
        assert_eq!((second.status.as_u16(), second.route), (429, Route::Rejected(reason.to_owned())));
        assert_eq!(second.headers["retry-after"], "1");
        let status: Value = serde_json::from_slice(&second.body).unwrap();
        assert_eq!(
            (&status["reason"], &status["details"]["retryAfterSeconds"]),
            (&"TooManyRequests".into(), &1.into())
        );
        // Other clients are not refused, and neither is this one after it has closed its watch.
        drop(scene.gateway.client.watch_with(FORWARDED, &[("authorization", "Bearer john-token")]).await);
        drop(first);
        let again = async || scene.gateway.client.open_with(path, &jane).await.ok();
        drop(until("a place that was given back", again).await);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_a_cache_holds_one_of_its_places_for_watches() {
    let scene = Scene::start_with(|config| config.limits.watches_per_client = 1).await;
    for user in ["jane", "john"] {
        scene.upstream.grant(user, "watch", "configmaps");
    }
    scene.upstream.grant("jane", "list", "configmaps");
    scene.sim.hold_requests("watch", "configmaps");
    const CONFIG_MAPS: &str = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1800";
    let jane = [("authorization", "Bearer jane-token")];
    let open = |headers| scene.gateway.client.open_with(CONFIG_MAPS, headers);
    // A client without the right does not wait: its request is forwarded and refused.
    let refused = open(&[]).await.unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.route), (403, forwarded("unauthenticated")));
    let mut first = pin!(open(&jane));
    let filling = scene.sim.until(|counts| counts.requests("watch", "configmaps") > 0);
    tokio::select! {
        answer = &mut first => panic!("answered before the cache was filled: {answer:?}"),
        () = filling => {}
    }
    let more = async {
        let second = open(&jane).await.unwrap_err();
        assert_eq!((second.status.as_u16(), second.route), (429, Route::Rejected("client_watches".to_owned())));
        let list = scene.get("jane-token", "/api/v1/configmaps?resourceVersion=0").await;
        assert_eq!((list.status.as_u16(), list.route), (200, forwarded("cache_filling")));
    };
    tokio::select! {
        answer = &mut first => panic!("answered before the cache was filled: {answer:?}"),
        () = more => {}
    }
    // Closing the connection while waiting gives back the place.
    first.set(open(&[]));
    let again = async || match timeout(NO_ANSWER, open(&jane)).await {
        Ok(answer) => answer.unwrap_err().status.is_success().then_some(()),
        Err(_) => Some(()),
    };
    until("a place that was given back", again).await;
}

#[tokio::test]
async fn a_forwarded_watch_without_a_place_stays_upstream() {
    let scene = Scene::start_with(|config| config.limits.watches_per_client = 1).await;
    scene.upstream.grant("jane", "watch", "configmaps");
    scene.sim.hold_requests("list", "configmaps");
    let jane = [("authorization", "Bearer jane-token")];
    let _place = scene.gateway.client.watch_with(WATCH, &jane).await;
    let resumed = format!(
        "/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1800&allowWatchBookmarks=true",
        scene.sim.revision()
    );
    let mut watch = scene.gateway.client.watch_with(&resumed, &jane).await;
    scene.sim.release_requests();
    within("the fill", scene.sim.until(|counts| counts.open_watches("configmaps") == 2)).await;
    skip(Duration::from_secs(30)).await;
    let configmap = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "b", "namespace": "default"}});
    scene.sim.create(configmap).unwrap();
    assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"b""#));
    assert_eq!(scene.sim.counts().open_watches("configmaps"), 2);
}

/// The events in an audit log, without one that is just being written.
pub(crate) fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `clients.awayTTL` of a gateway behind another one, which answers and says that the API server is gone.
#[tokio::test]
async fn known_users_of_a_lower_gateway_read_on_while_the_api_server_is_away() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let upstream = Guarded::start(sim.clone()).await;
    for (token, user) in [("jane-token", "jane"), ("john-token", "john")] {
        upstream.add_user(token, user);
    }
    for verb in ["list", "watch", "get"] {
        upstream.grant("jane", verb, "pods");
    }
    upstream.grant("jane", "get", "");
    let (_child, socket, _folder) = delegated_in_front_of(&format!("http://{}", upstream.address)).await;
    let mut relays = JoinSet::new();
    let mut access = kube_client::Config::new(relay(&mut relays, socket).await.parse().unwrap());
    access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
    let gateway = Gateway::start_in_front_of(access, |config| {
        let ClientsConfig::Delegated(mut clients) = delegated() else { panic!("delegated") };
        clients.away_ttl = TTL * 60;
        config.clients = ClientsConfig::Delegated(clients);
    })
    .await;
    let get = async |token: &str, path| {
        let bearer = format!("Bearer {token}");
        gateway.client.request("GET", path, &[("authorization", &bearer)], Bytes::new()).await
    };
    let warm = async || {
        let answer = get("jane-token", PODS).await;
        (answer.route == Route::Served).then_some(answer)
    };
    let (before, version) = (until("the cache is filled", warm).await, get("jane-token", "/version").await);
    assert_eq!((version.status.as_u16(), get("john-token", PODS).await.status.as_u16()), (200, 403));
    drop(upstream);
    skip(TTL * 2).await;
    let now = until("an answer", warm).await;
    assert_eq!((now.status, now.text()), (before.status, before.text()));
    assert_eq!(get("jane-token", "/version").await.text(), version.text());
    for (token, path) in
        [("john-token", PODS), ("made-up", PODS), ("jane-token", "/api"), ("jane-token", "/api/v1/pods")]
    {
        let answer = get(token, path).await;
        assert_eq!(answer.status, 503, "{token} {path}");
        // Clients are told in words.
        assert!(!answer.headers.contains_key("kube-fanout-upstream"), "{path}");
    }
}

/// `clients.awayTTL`.
#[tokio::test]
async fn known_users_read_on_while_the_api_server_is_away() {
    for (away_ttl, has_fallback) in [(Duration::ZERO, false), (TTL * 60, false), (TTL * 60, true)] {
        let scene = Scene::start_with(|config| {
            let ClientsConfig::Delegated(clients) = &mut config.clients else { panic!("delegated") };
            clients.away_ttl = away_ttl;
            // The API server is one of several then.
            let fallback =
                FallbackConfig { servers: vec!["127.0.0.1:1".parse().unwrap()], ..FallbackConfig::default() };
            config.fallback = has_fallback.then_some(fallback);
        })
        .await;
        let before = scene.get("jane-token", PODS).await;
        // Of no resource.
        scene.upstream.grant("jane", "get", "");
        let version = scene.get("jane-token", "/version").await;
        assert_eq!(version.status, 200);
        assert_eq!(scene.get("john-token", PODS).await.status, 403);
        let Scene { sim: _sim, upstream, gateway } = scene;
        drop(upstream);
        skip(TTL * 2).await;
        let get = async |token: &str, path| {
            let bearer = format!("Bearer {token}");
            gateway.client.request("GET", path, &[("authorization", &bearer)], Bytes::new()).await
        };
        for _ in 0..2 {
            // The first one may find its connection lost.
            let now = until("an answer", async || {
                let now = get("jane-token", PODS).await;
                (now.route == Route::Served || away_ttl.is_zero()).then_some(now)
            })
            .await;
            if away_ttl.is_zero() {
                assert_eq!(now.status, 503);
                assert_eq!(get("jane-token", "/version").await.status, 503);
            } else {
                assert_eq!((now.status, now.text()), (before.status, before.text()));
                assert_eq!(get("jane-token", "/version").await.text(), version.text());
            }
            // Not allowed, not known, not asked before.
            for (token, path) in [
                ("john-token", PODS),
                ("john-token", "/version"),
                ("made-up", PODS),
                ("made-up", "/version"),
                ("jane-token", "/api"),
                ("jane-token", "/api/v1/namespaces/default/pods?resourceVersion=0"),
                ("jane-token", "/api/v1/pods"),
            ] {
                assert_eq!(get(token, path).await.status, 503, "{token} {path}");
            }
            skip(TTL * 20).await;
        }
        skip(TTL * 20).await;
        for path in [PODS, "/version"] {
            assert_eq!(get("jane-token", path).await.status, 503);
        }
    }
}
