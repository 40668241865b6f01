//! `kube-fanout load` against the embedded API server: the report contains what happened.

use std::{future::pending, net::SocketAddr, path::Path, process::Output, sync::Arc, time::Duration};

use kube_fanout::{
    apimachinery::GroupResource,
    load::{LoadError, LoadOptions, Named, Profile, Report, Server, TEST_CLUSTER, WorkloadReport, load},
    sim::{Features, Refusal, Sim},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};

use crate::harness::{
    process::{finished, kube_fanout},
    serving::{accepting, listener},
    until,
    upstream::pod,
    within,
};

const PLANTED: Duration = Duration::from_millis(50);
const STALL: Duration = Duration::from_millis(600);

fn profile(text: &str) -> Profile {
    Profile::parse("test", &format!("apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\n{text}")).unwrap()
}

pub(crate) fn options(url: String, text: &str) -> LoadOptions {
    LoadOptions::new(profile(text), server(url))
}

fn server(url: String) -> Server {
    Server { url: Some(url), ..Server::default() }
}

pub(crate) async fn measured(options: &LoadOptions) -> Report {
    within("the end of the run", load(options, pending())).await.unwrap()
}

pub(crate) fn workload<'a>(report: &'a Report, name: &str) -> &'a WorkloadReport {
    report.endpoints[0].workloads.iter().find(|workload| workload.name == name).unwrap()
}

pub(crate) fn errors(workload: &WorkloadReport) -> Vec<&str> {
    workload.errors.iter().map(|error| error.kind.as_str()).collect()
}

pub(crate) fn resource(plural: &str) -> GroupResource {
    GroupResource { group: "".into(), resource: plural.into() }
}

/// The objects that a run has created and not deleted.
pub(crate) fn leftovers(sim: &Sim) -> Vec<String> {
    let all =
        ["pods", "configmaps", "namespaces"].into_iter().flat_map(|plural| sim.objects(&resource(plural)).unwrap());
    let of_runs = all.filter(|object| object["metadata"]["labels"]["load.kube-fanout.io/run"].is_string());
    of_runs.map(|object| object["metadata"]["name"].to_string()).collect()
}

