//! Requests to servers on loopback, and when none may be sent.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

use super::{ResourceListWatch, Upstream};
use crate::connector::{
    BuildError, Connector, TroubleKind,
    test_server::{TestBody, TestServer, full, read_head},
};
use base::apimachinery::{CollectionScope, Encoding, GroupVersionResource, ResourceVersion};
use engine::reflector::{ByteStream, Failure, ListRequest, ListWatch, StorageEvidence, WatchFrom, WatchRequest};

impl TestServer {
    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::new(self.connector())
    }
}

/// Answers with the request line.
async fn describe(request: Request<Incoming>) -> Response<TestBody> {
    Response::new(full(format!("{} {:?} {:?}", request.method(), request.uri(), request.version())))
}

#[tokio::test]
async fn a_first_watch_list_is_most_recent_and_later_ones_no_older_than_what_was_known() {
    let server = TestServer::start(describe).await;
    let pods = GroupVersionResource::new("", "v1", "pods");
    let reflected =
        ResourceListWatch::new(server.upstream(), pods, CollectionScope::CLUSTER, true, Encoding::Json, None);
    for (not_older_than, version) in [(None, ""), (ResourceVersion::new(7), "&resourceVersion=7")] {
        let mut list = reflected.list(ListRequest { not_older_than, continue_token: None }).await.unwrap();
        let list = list.next().await.unwrap().unwrap();
        let rule = if version.is_empty() {
            "&resourceVersion=0"
        } else {
            "&resourceVersion=7&resourceVersionMatch=NotOlderThan"
        };
        assert!(list.starts_with(format!("GET /api/v1/pods?limit=500{rule} ").as_bytes()), "{list:?}");
        let request = WatchRequest::new(WatchFrom::State { not_older_than });
        let mut watch = reflected.watch(request).await.unwrap();
        let watch = String::from_utf8(watch.next().await.unwrap().unwrap().to_vec()).unwrap();
        let rule = format!("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan{version} ");
        assert!(watch.contains(&rule), "{watch}");
    }
}

#[tokio::test]
async fn a_silent_port_is_trouble_until_an_api_server_answers_there() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube_client::Config::new(format!("http://{}", silent.local_addr().unwrap()).parse().unwrap());
    let upstream = Upstream::new(Connector::new(&config).unwrap());
    let probing = upstream.probe(Duration::from_millis(50));
    let ((), connection) = tokio::join!(probing, silent.accept());
    let troubles = upstream.troubles();
    assert_eq!(troubles.iter().map(|trouble| trouble.kind).collect::<Vec<_>>(), [TroubleKind::Unanswered]);
    assert!(troubles[0].error.contains("/version was not answered within 50ms"), "{troubles:?}");
    assert!(upstream.shared.connector.is_in_trouble(), "it is asked again");
    // The same port, once it speaks.
    drop(connection);
    let answer = async {
        let (mut stream, _) = silent.accept().await.unwrap();
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 24\r\n\r\n";
        stream.write_all(format!("{head}{{\"gitVersion\":\"v1.36.0\"}}").as_bytes()).await.unwrap();
    };
    tokio::join!(upstream.probe(Duration::from_secs(60)), answer);
    assert_eq!(upstream.troubles(), []);
    assert_eq!(upstream.last_version().as_deref(), Some("v1.36.0"));
}

#[test]
fn reviews_are_not_sent_where_others_could_read_or_answer_them() {
    let connector = |config: kube_client::Config| Connector::new(&config).unwrap();
    let mut config = kube_client::Config::new("https://elsewhere".parse().unwrap());
    assert!(Upstream::for_reviews(connector(config.clone()), StorageEvidence::default()).is_ok());
    config.accept_invalid_certs = true;
    assert!(matches!(
        Upstream::for_reviews(connector(config), StorageEvidence::default()),
        Err(BuildError::Unverified(_))
    ));
    let config = kube_client::Config::new("http://elsewhere".parse().unwrap());
    assert!(matches!(
        Upstream::for_reviews(connector(config), StorageEvidence::default()),
        Err(BuildError::ClearText(_))
    ));
}

#[tokio::test]
async fn a_custom_resource_is_the_same_while_neither_its_definition_nor_its_server_has_changed() {
    async fn is_same(generation: u32, service: &'static str, status: u16) -> Result<bool, Failure> {
        let server = TestServer::start(move |request: Request<Incoming>| async move {
            let is_services = request.uri().path().ends_with("/apiservices");
            let spec = format!(r#"{{"group":"example.com","version":"v1"{service}}}"#);
            let services = format!(r#"{{"items":[{{"metadata":{{}},"spec":{spec}}}]}}"#);
            // The first answer is the whole definition, which the resource is discovered with.
            let is_whole = !format!("{:?}", request.headers()).contains("PartialObjectMetadata");
            let generation = if is_whole { 1 } else { generation };
            let definition = format!(r#"{{"metadata":{{"uid":"u","generation":{generation}}},"spec":{{}}}}"#);
            let (status, body) = if is_services { (status, services) } else { (200, definition) };
            Response::builder().status(status).body(full(body)).unwrap()
        })
        .await;
        let widgets = GroupVersionResource::new("example.com", "v1", "widgets");
        let definition = server.upstream().crd(&widgets.group_resource()).await.unwrap();
        ResourceListWatch::new(server.upstream(), widgets, CollectionScope::CLUSTER, true, Encoding::Json, definition)
            .is_same_resource()
            .await
    }
    let another = r#","service":{"namespace":"a","name":"b"}"#;
    assert_eq!(is_same(1, "", 200).await, Ok(true));
    assert_eq!(is_same(2, "", 200).await, Ok(false));
    assert_eq!(is_same(1, another, 200).await, Ok(false));
    // Without an aggregation layer, or without the right to list its services.
    for status in [404, 403] {
        assert_eq!(is_same(1, another, status).await, Ok(true));
    }
    assert_eq!(is_same(1, "", 500).await, Err(Failure::Unavailable));
}
