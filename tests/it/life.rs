//! The life of a gateway: caches that are started and stopped, an unavailable upstream, the drain.

use std::time::Duration;

use bytes::Bytes;
use kube_fanout::{
    apimachinery::GroupResource,
    config::StaleWatches,
    lifecycle::Drained,
    sim::{Refusal, Sim},
};
use tokio::{join, net::TcpStream};

use crate::harness::{
    Gateway, Route, World, passing,
    serving::{accepting, listener, relay},
    skip, until,
    upstream::pods,
    within,
};

const PODS: &str = "/api/v1/pods";

#[tokio::test]
async fn a_drain_ends_open_watches_properly() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm(PODS).await;
    let client = world.client().clone();
    let served = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    let shared = client.over_http2().watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    let mut stopping = world.gateway.stop();
    let (served, shared, drained) =
        within("the drain", async { tokio::join!(served.rest(), shared.rest(), stopping.drained()) }).await;
    for (events, route) in [served, shared] {
        assert_eq!((events.lines().count(), route), (1, Route::Served));
    }
    assert_eq!(drained, Drained::All);
    assert!(client.is_refused().await);
}

#[tokio::test]
async fn a_drain_ends_forwarded_watches_properly() {
    let world = World::start_with(Sim::new(), |config| config.cache.exclude = vec![pods()]).await;
    world.create_pod("default", "a", "x");
    let client = world.client().clone();
    let mut alone = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    let mut shared = client.over_http2().watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    for watch in [&mut alone, &mut shared] {
        assert!(watch.line().await.unwrap().is_some());
    }
    let mut stopping = world.gateway.stop();
    let (alone, shared, drained) =
        within("the drain", async { tokio::join!(alone.rest(), shared.rest(), stopping.drained()) }).await;
    for end in [alone, shared] {
        assert_eq!(end, (String::new(), Route::Forwarded("excluded".to_owned())));
    }
    assert_eq!(drained, Drained::All);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_status() {
    let world = World::start().await;
    world.server.stop().await;
    let answer = world.client().get("/api/v1/namespaces/default/pods/a").await;
    assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (503, &"application/json".parse().unwrap()));
    let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"ServiceUnavailable".into()), "{status}");
    assert!(matches!(answer.route, Route::Rejected(_)), "{}", answer.route);
}

#[tokio::test]
async fn a_gateway_in_front_of_itself_answers_508() {
    let (way_back, address) = listener().await;
    let gateway = Gateway::start(&format!("http://{address}")).await;
    let itself = gateway.client.address();
    let _relaying = accepting(way_back, move |request| async move {
        relay(request, TcpStream::connect(itself).await.unwrap()).await;
    });
    for path in [PODS, "/api/v1/pods?resourceVersion=0", "/version"] {
        let answer = within("the answer", gateway.client.get(path)).await;
        assert_eq!(answer.status, 508, "{path}: {}", answer.text());
        assert!(answer.text().contains("upstream.kubeconfig"), "{path}: {}", answer.text());
    }
    // Another project's proxy in front of this gateway is allowed.
    let others = [("via", "1.1 kube-fanout-0123456789abcdef, 1.1 nginx")];
    let world = World::start().await;
    assert_eq!(world.client().request("GET", "/version", &others, Bytes::new()).await.status, 200);
}

