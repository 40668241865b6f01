//! Tables from memory. The conformance suite compares their cells with those of real servers.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    apimachinery::GroupResource,
    config::MostRecentReads,
    sim::{Refusal, Sim},
};
use serde_json::{Value, json};

use crate::{
    harness::{Answer, Route, World, forwarded, passing, until, upstream::pod, within},
    reads::{definition, widget},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const KUBECTL: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const WIDGETS: &str = "/apis/example.com/v1/widgets";
const ALL: &str = "/apis/example.com/v1/widgets?resourceVersion=0";

fn definitions() -> GroupResource {
    GroupResource { group: "apiextensions.k8s.io".into(), resource: "customresourcedefinitions".into() }
}

fn config_maps() -> GroupResource {
    GroupResource { group: "".into(), resource: "configmaps".into() }
}

async fn with_widgets(count: usize) -> World {
    let sim = Sim::new();
    sim.create(definition(".spec.size")).unwrap();
    for number in 0..count {
        let mut widget = widget(&format!("w-{number:03}"), &number.to_string());
        widget["metadata"]["annotations"] = json!({"text": "<x>".repeat(500)});
        widget["metadata"]["labels"] = json!({"odd": (number % 2).to_string()});
        sim.create(widget).unwrap();
    }
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm(WIDGETS).await;
    world
}

async fn table(world: &World, path: &str) -> Answer {
    world.client().request("GET", path, &[("accept", TABLE)], Default::default()).await
}

/// Without ages.
fn masked(text: &str) -> String {
    let is_age = |part: &&str| part.strip_suffix('s').is_some_and(|age| age.parse::<u32>().is_ok());
    text.split('"').map(|part| if is_age(&part) { "*" } else { part }).collect::<Vec<_>>().join("\"")
}

async fn assert_same(world: &World, path: &str, accept: &str, route: &Route) {
    let answer = world.client().request("GET", path, &[("accept", accept)], Default::default()).await;
    let request = Request::get(path).header("accept", accept).body(Full::default()).unwrap();
    let direct = world.sim.handle(request).await;
    let (status, content) = (direct.status(), direct.headers().get("content-type").cloned());
    let body = direct.into_body().collect().await.unwrap().to_bytes();
    assert_eq!((answer.status, answer.headers.get("content-type").cloned()), (status, content), "{path}");
    assert_eq!(masked(answer.text()), masked(str::from_utf8(&body).unwrap()), "{path}");
    assert_eq!(answer.route, *route, "{path}");
}

#[tokio::test]
async fn tables_of_custom_resources_come_from_memory() {
    let world = with_widgets(200).await;
    let one = "/apis/example.com/v1/namespaces/default/widgets/w-007?resourceVersion=0";
    let version = world.sim.revision();
    for path in [
        ALL.to_owned(),
        format!("{ALL}&includeObject=None"),
        format!("{ALL}&includeObject=Object"),
        format!("{ALL}&pretty=1"),
        format!("{ALL}&labelSelector=odd%3D1"),
        format!("{ALL}&labelSelector=odd%3D2"),
        format!("{WIDGETS}?resourceVersion={version}&limit=3"),
        one.to_owned(),
        format!("{one}&includeObject=None"),
        format!("{one}&includeObject=Object&pretty=1"),
    ] {
        for accept in [TABLE, KUBECTL, "application/json;as=Table;v=v1beta1;g=meta.k8s.io"] {
            assert_same(&world, &path, accept, &Route::Served).await;
        }
    }
    for (path, reason) in [
        (format!("{ALL}&includeObject=Some"), "invalid_options"),
        (
            format!("{WIDGETS}/nope?resourceVersion=0").replace("/widgets", "/namespaces/default/widgets"),
            "representation",
        ),
        (WIDGETS.to_owned(), "most_recent"),
    ] {
        assert_same(&world, &path, TABLE, &forwarded(reason)).await;
    }
}

/// Short Tables are sent in one piece, long ones are made while they are sent.
#[tokio::test]
async fn a_table_is_compressed_from_128_kib_on_indented_or_not() {
    let world = with_widgets(40).await;
    let version = world.sim.revision();
    let mut compressed = Vec::new();
    for count in [5, 15, 18, 19, 20, 39] {
        for pretty in ["", "&pretty=1"] {
            let path = format!("{WIDGETS}?resourceVersion={version}&limit={count}{pretty}");
            let plain = table(&world, &path).await;
            let headers = [("accept", TABLE), ("accept-encoding", "gzip")];
            let answer = world.client().request("GET", &path, &headers, Default::default()).await;
            let is_long = plain.text().len() > 128 << 10;
            assert_eq!(answer.headers.contains_key("content-encoding"), is_long, "{path}");
            assert_eq!((plain.route, answer.route), (Route::Served, Route::Served));
            compressed.push(is_long);
        }
    }
    assert_eq!(compressed.iter().filter(|is_long| **is_long).count(), 5, "{compressed:?}");
}

#[tokio::test]
async fn a_table_costs_upstream_the_definition_s_metadata() {
    let world = with_widgets(3).await;
    table(&world, ALL).await;
    let before = world.sim.counts();
    for _ in 0..5 {
        assert_eq!(table(&world, ALL).await.route, Route::Served);
    }
    let after = world.sim.counts();
    let asked = |verb, resource| after.requests(verb, resource) - before.requests(verb, resource);
    assert_eq!(asked("get", "customresourcedefinitions.apiextensions.k8s.io"), 5);
    assert_eq!((asked("list", "widgets.example.com"), asked("get", "widgets.example.com")), (0, 0));
}

#[tokio::test]
async fn a_changed_definition_is_never_printed_in_its_old_form() {
    let world = with_widgets(3).await;
    assert_same(&world, ALL, TABLE, &Route::Served).await;
    // Upstream has not ended the watch yet.
    world
        .sim
        .modify(&definitions(), "widgets.example.com", |definition| {
            definition["spec"]["versions"][0]["additionalPrinterColumns"] =
                json!([{"name": "Size", "type": "string", "jsonPath": ".spec.size"}]);
        })
        .unwrap();
    assert_same(&world, ALL, TABLE, &forwarded("unprintable")).await;
    assert_eq!(world.client().get(ALL).await.route, Route::Served);
}

#[tokio::test]
async fn a_table_is_forwarded_unless_upstream_confirms_its_columns() {
    let world = with_widgets(3).await;
    assert_same(&world, ALL, TABLE, &Route::Served).await;
    let resource = Some("customresourcedefinitions.apiextensions.k8s.io".to_owned());
    world.sim.refuse(Refusal { resource, status: 403, ..Refusal::default() });
    assert_same(&world, ALL, TABLE, &forwarded("unprintable")).await;
    world.sim.accept_all();
    assert_same(&world, ALL, TABLE, &Route::Served).await;
}

/// The embedded server prints no columns but a definition's default ones.
#[tokio::test]
async fn columns_that_upstream_does_not_print_are_not_printed() {
    let sim = Sim::new();
    let mut columns = definition(".spec.size");
    columns["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Size", "type": "string", "jsonPath": ".spec.size"}]);
    sim.create(columns).unwrap();
    sim.create(widget("a", "1")).unwrap();
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm(WIDGETS).await;
    assert_same(&world, ALL, TABLE, &forwarded("unprintable")).await;
}

