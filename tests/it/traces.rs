//! Traces, as a collector and upstream see them.

use kube_fanout::{config::TracingConfig, lifecycle::Drained, sim::Sim, telemetry};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};

use tokio::join;

use crate::{
    delegated::{PODS, Scene, WATCH},
    harness::{
        Route, World,
        collector::{Collector, Manner, attributes},
        until,
    },
};

const POD: &str = "/api/v1/namespaces/default/pods/a";
/// A client's span that is recorded, and one that is not.
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";
const ALL: u32 = 1_000_000;

fn tracing(collector: &Collector, sampling_rate_per_million: u32) -> Option<TracingConfig> {
    Some(TracingConfig { endpoint: collector.address.to_string(), sampling_rate_per_million })
}

/// Clients with names and rights; `root` is privileged.
async fn scene(collector: &Collector, rate: u32) -> Scene {
    let scene = Scene::start_with(|config| config.tracing = tracing(collector, rate)).await;
    scene.upstream.add_user("root-token", "root");
    scene.upstream.add_to_group("root", "system:masters");
    for verb in ["list", "get", "watch", "delete"] {
        scene.upstream.grant("root", verb, "pods");
    }
    scene
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test]
async fn a_trace_goes_from_the_client_through_the_gateway_to_upstream() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = scene(&collector, 0).await;
    let headers = [("authorization", "Bearer root-token"), ("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    // So that the user is known when the request is forwarded.
    assert_eq!(scene.ask("GET", PODS, &headers[..1]).await.route, Route::Served);

    let (agent, served) = scene.gateway.client.asked("GET", PODS, &headers).await;
    assert_eq!(served.route, Route::Served);
    let (request, stages) = collector.trace(&agent).await;
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE_ID.to_owned(), SPAN_ID.to_owned()));
    assert_eq!((request.name.as_str(), request.kind()), ("list pods", SpanKind::Server));
    assert_eq!((request.flags, stages[0].flags), (0x301, 0x101), "the parent of one is of another process");
    assert_eq!(names(&stages), ["authorize", "serve"]);
    let told = attributes(&request);
    for (key, value) in [
        ("verb", "list"),
        ("resource", "pods"),
        ("api-version", "v1"),
        ("outcome", "served"),
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.path", "/api/v1/pods"),
        ("client.address", "127.0.0.1"),
        ("audit-id", served.headers["audit-id"].to_str().unwrap()),
        ("http.response.body.size", &served.body.len().to_string()),
    ] {
        assert_eq!(told.get(key).map(String::as_str), Some(value), "{key} in {told:?}");
    }
    let resource = collector.resource();
    assert_eq!((&*resource["service.name"], &*resource["service.version"]), ("kube-fanout", env!("CARGO_PKG_VERSION")));
    for stage in &stages {
        assert!(request.start_time_unix_nano <= stage.start_time_unix_nano, "{stage:?}");
        assert!(stage.start_time_unix_nano <= stage.end_time_unix_nano, "{stage:?}");
        assert!(stage.end_time_unix_nano <= request.end_time_unix_nano, "{stage:?}");
    }
    // In this century.
    assert!(request.start_time_unix_nano > 1_600_000_000_000_000_000);

    let (agent, forwarded) = scene.gateway.client.asked("GET", POD, &headers).await;
    assert_eq!(forwarded.route, Route::Forwarded("most_recent".to_owned()));
    let (request, stages) = collector.trace(&agent).await;
    assert_eq!(hex(&request.trace_id), TRACE_ID);
    let forward = stages.last().unwrap();
    assert_eq!((forward.name.as_str(), forward.kind()), ("forward", SpanKind::Client));
    let told = attributes(&request);
    assert_eq!((&*told["outcome"], &*told["reason"], &*told["name"]), ("forwarded", "most_recent", "a"));
    let told = attributes(forward);
    assert_eq!((&*told["server.address"], &*told["http.response.status_code"]), ("127.0.0.1", "200"));
    assert_eq!(told["server.port"], scene.upstream.address.port().to_string());
    let upstream = scene.upstream.headers(&agent).unwrap();
    assert_eq!(upstream["traceparent"], format!("00-{TRACE_ID}-{}-01", hex(&forward.span_id)));
    assert_eq!(upstream["tracestate"], "vendor=1");
}

