//! The audit log, as clients and operators see it.

use std::time::Duration;

use kube_fanout::{config::AuditMode, sim::Sim};
use serde_json::json;

use crate::{
    delegated::{Scene, TTL, events},
    harness::{Route, World, forwarded, passing, skip, until, within},
};

const PODS: &str = "/api/v1/pods?resourceVersion=0";
const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1800";
/// Events are never cached: this watch is forwarded.
const FORWARDED: &str = "/api/v1/events?watch=1&timeoutSeconds=1800";

#[tokio::test]
async fn reads_that_cannot_be_logged_are_not_answered_from_memory() {
    let scene = Scene::start_with(|config| config.audit.path = Some("/dev/full".into())).await;
    let unaudited = async || (scene.get("jane-token", PODS).await.route == forwarded("unaudited")).then_some(());
    until("the first event has failed to be written", unaudited).await;
    for _ in 0..20 {
        let answer = scene.get("jane-token", PODS).await;
        assert_eq!((answer.status.as_u16(), &answer.route), (200, &forwarded("unaudited")));
        assert!(answer.text().contains(r#""name":"a""#), "{}", answer.text());
    }
    let watch = WATCH.replace("1800", "1");
    assert_eq!(scene.get("jane-token", &watch).await.route, forwarded("unaudited"));
}

/// Before anything else: they cause no reviews and no caches.
#[tokio::test]
async fn reads_that_cannot_be_logged_are_forwarded_at_once() {
    let scene = Scene::start_with(|config| config.audit.path = Some("/dev/full".into())).await;
    let unaudited = async || (scene.get("jane-token", PODS).await.route == forwarded("unaudited")).then_some(());
    until("the first event has failed to be written", unaudited).await;
    for verb in ["list", "watch"] {
        scene.upstream.grant("jane", verb, "configmaps");
    }
    let (reviews, asked) = (scene.upstream.reviews(), scene.sim.counts());
    let new_to_the_gateway = [
        ("jane-token", "/api/v1/configmaps?resourceVersion=0"),
        ("jane-token", "/api/v1/namespaces/default/pods?resourceVersion=0"),
        ("john-token", PODS),
    ];
    for (token, path) in new_to_the_gateway {
        assert_eq!(scene.get(token, path).await.route, forwarded("unaudited"), "{token} {path}");
    }
    assert_eq!(scene.upstream.reviews(), reviews);
    let more = |verb, resource| scene.sim.counts().requests(verb, resource) - asked.requests(verb, resource);
    // John's list is denied before it is counted.
    assert_eq!((more("list", "configmaps"), more("watch", "configmaps"), more("list", "pods")), (1, 0, 1));
}

/// It causes no review while nothing can be logged, and continues from memory afterwards, although nothing happens.
#[tokio::test]
async fn a_forwarded_watch_waits_for_the_log_to_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let [there, away] = ["there", "away"].map(|name| folder.path().join(name));
    std::fs::create_dir(&there).unwrap();
    let scene = Scene::start_with(|config| {
        config.audit.path = Some(there.join("audit.log"));
        config.reads.fill_wait = Duration::ZERO;
    })
    .await;
    for verb in ["list", "watch"] {
        scene.upstream.grant("jane", verb, "configmaps");
    }
    scene.sim.hold_requests("list", "configmaps");
    let path = format!(
        "/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1800&allowWatchBookmarks=true",
        scene.sim.revision()
    );
    let watch = scene.gateway.client.watch_with(&path, &[("authorization", "Bearer jane-token")]).await;
    std::fs::rename(&there, &away).unwrap();
    let unaudited = async || (scene.get("jane-token", PODS).await.route == forwarded("unaudited")).then_some(());
    until("an event has failed to be written", unaudited).await;
    // Jane's verdicts are forgotten.
    skip(TTL + Duration::from_secs(1)).await;
    let reviews = scene.upstream.reviews();
    scene.sim.release_requests();
    let filled = scene.sim.until(|counts| counts.open_watches("configmaps") == 2);
    within("the cache's own watch", passing(Duration::from_millis(100), filled)).await;
    for _ in 0..30 {
        skip(Duration::from_secs(1)).await;
        assert_eq!(scene.get("jane-token", "/version").await.route, forwarded("non_resource_path"));
    }
    assert_eq!((scene.upstream.reviews(), scene.sim.counts().open_watches("configmaps")), (reviews, 2));
    std::fs::rename(&away, &there).unwrap();
    let (_, route) = within("its end", passing(Duration::from_millis(500), watch.rest())).await;
    assert_eq!(route, forwarded("cache_filling"));
}

#[tokio::test]
async fn in_best_effort_mode_reads_are_still_answered() {
    let scene = Scene::start_with(|config| {
        config.audit.path = Some("/dev/full".into());
        config.audit.mode = AuditMode::BestEffort;
    })
    .await;
    for _ in 0..200 {
        assert_eq!(scene.get("jane-token", PODS).await.route, Route::Served);
    }
}

#[tokio::test]
async fn refusals_of_the_gateway_itself_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let scene = Scene::start_with(|config| {
        config.audit.path = Some(path.clone());
        config.limits.watches_per_client = 1;
        config.limits.forwarded_per_client = 1;
    })
    .await;
    scene.upstream.grant("jane", "watch", "events");
    let jane = [("authorization", "Bearer jane-token"), ("x-forwarded-for", "10.1.2.3")];
    let mut refused = Vec::new();
    for (path, reason) in [(WATCH, "client_watches"), (FORWARDED, "client_share")] {
        let first = scene.gateway.client.watch_with(path, &jane).await;
        let second = scene.ask("GET", path, &jane).await;
        assert_eq!((second.status.as_u16(), second.route), (429, Route::Rejected(reason.to_owned())));
        refused.push((path, second.headers["audit-id"].to_str().unwrap().to_owned()));
        drop(first);
    }
    // The audit ID that the client has sent is kept. A request that could be understood in two ways is refused before
    // the user is known.
    let ambiguous = [("audit-id", "of-the-client"), ("host", "a"), ("host", "b")];
    let answer = scene.ask("GET", PODS, &ambiguous).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["audit-id"]), (400, &"of-the-client".parse().unwrap()));
    scene.gateway.stop().drained().await;

    let events = events(&path);
    let of =
        |id: &str| events.iter().find(|event| event["auditID"] == id).unwrap_or_else(|| panic!("{id}: {events:?}"));
    for (uri, id) in refused {
        let event = of(&id);
        assert_eq!((&event["requestURI"], &event["stage"]), (&json!(uri), &json!("ResponseComplete")));
        assert_eq!((&event["user"]["username"], &event["verb"]), (&json!("jane"), &json!("watch")));
        assert_eq!(event["sourceIPs"], json!(["10.1.2.3", "127.0.0.1"]));
        let status = &event["responseStatus"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
        assert_eq!(event["annotations"], json!({"kube-fanout.io/answered-from": "gateway"}));
    }
    let malformed = of("of-the-client");
    assert_eq!((&malformed["responseStatus"]["code"], &malformed["user"]), (&json!(400), &json!({})));
}

