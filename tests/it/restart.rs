//! Clients that resume their watches at a gateway that has just been started, from versions before its fill, and are
//! more than upstream has places for.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    config::Config,
    sim::{Features, Sim},
};
use serde_json::json;
use tokio::{join, time::Instant};

use crate::{
    delegated::Scene,
    harness::{
        Answer, Route, Watch, forwarded, passing,
        upstream::{pod, pods},
    },
};

/// Shorter than the time between the last bookmark and the end of a watch.
const STEP: Duration = Duration::from_millis(500);
/// What one client may have upstream at once.
const PLACES: usize = 4;
const WATCHES: usize = 12;

fn few_places(config: &mut Config) {
    config.limits.forwarded_per_client = PLACES;
}

/// A pod for each watch, which changed in every way between the version from which the watches resume, which is
/// returned, and the start of the gateway.
async fn started_anew() -> (Scene, u64) {
    started_anew_at(Features::default()).await
}

async fn started_anew_at(features: Features) -> (Scene, u64) {
    let sim = Sim::new();
    sim.set_features(features);
    for number in 0..WATCHES {
        for name in ["stays", "leaves", "goes"] {
            sim.create(pod("default", &format!("{name}-{number}"), &format!("app-{number}"))).unwrap();
        }
    }
    let version = sim.revision();
    change(&sim);
    (Scene::start_cold(sim, few_places).await, version)
}

fn change(sim: &Sim) {
    let label = |key: &str, app: &str| {
        sim.modify(&pods(), key, |pod| pod["metadata"]["labels"]["app"] = app.into()).unwrap();
    };
    for number in 0..WATCHES {
        let app = format!("app-{number}");
        label(&format!("default/leaves-{number}"), "other");
        sim.delete(&pods(), &format!("default/goes-{number}")).unwrap();
        sim.create(pod("default", &format!("comes-{number}"), &app)).unwrap();
        label(&format!("default/comes-{number}"), "other");
        label(&format!("default/comes-{number}"), &app);
    }
}

fn path(number: usize, version: u64) -> String {
    let selector = format!("labelSelector=app%3Dapp-{number}&allowWatchBookmarks=true");
    format!("/api/v1/pods?watch=1&timeoutSeconds=30&resourceVersion={version}&{selector}")
}

async fn resumed(scene: &Scene, token: &str, version: u64) -> Vec<Result<Watch, Answer>> {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    let client = &scene.gateway.client;
    let open = async |number| client.open_with(&path(number, version), &headers).await;
    join_all((0..WATCHES).map(open)).await
}

/// What upstream itself sends to such watches.
async fn directly(scene: &Scene, version: u64) -> Vec<String> {
    let told = async |number| {
        let request = Request::get(path(number, version)).body(Full::default()).unwrap();
        let body = scene.sim.handle(request).await.into_body().collect().await.unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    };
    join_all((0..WATCHES).map(told)).await
}

/// Opens all watches at once, at a gateway whose cache is filled or not, and compares what they get until they end:
/// those that were forwarded do so as soon as they are told what they missed.
async fn all_are_told_what_they_missed(scene: Scene, version: u64) {
    let watched = async {
        let watches = resumed(&scene, "jane-token", version).await;
        let watches: Vec<_> =
            watches.into_iter().map(|watch| watch.unwrap_or_else(|refused| panic!("{refused:?}"))).collect();
        join_all(watches.into_iter().map(Watch::rest)).await
    };
    let (watched, direct) = passing(STEP, async { join!(watched, directly(&scene, version)) }).await;
    for (number, ((events, route), direct)) in watched.iter().zip(&direct).enumerate() {
        let kinds: Vec<_> = direct.lines().filter_map(|line| line.split('"').nth(3)).collect();
        assert_eq!(kinds, ["DELETED", "DELETED", "ADDED", "DELETED", "ADDED", "BOOKMARK"], "{number}: {direct}");
        match route {
            Route::Served => assert_eq!(events, direct, "{number}"),
            Route::Forwarded(_) | Route::Rejected(_) => {
                assert!(direct.starts_with(events) && events.lines().count() == 5, "{number}: {events}")
            }
        }
    }
    let served = watched.iter().filter(|(_, route)| *route == Route::Served).count();
    assert!(served >= WATCHES - PLACES, "{served}");
}

#[tokio::test]
async fn all_watches_that_resume_from_before_the_fill_get_what_they_missed() {
    let (scene, version) = started_anew().await;
    scene.warm().await;
    all_are_told_what_they_missed(scene, version).await;
}

#[tokio::test]
async fn all_watches_that_resume_during_the_fill_get_what_they_missed() {
    let (scene, version) = started_anew().await;
    all_are_told_what_they_missed(scene, version).await;
}

/// A client that resumes from versions that upstream has forgotten keeps no other waiting.
#[tokio::test]
async fn versions_that_upstream_has_forgotten_do_not_keep_other_clients_out() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let forgotten = sim.revision();
    sim.create(pod("default", "b", "x")).unwrap();
    sim.forget_history();
    let version = sim.revision();
    sim.create(pod("default", "c", "app-0")).unwrap();
    let scene = Scene::start_cold(sim, few_places).await;
    scene.upstream.add_user("hostile-token", "hostile");
    scene.upstream.grant("hostile", "watch", "pods");
    scene.warm().await;
    let both = async { join!(resumed(&scene, "hostile-token", forgotten), resumed(&scene, "jane-token", version)) };
    let (hostile, jane) = passing(STEP, both).await;
    let mut jane: Vec<_> = jane.into_iter().map(Result::unwrap).collect();
    let event = jane[0].line().await.unwrap().unwrap();
    assert!(event.starts_with(r#"{"type":"ADDED""#) && event.contains(r#""name":"c""#), "{event}");
    for watch in hostile {
        match watch {
            // Upstream says that the version has expired.
            Ok(mut watch) => assert!(watch.line().await.unwrap().unwrap().contains(r#""code":410"#)),
            Err(refused) => assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
}

#[tokio::test]
async fn few_watches_that_resume_from_before_the_fill_do_not_wait_for_memory() {
    let (scene, version) = started_anew().await;
    scene.warm().await;
    let lists = scene.sim.counts().requests("list", "pods");
    let headers = [("authorization", "Bearer jane-token")];
    let watch = scene.gateway.client.watch_with(&path(0, version), &headers).await;
    let (events, route) = passing(STEP, watch.rest()).await;
    assert!(events.lines().count() == 6, "{events}");
    assert_eq!(route, forwarded("before_fill"));
    assert_eq!(scene.sim.counts().requests("list", "pods"), lists, "upstream was asked for the past");
}

/// Without bookmarks, only an event of the fill's own version shows that there are no more before it.
#[tokio::test]
async fn an_upstream_that_does_not_tell_the_past_keeps_no_client_waiting() {
    let features = Features { bookmarks: false, ..Features::old() };
    let (scene, version) = started_anew_at(features).await;
    scene.warm().await;
    let watches = passing(STEP, resumed(&scene, "jane-token", version)).await;
    assert!(watches.iter().all(Result::is_ok), "{watches:?}");

    let (scene, version) = started_anew_at(features).await;
    let metadata = json!({"name": "of-a-later-version", "namespace": "default"});
    scene.sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})).unwrap();
    scene.warm().await;
    let began = Instant::now();
    let watches = passing(STEP, resumed(&scene, "jane-token", version)).await;
    for refused in watches.iter().filter_map(|watch| watch.as_ref().err()) {
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(watches.iter().filter(|watch| watch.is_ok()).count(), PLACES);
    // A wait lasts half of a watch's 30 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