/// As in an API server (KEP-647): an unprivileged client neither decides how many traces there are, nor writes into
/// those of others.
#[tokio::test]
async fn clients_that_are_not_privileged_begin_no_trace_and_enter_none() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = scene(&collector, 0).await;
    let of = |token| [("authorization", token), ("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    for path in [PODS, POD] {
        let (agent, _) = scene.gateway.client.asked("GET", path, &of("Bearer jane-token")).await;
        if path == POD {
            let upstream = scene.upstream.headers(&agent).unwrap();
            assert_eq!(
                (&upstream["traceparent"], &upstream["tracestate"]),
                (&SAMPLED.parse().unwrap(), &"vendor=1".parse().unwrap())
            );
        }
    }
    // Spans are exported in the order of requests.
    let (agent, _) = scene.gateway.client.asked("GET", PODS, &of("Bearer root-token")).await;
    collector.trace(&agent).await;
    let requests = collector.spans().into_iter().filter(|span| span.kind() == SpanKind::Server);
    assert_eq!(requests.count(), 1, "{:#?}", collector.spans());
}

#[tokio::test]
async fn requests_sampled_by_the_gateway_begin_traces_of_their_own() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = scene(&collector, ALL).await;
    let headers = [("authorization", "Bearer jane-token"), ("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    let (agent, answer) = scene.gateway.client.asked("GET", POD, &headers).await;
    assert_eq!(answer.status, 200);
    let (request, stages) = collector.trace(&agent).await;
    assert!(hex(&request.trace_id) != TRACE_ID && request.parent_span_id.is_empty(), "{request:?}");
    let links: Vec<_> = request.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    assert_eq!(links, [(TRACE_ID.to_owned(), SPAN_ID.to_owned())]);
    let upstream = scene.upstream.headers(&agent).unwrap();
    let expected = format!("00-{}-{}-01", hex(&request.trace_id), hex(&stages.last().unwrap().span_id));
    assert_eq!(upstream["traceparent"], expected);
    assert_eq!(upstream.get("tracestate"), None, "it belongs to the other trace");

    // A privileged client's word is the last one, in both ways.
    let root = [("authorization", "Bearer root-token"), ("traceparent", UNSAMPLED)];
    assert_eq!(scene.ask("GET", PODS, &root).await.route, Route::Served);
    let (unsampled, _) = scene.gateway.client.asked("GET", POD, &root).await;
    assert_eq!(scene.upstream.headers(&unsampled).unwrap()["traceparent"], UNSAMPLED);
    // Refused by upstream, and by the gateway.
    let john = [("authorization", "Bearer john-token")];
    let (denied, _) = scene.gateway.client.asked("GET", PODS, &john).await;
    let (request, stages) = collector.trace(&denied).await;
    assert_eq!((names(&stages), &*attributes(&request)["reason"]), (vec!["authorize", "forward"], "denied"));
    assert_eq!(attributes(&request)["http.response.status_code"], "403");
    assert_eq!(stages[1].status.as_ref().unwrap().code(), StatusCode::Error);
    assert_eq!(request.status, None, "a client's mistake is no error of a server");
    let (malformed, _) = scene.gateway.client.asked("GET", PODS, &[("host", "a"), ("host", "b")]).await;
    let (request, stages) = collector.trace(&malformed).await;
    assert_eq!((stages.len(), &*attributes(&request)["outcome"]), (0, "rejected"));
    let of_unsampled = |span: &Span| attributes(span).values().any(|value| *value == unsampled);
    assert!(!collector.spans().iter().any(of_unsampled));
}

#[tokio::test]
async fn a_watch_is_reported_when_it_begins() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = scene(&collector, ALL).await;
    let jane = [("authorization", "Bearer jane-token")];
    let mut watch = scene.gateway.client.watch_with(WATCH, &jane).await;
    let is_watch = |span: &Span| span.name == "watch pods";
    let told = async || collector.spans().into_iter().find(is_watch);
    let span = until("the span of a watch that goes on", told).await;
    assert_eq!((&*attributes(&span)["outcome"], &*attributes(&span)["http.response.status_code"]), ("served", "200"));
    assert!(watch.line().await.unwrap().unwrap().contains("ADDED"));
    drop(watch);
    let last = scene.gateway.client.asked("GET", PODS, &jane).await.0;
    collector.trace(&last).await;
    assert_eq!(collector.spans().into_iter().filter(is_watch).count(), 1, "once");
}

