//! Discovery against a server on loopback that counts what it is asked.

use std::sync::Mutex as StdMutex;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::*;
use crate::connector::test_server::{TestServer, full};

const AGGREGATED: &[(&str, &str)] = &[
    ("/api", include_str!("../../../../tests/data/golden/upstream/discovery-api.json")),
    ("/apis", include_str!("../../../../tests/data/golden/upstream/discovery-apis.json")),
];
const LISTED: &[(&str, &str)] = &[
    ("/api", include_str!("../../../../tests/data/golden/upstream/api.json")),
    ("/apis", include_str!("../../../../tests/data/golden/upstream/apis.json")),
    ("/api/v1", include_str!("../../../../tests/data/golden/upstream/api-v1.json")),
    ("/apis/diff.example.com/v1", include_str!("../../../../tests/data/golden/upstream/widgets-v1.json")),
];

/// Serves replaceable documents, and records the requests for them.
struct Scripted {
    server: TestServer,
    documents: Arc<StdMutex<HashMap<String, (StatusCode, String)>>>,
    asked: Arc<StdMutex<Vec<String>>>,
}

impl Scripted {
    async fn start(documents: &[(&str, &str)]) -> Self {
        let documents: HashMap<_, _> =
            documents.iter().map(|(path, text)| (path.to_string(), (StatusCode::OK, text.to_string()))).collect();
        let documents = Arc::new(StdMutex::new(documents));
        let asked = Arc::new(StdMutex::new(Vec::new()));
        let (served, log) = (documents.clone(), asked.clone());
        let server = TestServer::start(move |request: Request<Incoming>| {
            let path = request.uri().path().to_owned();
            log.lock().unwrap().push(path.clone());
            let known = served.lock().unwrap().get(&path).cloned();
            let (status, text) = known.unwrap_or((StatusCode::NOT_FOUND, String::new()));
            async move { Response::builder().status(status).body(full(text)).unwrap() }
        })
        .await;
        Self { server, documents, asked }
    }

    fn discovery(&self) -> Discovery {
        Discovery::new(self.server.upstream())
    }

    fn set(&self, path: &str, status: StatusCode, text: &str) {
        self.documents.lock().unwrap().insert(path.to_owned(), (status, text.to_owned()));
    }

    /// What was asked since the last call, apart from the API services.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.retain(|path| path != API_SERVICES);
        asked
    }
}

/// Lets time pass at once. The clock runs on afterwards: servers on loopback need it.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn gvr(group: &str, version: &str, resource: &str) -> GroupVersionResource {
    GroupVersionResource::new(group, version, resource)
}

#[tokio::test]
async fn aggregated_discovery_takes_one_round() {
    let server = Scripted::start(AGGREGATED).await;
    let discovery = server.discovery();
    let deployments = discovery.resource(&gvr("apps", "v1", "deployments")).await.unwrap().unwrap();
    assert_eq!(
        (&*deployments.kind, deployments.namespaced, deployments.served_by),
        ("Deployment", true, ServedBy::ApiServer)
    );
    assert!(discovery.resource(&gvr("", "v1", "pods")).await.unwrap().unwrap().is_watchable());
    assert!(!discovery.resource(&gvr("", "v1", "bindings")).await.unwrap().unwrap().is_watchable());
    assert_eq!(server.asked(), ["/api", "/apis"]);
}