#[tokio::test]
async fn most_recent_tables_come_from_memory_once_it_is_proven() {
    let sim = Sim::new();
    sim.create(definition(".spec.size")).unwrap();
    sim.create(widget("a", "1")).unwrap();
    let world = World::start_with(sim, |config| config.reads.most_recent = MostRecentReads::Prove).await;
    world.gateway.warm(WIDGETS).await;
    for number in 0..3 {
        world.sim.create(widget(&format!("new-{number}"), "1")).unwrap();
        let path = format!("{WIDGETS}?limit=500");
        let answer = passing(Duration::from_millis(500), table(&world, &path)).await;
        assert_eq!(answer.route, Route::Served);
        assert!(answer.text().contains(&format!("\"new-{number}\"")), "{}", answer.text());
    }
}

fn config_map(name: &str, keys: usize) -> Value {
    let data: BTreeMap<_, _> = (0..keys).map(|key| (format!("k{key}"), "<v>")).collect();
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data,
        "binaryData": {"b": "AAAA"}})
}

/// A world with config maps, whose Tables the embedded server prints as a real one does.
async fn with_config_maps() -> World {
    let sim = Sim::new();
    for number in 0..7 {
        sim.create(config_map(&format!("cm-{number}"), number)).unwrap();
    }
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm("/api/v1/configmaps").await;
    world
}

const MAPS: &str = "/api/v1/configmaps?resourceVersion=0";