/// Forwards connections to a server. `hold` returns how long a piece of an answer is delayed, by the number of the
/// piece on its connection.
struct Proxy {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn start(target: SocketAddr, hold: impl Fn(usize) -> Duration + Send + Sync + 'static) -> Self {
        let ((listener, address), hold) = (listener().await, Arc::new(hold));
        let tasks = accepting(listener, move |client| {
            let hold = hold.clone();
            async move {
                let server = TcpStream::connect(target).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let to_server = pass(from_client, to_server, |_| Duration::ZERO);
                tokio::join!(to_server, pass(from_server, to_client, move |piece| hold(piece)));
            }
        });
        Self { address, _tasks: tasks }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, hold: impl Fn(usize) -> Duration) {
    let mut piece = vec![0; 64 << 10];
    for number in 0.. {
        let Ok(read @ 1..) = from.read(&mut piece).await else { return };
        sleep(hold(number)).await;
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_planted_delay_shows_in_latency_and_in_event_delay() {
    let sim = Sim::new();
    let server_of_sim = sim.start().await.unwrap();
    let proxy = Proxy::start(server_of_sim.address(), |_| PLANTED).await;
    let mut options = options(
        proxy.url(),
        "duration: 1s
workloads:
- {name: lists, clients: 4, rate: 20, list: {resource: configmaps, version: any}}
- {name: lists2, clients: 4, rate: 20, http: 2, connections: 2, list: {resource: configmaps, version: mostRecent, limit: 2}}
- {name: gets, rate: 10, get: {resource: configmaps}}
- {name: watches, clients: 3, watch: {resource: configmaps, start: watchList}}
- {name: changes, rate: 20, churn: {objects: 5, updates: 2, creates: 1, deletes: 1}}",
    );
    options.writes = Some(server(server_of_sim.url()));
    let report = measured(&options).await;
    let least = 50.0;
    for name in ["lists", "lists2", "gets"] {
        let workload = workload(&report, name);
        assert!(workload.requests > 0 && workload.errors.is_empty(), "{workload:?}");
        assert!(workload.latency.as_ref().unwrap().p50 >= least, "{workload:?}");
    }
    let watches = workload(&report, "watches");
    assert!(watches.requests == 3 && watches.errors.is_empty(), "{watches:?}");
    assert_eq!(watches.sync.as_ref().unwrap().count, 3);
    let delay = watches.event_delay.as_ref().unwrap();
    assert!(delay.p50 >= least, "{watches:?}");
    // Each watch gets at most one event per write. Events of deletions have no timestamp and so no delay.
    let changes = workload(&report, "changes");
    assert!(changes.errors.is_empty(), "{changes:?}");
    assert!(watches.events > 0 && watches.events <= 3 * changes.requests, "{watches:?} {changes:?}");
    assert!(delay.count > 0 && delay.count < watches.events, "{watches:?}");
    assert_eq!(leftovers(&sim), [""; 0]);
}

#[tokio::test]
async fn a_stall_shows_in_all_requests_that_were_due_meanwhile() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    let hold = |piece| if piece == 10 { STALL } else { Duration::ZERO };
    let proxy = Proxy::start(server.address(), hold).await;
    let text = "duration: 1s\nworkloads: [{rate: 50, get: {resource: pods}}]";
    let report = measured(&options(proxy.url(), text)).await;
    let gets = workload(&report, "get");
    assert!(gets.requests >= 45 && gets.errors.is_empty(), "{gets:?}");
    // Thirty of fifty requests were due during the stall, of which only one was sent: without correction, the stall
    // would show only in the maximum.
    let latency = gets.latency.as_ref().unwrap();
    assert!(latency.p90 >= 200.0 && latency.max >= 600.0, "{gets:?}");
}

#[tokio::test]
async fn a_killed_server_gives_errors_by_kind_and_a_report() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    let options = options(
        server.url(),
        "duration: 5s
timeout: 1s
workloads:
- {name: lists, clients: 2, rate: 20, list: {resource: pods}}
- {name: busy, clients: 2, http: 2, list: {resource: pods}}
- {name: watches, clients: 4, watch: {resource: pods}}
- {name: writes, rate: 10, churn: {objects: 3}}",
    );
    let kill = async {
        // The server breaks the watches that it knows.
        let counts = || sim.counts();
        let is_busy = || counts().requests("list", "pods") > 20 && counts().open_watches("pods") == 4;
        until("requests are sent", async || is_busy().then_some(())).await;
        server.kill().await;
    };
    let (report, ()) = tokio::join!(measured(&options), kill);
    let [lists, busy, watches] = ["lists", "busy", "watches"].map(|name| workload(&report, name));
    assert!(lists.requests + busy.requests > 0, "{lists:?} {busy:?}");
    assert!(errors(lists).contains(&"connect"), "{lists:?}");
    assert!(errors(busy).contains(&"connect"), "{busy:?}");
    assert!(errors(watches).contains(&"stream"), "{watches:?}");
    assert!(!lists.errors[0].first.is_empty(), "{lists:?}");
    // The objects of the run can no longer be deleted.
    let left = report.left.clone().unwrap();
    assert!(
        left.contains("kubectl delete namespaces -l load.kube-fanout.io/run=") && left.contains("connect"),
        "{left}"
    );
    assert_eq!(leftovers(&sim).len(), 4);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_not_fast() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    // Only gets are held, because the start of the turn lists the pods.
    sim.hold_requests("get", "pods");
    let text = "duration: 1s\ntimeout: 300ms\nworkloads: [{clients: 2, rate: 50, get: {resource: pods}}]";
    let report = measured(&options(server.url(), text)).await;
    let gets = workload(&report, "get");
    assert_eq!((gets.requests, errors(gets)), (0, vec!["timeout", "unsent"]));
    assert!(gets.latency.as_ref().unwrap().p50 >= 300.0, "{gets:?}");
    let failed: u64 = gets.errors.iter().map(|error| error.count).sum();
    assert_eq!(failed, 50, "none is forgotten: {gets:?}");
}

#[tokio::test]
async fn an_interrupted_run_cleans_up_and_reports() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 1h\nworkloads: [{rate: 20, list: {resource: pods}}, {rate: 20, churn: {objects: 20}}]";
    let pods = || sim.objects(&resource("pods")).unwrap().len();
    // Interrupted while the objects are created, and while the load is measured.
    for (objects, wanted) in [(100_000, "create"), (10, "list")] {
        let assertions = vec!["errors>5".parse().unwrap()];
        let options = LoadOptions { seed_objects: objects, assertions, ..options(server.url(), text) };
        let before = sim.counts().requests(wanted, "pods");
        let interrupt = async {
            let seen = async || (sim.counts().requests(wanted, "pods") > before + 30).then_some(());
            until("it is at work", seen).await;
            assert!(pods() > 0);
        };
        let report = within("the end of the run", load(&options, interrupt)).await.unwrap();
        assert!(report.interrupted);
        let page = load::page(&report);
        assert!(page.contains("not judged") && !page.contains(">failed<"), "{page}");
        assert_eq!(serde_json::to_value(&report).unwrap()["assertions"][0]["passed"], Value::Null);
        assert_eq!(workload(&report, "list").requests > 0, wanted == "list");
        assert_eq!(leftovers(&sim), [""; 0]);
    }
}