#[tokio::test]
async fn unused_caches_are_stopped() {
    let idle = Duration::from_secs(60);
    let world = World::start_with(Sim::new(), |config| config.cache.idle_timeout = idle).await;
    world.gateway.warm(PODS).await;
    let watch = world.client().watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    for _ in 0..5 {
        skip(idle / 2).await;
    }
    assert_eq!(world.client().get("/api/v1/pods?resourceVersion=0").await.route, Route::Served, "it is being watched");
    drop(watch);
    until("the end of the watch upstream", async || {
        skip(idle / 2).await;
        (world.sim.counts().open_watches("pods") == 0).then_some(())
    })
    .await;
    // The cache is started again by the next read.
    world.create_pod("default", "a", "x");
    world.gateway.warm(PODS).await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn idleness_begins_when_the_last_watch_ends() {
    let idle = Duration::from_secs(60);
    let world = World::start_with(Sim::new(), |config| config.cache.idle_timeout = idle).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm(PODS).await;
    let watch = world.client().watch("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=140").await;
    for _ in 0..5 {
        skip(idle / 2).await;
        world.client().get("/api/v1/configmaps?resourceVersion=0").await;
    }
    assert_eq!(watch.rest().await.1, Route::Served);
    // The last get was long ago, but the watch was open until just now.
    skip(idle / 2).await;
    assert_eq!(world.client().get("/api/v1/pods?resourceVersion=0").await.route, Route::Served);
}

#[tokio::test]
async fn a_cache_that_is_filled_again_is_not_idle() {
    let idle = Duration::from_secs(60);
    let world = World::start_with(Sim::new(), |config| config.cache.idle_timeout = idle).await;
    world.create_pod("default", "a", "x");
    let backup = world.sim.revision();
    world.create_pod("default", "ghost", "x");
    world.gateway.warm(PODS).await;
    let list = "/api/v1/pods?resourceVersion=0";
    for _ in 0..3 {
        skip(idle / 2).await;
        assert_eq!(world.client().get(list).await.route, Route::Served);
    }
    // The cache is given up, and its next fill takes its time.
    world.sim.hold_requests("watch", "pods");
    let watches = world.sim.counts().requests("watch", "pods");
    world.sim.rewind(backup).unwrap();
    let begun = world.sim.until(|counts| counts.requests("watch", "pods") > watches);
    within("the fill", passing(Duration::from_secs(1), begun)).await;
    let waiting = world.client().get(list);
    let released = async {
        for _ in 0..2 {
            skip(Duration::from_secs(6)).await;
            world.client().get("/api/v1/configmaps?resourceVersion=0").await;
        }
        world.sim.release_requests();
    };
    let (answer, ()) = join!(waiting, released);
    assert_eq!((answer.route.clone(), answer.text().contains("ghost")), (Route::Served, false));
    assert_eq!(world.sim.counts().requests("watch", "pods"), watches + 1, "it was given up, and another one started");
}

#[tokio::test]
async fn a_fill_that_a_read_waits_for_may_take_longer_than_the_idle_timeout() {
    let idle = Duration::from_secs(10);
    let world = World::start_with(Sim::new(), |config| config.cache.idle_timeout = idle).await;
    world.create_pod("default", "a", "x");
    world.sim.hold_requests("watch", "pods");
    let waiting = world.client().get("/api/v1/pods?resourceVersion=0");
    let released = async {
        within("the fill", world.sim.until(|counts| counts.requests("watch", "pods") == 1)).await;
        for _ in 0..4 {
            skip(Duration::from_secs(6)).await;
            world.client().get("/api/v1/configmaps?resourceVersion=0").await;
        }
        world.sim.release_requests();
    };
    let (answer, ()) = join!(waiting, released);
    assert_eq!(answer.route, Route::Served);
    assert_eq!(world.sim.counts().requests("watch", "pods"), 1, "it was given up, and another one started");
}

#[tokio::test]
async fn a_gateway_without_news_from_upstream_becomes_unready() {
    for (stale_watches, is_kept) in [(StaleWatches::Keep, true), (StaleWatches::End, false)] {
        let mut world = World::start_with(Sim::new(), |config| {
            config.cache.max_staleness = Some(Duration::from_secs(60));
            config.cache.stale_watches = stale_watches;
        })
        .await;
        world.create_pod("default", "a", "x");
        world.gateway.warm(PODS).await;
        let path = "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=290";
        let watch = world.client().watch(path).await;
        // Makes the next bookmark differ from the last version of the watch.
        world.create_pod("default", "b", "x");
        world.gateway.reach(PODS, world.sim.revision()).await;
        world.server.kill().await;
        assert_eq!(world.gateway.readyz().await.0, 200);
        for _ in 0..14 {
            skip(Duration::from_secs(5)).await;
            assert_eq!(world.client().get("/api/v1/pods?resourceVersion=0").await.route, Route::Served);
        }
        let (status, lines) = world.gateway.readyz().await;
        assert!(status == 500 && lines.contains("[-]cache/pods.v1 failed"), "{lines}");
        let opened = world.client().open("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1").await;
        assert_eq!(opened.is_ok(), is_kept);
        if is_kept {
            skip(Duration::from_secs(240)).await;
        }
        let (events, route) = watch.rest().await;
        // Only the bookmark at the end of the initial events; a later one would claim that the cache is up to date.
        assert_eq!((route, events.matches("BOOKMARK").count()), (Route::Served, 1), "{events}");
        world.server.start_again().await.unwrap();
        let ready = async || {
            skip(Duration::from_secs(10)).await;
            (world.gateway.readyz().await.0 == 200).then_some(())
        };
        until("a gateway that hears upstream again", ready).await;
    }
}

#[tokio::test]
async fn prewarmed_caches_are_filled_at_the_start_and_kept() {
    let world = World::start_with(Sim::new(), |config| {
        config.cache.prewarm = vec![pods().into()];
        config.cache.idle_timeout = Duration::from_secs(60);
    })
    .await;
    within("the watch upstream", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    for _ in 0..5 {
        skip(Duration::from_secs(30)).await;
    }
    assert_eq!(world.client().get("/api/v1/pods?resourceVersion=0").await.route, Route::Served);
}

#[tokio::test]
async fn a_prewarmed_resource_is_cached_soon_after_the_right_for_it_is_granted() {
    let sim = Sim::new();
    let services = Some("apiservices.apiregistration.k8s.io".to_owned());
    sim.refuse(Refusal { resource: services, status: 403, ..Refusal::default() });
    let world = World::start_with(sim, |config| {
        config.cache.prewarm = vec![GroupResource { group: "apps".into(), resource: "deployments".into() }.into()];
    })
    .await;
    let is_told = async || {
        let (status, lines) = world.gateway.readyz().await;
        (status == 500 && lines.contains("the gateway may not list apiservices")).then_some(())
    };
    until("the reason", is_told).await;
    world.sim.accept_all();
    for _ in 0..2 {
        skip(Duration::from_secs(31)).await;
    }
    until("readiness", async || (world.gateway.readyz().await.0 == 200).then_some(())).await;
    let (_, lines) = world.gateway.verbose_readyz().await;
    assert!(lines.contains("[+]cache/deployments.apps ok"), "{lines}");
}

/// client-go repeats ten times whatever has `Retry-After`: kubectl would be silent for that long.
#[tokio::test]
async fn an_unreachable_upstream_is_reported_at_once() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    server.stop().await;
    let gateway = Gateway::start(&server.url()).await;
    for (method, path, retry_after) in [
        ("GET", "/api", None),
        ("GET", "/api/v1/pods", None),
        ("POST", "/api/v1/namespaces/a/pods", None),
        // Informers watch again, and need not list.
        ("GET", "/api/v1/pods?watch=1&resourceVersion=5", Some("1")),
    ] {
        let answer = gateway.client.request(method, path, &[], Bytes::new()).await;
        let found = answer.headers.get("retry-after").map(|value| value.to_str().unwrap());
        assert_eq!((answer.status.as_u16(), found), (503, retry_after), "{method} {path}");
        let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(status["reason"], "ServiceUnavailable");
        assert_eq!(status["message"], "kube-fanout: no response from the API server: cannot connect to the API server");
        assert_eq!(status["details"].get("retryAfterSeconds").is_some(), retry_after.is_some(), "{status}");
    }
}

#[tokio::test]
async fn an_upstream_that_comes_late_is_used_when_it_comes() {
    let sim = Sim::new();
    let mut server = sim.start().await.unwrap();
    server.stop().await;
    let gateway = Gateway::start(&server.url()).await;
    assert_eq!(gateway.client.get("/api/v1/pods?resourceVersion=0").await.status, 503);
    server.start_again().await.unwrap();
    gateway.warm_skipping(PODS).await;
}
