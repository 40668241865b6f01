//! Tests the server from the view of its clients. Bodies were compared with recorded responses of a 1.36 server.

use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use http_body_util::{BodyExt, BodyStream, Full};
use serde_json::{Value, json};

use crate::*;
use base::apimachinery::GroupResource;

struct Answer {
    code: u16,
    body: String,
}

async fn ask(sim: &Sim, method: &str, path: &str, body: Value) -> Answer {
    ask_as(sim, method, path, body, "application/json").await
}

async fn ask_as(sim: &Sim, method: &str, path: &str, body: Value, content_type: &str) -> Answer {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = sim.handle(request.body(Full::new(body)).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn get(sim: &Sim, path: &str) -> Answer {
    ask(sim, "GET", path, Value::Null).await
}

/// The lines of a watch, as they arrive.
async fn watch(sim: &Sim, path: &str) -> impl futures_util::Stream<Item = Result<String, Cut>> + use<> {
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let frames = BodyStream::new(sim.handle(request).await.into_body());
    frames.map(|frame| Ok(String::from_utf8(frame?.into_data().unwrap().to_vec()).unwrap())).boxed()
}

/// `ADDED name@version` for each event in the text.
fn events(text: &str) -> Vec<String> {
    let summary = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or("-");
        format!("{} {name}@{}", event["type"].as_str().unwrap(), metadata["resourceVersion"].as_str().unwrap_or("-"))
    };
    text.lines().map(summary).collect()
}

fn config_map(name: &str, app: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn config_maps() -> GroupResource {
    GroupResource { group: "".into(), resource: "configmaps".into() }
}

fn widgets_crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
        "versions": [
            {"name": "v1beta1", "served": true, "storage": false, "deprecated": true},
            {"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.size"}]},
        ]}})
}