#[tokio::test]
async fn a_request_under_way_at_an_interruption_counts_with_the_time_that_it_has_waited() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    sim.hold_requests("list", "secrets");
    let text = "duration: 1h\nworkloads: [{clients: 2, list: {resource: secrets}}]";
    let interrupt = async {
        let asked = async || (sim.counts().requests("list", "secrets") == 2).then_some(());
        until("both lists are under way", asked).await;
    };
    let report = within("the end of the run", load(&options(server.url(), text), interrupt)).await.unwrap();
    let lists = workload(&report, "list");
    assert_eq!((lists.requests, lists.errors.len()), (0, 0), "{lists:?}");
    assert_eq!(lists.latency.as_ref().unwrap().count, 2, "{lists:?}");
}

#[tokio::test]
async fn events_that_a_watch_repeats_are_counted_once() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 5s
workloads:
- {name: all, watch: {resource: configmaps, start: watchList}}
- {name: changes, watch: {resource: configmaps}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let options = options(server.url(), text);
    let cut = async {
        let written = async || (sim.counts().requests("patch", "configmaps") > 10).then_some(());
        until("objects are written", written).await;
        sim.end_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), cut);
    let [all, changes, writes] = ["all", "changes", "writes"].map(|name| workload(&report, name));
    assert_eq!((all.requests, all.watches_ended, changes.watches_ended), (2, 1, 1), "{all:?} {changes:?}");
    // After the cut, the initial events came again with timestamps of this turn: they are not counted again.
    let count = all.event_delay.as_ref().unwrap().count;
    assert!(count > 0 && count <= writes.requests, "{all:?} {writes:?}");
    assert!(changes.event_delay.as_ref().unwrap().count <= writes.requests, "{changes:?}");
    for watches in [all, changes] {
        assert!(watches.events > 0 && watches.events <= writes.requests, "{watches:?} {writes:?}");
    }
}

#[tokio::test]
async fn informers_list_once_and_again_when_their_version_is_forgotten() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 60s
workloads:
- {name: watchList, clients: 3, http: 2, informer: {resource: configmaps}}
- {name: list, clients: 2, gzip: true, informer: {resource: configmaps, start: list}}
- {name: metadata, encoding: metadata, informer: {resource: configmaps, start: list}}
- {name: protobuf, encoding: protobuf, informer: {resource: configmaps}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let options = options(server.url(), text);
    let written = async |count| {
        let written = async || (sim.counts().requests("patch", "configmaps") > count).then_some(());
        until("objects are written", written).await;
    };
    // The run ends when it is over.
    let restart = async {
        written(10).await;
        let lists = || sim.counts().requests("list", "configmaps");
        let first = lists();
        // They continue from their versions, and receive nothing until the history is gone.
        sim.hold_new_watches(true);
        sim.end_watches(None);
        written(60).await;
        sim.forget_history();
        sim.hold_new_watches(false);
        sim.release_watches(None);
        // A list comes a back-off later: until then every watch that is open has ended.
        let again = async || (lists() >= first + 3 && sim.counts().open_watches("configmaps") == 7).then_some(());
        until("all have listed again", again).await;
        written(sim.counts().requests("patch", "configmaps") + 5).await;
    };
    let report = within("the end of the run", load(&options, restart)).await.unwrap();
    for (name, clients) in [("watchList", 3), ("list", 2), ("metadata", 1), ("protobuf", 1)] {
        let informers = workload(&report, name);
        assert!(informers.requests >= 3 * clients, "{informers:?}");
        assert_eq!(
            (informers.lists, informers.sync.as_ref().unwrap().count),
            (2 * clients, 2 * clients),
            "{informers:?}"
        );
        let [expired] = &informers.errors[..] else { panic!("{informers:?}") };
        assert_eq!((expired.kind.as_str(), expired.count), ("event_410", clients));
        assert!(
            informers.event_delay.as_ref().unwrap().count > 0 && informers.watches_ended >= clients,
            "{informers:?}"
        );
    }
}