/// In trusted mode, which does not distinguish users.
#[tokio::test]
async fn web_pages_that_are_refused_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let world = World::start_with(Sim::new(), |config| config.audit.path = Some(path.clone())).await;
    let page = [("origin", "http://evil.example"), ("audit-id", "of-the-page")];
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let answer = world.client().request("POST", bindings, &page, "{}".into()).await;
    assert_eq!((answer.status.as_u16(), answer.route), (403, Route::Rejected("foreign_origin".to_owned())));
    world.gateway.stop().drained().await;

    let events = events(&path);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&event["auditID"], &event["stage"]), (&json!("of-the-page"), &json!("ResponseComplete")));
    assert_eq!((&event["verb"], &event["requestURI"]), (&json!("create"), &json!(bindings)));
    assert_eq!((&event["user"], &event["sourceIPs"]), (&json!({}), &json!(["127.0.0.1"])));
    let status = &event["responseStatus"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")));
    assert!(status["message"].as_str().unwrap().contains("clients.acceptOrigins"), "{status}");
    assert_eq!(event["annotations"], json!({"kube-fanout.io/answered-from": "gateway"}));
}

#[tokio::test]
async fn a_line_of_the_access_log_names_user_address_and_audit_id() {
    let scene = Scene::start().await;
    let local = || scene.gateway.client.clone();
    let elsewhere = || scene.gateway.client.at([127, 0, 0, 2]);
    let [jane, john, unknown] = ["jane-token", "john-token", "unknown-token"].map(|token| format!("Bearer {token}"));
    let own = ("audit-id", "of-the-client");
    for (client, headers, (outcome, user, address)) in [
        (local(), &[("authorization", jane.as_str())][..], ("served", Some("jane"), "127.0.0.1")),
        (elsewhere(), &[("authorization", &jane), own], ("served", Some("jane"), "127.0.0.2")),
        (elsewhere(), &[("authorization", &john), own], ("forwarded", Some("john"), "127.0.0.2")),
        (local(), &[("authorization", &unknown), own], ("forwarded", None, "127.0.0.1")),
        (local(), &[("host", "a"), ("host", "b")], ("rejected", None, "127.0.0.1")),
    ] {
        let (user_agent, answer) = client.asked("GET", PODS, headers).await;
        let line = client.log().line(&user_agent);
        let field = |name| line.get(name).map(String::as_str);
        let who = (field("outcome"), field("user"), field("address"));
        assert_eq!(who, (Some(outcome), user, Some(address)), "{headers:?}: {line:?}");
        // The answer's audit ID, by which it is found in the audit log. This upstream sets none.
        let id = answer.headers.get("audit-id").map(|id| id.to_str().unwrap());
        assert_eq!((field("audit_id"), id.is_some()), (id, outcome != "forwarded"), "{headers:?}: {line:?}");
        assert!(id.is_none_or(|id| (id == own.1) == headers.contains(&own)), "{headers:?}: {line:?}");
    }
}

/// A client that does not read its answers takes no space in the log's queue: answers are logged when they start.
#[tokio::test]
async fn unread_answers_are_logged_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let scene = Scene::start_with(|config| config.audit.path = Some(path.clone())).await;
    let client = scene.gateway.client.taking_a_byte();
    let get = "/api/v1/namespaces/default/pods/a?resourceVersion=0";
    let _unread = client.watch_with(get, &[("authorization", "Bearer jane-token")]).await;
    let logged = async || {
        let gets = events(&path).into_iter().filter(|event| event["verb"] == "get").count();
        (gets == 1).then_some(())
    };
    until("the event of an answer that is not read", logged).await;
}