/// The namespaces of a new server take revisions 1 to 5.
fn with_config_maps(names: &[&str]) -> Sim {
    let sim = Sim::new();
    for name in names {
        sim.create(config_map(name, name)).unwrap();
    }
    sim
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn lists_follow_the_version_the_match_and_the_limit() {
    let sim = with_config_maps(&["a", "b", "c"]);
    sim.delete(&config_maps(), "default/c").unwrap();
    for (query, expected) in [
        ("", "9: a b"),
        ("?limit=1", "9: a +1"),
        ("?resourceVersion=0&limit=1", "9: a b"),
        ("?resourceVersion=7", "9: a b"),
        ("?resourceVersion=7&limit=1", "7: a +1"),
        ("?resourceVersion=8&resourceVersionMatch=Exact", "8: a b c"),
        ("?resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1", "9: a +1"),
        ("?resourceVersion=7&limit=1&fieldSelector=metadata.name%3Da", "9: a"),
        ("?labelSelector=app+in+(b,c)", "9: b"),
        ("?labelSelector=app%3Da&limit=1", "9: a +"),
        ("?fieldSelector=metadata.name!%3Da", "9: b"),
        ("?fieldSelector=metadata.name%3Dzzz", "9:"),
    ] {
        let answer = get(&sim, &format!("{CONFIG_MAPS}{query}")).await;
        let list: Value = serde_json::from_str(&answer.body).unwrap();
        let metadata = &list["metadata"];
        let mut text = format!("{}:", metadata["resourceVersion"].as_str().unwrap_or(&answer.body));
        for item in list["items"].as_array().unwrap() {
            text += &format!(" {}", item["metadata"]["name"].as_str().unwrap());
        }
        if metadata.get("continue").is_some() {
            text += &format!(" +{}", metadata["remainingItemCount"]).replace("null", "");
        }
        assert_eq!(text, expected, "{query}");
    }
}

#[tokio::test]
async fn consecutive_pages_have_one_version_until_it_is_compacted() {
    let sim = with_config_maps(&["a", "b", "c"]);
    let token = |answer: &Answer| {
        let list: Value = serde_json::from_str(&answer.body).unwrap();
        list["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    let first = token(&get(&sim, &format!("{CONFIG_MAPS}?limit=1")).await);
    sim.delete(&config_maps(), "default/b").unwrap();
    let second = get(&sim, &format!("{CONFIG_MAPS}?limit=1&continue={first}")).await;
    assert!(
        second.body.contains(r#""name":"b""#) && second.body.contains(r#"{"resourceVersion":"8""#),
        "{}",
        second.body
    );

    sim.compact();
    let expired = get(&sim, &format!("{CONFIG_MAPS}?limit=5&continue={first}")).await;
    assert_eq!(expired.code, 410, "{}", expired.body);
    let rest = get(&sim, &format!("{CONFIG_MAPS}?limit=5&continue={}", token(&expired))).await;
    assert!(rest.body.contains(r#"{"resourceVersion":"9"},"items":[{"metadata":{"name":"c""#), "{}", rest.body);
}

#[tokio::test]
async fn a_read_waits_for_a_future_version() {
    tokio::time::pause();
    let sim = with_config_maps(&["a"]);
    let late = get(&sim, &format!("{CONFIG_MAPS}?resourceVersion=8")).await;
    assert_eq!(
        late.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"Timeout: Too large resource version: 8, current: 6","reason":"Timeout","#,
            r#""details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"#,
            r#""retryAfterSeconds":1},"code":504}"#,
            "\n"
        )
    );
    let path = format!("{CONFIG_MAPS}/a?resourceVersion=7");
    let (there, ()) = tokio::join!(get(&sim, &path), async { sim.skip_revisions(1) });
    assert_eq!(there.code, 200);
}

#[tokio::test]
async fn a_watch_list_sends_its_bookmark_and_then_changes() {
    let sim = with_config_maps(&["a", "b"]);
    let mut stream = watch(
        &sim,
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    )
    .await;
    let mut next = async || stream.next().await.unwrap().unwrap();
    assert_eq!(events(&next().await), ["ADDED a@6", "ADDED b@7"]);
    assert_eq!(
        next().await,
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7","#,
            r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "\n"
        )
    );
    sim.update(config_map("a", "new")).unwrap();
    sim.delete(&config_maps(), "default/b").unwrap();
    assert_eq!(events(&next().await), ["MODIFIED a@8", "DELETED b@9"]);
}

#[tokio::test]
async fn an_object_that_leaves_a_selector_is_deleted_with_its_old_content_at_the_new_version() {
    let sim = with_config_maps(&["a"]);
    let mut stream = watch(&sim, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=6&labelSelector=app%3Da")).await;
    sim.update(config_map("a", "other")).unwrap();
    sim.update(config_map("a", "another")).unwrap();
    sim.update(config_map("a", "a")).unwrap();
    let text = stream.next().await.unwrap().unwrap();
    assert_eq!(events(&text), ["DELETED a@7", "ADDED a@9"]);
    assert!(text.lines().all(|line| line.contains(r#""labels":{"app":"a"}"#)), "{text}");
}

#[tokio::test]
async fn a_version_that_is_too_old_is_an_error_event() {
    let sim = Sim::with_history(2);
    for name in ["a", "b", "c", "d"] {
        sim.create(config_map(name, name)).unwrap();
    }
    let gone = get(&sim, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=6")).await;
    let expected = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version: 6 (7)","reason":"Expired","code":410}}"#,
        "\n"
    );
    assert_eq!((gone.code, &*gone.body), (200, expected));
    let kept = get(&sim, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=7&timeoutSeconds=1")).await;
    assert_eq!(events(&kept.body), ["ADDED c@8", "ADDED d@9"]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_precedes_the_end_if_anything_was_written() {
    let sim = with_config_maps(&["a"]);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=6&allowWatchBookmarks=true&timeoutSeconds=3");
    assert_eq!(get(&sim, &path).await.body, "");
    sim.skip_revisions(1);
    let began = tokio::time::Instant::now();
    let mut stream = watch(&sim, &path).await;
    let bookmark = stream.next().await.unwrap().unwrap();
    assert_eq!((events(&bookmark), began.elapsed().as_secs()), (vec!["BOOKMARK -@7".to_owned()], 1));
    assert_eq!((stream.next().await, began.elapsed().as_secs()), (None, 3));
    let short = path.replace("timeoutSeconds=3", "timeoutSeconds=2");
    assert_eq!(get(&sim, &short).await.body, "");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_version_is_silent() {
    let sim = with_config_maps(&["a"]);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=9&allowWatchBookmarks=true&timeoutSeconds=5");
    let mut stream = watch(&sim, &path).await;
    for name in ["b", "c", "d", "e"] {
        sim.create(config_map(name, "")).unwrap();
    }
    assert_eq!(events(&stream.next().await.unwrap().unwrap()), ["ADDED e@10"]);
}

#[tokio::test]
async fn writes_follow_the_rules_of_the_api_server() {
    let sim = with_config_maps(&["a"]);
    let path = format!("{CONFIG_MAPS}/a");
    let stale = {
        let mut object = config_map("a", "x");
        object["metadata"]["resourceVersion"] = "5".into();
        object
    };
    let conflict = ask(&sim, "PUT", &path, stale).await;
    assert_eq!(conflict.code, 409);
    assert!(conflict.body.contains(concat!(
        r#""message":"Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply "#,
        r#"your changes to the latest version and try again","reason":"Conflict","#,
        r#""details":{"name":"a","kind":"configmaps"},"code":409"#
    )));
    let exists = ask(&sim, "POST", CONFIG_MAPS, config_map("a", "")).await;
    assert_eq!(exists.code, 409);
    let homeless = ask(&sim, "POST", "/api/v1/namespaces/nope/configmaps", json!({"metadata": {"name": "x"}})).await;
    assert_eq!(homeless.code, 404);
    let generated = ask(&sim, "POST", CONFIG_MAPS, json!({"metadata": {"generateName": "gen-"}})).await;
    assert!(generated.code == 201 && generated.body.contains(r#"{"name":"gen-"#), "{}", generated.body);

    let merge = json!({"data": {"k": "<v>"}});
    let merged = ask_as(&sim, "PATCH", &path, merge.clone(), "application/merge-patch+json").await;
    assert!(merged.body.ends_with("\"data\":{\"k\":\"\\u003cv\\u003e\"}}\n"), "{}", merged.body);
    let again = ask_as(&sim, "PATCH", &path, merge, "application/merge-patch+json").await;
    assert_eq!(again.body, merged.body, "nothing changed: no new version");
    let operations = json!([{"op": "test", "path": "/data/k", "value": "<v>"}, {"op": "remove", "path": "/data"}]);
    let patched = ask_as(&sim, "PATCH", &path, operations.clone(), "application/json-patch+json").await;
    assert!(patched.code == 200 && !patched.body.contains(r#""data":"#), "{}", patched.body);
    let failed = ask_as(&sim, "PATCH", &path, operations, "application/json-patch+json").await;
    assert_eq!(failed.code, 422, "{}", failed.body);
    let applied = ask_as(&sim, "PATCH", &path, json!({}), "application/apply-patch+yaml").await;
    assert!(applied.code == 415 && applied.body.contains("application/merge-patch+json"), "{}", applied.body);

    let deleted = ask(&sim, "DELETE", &path, Value::Null).await;
    assert!(deleted.body.contains(r#""status":"Success","details":{"name":"a","kind":"configmaps","uid":"#));
    assert_eq!(ask(&sim, "DELETE", &path, Value::Null).await.code, 404);
}

#[tokio::test]
async fn an_object_is_deleted_when_its_last_finalizer_is_removed() {
    let sim = Sim::new();
    let mut object = config_map("a", "");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    sim.create(object).unwrap();
    let deleted = ask(&sim, "DELETE", &format!("{CONFIG_MAPS}/a"), Value::Null).await;
    assert!(deleted.code == 200 && deleted.body.contains("deletionTimestamp"), "{}", deleted.body);
    let freed = json!({"metadata": {"finalizers": null}});
    ask_as(&sim, "PATCH", &format!("{CONFIG_MAPS}/a"), freed, "application/merge-patch+json").await;
    assert_eq!(get(&sim, &format!("{CONFIG_MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn custom_resources_exist_as_long_as_their_definition() {
    let sim = Sim::new();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(get(&sim, path).await.body, "404 page not found\n");
    sim.create(widgets_crd()).unwrap();
    let widget = |name: &str, size: u32| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"size": size}})
    };
    for (name, size) in [("s", 1), ("l", 9)] {
        assert_eq!(ask(&sim, "POST", path, widget(name, size)).await.code, 201);
    }
    let selected = get(&sim, &format!("{path}?fieldSelector=spec.size%3D9")).await;
    let (head, tail) = (
        concat!(
            r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","#,
            r#""metadata":{"creationTimestamp":""#,
        ),
        concat!(r#"}],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"8"}}"#, "\n"),
    );
    assert!(selected.body.starts_with(head) && selected.body.ends_with(tail), "{}", selected.body);
    assert_eq!(selected.body.matches(r#""name":"#).count(), 1);
    let other = get(&sim, "/apis/example.com/v1beta1/namespaces/default/widgets/s").await;
    assert!(other.body.starts_with(r#"{"apiVersion":"example.com/v1beta1","kind":"Widget""#), "{}", other.body);

    let old = get(&sim, &format!("{path}?watch=1&resourceVersion=1")).await;
    assert!(old.body.contains("too old resource version: 1 (6)"), "{}", old.body);
    let mut stream = watch(&sim, &format!("{path}?watch=1&resourceVersion=8")).await;
    let crds = GroupResource { group: "apiextensions.k8s.io".into(), resource: "customresourcedefinitions".into() };
    sim.delete(&crds, "widgets.example.com").unwrap();
    assert_eq!(events(&stream.next().await.unwrap().unwrap()), ["DELETED l@9", "DELETED s@10"]);
    assert_eq!(stream.next().await, None);
    assert_eq!(get(&sim, path).await.body, "404 page not found\n");
}

#[tokio::test]
async fn watches_can_be_held_cut_and_ended() {
    let sim = Sim::new();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=5");
    let (mut held, mut cut) = (watch(&sim, &path).await, watch(&sim, &path).await);
    sim.until(|counts| counts.open_watches("configmaps") == 2).await;
    assert_eq!(sim.counts().requests("watch", "configmaps"), 2);
    sim.hold_watches(None);
    sim.create(config_map("a", "")).unwrap();
    let mut free = watch(&sim, &path).await;
    assert_eq!(events(&free.next().await.unwrap().unwrap()), ["ADDED a@6"]);
    assert!(futures_util::poll!(held.next()).is_pending());
    sim.release_watches(None);
    assert_eq!(events(&held.next().await.unwrap().unwrap()), ["ADDED a@6"]);
    sim.cut_watches(Some("configmaps"));
    assert_eq!(cut.next().await, Some(Err(Cut)));
    sim.end_watches(None);
    assert_eq!(free.next().await, None);
    drop((held, cut, free));
    sim.until(|counts| counts.all_open_watches() == 0).await;
}

#[tokio::test]
async fn after_a_restore_revisions_continue_from_the_backup() {
    let sim = with_config_maps(&["a", "b"]);
    sim.rewind(6).unwrap();
    assert!(
        get(&sim, CONFIG_MAPS)
            .await
            .body
            .starts_with(r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"6"}"#)
    );
    let made = sim.create(config_map("c", "")).unwrap();
    assert_eq!(made["metadata"]["resourceVersion"], "7");
    let names: Vec<_> =
        sim.objects(&config_maps()).unwrap().iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test]
async fn an_old_server_has_no_watch_list() {
    let sim = with_config_maps(&["a"]);
    sim.set_features(Features::old());
    let refused = get(
        &sim,
        &format!(
            "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ),
    )
    .await;
    assert!(
        refused.code == 422 && refused.body.contains("resourceVersionMatch is forbidden for watch\""),
        "{}",
        refused.body
    );
    let plain = get(&sim, &format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1")).await;
    assert_eq!(events(&plain.body), ["ADDED a@6"]);
}

#[tokio::test]
async fn discovery_has_the_aggregated_and_the_older_format() {
    let sim = Sim::new();
    sim.create(widgets_crd()).unwrap();
    let groups = get(&sim, "/apis").await.body;
    assert!(groups.contains(concat!(
        r#"{"name":"example.com","preferredVersion":{"groupVersion":"example.com/v1","version":"v1"},"#,
        r#""versions":[{"groupVersion":"example.com/v1","version":"v1"}"#
    )));
    let resources = get(&sim, "/apis/example.com/v1").await.body;
    assert!(resources.contains(r#""name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget""#));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/api").header("accept", accept).body(Full::new(Bytes::new())).unwrap();
    let response = sim.handle(request).await;
    assert_eq!(response.headers()["content-type"], accept);
    assert_eq!(get(&sim, "/version").await.body.matches(GIT_VERSION).count(), 1);
}

#[tokio::test]
async fn a_restart_keeps_the_data_and_drops_the_history() {
    let sim = with_config_maps(&["a"]);
    let mut server = sim.start().await.unwrap();
    let address = server.address();
    server.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    server.start_again().await.unwrap();
    assert_eq!(server.address(), address);
    assert!(tokio::net::TcpStream::connect(address).await.is_ok());
    assert!(get(&sim, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=5")).await.body.contains("too old"));
    assert_eq!(get(&sim, &format!("{CONFIG_MAPS}/a")).await.code, 200);
    server.kill().await;
}
