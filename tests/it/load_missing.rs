//! What `load` reports of what does not come: events, objects, responses. None of it may make a server look better.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use kube_fanout::{
    load::{LoadOptions, Named, Server, WorkloadReport, load},
    sim::{Refusal, Sim, SimServer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::sleep,
};

use crate::{
    harness::{
        serving::{accepting, closing, listener},
        until,
        upstream::pod,
        within,
    },
    load::{errors, measured, options, workload},
};

/// A server whose watches get what is there, and nothing that is written later.
async fn with_hung_watches() -> (Sim, SimServer) {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    sim.hold_new_watches(true);
    (sim, server)
}

#[tokio::test]
async fn gets_of_nothing_are_one_error_and_not_a_busy_loop() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 300ms\nworkloads: [{clients: 4, get: {resource: secrets}}, {list: {resource: pods}}]";
    let report = measured(&options(server.url(), text)).await;
    let (gets, lists) = (workload(&report, "get"), workload(&report, "list"));
    assert_eq!((errors(gets), gets.errors[0].count), (vec!["status_404"], 1), "{gets:?}");
    assert!(gets.errors[0].first.contains("no objects to get") && lists.requests > 0, "{gets:?} {lists:?}");
}

/// Refuses the requests from now on with that status, at most so often.
fn refuse(sim: &Sim, verb: &'static str, plural: &str, status: u16, times: Option<u32>) {
    sim.refuse(Refusal { verb: Some(verb), resource: Some(plural.to_owned()), status, times });
}

fn count(workload: &WorkloadReport, kind: &str) -> u64 {
    workload.errors.iter().find(|error| error.kind == kind).map_or(0, |error| error.count)
}

#[tokio::test]
async fn requests_that_a_refused_question_prevents_are_unsent_and_lower_the_rate() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    let text = "duration: 1s
timeout: 100ms
workloads: [{rate: 40, get: {resource: pods}}]";
    let options = LoadOptions { turns: Some(2), ..options(server.url(), text) };
    // The names of the objects are listed at the start of each turn.
    let in_second_turn = async {
        let asked = async || (sim.counts().requests("get", "pods") >= 5).then_some(());
        until("the first turn has begun", asked).await;
        refuse(&sim, "list", "pods", 503, None);
    };
    let (report, ()) = tokio::join!(measured(&options), in_second_turn);
    let gets = workload(&report, "get");
    assert_eq!((gets.requests, count(gets, "unsent")), (20, 20), "{gets:?}");
    assert!(count(gets, "status_503") > 0, "{gets:?}");
    assert_eq!(gets.latency.as_ref().unwrap().count, 40, "{gets:?}");
    assert!(gets.requests_per_second <= 20.0, "both turns count: {gets:?}");
}

#[tokio::test]
async fn a_question_that_is_refused_once_is_asked_again() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    let text = "duration: 3s
workloads:
- {rate: 40, get: {resource: pods}}
- {rate: 40, list: {resource: secrets, version: notOlderThan}}
- {clients: 3, watch: {resource: configmaps}}
- {clients: 2, slowReader: {resource: services, stopFor: 10ms}}
- {rate: 40, churn: {objects: 2}}";
    for plural in ["pods", "secrets", "configmaps", "services"] {
        refuse(&sim, "list", plural, 429, Some(1));
    }
    let report = measured(&options(server.url(), text)).await;
    for (name, requests) in [("get", 120), ("list", 120), ("watch", 3), ("slowReader", 2)] {
        let asked = workload(&report, name);
        assert_eq!((asked.requests, errors(asked), asked.errors[0].count), (requests, vec!["status_429"], 1));
    }
    assert!(workload(&report, "watch").events > 0);
}

#[tokio::test]
async fn watches_that_have_no_version_to_start_at_miss_all_events() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 500ms
settle: 100ms
workloads:
- {clients: 3, watch: {resource: configmaps}}
- {rate: 20, churn: {objects: 2}}";
    refuse(&sim, "list", "configmaps", 403, None);
    let report = measured(&options(server.url(), text)).await;
    let (watches, writes) = (workload(&report, "watch"), workload(&report, "churn"));
    assert_eq!((watches.requests, count(watches, "undelivered")), (0, 3 * writes.requests), "{watches:?}");
    assert!(count(watches, "status_403") > 0 && writes.requests > 0, "{watches:?}");
}

#[tokio::test]
async fn a_workload_that_waits_for_responses_does_not_lower_the_rates_of_others() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    sim.hold_requests("list", "configmaps");
    let text = "duration: 500ms