#[tokio::test]
async fn tables_of_built_in_resources_come_from_memory_where_upstream_s_are_known() {
    let world = with_config_maps().await;
    let one = "/api/v1/namespaces/default/configmaps/cm-3?resourceVersion=0";
    for path in [MAPS.to_owned(), format!("{MAPS}&includeObject=None"), format!("{MAPS}&pretty=1"), one.to_owned()] {
        for accept in [TABLE, KUBECTL, "application/json;as=Table;v=v1beta1;g=meta.k8s.io"] {
            assert_same(&world, &path, accept, &Route::Served).await;
        }
    }
    let asked = world.sim.counts().requests("list", "configmaps");
    assert_same(&world, MAPS, TABLE, &Route::Served).await;
    // The release with which the Tables were compared.
    assert_eq!(world.sim.counts().requests("list", "configmaps"), asked + 1);
}

#[tokio::test]
async fn tables_of_another_release_are_not_printed() {
    let world = World::start().await;
    world.sim.upgrade("v1.37.0", &config_maps(), |_| {}).unwrap();
    world.sim.create(pod("default", "a", "x")).unwrap();
    world.gateway.warm("/api/v1/pods").await;
    // The version is known by now, so no cache is filled for Tables.
    assert_same(&world, MAPS, TABLE, &forwarded("unprintable")).await;
    assert_eq!(world.sim.counts().requests("watch", "configmaps"), 0);
    world.gateway.warm("/api/v1/configmaps").await;
    assert_same(&world, MAPS, TABLE, &forwarded("unprintable")).await;
}

#[tokio::test]
async fn tables_of_an_upgraded_server_are_not_printed_as_before() {
    let world = with_config_maps().await;
    assert_same(&world, MAPS, TABLE, &Route::Served).await;
    world.sim.upgrade("v1.37.0", &config_maps(), |_| {}).unwrap();
    world.sim.cut_watches(None);
    // Until the watch is resumed, memory has the state of the old server.
    let gone = async || (table(&world, MAPS).await.route != Route::Served).then_some(());
    passing(Duration::from_millis(100), until("the old server's Tables are gone", gone)).await;
    assert_same(&world, MAPS, TABLE, &forwarded("unprintable")).await;
}

/// The line of the demo: `kubectl get pods -A`.
#[tokio::test]
async fn the_demo_s_pods_are_printed_from_memory() {
    let sim = Sim::new();
    sim.populate(200).unwrap();
    let world = World::start_with(sim, |config| config.reads.most_recent = MostRecentReads::Auto).await;
    world.gateway.warm("/api/v1/pods").await;
    assert_same(&world, "/api/v1/pods?resourceVersion=0", KUBECTL, &Route::Served).await;
    let answer = table(&world, "/api/v1/pods?resourceVersion=0&includeObject=None").await;
    assert!(
        answer.text().contains("\"Readiness Gates\"") && answer.text().contains("\"Running\""),
        "{}",
        answer.text()
    );
}

/// The embedded server's services have columns of its own.
#[tokio::test]
async fn built_in_columns_that_upstream_does_not_print_are_asked_for_once() {
    let world = World::start().await;
    world.gateway.warm("/api/v1/services").await;
    let path = "/api/v1/services?resourceVersion=0";
    assert_same(&world, path, TABLE, &forwarded("unprintable")).await;
    let before = world.sim.counts().requests("list", "services");
    assert_eq!(table(&world, path).await.route, forwarded("unprintable"));
    assert_eq!(world.sim.counts().requests("list", "services"), before + 1);
}

/// Creates, changes, moves out of a selector, deletes: returns the version before that.
fn change(world: &World, resource: &GroupResource, new: Value, changed: &str, deleted: &str) -> u64 {
    let before = world.sim.revision();
    world.sim.create(new).unwrap();
    for label in ["1", "0"] {
        world.sim.modify(resource, changed, |object| object["metadata"]["labels"]["odd"] = label.into()).unwrap();
    }
    world.sim.delete(resource, deleted).unwrap();
    before
}

#[tokio::test]
async fn watches_of_custom_resources_tables_come_from_memory() {
    let world = with_widgets(3).await;
    let resource = GroupResource { group: "example.com".into(), resource: "widgets".into() };
    let from = change(&world, &resource, widget("new", "<&>"), "default/w-000", "default/w-001");
    assert_watches_are_same(&world, WIDGETS, from).await;
}