#[tokio::test]
async fn clients_on_the_gateways_own_machine_decide_and_waits_are_stages() {
    let collector = Collector::start(Manner::Accepts).await;
    let world = World::start_with(Sim::new(), |config| config.tracing = tracing(&collector, 0)).await;
    world.create_pod("default", "a", "x");
    world.sim.hold_requests("list", "pods");
    let asked = world.client().asked("GET", PODS, &[("traceparent", SAMPLED)]);
    let filled = async {
        until("the fill", async || (world.sim.counts().requests("list", "pods") > 0).then_some(())).await;
        world.sim.release_requests();
    };
    let ((agent, answer), ()) = join!(asked, filled);
    assert_eq!(answer.route, Route::Served);
    let (request, stages) = collector.trace(&agent).await;
    assert_eq!(hex(&request.trace_id), TRACE_ID);
    assert_eq!(names(&stages), ["authorize", "wait", "authorize", "serve"]);
}

#[tokio::test]
async fn without_a_collector_contexts_pass_as_they_are() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = Scene::start().await;
    let headers = [("authorization", "Bearer jane-token"), ("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    let (agent, _) = scene.gateway.client.asked("GET", POD, &headers).await;
    let upstream = scene.upstream.headers(&agent).unwrap();
    assert_eq!(
        (&upstream["traceparent"], &upstream["tracestate"]),
        (&SAMPLED.parse().unwrap(), &"vendor=1".parse().unwrap())
    );
    assert_eq!(collector.calls(), 0);
}

/// Whatever a collector does, requests are answered and the drain ends.
#[tokio::test]
async fn a_collector_that_does_not_take_spans_delays_nothing() {
    for manner in
        [Manner::Refuses(14), Manner::Refuses(3), Manner::Silent, Manner::Endless, Manner::Garbage, Manner::Closes]
    {
        let collector = Collector::start(manner).await;
        let world = World::start_with(Sim::new(), |config| config.tracing = tracing(&collector, ALL)).await;
        world.gateway.warm("/api/v1/pods").await;
        until("a call", async || (collector.calls() > 0).then_some(())).await;
        for _ in 0..20 {
            assert_eq!(world.client().get(PODS).await.route, Route::Served, "{manner:?}");
        }
        let World { gateway, .. } = world;
        assert_eq!(gateway.stop().drained().await, Drained::All, "{manner:?}");
        assert_eq!(collector.spans(), [], "{manner:?}");
    }
    let metrics = telemetry::install().unwrap().render();
    let count = |cause: &str| {
        let name = format!("kube_fanout_spans_dropped_total{{cause=\"{cause}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or_default()
    };
    assert!(count("unsent") >= 6 * 20, "{metrics}");
}

#[tokio::test]
async fn a_collector_that_is_away_for_a_while_misses_nothing() {
    let collector = Collector::start(Manner::Closes).await;
    let world = World::start_with(Sim::new(), |config| config.tracing = tracing(&collector, ALL)).await;
    world.gateway.warm("/api/v1/pods").await;
    let (first, _) = world.client().asked("GET", PODS, &[]).await;
    until("a call in vain", async || (collector.calls() > 1).then_some(())).await;
    collector.behave(Manner::Accepts);
    collector.trace(&first).await;
    // What has not been exported when the drain begins is exported then.
    let (last, _) = world.client().asked("GET", PODS, &[]).await;
    let World { gateway, .. } = world;
    assert_eq!(gateway.stop().drained().await, Drained::All);
    collector.trace(&last).await;
}

#[tokio::test]
async fn spans_hold_no_secrets_and_bounded_texts() {
    let collector = Collector::start(Manner::Accepts).await;
    let scene = scene(&collector, ALL).await;
    let long =
        format!("/api/v1/namespaces/default/pods/{}?resourceVersion=0&labelSelector=secret-query", "p".repeat(20_000));
    let headers = [
        ("authorization", "Bearer jane-token"),
        ("cookie", "secret-cookie"),
        ("impersonate-user", "secret-user"),
        ("traceparent", SAMPLED),
        ("tracestate", "secret-state=1"),
        ("baggage", "secret=baggage"),
    ];
    let (agent, _) = scene.gateway.client.asked("GET", &long, &headers).await;
    let (request, _) = collector.trace(&agent).await;
    assert_eq!(attributes(&request)["url.path"].len(), 1_024);
    let all = format!("{:?}", collector.spans());
    for secret in ["secret", "jane", "Bearer", "resourceVersion", "labelSelector"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}