timeout: 5s
workloads:
- {name: hung, list: {resource: configmaps}}
- {name: lists, rate: 40, list: {resource: pods}}";
    let mut options = options(server.url(), text);
    options.assertions = vec!["lists:requests.perSecond>4".parse().unwrap()];
    let report = measured(&options).await;
    let (hung, lists) = (workload(&report, "hung"), workload(&report, "lists"));
    // Twenty in half a second, but the last response comes after five.
    assert!(errors(hung) == ["timeout"] && report.endpoints[0].seconds >= 5.0, "{hung:?}");
    assert!(lists.requests == 20 && lists.requests_per_second > 4.0, "{lists:?}");
    assert_eq!(report.assertions[0].passed, Some(true), "{:?}", report.assertions);
}

#[tokio::test]
async fn events_that_have_not_come_count_as_errors_and_as_delays() {
    let (_sim, server) = with_hung_watches().await;
    let text = "duration: 500ms
settle: 200ms
workloads:
- {name: watches, clients: 3, http: 2, watch: {resource: configmaps}}
- {name: informers, clients: 2, informer: {resource: configmaps}}
- {name: own, clients: 2, watch: {resource: configmaps, labelSelector: app.kubernetes.io/managed-by=kube-fanout-load}}
- {name: others, watch: {resource: configmaps, labelSelector: a=b}}
- {name: elsewhere, watch: {resource: configmaps, namespace: default}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let report = measured(&options(server.url(), text)).await;
    let writes = workload(&report, "writes").requests;
    for (name, clients) in [("watches", 3), ("informers", 2), ("own", 2)] {
        let watches = workload(&report, name);
        let delay = watches.event_delay.as_ref().unwrap();
        assert_eq!(errors(watches), ["undelivered"], "{watches:?}");
        assert_eq!(delay.count, clients * writes, "each write counts once for each client: {watches:?}");
        assert!(delay.max >= 200.0, "{watches:?}");
    }
    for name in ["others", "elsewhere"] {
        let selected = workload(&report, name);
        assert!(selected.errors.is_empty() && selected.event_delay.is_none(), "{selected:?}");
    }
    let text = load::text(&report);
    assert!(!text.contains("note: "), "what each of them has to receive is known: {text}");
}

#[tokio::test]
async fn events_that_have_not_come_count_for_the_clients_whose_selectors_match() {
    let (_sim, server) = with_hung_watches().await;
    let text = "duration: 500ms
settle: 200ms
workloads:
- {name: nodes, clients: 5, http: 2, watch: {resource: pods, fieldSelector: 'spec.nodeName=load-node-{client}'}}
- {name: node, clients: 3, informer: {resource: pods, fieldSelector: spec.nodeName=load-node-1}}
- {name: one, watch: {resource: pods, fieldSelector: metadata.name=load-5-2}}
- {name: phases, watch: {resource: pods, fieldSelector: status.phase=Pending}}
- {name: unlabelled, watch: {resource: pods, labelSelector: '!injected'}}
- {name: writes, rate: 20, churn: {resource: pods, objects: 4, nodes: 2}}";
    let report = measured(&options(server.url(), text)).await;
    let writes = workload(&report, "writes").requests;
    let undelivered = |name| match &workload(&report, name).errors[..] {
        [] => 0,
        [error] if error.kind == "undelivered" => error.count,
        errors => panic!("{errors:?}"),
    };
    // Each pod belongs to one of the first two clients. Pods are written in turn: 0, 1, 2, 3.
    assert_eq!(undelivered("nodes"), writes);
    assert_eq!(undelivered("node"), 3 * (writes / 2));
    assert_eq!(undelivered("one"), (writes + 1) / 4);
    for name in ["phases", "unlabelled"] {
        assert_eq!(undelivered(name), 0, "a server may have changed that");
    }
    let text = load::text(&report);
    for words in ["note: phases: ", "(\"status.phase=Pending\")", "note: unlabelled: ", "(\"!injected\")"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(text.matches("note: ").count(), 2, "{text}");
}

#[tokio::test]
async fn rates_are_of_what_came_while_requests_were_sent() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    sim.delay_events(Duration::from_secs(3));
    let text = "duration: 300ms
settle: 30s
workloads:
- {watch: {resource: configmaps}}
- {rate: 40, churn: {objects: 3}}";
    let report = measured(&options(server.url(), text)).await;
    let (watches, writes) = (workload(&report, "watch"), workload(&report, "churn"));
    assert_eq!((watches.requests, watches.events), (1, writes.requests), "all have come: {watches:?}");
    assert_eq!((watches.requests_per_second, watches.events_per_second), (0.0, 0.0), "{watches:?}");
    assert!(writes.requests_per_second > 0.0, "{writes:?}");
}

/// Metrics of a process, whose fourth answer takes a while.
async fn metrics_with_a_pause(pause: Duration) -> (String, JoinSet<()>) {
    let (listener, address) = listener().await;
    let answers = Arc::new(AtomicUsize::new(1));
    let serving = accepting(listener, move |mut stream| {
        let answers = answers.clone();
        async move {
            let read = stream.read(&mut [0; 4_096]).await.unwrap();
            if read > 0 && answers.fetch_add(1, Relaxed) == 4 {
                sleep(pause).await;
            }
            stream.write_all(&closing("200 OK", "process_cpu_seconds_total 1\n")).await.unwrap();
        }
    });
    (format!("http://{address}/metrics"), serving)
}

#[tokio::test]
async fn a_response_has_one_end_however_long_metrics_take() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    // The turn ends while the list is read, and the list would end while the metrics are awaited.
    let text = "duration: 200ms\nworkloads: [{slowReader: {resource: pods, request: list, stopFor: 2s}}]";
    let (metrics, _serving) = metrics_with_a_pause(Duration::from_secs(4)).await;
    let named = Named { name: "server".to_owned(), value: metrics };
    let report = measured(&LoadOptions { metrics: vec![named], ..options(server.url(), text) }).await;
    let ends: Vec<_> = workload(&report, "slowReader").ends.iter().map(|end| (end.kind.as_str(), end.count)).collect();
    assert_eq!(ends, [("open", 1)]);
}

