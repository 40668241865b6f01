//! What `load` does about servers that end.

use kube_fanout::{
    load::{Server, load},
    sim::Sim,
};

use crate::{
    harness::{until, within},
    load::{errors, options, workload},
};

#[tokio::test]
async fn informers_of_a_killed_server_go_on_at_the_fallback_without_lists() {
    let sim = Sim::new();
    let (first, second) = (sim.start().await.unwrap(), sim.start().await.unwrap());
    let text = "duration: 60s
workloads:
- {name: watchList, clients: 4, http: 2, connections: 2, informer: {resource: configmaps}}
- {name: list, clients: 2, informer: {resource: configmaps, start: list}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let mut options = options(first.url(), text);
    options.url.fallbacks = vec![second.address().to_string().parse().unwrap()];
    options.writes = Some(Server { url: Some(second.url()), ..Server::default() });
    let patches = || sim.counts().requests("patch", "configmaps");
    let written = async |count| {
        let written = async || (patches() >= count).then_some(());
        until("objects are written", written).await;
    };
    let kill = async {
        let open = async || (sim.counts().open_watches("configmaps") == 6).then_some(());
        until("the watches are open", open).await;
        written(5).await;
        first.kill().await;
        let again = async || {
            let counts = sim.counts();
            (counts.requests("watch", "configmaps") >= 12 && counts.open_watches("configmaps") == 6).then_some(())
        };
        until("the watches are open again", again).await;
        written(patches() + 5).await;
    };
    // The run ends when it is over.
    let report = within("the end of the run", load(&options, kill)).await.unwrap();
    for (name, clients) in [("watchList", 4), ("list", 2)] {
        let informers = workload(&report, name);
        assert_eq!((informers.lists, informers.relists), (clients, 0), "{informers:?}");
        assert_eq!(informers.back.as_ref().unwrap().count, clients, "{informers:?}");
        assert_eq!((errors(informers), informers.errors[0].count), (vec!["stream"], clients), "{informers:?}");
    }
    assert!(workload(&report, "writes").errors.is_empty());
    let text = kube_fanout::load::text(&report);
    assert!(text.contains("lost connections of clients"), "{text}");
}
