//! Gets and lists: memory answers with upstream's own bytes, and every other read is forwarded for a named reason.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    apimachinery::GroupResource,
    config::MostRecentWatch,
    sim::{Features, Refusal, Sim},
};
use serde_json::json;

use crate::harness::{Route, World, forwarded, passing, upstream::pods};

/// A gateway whose cache is filled with pods, in namespaces whose order differs between paths as text and pairs of
/// namespace and name.
async fn with_pods() -> World {
    let world = World::start().await;
    for namespace in ["team", "team-a"] {
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}});
        world.sim.create(namespace).unwrap();
    }
    for (namespace, name, app) in [
        ("team", "a", "x"),
        ("team", "b", "y"),
        ("team-a", "a", "x"),
        ("team-a", "c", "y"),
        ("default", "z", "x"),
        ("kube-system", "m", "z"),
    ] {
        world.create_pod(namespace, name, app);
    }
    world.gateway.warm("/api/v1/pods").await;
    world
}

#[tokio::test]
async fn reads_that_need_not_be_fresh_are_upstreams_bytes_from_memory() {
    let world = with_pods().await;
    let head = world.sim.revision();
    for path in [
        "/api/v1/pods?resourceVersion=0".to_owned(),
        "/api/v1/pods?resourceVersion=0&limit=2".to_owned(),
        "/api/v1/namespaces/team/pods?resourceVersion=0".to_owned(),
        "/api/v1/namespaces/none/pods?resourceVersion=0".to_owned(),
        "/api/v1/pods?resourceVersion=0&labelSelector=app+in+(x,z)".to_owned(),
        "/api/v1/pods?resourceVersion=0&labelSelector=!app".to_owned(),
        "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-x".to_owned(),
        "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name!%3Da".to_owned(),
        "/api/v1/namespaces/team/pods?resourceVersion=0&fieldSelector=metadata.name%3Da".to_owned(),
        "/api/v1/namespaces/team/pods/a?resourceVersion=0".to_owned(),
        "/api/v1/namespaces/team/pods/nope?resourceVersion=0".to_owned(),
        format!("/api/v1/pods?resourceVersion={head}"),
        format!("/api/v1/pods?resourceVersion={head}&resourceVersionMatch=NotOlderThan&limit=2"),
        format!("/api/v1/pods?resourceVersion={head}&resourceVersionMatch=Exact"),
        format!("/api/v1/pods?resourceVersion={head}&limit=3"),
        format!("/api/v1/namespaces/team-a/pods?resourceVersion={head}&limit=1"),
        format!("/api/v1/pods?resourceVersion={head}&limit=1&labelSelector=app%3Dy"),
        format!("/api/v1/namespaces/team/pods/a?resourceVersion={head}"),
    ] {
        world.assert_same(&path, &Route::Served).await;
    }
}

#[tokio::test]
async fn reads_that_memory_cannot_answer_for_certain_go_upstream() {
    let world = with_pods().await;
    let head = world.sim.revision();
    for (path, reason) in [
        ("/api/v1/pods".to_owned(), "most_recent"),
        ("/api/v1/namespaces/team/pods/a".to_owned(), "most_recent"),
        ("/api/v1/pods?limit=2".to_owned(), "most_recent"),
        ("/api/v1/pods?resourceVersion=x".to_owned(), "invalid_options"),
        ("/api/v1/pods?resourceVersion=0&labelSelector=a%3D%3D%3D".to_owned(), "invalid_options"),
        ("/api/v1/pods?resourceVersion=0&fieldSelector=spec.made.up%3D1".to_owned(), "unsupported_field"),
        ("/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact".to_owned(), "outside_history"),
        (
            format!(
                "/api/v1/namespaces/team/pods?resourceVersion={head}&resourceVersionMatch=Exact\
                 &fieldSelector=metadata.name%3Da"
            ),
            "exact_single_name",
        ),
        ("/api/v1/namespaces/team/pods/a/status".to_owned(), "subresource"),
        ("/api/v1/events?resourceVersion=0".to_owned(), "excluded"),
        ("/api/v1/made-ups?resourceVersion=0".to_owned(), "unknown_resource"),
        ("/apis/made.up/v1/things?resourceVersion=0".to_owned(), "unknown_resource"),
        ("/version".to_owned(), "non_resource_path"),
        ("/api".to_owned(), "non_resource_path"),
    ] {
        world.assert_same(&path, &forwarded(reason)).await;
    }
}