#[tokio::test]
async fn what_a_list_has_brought_is_not_missed_as_an_event() {
    let (sim, server) = with_hung_watches().await;
    // Each object is written once.
    let text = "duration: 60s
workloads:
- {informer: {resource: configmaps, start: list, fieldSelector: metadata.name=load-1-0}}
- {rate: 20, churn: {objects: 2000}}";
    let written = async |count| {
        let written = async || (sim.counts().requests("patch", "configmaps") >= count).then_some(());
        until("objects are written", written).await;
    };
    let mut options = options(server.url(), text);
    options.profile.duration = Duration::from_secs(5);
    let lose = async {
        written(5).await;
        sim.forget_history();
        sim.hold_new_watches(false);
        sim.release_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), lose);
    let informers = workload(&report, "informer");
    assert_eq!((informers.lists, informers.relists), (2, 1), "{informers:?}");
    assert_eq!(errors(informers), ["event_410"], "{informers:?}");
}

#[tokio::test]
async fn clients_that_never_have_all_objects_are_not_left_out() {
    // Watches get the head of a response, and nothing else.
    let (listener, address) = listener().await;
    let _serving = accepting(listener, |mut stream| async move {
        let read = stream.read(&mut [0; 4_096]).await.unwrap();
        assert!(read > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        pending().await
    });
    let text = "duration: 300ms
settle: 100ms
timeout: 300ms
workloads:
- {name: watches, clients: 3, watch: {resource: configmaps, start: watchList}}
- {name: informers, clients: 2, informer: {resource: configmaps}}";
    let report = measured(&LoadOptions { any_cluster: true, ..options(format!("http://{address}"), text) }).await;
    for (name, clients) in [("watches", 3), ("informers", 2)] {
        let watches = workload(&report, name);
        let sync = watches.sync.as_ref().unwrap();
        let unsynced = watches.errors.iter().find(|error| error.kind == "unsynced");
        assert!(sync.count == clients && sync.p50 >= 600.0, "{watches:?}");
        assert_eq!(unsynced.map(|error| error.count), Some(clients), "{watches:?}");
    }
}

#[tokio::test]
async fn informers_ask_again_when_the_server_says_so() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let of_configmaps = Some("configmaps".to_owned());
    // With the pauses of the reflector, which double, the sixth attempt would come after 25 seconds.
    sim.refuse(Refusal { verb: Some("watch"), resource: of_configmaps, times: Some(5), status: 429 });
    let text = "duration: 1h\nworkloads: [{informer: {resource: configmaps}}]";
    let open = async {
        let open = async || (sim.counts().open_watches("configmaps") == 1).then_some(());
        until("the watch is open", open).await;
    };
    let report = within("the end of the run", load(&options(server.url(), text), open)).await.unwrap();
    let informers = workload(&report, "informer");
    assert_eq!((errors(informers), informers.errors[0].count), (vec!["status_429"], 5), "{informers:?}");
    assert_eq!(informers.lists, 1, "refusals are repeated below the reflector: {informers:?}");
}

