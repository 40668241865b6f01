//! `load` sends lists as other clients do: in pages like client-go's informers, and within their rights.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use kube_fanout::{
    load::{LoadOptions, load},
    sim::Sim,
};

use crate::{
    harness::{
        serving::{accepting, listener, serve},
        until,
        upstream::pod,
        within,
    },
    load::{errors, measured, options, workload},
    reads::{definition, widget},
};

#[tokio::test]
async fn informers_list_in_pages_as_client_go_does() {
    let sim = Sim::new();
    let create = |index| sim.create(pod("default", &format!("pod-{index}"), "x")).unwrap();
    (0..5).for_each(|index| drop(create(index)));
    let server = sim.start().await.unwrap();
    let text = "duration: 1h\nworkloads: [{clients: 2, informer: {resource: pods, start: list, limit: 2}}]";
    let lists = || sim.counts().requests("list", "pods");
    let scenario = async {
        let open = async || (sim.counts().open_watches("pods") == 2).then_some(());
        until("all are there", open).await;
        assert_eq!(lists(), 2, "a list of any version has no pages at the server");
        sim.hold_new_watches(true);
        sim.end_watches(None);
        create(5);
        // Neither a watch nor a list can continue from the version that they have.
        sim.forget_history();
        sim.compact();
        sim.hold_new_watches(false);
        sim.release_watches(None);
        let again = async || (lists() >= 2 + 2 + 2 * 3 && sim.counts().open_watches("pods") == 2).then_some(());
        until("all are there again", again).await;
        assert_eq!(lists(), 2 + 2 + 2 * 3, "three pages each, after a list that was refused");
    };
    let report = within("the end of the run", load(&options(server.url(), text), scenario)).await.unwrap();
    let informers = workload(&report, "informer");
    assert!(errors(informers).contains(&"status_410"), "{informers:?}");
    assert_eq!((informers.lists, informers.relists), (6, 4), "{informers:?}");
}

#[tokio::test]
async fn lists_have_all_their_pages() {
    let sim = Sim::new();
    sim.create(definition(".spec.size")).unwrap();
    for index in 0..5 {
        sim.create(pod("default", &format!("pod-{index}"), "x")).unwrap();
        sim.create(widget(&format!("widget-{index}"), "1")).unwrap();
    }
    let server = sim.start().await.unwrap();
    // The metadata of a list follows the items of custom resources, and is binary in protobuf.
    for (resource, encoding) in [("widgets.v1.example.com", "json"), ("pods", "protobuf"), ("pods", "metadata")] {
        let counted = resource.replace("v1.", "");
        let before = sim.counts().requests("list", &counted);
        let text = format!(
            "duration: 1s\nworkloads:\n\
             - {{rate: 10, encoding: {encoding}, list: {{resource: {resource}, version: mostRecent, limit: 2}}}}"
        );
        let report = measured(&options(server.url(), &text)).await;
        let list = workload(&report, "list");
        assert!(list.errors.is_empty() && list.requests >= 10, "{list:?}");
        let lists = sim.counts().requests("list", &counted) - before;
        assert!(lists >= 3 * list.requests, "{lists} pages of {resource}, {} lists", list.requests);
    }
}

#[tokio::test]
async fn rights_in_one_namespace_are_enough_for_its_objects() {
    let (listener, address) = listener().await;
    let _serving = accepting(listener, |stream| {
        serve(stream, |request| {
            let is_allowed = request.uri().path() == "/api/v1/namespaces/a/pods";
            let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}"#;
            let (status, body) = if is_allowed { (200_u16, list) } else { (403, "") };
            let response = Response::builder().status(status).body(Full::new(Bytes::from_static(body.as_bytes())));
            async move { response.unwrap() }
        })
    });
    let text = "duration: 300ms\nworkloads: [{rate: 20, list: {resource: pods, namespace: a, version: notOlderThan}}]";
    let options = LoadOptions { any_cluster: true, ..options(format!("http://{address}"), text) };
    let report = measured(&options).await;
    let lists = workload(&report, "list");
    assert!(lists.errors.is_empty() && lists.requests > 0, "{lists:?}");
}