#[tokio::test]
async fn the_right_to_list_api_services_counts_soon_after_it_is_granted() {
    let server = Scripted::start(AGGREGATED).await;
    server.set(API_SERVICES, StatusCode::FORBIDDEN, "");
    let discovery = server.discovery();
    let served_by = async |group| {
        let resource = if group == "apps" { "deployments" } else { "pods" };
        discovery.resource(&gvr(group, "v1", resource)).await.unwrap().unwrap().served_by
    };
    let services = || {
        let asked = std::mem::take(&mut *server.asked.lock().unwrap());
        (asked.iter().filter(|path| *path == API_SERVICES).count(), asked.len())
    };
    assert_eq!((served_by("apps").await, services()), (ServedBy::Unknown, (1, 3)));
    // Asked again after 10, 20, 25, 25 s … of need, by one small request.
    let mut asked = Vec::new();
    for _ in 0..100 {
        pass(Duration::from_secs(1)).await;
        assert_eq!(served_by("apps").await, ServedBy::Unknown);
        assert_eq!(served_by("").await, ServedBy::ApiServer);
        let (of_services, all) = services();
        assert_eq!(of_services, all);
        asked.push(of_services);
    }
    assert_eq!(asked.iter().sum::<usize>(), 4, "{asked:?}");
    // A failure is not taken for the answer that there are none.
    server.set(API_SERVICES, StatusCode::SERVICE_UNAVAILABLE, "");
    pass(SERVICES_PAUSE_MAX).await;
    assert_eq!((served_by("apps").await, services()), (ServedBy::Unknown, (1, 1)));
    let service = r#"{"items":[{"spec":{"group":"apps","version":"v1","service":{"name":"s","namespace":"n"}}}]}"#;
    for (list, expected) in [(r#"{"items":[]}"#, ServedBy::ApiServer), (service, ServedBy::Another)] {
        server.set(API_SERVICES, StatusCode::OK, list);
        pass(SERVICES_PAUSE_MAX).await;
        assert_eq!((served_by("apps").await, services()), (expected, (1, 1)));
        // It is known now, until the whole table is too old.
        pass(SERVICES_PAUSE_MAX).await;
        assert_eq!((served_by("apps").await, services()), (expected, (0, 0)));
        server.set(API_SERVICES, StatusCode::FORBIDDEN, "");
        pass(TRUSTED_FOR).await;
        assert_eq!((served_by("apps").await, services()), (ServedBy::Unknown, (1, 3)));
    }
}

#[tokio::test]
async fn older_servers_are_asked_for_one_group_version_at_a_time() {
    let server = Scripted::start(LISTED).await;
    let discovery = server.discovery();
    assert_eq!(&*discovery.resource(&gvr("", "v1", "pods")).await.unwrap().unwrap().kind, "Pod");
    assert_eq!(server.asked(), ["/api", "/apis", "/api/v1"]);
    assert_eq!(&*discovery.resource(&gvr("diff.example.com", "v1", "widgets")).await.unwrap().unwrap().kind, "Widget");
    discovery.resource(&gvr("", "v1", "nodes")).await.unwrap().unwrap();
    assert_eq!(server.asked(), ["/apis/diff.example.com/v1"]);
}

#[tokio::test]
async fn what_can_be_cached_is_named_by_every_kind_of_server() {
    let server = Scripted::start(AGGREGATED).await;
    let names = |cacheable: BTreeSet<GroupResource>| cacheable.iter().map(ToString::to_string).collect::<Vec<_>>();
    let cacheable = names(server.discovery().cacheable().await);
    let has = |name: &str| cacheable.iter().any(|known| known == name);
    assert!(has("pods") && has("deployments.apps") && has("widgets.diff.example.com"), "{cacheable:?}");
    assert!(!has("bindings") && !has("tokenreviews.authentication.k8s.io"), "{cacheable:?}");
    let server = Scripted::start(LISTED).await;
    let cacheable = names(server.discovery().cacheable().await);
    assert!(cacheable.contains(&"pods".to_owned()), "{cacheable:?}");
    assert!(cacheable.contains(&"widgets.diff.example.com".to_owned()), "{cacheable:?}");
    let server = Scripted::start(&[]).await;
    server.set("/api", StatusCode::SERVICE_UNAVAILABLE, "");
    assert_eq!(server.discovery().cacheable().await, BTreeSet::new());
}

#[tokio::test]
async fn a_server_without_core_or_without_anything_is_survived() {
    let server = Scripted::start(&AGGREGATED[1..]).await;
    let discovery = server.discovery();
    assert!(discovery.resource(&gvr("diff.example.com", "v1", "widgets")).await.unwrap().is_some());
    assert_eq!(discovery.resource(&gvr("", "v1", "pods")).await.unwrap(), None);
    let server = Scripted::start(&[]).await;
    assert_eq!(server.discovery().resource(&gvr("", "v1", "pods")).await.unwrap(), None);
}

#[tokio::test]
async fn unlisted_groups_are_asked_for_by_name() {
    let server = Scripted::start(&LISTED[3..]).await;
    let discovery = server.discovery();
    let widgets = gvr("diff.example.com", "v1", "widgets");
    assert_eq!(&*discovery.resource(&widgets).await.unwrap().unwrap().kind, "Widget");
    assert_eq!(server.asked(), ["/api", "/apis", "/apis/diff.example.com/v1"]);
    let gadgets = gvr("other.example.com", "v1", "gadgets");
    assert_eq!(discovery.resource(&gadgets).await.unwrap(), None);
    assert_eq!(discovery.resource(&gadgets).await.unwrap(), None);
    assert_eq!(discovery.resource(&gvr("a/b?", "v1", "gadgets")).await.unwrap(), None);
    assert_eq!(server.asked(), ["/apis/other.example.com/v1"]);
    pass(REFETCH_INTERVAL).await;
    server.set("/apis/other.example.com/v1", StatusCode::OK, r#"{"resources":[{"name":"gadgets"}]}"#);
    assert!(discovery.resource(&gadgets).await.unwrap().is_some());
}

#[tokio::test]
async fn unknown_resources_are_asked_for_again_after_a_delay() {
    let server = Scripted::start(&AGGREGATED[..1]).await;
    server.set("/apis", StatusCode::OK, r#"{"kind":"APIGroupDiscoveryList","items":[]}"#);
    let discovery = server.discovery();
    let widgets = gvr("diff.example.com", "v1", "widgets");
    assert_eq!(discovery.resource(&widgets).await.unwrap(), None);
    server.set("/apis", StatusCode::OK, AGGREGATED[1].1);
    assert_eq!(discovery.resource(&widgets).await.unwrap(), None);
    assert_eq!(server.asked(), ["/api", "/apis"]);
    pass(REFETCH_INTERVAL).await;
    assert!(discovery.resource(&widgets).await.unwrap().is_some());
    assert_eq!(server.asked(), ["/api", "/apis"]);
}

#[tokio::test]
async fn a_forgotten_resource_is_unknown_until_the_next_discovery() {
    let server = Scripted::start(LISTED).await;
    let discovery = server.discovery();
    let widgets = gvr("diff.example.com", "v1", "widgets");
    assert!(discovery.resource(&widgets).await.unwrap().is_some());
    server.set("/apis/diff.example.com/v1", StatusCode::NOT_FOUND, "");
    discovery.forget(&widgets);
    assert_eq!(discovery.resource(&widgets).await.unwrap(), None);
    assert!(discovery.resource(&gvr("", "v1", "pods")).await.unwrap().is_some());
    pass(REFETCH_INTERVAL).await;
    assert_eq!(discovery.resource(&widgets).await.unwrap(), None);
}

#[tokio::test]
async fn concurrent_callers_share_one_request() {
    let server = Scripted::start(AGGREGATED).await;
    let discovery = server.discovery();
    let pods = gvr("", "v1", "pods");
    let answers = futures_util::future::join_all((0..50).map(|_| discovery.resource(&pods))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_some()));
    assert_eq!(server.asked(), ["/api", "/apis"]);
}

#[tokio::test]
async fn a_failed_discovery_is_reported_and_delayed() {
    let server = Scripted::start(&[]).await;
    server.set("/api", StatusCode::INTERNAL_SERVER_ERROR, "");
    let discovery = server.discovery();
    let pods = gvr("", "v1", "pods");
    let error = discovery.resource(&pods).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("500"));
    assert!(discovery.resource(&pods).await.is_err());
    assert_eq!(server.asked(), ["/api"]);
    server.set("/api", StatusCode::OK, AGGREGATED[0].1);
    pass(RETRY_INTERVAL).await;
    assert!(discovery.resource(&pods).await.unwrap().is_some());
}

#[tokio::test]
async fn one_group_version_that_fails_leaves_the_others_alone() {
    let server = Scripted::start(LISTED).await;
    server.set("/apis/diff.example.com/v1", StatusCode::SERVICE_UNAVAILABLE, "");
    let discovery = server.discovery();
    assert!(discovery.resource(&gvr("", "v1", "pods")).await.unwrap().is_some());
    assert!(discovery.resource(&gvr("diff.example.com", "v1", "widgets")).await.is_err());
    assert!(discovery.resource(&gvr("", "v1", "pods")).await.unwrap().is_some());
}

#[tokio::test]
async fn groups_behind_another_server_are_marked() {
    let server = Scripted::start(AGGREGATED).await;
    let services = r#"{"items":[{"spec":{"group":"apps","version":"v1","service":{"name":"elsewhere"}}}]}"#;
    server.set(API_SERVICES, StatusCode::OK, services);
    let discovery = server.discovery();
    let served_by =
        async |group, resource| discovery.resource(&gvr(group, "v1", resource)).await.unwrap().unwrap().served_by;
    assert_eq!(served_by("apps", "deployments").await, ServedBy::Another);
    assert_eq!(served_by("batch", "jobs").await, ServedBy::ApiServer);
    // Without the right to list API services, only the core group is certainly the API server's own.
    server.set(API_SERVICES, StatusCode::FORBIDDEN, "");
    pass(TRUSTED_FOR).await;
    assert_eq!(served_by("apps", "deployments").await, ServedBy::Unknown);
    assert_eq!(served_by("batch", "jobs").await, ServedBy::Unknown);
    assert_eq!(served_by("", "pods").await, ServedBy::ApiServer);
}