#[tokio::test]
async fn the_time_to_sync_includes_attempts_that_were_refused() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let refused = Some("configmaps".to_owned());
    sim.refuse(Refusal { verb: Some("watch"), resource: refused, times: Some(1), status: 429 });
    let text = "duration: 3s\nworkloads: [{informer: {resource: configmaps}}]";
    let report = measured(&options(server.url(), text)).await;
    let informers = workload(&report, "informer");
    let sync = informers.sync.as_ref().unwrap();
    assert!(sync.count == 1 && sync.p50 >= 800.0, "the shortest pause after a refusal: {informers:?}");
}

#[tokio::test]
async fn informers_whose_watch_cannot_be_opened_again_are_not_left_out() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 3s
settle: 100ms
workloads:
- {name: refused, clients: 2, informer: {resource: configmaps}}
- {name: hung, clients: 3, informer: {resource: pods, start: list}}
- {rate: 20, churn: {objects: 1}}";
    let options = options(server.url(), text);
    let end = async {
        // The informers have all objects before the first write.
        let written = async || (sim.counts().requests("patch", "configmaps") > 0).then_some(());
        until("objects are written", written).await;
        refuse(&sim, "watch", "configmaps", 429, None);
        sim.hold_requests("watch", "pods");
        sim.end_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), end);
    for (name, clients) in [("refused", 2), ("hung", 3)] {
        let informers = workload(&report, name);
        assert_eq!((informers.watches_ended, count(informers, "away")), (clients, clients), "{informers:?}");
        assert_eq!(informers.back.as_ref().unwrap().count, clients, "{informers:?}");
        assert_eq!((informers.relists, count(informers, "stream")), (0, 0), "{informers:?}");
    }
}

#[tokio::test]
async fn the_time_until_back_includes_refusals_after_a_clean_end() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 500ms
settle: 30s
workloads:
- {informer: {resource: configmaps}}
- {rate: 20, churn: {objects: 1}}";
    let options = options(server.url(), text);
    let end = async {
        // The informer has all objects before the first write.
        let written = async || (sim.counts().requests("patch", "configmaps") > 0).then_some(());
        until("objects are written", written).await;
        refuse(&sim, "watch", "configmaps", 429, Some(1));
        sim.end_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), end);
    let informers = workload(&report, "informer");
    assert_eq!((informers.requests, errors(informers)), (2, vec!["status_429"]), "{informers:?}");
    let back = informers.back.as_ref().unwrap();
    assert!(
        back.count == 1 && back.p50 >= 800.0,
        "the pauses after the watch that was short, and the refusal: {informers:?}"
    );
}

#[tokio::test]
async fn a_list_that_is_needed_again_counts_also_while_the_informer_pauses() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 2s
settle: 500ms
workloads:
- {informer: {resource: configmaps}}
- {rate: 20, churn: {objects: 5}}";
    let options = options(server.url(), text);
    let refused = async {
        // The turn ends during the pause that follows.
        let written = async || (sim.counts().requests("patch", "configmaps") >= 35).then_some(());
        until("objects are written", written).await;
        refuse(&sim, "watch", "configmaps", 500, None);
        sim.end_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), refused);
    let informers = workload(&report, "informer");
    assert_eq!((informers.watches_ended, informers.relists, informers.lists), (1, 1, 2), "{informers:?}");
    assert_eq!((count(informers, "unsynced"), count(informers, "away")), (1, 0), "{informers:?}");
}

#[tokio::test]
async fn informers_that_are_never_back_are_not_left_out() {
    let sim = Sim::new();
    let (server, writes) = (sim.start().await.unwrap(), sim.start().await.unwrap());
    let text = "duration: 5s
settle: 100ms
workloads:
- {clients: 2, informer: {resource: configmaps}}
- {rate: 20, churn: {objects: 1}}";
    let mut options = options(server.url(), text);
    options.writes = Some(Server { url: Some(writes.url()), ..Server::default() });
    let kill = async {
        // The informers have all objects before the first write.
        let written = async || (sim.counts().requests("patch", "configmaps") > 0).then_some(());
        until("objects are written", written).await;
        server.kill().await;
    };
    let (report, ()) = tokio::join!(measured(&options), kill);
    let informers = workload(&report, "informer");
    let away = informers.errors.iter().find(|error| error.kind == "away");
    assert_eq!(away.map(|error| error.count), Some(2), "{informers:?}");
    assert_eq!(informers.back.as_ref().map(|back| back.count), Some(2), "{informers:?}");
}