#[tokio::test]
async fn watches_of_built_in_resources_tables_come_from_memory() {
    let world = with_config_maps().await;
    let from = change(&world, &config_maps(), config_map("new", 2), "default/cm-1", "default/cm-2");
    assert_watches_are_same(&world, "/api/v1/configmaps", from).await;
}

/// Watches of a second from that version on, or from the state.
async fn assert_watches_are_same(world: &World, collection: &str, from: u64) {
    world.gateway.reach(collection, world.sim.revision()).await;
    for start in [
        format!("resourceVersion={from}"),
        format!("resourceVersion={from}&labelSelector=odd%3D1"),
        format!("resourceVersion={from}&includeObject=None"),
        format!("resourceVersion={from}&labelSelector=odd%3D1&includeObject=Object"),
        "resourceVersion=0".to_owned(),
        "resourceVersion=0&includeObject=Object".to_owned(),
        format!("{STATE}&resourceVersion=0"),
        format!("{STATE}&resourceVersion=0&includeObject=None"),
        format!("{STATE}&resourceVersion=0&includeObject=Object"),
        format!("{STATE}&resourceVersion=0&labelSelector=odd%3D7"),
    ] {
        let accept = if start.len() % 2 == 0 { KUBECTL } else { "application/json;as=Table;v=v1beta1;g=meta.k8s.io" };
        let path = format!("{collection}?watch=1&timeoutSeconds=1&{start}");
        assert_same(world, &path, accept, &Route::Served).await;
    }
    let path = format!("{collection}?watch=1&timeoutSeconds=1&resourceVersion=0&includeObject=Some");
    assert_same(world, &path, TABLE, &forwarded("invalid_options")).await;
}

const STATE: &str = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// `kubectl get -w`, by many people.
#[tokio::test]
async fn many_watches_of_tables_are_one_upstream() {
    let world = with_config_maps().await;
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={}", world.sim.revision());
    let accept = [("accept", KUBECTL)];
    let mut watches = join_all((0..20).map(|_| world.client().watch_with(&path, &accept))).await;
    for number in [10, 11] {
        world.sim.create(config_map(&format!("cm-{number}"), number)).unwrap();
        let name = format!("\"cells\":[\"cm-{number}\",{}", number + 1);
        for watch in &mut watches {
            let event = within("a row", watch.line()).await.unwrap().unwrap();
            let has_columns = event.contains("\"columnDefinitions\":[");
            assert!(event.contains(&name) && has_columns == (number == 10), "{event}");
        }
    }
    assert_eq!(world.sim.counts().open_watches("configmaps"), 1);
}

/// What is not certain is the API server's to say: the watch ends, and the next one is forwarded.
#[tokio::test]
async fn a_watch_ends_at_an_object_that_cannot_be_printed() {
    let world = with_config_maps().await;
    let from = world.sim.revision();
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={from}");
    let accept = [("accept", TABLE)];
    let watch = world.client().watch_with(&path, &accept).await;
    world.sim.modify(&config_maps(), "default/cm-3", |object| object["data"] = "odd".into()).unwrap();
    assert_eq!(within("its end", watch.rest()).await, (String::new(), Route::Served));
    let path = format!("{path}&timeoutSeconds=1");
    let again = world.client().request("GET", &path, &accept, Default::default()).await;
    assert_eq!(again.route, forwarded("unprintable"), "{}", again.text());
    assert!(again.text().contains("\"cm-3\""), "{}", again.text());
    // Lists find out for themselves.
    world.sim.delete(&config_maps(), "default/cm-3").unwrap();
    let revision = world.sim.revision();
    let path = format!("/api/v1/configmaps?resourceVersion={revision}&resourceVersionMatch=NotOlderThan");
    let list = world.client().request("GET", &path, &accept, Default::default()).await;
    assert_eq!(list.route, Route::Served, "{}", list.text());
}

#[tokio::test]
async fn tables_of_resources_without_a_printer_start_no_cache() {
    let world = World::start().await;
    world.sim.create(pod("default", "a", "x")).unwrap();
    for path in [
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?resourceVersion=0",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1&resourceVersion=1&timeoutSeconds=1",
    ] {
        assert_same(&world, path, TABLE, &forwarded("representation")).await;
    }
    // The second request, here and at the API server itself.
    assert_eq!(world.sim.counts().requests("watch", "customresourcedefinitions.apiextensions.k8s.io"), 2);
}