#[tokio::test]
async fn informers_that_are_cut_come_back_with_their_version_and_list_only_if_it_is_forgotten() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let text = "duration: 9s
workloads:
- {name: http2, clients: 6, http: 2, connections: 2, reconnect: {resource: configmaps, every: 4s, spread: 200ms}}
- {name: http1, clients: 2, reconnect: {resource: configmaps, start: list, every: 4s}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let options = options(server.url(), text);
    let watches = async |count| {
        let opened = async || (sim.counts().requests("watch", "configmaps") >= count).then_some(());
        until("watches are opened", opened).await;
    };
    let forget = async {
        watches(8).await;
        sim.hold_watches(None);
        let patches = sim.counts().requests("patch", "configmaps");
        let written = async || (sim.counts().requests("patch", "configmaps") > patches + 5).then_some(());
        until("objects are written", written).await;
        // The clients receive none of these writes, and cannot continue from their versions.
        sim.forget_history();
        // At the first cut each is refused, and then receives all objects again.
        watches(8 + 8 + 8).await;
        sim.release_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), forget);
    let (http2, http1) = (workload(&report, "http2"), workload(&report, "http1"));
    for (workload, clients) in [(http2, 6), (http1, 2)] {
        assert_eq!(workload.cuts, 2 * clients, "{workload:?}");
        assert_eq!(workload.back.as_ref().unwrap().count, workload.cuts, "all are back: {workload:?}");
        assert_eq!(workload.relists, clients, "only after the history was forgotten: {workload:?}");
        assert_eq!(workload.lists, 2 * clients, "{workload:?}");
        assert_eq!(errors(workload), ["event_410"], "a cut is no error: {workload:?}");
    }
    let (text, page) = (load::text(&report), load::page(&report));
    assert!(text.contains("time until back, ms, from a cut or break") && text.contains("relists"), "{text}");
    assert!(page.contains("Time until back, ms") && page.contains("Lost connections of clients"));
}

#[tokio::test]
async fn no_connection_is_cut_while_the_last_responses_are_awaited() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    sim.hold_requests("list", "configmaps");
    // The list takes five seconds, until it times out.
    let text = "duration: 500ms
timeout: 5s
workloads:
- {name: hung, list: {resource: configmaps, limit: 5}}
- {name: cut, reconnect: {resource: pods, every: 300ms}}
- {name: spread, clients: 4, http: 2, connections: 4, reconnect: {resource: pods, every: 300ms, spread: 300ms}}";
    let report = measured(&options(server.url(), text)).await;
    assert!(report.endpoints[0].seconds >= 5.0, "{report:?}");
    for (name, cuts) in [("cut", 1), ("spread", 3)] {
        let cut = workload(&report, name);
        assert!(cut.cuts <= cuts, "{cuts} are due within the duration: {cut:?}");
    }
}