#[tokio::test]
async fn requests_that_are_no_plain_reads_go_upstream() {
    let world = with_pods().await;
    let ask = async |method: Method, path: &str, headers: &[(&str, &str)]| {
        let answer = world.client().request(method.as_str(), path, headers, Default::default()).await;
        (answer.status.as_u16(), answer.route)
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let list = "/api/v1/pods?resourceVersion=0";
    for (method, path, headers, expected) in [
        (Method::GET, "/api/v1/events?resourceVersion=0", &[("accept", table)][..], (200, "representation")),
        (Method::GET, list, &[("impersonate-user", "alice")], (200, "impersonated")),
        (Method::DELETE, "/api/v1/namespaces/team/pods/b", &[], (200, "not_a_read")),
        (Method::GET, "/api/v1/namespaces/team/pods/%2E%2E", &[], (404, "ambiguous_path")),
        (Method::GET, "/api/v1//pods", &[], (404, "ambiguous_path")),
    ] {
        let (status, route) = ask(method.clone(), path, headers).await;
        assert_eq!((status, route), (expected.0, forwarded(expected.1)), "{method} {path} {headers:?}");
    }
}

#[tokio::test]
async fn pages_come_from_either_side_of_a_chain() {
    let world = with_pods().await;
    let head = world.sim.revision();
    let first = format!("/api/v1/pods?limit=2&resourceVersion={head}&resourceVersionMatch=NotOlderThan");
    let first = world.assert_same(&first, &Route::Served).await;
    // The next pages have the version of the first one, whatever has changed since.
    world.delete_pod("team/a");
    world.create_pod("kube-system", "new", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let mut token = continue_token(first.text());
    let mut pages = 1;
    while let Some(next) = token {
        let path = format!("/api/v1/pods?limit=2&continue={next}");
        token = continue_token(world.assert_same(&path, &Route::Served).await.text());
        pages += 1;
    }
    assert_eq!(pages, 3);
    // Pages that upstream started are continued from memory, too.
    let (_, first) = world.directly("/api/v1/pods?limit=2").await;
    let path = format!("/api/v1/pods?limit=2&continue={}", continue_token(&first).unwrap());
    world.assert_same(&path, &Route::Served).await;
    // A token whose version is gone is forwarded, so that upstream refuses it.
    world.sim.compact();
    let path = "/api/v1/pods?limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiIvYSJ9";
    let expired = world.assert_same(path, &forwarded("outside_history")).await;
    assert_eq!(expired.status, 410);
}

fn continue_token(list: &str) -> Option<String> {
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    list["metadata"]["continue"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn exact_versions_are_the_past_as_it_was() {
    let world = with_pods().await;
    let first = world.sim.revision();
    world.label_pod("team/a", "changed");
    world.delete_pod("team-a/c");
    world.create_pod("default", "new", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    for version in first..=world.sim.revision() {
        let path = format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
        world.assert_same(&path, &Route::Served).await;
    }
}

#[tokio::test]
async fn a_version_that_memory_has_not_reached_is_waited_for_then_forwarded() {
    let world = with_pods().await;
    world.sim.hold_watches(Some("pods"));
    world.create_pod("default", "new", "x");
    let path = format!("/api/v1/pods?resourceVersion={}", world.sim.revision());
    world.assert_same(&path, &forwarded("not_reached")).await;
    let (there, ()) = tokio::join!(world.client().get(&path), async { world.sim.release_watches(Some("pods")) });
    assert_eq!((there.status.as_u16(), &there.route), (200, &Route::Served));
    assert!(there.text().contains("\"name\":\"new\""));
}

#[tokio::test]
async fn custom_resources_follow_their_definition() {
    let world = World::start().await;
    let widgets = GroupResource { group: "example.com".into(), resource: "widgets".into() };
    let definitions =
        GroupResource { group: "apiextensions.k8s.io".into(), resource: "customresourcedefinitions".into() };
    let collection = "/apis/example.com/v1/widgets";
    let by_size = format!("{collection}?resourceVersion=0&fieldSelector=spec.size%3D2");
    let by_color = format!("{collection}?resourceVersion=0&fieldSelector=spec.color%3Dred");

    world.sim.create(definition(".spec.size")).unwrap();
    for (name, size) in [("one", "1"), ("two", "2")] {
        world.sim.create(widget(name, size)).unwrap();
    }
    world.gateway.warm(collection).await;
    world.assert_same(&format!("{collection}?resourceVersion=0"), &Route::Served).await;
    world.assert_same(&by_size, &Route::Served).await;
    world.assert_same(&by_color, &forwarded("unsupported_field")).await;

    // The definition is deleted: watches end, and upstream's answer is forwarded.
    let watch = world.client().watch(&format!("{collection}?watch=1&resourceVersion={}", world.sim.revision())).await;
    world.sim.delete(&definitions, "widgets.example.com").unwrap();
    let (events, _) = passing(Duration::from_secs(1), watch.rest()).await;
    assert_eq!(events.matches("DELETED").count(), 2, "{events}");
    let gone = world.gateway.until_forwarded(&format!("{collection}?resourceVersion=0"), "unknown_resource").await;
    assert_eq!(gone.status, 404);

    // The definition is created again with another schema.
    world.sim.create(definition(".spec.color")).unwrap();
    world.sim.create(widget("three", "3")).unwrap();
    world.gateway.warm_skipping(collection).await;
    world.assert_same(&format!("{collection}?resourceVersion=0"), &Route::Served).await;
    world.assert_same(&by_color, &Route::Served).await;
    world.assert_same(&by_size, &forwarded("unsupported_field")).await;
    assert_eq!(world.sim.objects(&widgets).unwrap().len(), 1);
}

#[tokio::test]
async fn without_the_right_to_list_api_services_only_certain_resources_are_cached() {
    let sim = Sim::new();
    let services = Some("apiservices.apiregistration.k8s.io".to_owned());
    sim.refuse(Refusal { resource: services, status: 403, ..Refusal::default() });
    sim.create(definition(".spec.size")).unwrap();
    sim.create(widget("one", "1")).unwrap();
    let world = World::start_with(sim, |_| {}).await;
    world.create_pod("default", "a", "x");
    for collection in ["/api/v1/pods", "/apis/example.com/v1/widgets"] {
        world.gateway.warm(collection).await;
        world.assert_same(&format!("{collection}?resourceVersion=0"), &Route::Served).await;
    }
    // Another server could be responsible for deployments.
    let deployments = "/apis/apps/v1/deployments?resourceVersion=0";
    world.gateway.until_forwarded(deployments, "undiscovered").await;
    world.assert_same(deployments, &forwarded("undiscovered")).await;
}

pub(crate) fn definition(selectable: &str) -> serde_json::Value {
    let version =
        json!({"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": selectable}]});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"}}})
}

pub(crate) fn widget(name: &str, size: &str) -> serde_json::Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": size, "color": "red"}})
}

#[tokio::test]
async fn most_recent_watches_can_be_left_to_upstream() {
    let world = World::start_with(Sim::new(), |config| config.reads.most_recent_watch = MostRecentWatch::Forward).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let watched = world.client().get("/api/v1/pods?watch=1&timeoutSeconds=1").await;
    assert_eq!(watched.route, forwarded("most_recent"));
    assert_eq!(world.sim.objects(&pods()).unwrap().len(), 1);
}

#[tokio::test]
async fn pages_of_metadata_tell_how_many_objects_follow_where_upstream_does() {
    const ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (features, route) in [(Features::default(), Route::Served), (Features::old(), forwarded("representation"))] {
        let world = World::start_lacking(features).await;
        world.create_pod("default", "a", "x");
        world.create_pod("default", "b", "x");
        world.gateway.warm("/api/v1/pods").await;
        let path = format!("/api/v1/pods?resourceVersion={}&limit=1", world.sim.revision());
        let answer = world.client().request("GET", &path, &[("accept", ACCEPT)], Bytes::new()).await;
        let request = Request::get(&path).header("accept", ACCEPT).body(Full::default()).unwrap();
        let direct = world.sim.handle(request).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((answer.body, answer.route), (direct, route), "{features:?}");
    }
}
