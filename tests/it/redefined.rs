//! Custom resources whose definition changes: a watch that upstream opened under the old definition still reports what
//! is written under the new one, for a while, without its new fields.

use kube_fanout::{apimachinery::GroupResource, config::MostRecentReads, sim::Sim};

use crate::{
    harness::{Route, World, within},
    reads::{definition, widget},
};

const WIDGETS: &str = "/apis/example.com/v1/widgets";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

async fn with_a_widget() -> World {
    let world = World::start_with(Sim::new(), |config| config.reads.most_recent = MostRecentReads::Prove).await;
    world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("a", "1")).unwrap();
    world.gateway.warm(WIDGETS).await;
    world
}

/// Upstream's open watches continue, as they do while the server still answers a slow request.
fn redefine(world: &World) {
    let definitions =
        GroupResource { group: "apiextensions.k8s.io".into(), resource: "customresourcedefinitions".into() };
    let change = |definition: &mut serde_json::Value| {
        definition["spec"]["versions"][0]["schema"] = serde_json::json!({"openAPIV3Schema": {"type": "object"}});
    };
    world.sim.modify(&definitions, "widgets.example.com", change).unwrap();
}

#[tokio::test]
async fn a_store_of_the_old_schema_answers_nothing() {
    for query in [
        "?resourceVersion=NEWEST",
        "",
        "?resourceVersion=NEWEST&resourceVersionMatch=Exact",
        "?resourceVersion=NEWEST&limit=500",
        // These answers would have the newest version.
        "?resourceVersion=0",
        "?resourceVersion=FIRST",
        "/b?resourceVersion=FIRST",
    ] {
        let world = with_a_widget().await;
        let first = world.sim.revision();
        let mut watch = world.client().watch(&format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
        assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"a""#));
        redefine(&world);
        world.sim.create(widget("b", "2")).unwrap();
        assert_eq!(world.sim.counts().open_watches("widgets.example.com"), 1);
        let reported = async {
            let line = watch.line().await.unwrap().unwrap();
            assert!(line.contains(r#""name":"b""#), "{line}");
        };
        within("the change in memory", reported).await;
        let query = query.replace("NEWEST", &world.sim.revision().to_string()).replace("FIRST", &first.to_string());
        let collection =
            if query.starts_with('/') { WIDGETS.replace("v1/", "v1/namespaces/default/") } else { WIDGETS.to_owned() };
        let path = format!("{collection}{query}");
        world.assert_same(&path, &Route::Forwarded("unproven".to_owned())).await;
        // The watch may have reported objects of the old schema, at versions that a client does not request again.
        let end = within("the end of the watch", watch.line()).await.unwrap().unwrap();
        assert!(end.contains(r#""type":"ERROR""#) && end.contains(r#""code":410"#), "{end}");
    }
}

#[tokio::test]
async fn watches_of_an_old_schema_are_not_opened_and_a_new_store_takes_over() {
    let world = with_a_widget().await;
    let from = world.sim.revision();
    let mut open = world.client().watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}")).await;
    redefine(&world);
    world.sim.create(widget("b", "2")).unwrap();
    assert!(within("the change in memory", open.line()).await.unwrap().unwrap().contains(r#""name":"b""#));
    let watch = world.client().watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}&timeoutSeconds=1")).await;
    assert!(matches!(watch.rest().await.1, Route::Forwarded(_)));
    world.gateway.warm_skipping(WIDGETS).await;
    for query in ["", "?resourceVersion=0"] {
        world.assert_same(&format!("{WIDGETS}{query}"), &Route::Served).await;
    }
}

#[tokio::test]
async fn one_question_about_the_definition_serves_all_reads_up_to_a_version() {
    let world = with_a_widget().await;
    let asked = || world.sim.counts().requests("get", DEFINITIONS);
    for round in 0..3 {
        let before = asked();
        world.sim.create(widget(&format!("new-{round}"), "2")).unwrap();
        let path = format!("{WIDGETS}?resourceVersion={}", world.sim.revision());
        for _ in 0..10 {
            assert_eq!(world.client().get(&path).await.route, Route::Served);
        }
        assert_eq!(asked() - before, 1);
    }
}