#[tokio::test]
async fn slow_readers_read_slowly_and_their_ends_are_counted() {
    let sim = Sim::new();
    for index in 0..100 {
        sim.create(pod("default", &format!("pod-{index}"), &"x".repeat(100))).unwrap();
    }
    let server = sim.start().await.unwrap();
    let text = "duration: 6s
workloads:
- {name: list, clients: 2, slowReader: {resource: pods, request: list, stopFor: 500ms}}
- {name: trickle, slowReader: {resource: pods, request: list, bytesPerSecond: 64}}
- {name: watch, clients: 3, http: 2, slowReader: {resource: pods, start: any, bytesPerSecond: 1Gi}}
- {name: refused, slowReader: {resource: nothings, start: any, stopFor: 1s}}";
    let options = options(server.url(), text);
    let end = async {
        let opened = async || (sim.counts().open_watches("pods") == 3).then_some(());
        until("the watches are open", opened).await;
        sim.end_watches(None);
        let again = async || (sim.counts().requests("watch", "pods") >= 6).then_some(());
        until("the watches are opened again", again).await;
        sim.cut_watches(None);
    };
    let (report, ()) = tokio::join!(measured(&options), end);
    let ends = |name: &str| -> Vec<(String, u64)> {
        workload(&report, name).ends.iter().map(|end| (end.kind.clone(), end.count)).collect()
    };
    let lists = workload(&report, "list");
    assert!(lists.latency.as_ref().unwrap().p50 >= 500.0 && lists.errors.is_empty(), "{lists:?}");
    assert_eq!(ends("list")[0], ("complete".to_owned(), lists.requests), "{lists:?}");
    assert_eq!(ends("trickle"), [("open".to_owned(), 1)]);
    let of_watches = ends("watch");
    assert_eq!(of_watches[..2], [("closed".to_owned(), 3), ("open".to_owned(), 3)], "{of_watches:?}");
    assert_eq!(of_watches[2..], [("stream".to_owned(), 3)], "{of_watches:?}");
    assert_eq!((ends("refused"), errors(workload(&report, "refused"))), (vec![], vec!["status_404"]));
    let (text, page) = (load::text(&report), load::page(&report));
    assert!(text.contains("no such resource there? Its plural"), "{text}");
    assert!(text.contains("what ended them") && page.contains("What ended slow responses"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["endpoints"][0]["workloads"][1]["ends"][0]["kind"], "open");
}

#[tokio::test]
async fn informers_list_at_a_server_without_watch_list() {
    let sim = Sim::new();
    sim.set_features(Features::old());
    let server = sim.start().await.unwrap();
    let text = "duration: 2s\nworkloads:\n- {clients: 2, informer: {resource: configmaps}}\n\
                - {rate: 20, churn: {objects: 5}}";
    let report = measured(&options(server.url(), text)).await;
    let informers = workload(&report, "informer");
    assert!(informers.errors.is_empty() && informers.events > 0, "{informers:?}");
    // The watch-list that was refused, and the list.
    assert_eq!((informers.lists, informers.sync.as_ref().unwrap().count), (4, 2), "{informers:?}");
}

#[tokio::test]
async fn two_processes_with_one_name_are_refused() {
    let name = || "gateway".to_owned();
    let mut options = options("http://127.0.0.1:1".to_owned(), "workloads: [{list: {resource: pods}}]");
    options.processes = vec![Named { name: name(), value: 1 }];
    options.metrics = vec![Named { name: name(), value: "http://127.0.0.1:1/metrics".to_owned() }];
    let refused = load(&options, pending()).await.unwrap_err().to_string();
    assert!(refused.contains("\"gateway\"") && refused.contains("--metrics"), "{refused}");
}

#[tokio::test]
async fn two_servers_have_their_turns() {
    let sim = Sim::new();
    let (one, two) = (sim.start().await.unwrap(), sim.start().await.unwrap());
    let text = "duration: 1s\nworkloads:\n- {rate: 20, list: {resource: configmaps}}\n\
                - {watch: {resource: configmaps}}\n- {rate: 20, churn: {objects: 3}}";
    let options = LoadOptions { against: Some(server(two.url())), ..options(one.url(), text) };
    let report = measured(&options).await;
    let names: Vec<_> = report.endpoints.iter().map(|endpoint| (endpoint.name, endpoint.turns)).collect();
    assert_eq!(names, [("url", 3), ("against", 3)]);
    for endpoint in &report.endpoints {
        let [list, watch, churn] = &endpoint.workloads[..] else { panic!("{endpoint:?}") };
        assert!(list.requests > 0 && churn.requests > 0, "{endpoint:?}");
        // Events of the other server's turn are not counted here.
        let count = watch.event_delay.as_ref().unwrap().count;
        assert!(count > 0 && count <= churn.requests, "{endpoint:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_for_tests_is_refused() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let options = options(server.url(), "duration: 100ms\nworkloads: [{list: {resource: pods}}]");
    assert!(load(&options, pending()).await.is_ok(), "the embedded server");
    sim.upgrade("v1.36.0", &resource("pods"), |_| {}).unwrap();
    let error = load(&options, pending()).await.unwrap_err();
    assert!(matches!(error, LoadError::NotForTests(..)), "{error:?}");
    assert!(error.to_string().contains(TEST_CLUSTER) && error.to_string().contains("--i-know"), "{error}");
    assert!(!error.to_string().contains("cannot be read"), "{error}");
    let refusal = Refusal { resource: Some("namespaces".to_owned()), status: 403, ..Refusal::default() };
    sim.refuse(refusal);
    let error = load(&options, pending()).await.unwrap_err().to_string();
    assert!(error.contains("tests; its namespace \"default\" cannot be read (status_403: "), "{error}");
    sim.accept_all();
    let told = LoadOptions { any_cluster: true, ..options.clone() };
    assert!(load(&told, pending()).await.is_ok());
    let label = |namespace: &mut Value| namespace["metadata"]["labels"] = json!({TEST_CLUSTER: "true"});
    sim.modify(&resource("namespaces"), "default", label).unwrap();
    assert!(load(&options, pending()).await.is_ok());
    server.kill().await;
    let error = load(&told, pending()).await;
    assert!(error.is_ok(), "--i-know measures a server that does not answer, too: {error:?}");
    let error = load(&options, pending()).await.unwrap_err();
    assert!(matches!(error, LoadError::Unreachable(..)), "{error:?}");
}

/// Runs the built program with a profile in a file.
async fn command(folder: &Path, url: &str, arguments: &[&str]) -> Output {
    let path = folder.join("small.yaml");
    let text = "apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\nduration: 300ms\nworkloads:\n\
                - {rate: 20, list: {resource: configmaps}}\n- {watch: {resource: configmaps, start: watchList}}\n\
                - {rate: 20, churn: {objects: 3}}\n- {name: none, rate: 10, get: {resource: secrets}}\n";
    std::fs::write(&path, text).unwrap();
    finished(kube_fanout(&["load", "--url", url, "--profile"]).arg(&path).args(arguments)).await
}

#[tokio::test]
async fn assertions_set_the_exit_code_and_the_report_has_both_forms() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    let json = folder.path().join("report.json");
    let id = format!("sim={}", std::process::id());
    let arguments =
        ["--assert", "list:errors==0", "--assert", "list:requests>1", "--pid", &id, "--output", json.to_str().unwrap()];
    let passed = command(folder.path(), &server.url(), &arguments).await;
    let text = String::from_utf8(passed.stdout.clone()).unwrap();
    assert_eq!(passed.status.code(), Some(0), "{passed:?}");
    assert!(text.contains("passed  list:errors==0: 0\n") && text.contains("event delay, ms"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(paths(&report), REPORT);

    let page = folder.path().join("report.html");
    let arguments = ["--html", page.to_str().unwrap(), "--assert", "APIResponsiveness"];
    let objective = command(folder.path(), &server.url(), &arguments).await;
    let text = String::from_utf8(objective.stdout).unwrap();
    assert!(
        text.contains("passed  list:latency.p99<=30s: ") && text.contains("FAILED  none:latency.p99<=1s: "),
        "{text}"
    );
    assert_eq!(objective.status.code(), Some(3), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<h3>Event delay, ms") && page.matches("<svg").count() >= 4, "{page}");
    // It loads nothing.
    assert!(["src=", "href=", "url(", "<script"].iter().all(|part| !page.contains(part)), "{page}");

    let failed = command(folder.path(), &server.url(), &["--assert", "latency.p50<0ms", "--output", "-"]).await;
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    let report: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(report["assertions"][0]["passed"], false, "{report}");
    let wrong = command(folder.path(), &server.url(), &["--assert", "latency<5ms"]).await;
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(!wrong.status.success() && said.contains("event.delay"), "{said}");
    let wrong = command(folder.path(), &server.url(), &["--assert", "lists:errors==0"]).await;
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(!wrong.status.success() && said.contains("there are: list, watch, churn, none"), "{said}");
}

#[tokio::test]
async fn the_demo_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        kube_fanout(&["load", "--demo", "20", "--profile", "controllers", "--duration", "1s", "--turns", "1"]);
    command.args(["--assert", "errors==0", "--assert", "event.delay.p50>0ms", "--output", "-"]);
    let output = finished(command.current_dir(&folder)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["endpoints"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn problems_of_a_profile_are_reported_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, "apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\nworkloads:\n- lists: {}\n").unwrap();
    let run = async |profile: &Path| {
        finished(kube_fanout(&["load", "--url", "http://127.0.0.1:1", "--profile"]).arg(profile)).await
    };
    let output = run(&path).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("line 4, column 3: workloads[0].lists: no such field; allowed: name, clients"), "{said}");
    let output = run(Path::new("nowhere")).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("kubelets, daemonsets, controllers"), "{said}");
}

/// The paths of all fields of a report. They are a public interface: fields may only be added.
const REPORT: &str = "apiVersion
assertions[].assertion
assertions[].passed
assertions[].unit
assertions[].value
endpoints[].name
endpoints[].processes[].cpuSeconds
endpoints[].processes[].name
endpoints[].processes[].openingCpuSeconds
endpoints[].processes[].residentBytes
endpoints[].processes[].unreadTurns
endpoints[].seconds
endpoints[].turns
endpoints[].url
endpoints[].workloads[].back
endpoints[].workloads[].bytes
endpoints[].workloads[].clients
endpoints[].workloads[].connections
endpoints[].workloads[].cuts
endpoints[].workloads[].encoding
endpoints[].workloads[].errors[].count
endpoints[].workloads[].errors[].first
endpoints[].workloads[].errors[].kind
endpoints[].workloads[].eventDelay
endpoints[].workloads[].eventDelay.count
endpoints[].workloads[].eventDelay.histogram[].count
endpoints[].workloads[].eventDelay.histogram[].upTo
endpoints[].workloads[].eventDelay.max
endpoints[].workloads[].eventDelay.mean
endpoints[].workloads[].eventDelay.p50
endpoints[].workloads[].eventDelay.p90
endpoints[].workloads[].eventDelay.p99
endpoints[].workloads[].eventDelay.p99.9
endpoints[].workloads[].eventDelayOverTime
endpoints[].workloads[].eventDelayOverTime.intervals[].count
endpoints[].workloads[].eventDelayOverTime.intervals[].max
endpoints[].workloads[].eventDelayOverTime.intervals[].mean
endpoints[].workloads[].eventDelayOverTime.seconds
endpoints[].workloads[].events
endpoints[].workloads[].eventsPerSecond
endpoints[].workloads[].firstByte
endpoints[].workloads[].firstByte.count
endpoints[].workloads[].firstByte.histogram[].count
endpoints[].workloads[].firstByte.histogram[].upTo
endpoints[].workloads[].firstByte.max
endpoints[].workloads[].firstByte.mean
endpoints[].workloads[].firstByte.p50
endpoints[].workloads[].firstByte.p90
endpoints[].workloads[].firstByte.p99
endpoints[].workloads[].firstByte.p99.9
endpoints[].workloads[].gzip
endpoints[].workloads[].http
endpoints[].workloads[].lagMax
endpoints[].workloads[].latency
endpoints[].workloads[].latency.count
endpoints[].workloads[].latency.histogram[].count
endpoints[].workloads[].latency.histogram[].upTo
endpoints[].workloads[].latency.max
endpoints[].workloads[].latency.mean
endpoints[].workloads[].latency.p50
endpoints[].workloads[].latency.p90
endpoints[].workloads[].latency.p99
endpoints[].workloads[].latency.p99.9
endpoints[].workloads[].latencyOverTime
endpoints[].workloads[].latencyOverTime.intervals[].count
endpoints[].workloads[].latencyOverTime.intervals[].max
endpoints[].workloads[].latencyOverTime.intervals[].mean
endpoints[].workloads[].latencyOverTime.seconds
endpoints[].workloads[].lists
endpoints[].workloads[].name
endpoints[].workloads[].rate
endpoints[].workloads[].relists
endpoints[].workloads[].requests
endpoints[].workloads[].requestsPerSecond
endpoints[].workloads[].sync
endpoints[].workloads[].sync.count
endpoints[].workloads[].sync.histogram[].count
endpoints[].workloads[].sync.histogram[].upTo
endpoints[].workloads[].sync.max
endpoints[].workloads[].sync.mean
endpoints[].workloads[].sync.p50
endpoints[].workloads[].sync.p90
endpoints[].workloads[].sync.p99
endpoints[].workloads[].sync.p99.9
endpoints[].workloads[].watchesEnded
endpoints[].workloads[].work
interrupted
kind
left
profile
version";

/// The paths of all values that are neither objects nor arrays, `null` included.
fn paths(value: &Value) -> String {
    fn collect(value: &Value, path: &str, paths: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    collect(value, &path, paths);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, &format!("{path}[]"), paths)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(paths.insert(path.to_owned())),
        }
    }
    let mut paths = Default::default();
    collect(value, "", &mut paths);
    paths.into_iter().collect::<Vec<_>>().join("\n")
}
