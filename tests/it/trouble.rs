//! How the built gateway reports trouble with the API server: in its log, its status, its page and the `status`
//! command.

use std::path::Path;

use kube_fanout::{
    sim::{Refusal, Sim},
    status::{GatewayStatus, Trouble, Upstream},
};
use rustix::process::Signal;
use tokio::net::TcpListener;

pub(crate) use crate::harness::serving::{answering, closing, relaying};
use crate::harness::{
    process::{Process, ask, ended, finished, in_front_of, kube_fanout, shown},
    until, within,
};

#[tokio::test]
async fn an_unreachable_api_server_is_reported_once_with_its_address() {
    let mut gateway = Process::start("logging: {format: json}").await;
    let address = gateway.server.url();
    first_probe_has_passed(&gateway.admin).await;
    gateway.server.stop().await;
    for _ in 0..3 {
        assert!(gateway.get("/version").await.starts_with("HTTP/1.1 503"));
    }
    gateway.server.start_again().await.unwrap();
    assert!(gateway.get("/version").await.starts_with("HTTP/1.1 200"));
    gateway.send(Signal::TERM);
    let output = within("the end", gateway.child.wait_with_output()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("the API server can")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("cannot be reached") && lines[0].contains("refused"), "{log}");
    assert!(lines[1].contains("can be reached again"), "{log}");
    assert!(lines.iter().all(|line| line.contains(&address)), "{address} in {log}");
}

#[tokio::test]
async fn trouble_with_the_api_server_is_shown_until_it_has_passed() {
    let mut gateway = Process::start("").await;
    let address = gateway.server.url();
    first_probe_has_passed(&gateway.admin).await;
    assert_eq!(troubles(&gateway.admin).await, []);
    gateway.server.stop().await;
    assert!(gateway.get("/version").await.starts_with("HTTP/1.1 503"));
    let troubles_now = troubles(&gateway.admin).await;
    let [trouble] = &troubles_now[..] else { panic!("one trouble, not {troubles_now:?}") };
    assert_eq!((trouble.kind.as_str(), trouble.server.as_str()), ("unreachable", address.as_str()));
    assert!(trouble.error.contains("refused") && trouble.since.starts_with("20"), "{trouble:?}");
    let page = gateway.admin("/").await;
    assert!(page.contains(r#"data-trouble="unreachable""#) && page.contains(&address), "{page}");
    let text = shown(&gateway.admin, 0).await;
    assert!(text.starts_with(&format!("!! The API server {address} cannot be reached")), "{text}");
    gateway.server.start_again().await.unwrap();
    assert!(gateway.get("/version").await.starts_with("HTTP/1.1 200"));
    assert_eq!(troubles(&gateway.admin).await, []);
    assert!(!gateway.admin("/").await.contains("data-trouble"));
}

#[tokio::test]
async fn missing_rights_of_the_gateway_are_shown() {
    let sim = Sim::new();
    let pods = || Some("pods".to_owned());
    sim.refuse(Refusal { resource: pods(), status: 403, ..Refusal::default() });
    // Otherwise it would be tried again only when it is read.
    let gateway = Process::in_front_of(sim.clone(), "cache: {scope: cluster}").await;
    gateway.get("/api/v1/pods?resourceVersion=0").await;
    let trouble = until("the refusal", async || troubles(&gateway.admin).await.into_iter().next()).await;
    assert_eq!((trouble.kind.as_str(), trouble.path.as_deref()), ("forbidden", Some("/api/v1/pods")));
    assert!(!trouble.error.is_empty(), "{trouble:?}");
    let text = shown(&gateway.admin, 0).await;
    assert!(text.starts_with("!! The API server") && text.contains("refuses /api/v1/pods to the gateway"), "{text}");
    sim.accept_all();
    until("the cache is filled", async || troubles(&gateway.admin).await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_wrong_address_is_reported_before_any_request() {
    let (mut child, admin, _folder) = in_front_of("http://127.0.0.1:1").await;
    let trouble = until("the probe", async || troubles(&admin).await.into_iter().next()).await;
    assert_eq!(trouble.server, "http://127.0.0.1:1");
    assert!(ask(&admin, "/readyz").await.starts_with("HTTP/1.1 200"));
    let log = ended(&mut child).await;
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    for words in ["http://127.0.0.1:1", "refused", "check its address"] {
        assert!(warnings[0].contains(words), "{words} in {log}");
    }
}

#[tokio::test]
async fn rejected_credentials_are_reported_once_and_hostile_messages_are_text() {
    let words = format!("<script>alert(1)</script>{}", "x".repeat(10_000));
    let body = format!(r#"{{"kind":"Status","apiVersion":"v1","message":"{words}","code":401}}"#);
    let (address, _serving) = answering(closing("401 Unauthorized", &body)).await;
    let address = format!("http://{address}");
    let (mut child, admin, folder) = in_front_of(&address).await;
    let trouble = until("the probe", async || troubles(&admin).await.into_iter().next()).await;
    assert_eq!((trouble.kind.as_str(), trouble.path.as_deref()), ("unauthorized", Some("/version")));
    assert!(trouble.error.starts_with("<script>") && trouble.error.len() < 500, "{trouble:?}");
    let page = ask(&admin, "/").await;
    assert!(page.contains("does not accept the gateway's credentials"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert"), "{page}");
    // The same for other requests.
    ask(&folder.path().join("client.sock"), "/api/v1/pods?resourceVersion=0").await;
    assert_eq!(troubles(&admin).await.len(), 1);
    assert_eq!(shown(&admin, 0).await.lines().filter(|line| line.starts_with("!! ")).count(), 1);
    let log = ended(&mut child).await;
    assert_eq!(log.lines().filter(|line| line.contains("does not accept")).count(), 1, "{log}");
    assert!(log.lines().any(|line| line.contains("(401)") && line.contains(&address)), "{log}");
}

#[tokio::test]
async fn a_server_other_than_an_api_server_is_shown_until_one_answers() {
    let go_tls = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n".to_vec();
    // A fatal alert, as other TLS servers send it.
    let tls = vec![0x15, 3, 3, 0, 2, 2, 70];
    let cases = [
        (closing("200 OK", "<!DOCTYPE html><title>A shop"), "foreign", "<!DOCTYPE html><title>A shop"),
        (closing("404 Not Found", "404 page not found"), "foreign", "404 Not Found"),
        (closing("302 Found", ""), "foreign", "302 Found"),
        (closing("502 Bad Gateway", "<html>"), "unanswered", "502 Bad Gateway"),
        (go_tls, "foreign", "begins with https://"),
        (tls, "unanswered", "begins with https://"),
    ];
    for (answer, kind, words) in cases {
        let (address, _serving) = answering(answer).await;
        let (mut child, admin, _folder) = in_front_of(&format!("http://{address}")).await;
        let trouble = until("the probe", async || troubles(&admin).await.into_iter().next()).await;
        assert_eq!((trouble.kind.as_str(), trouble.server), (kind, format!("http://{address}")), "{}", trouble.error);
        assert!(trouble.error.contains(words), "{words} in {}", trouble.error);
        assert!(ask(&admin, "/").await.contains(&format!(r#"data-trouble="{kind}""#)));
        assert!(shown(&admin, 0).await.starts_with("!! "), "{words}");
        let log = ended(&mut child).await;
        let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains("check its address"), "{log}");
    }
}

#[tokio::test]
async fn status_refuses_a_server_other_than_a_gateway_in_one_line() {
    let page = "<!DOCTYPE html>".repeat(100);
    let (address, _serving) = answering(closing("404 Not Found", &page)).await;
    let output = finished(&mut kube_fanout(&["status", "--admin", &address])).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(&address) && said.contains("not the admin port"), "{said}");
    assert!(said.lines().count() == 1 && !said.contains("<!DOCTYPE"), "{said}");
}

#[tokio::test]
async fn a_plain_http_server_at_an_https_address_is_recognized() {
    let (address, _serving) = answering(closing("400 Bad Request", "")).await;
    let (_child, admin, _folder) = in_front_of(&format!("https://{address}")).await;
    let trouble = until("the probe", async || troubles(&admin).await.into_iter().next()).await;
    assert_eq!(trouble.kind, "unreachable");
    assert!(trouble.error.contains("does not answer in TLS") && trouble.error.contains("http://"), "{trouble:?}");
}

#[tokio::test]
async fn a_gateway_in_front_of_itself_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (mut child, admin, folder) = in_front_of(&address).await;
    let _relaying = relaying(listener, folder.path().join("client.sock"));
    let trouble = until("the probe", async || troubles(&admin).await.into_iter().next()).await;
    assert_eq!((trouble.kind.as_str(), trouble.server.as_str()), ("loop", address.as_str()), "{trouble:?}");
    assert!(shown(&admin, 0).await.contains("leads back to this gateway"));
    let log = ended(&mut child).await;
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("leads back to this gateway")), "{log}");
}

#[tokio::test]
async fn a_missing_right_to_identify_servers_is_reported() {
    {
        let (kind, words) =
            ("forbidden", "the gateway may not list namespaces, which shows that they are of one cluster: grant it");
        let sim = Sim::new();
        sim.refuse(Refusal { resource: Some("namespaces".to_owned()), status: 403, ..Refusal::default() });
        let server = sim.start().await.unwrap();
        let servers = format!(", servers: [\"{}\"]", server.url().trim_start_matches("http://"));
        let fields = "cache: {prewarm: [pods]}\nlogging: {format: json}";
        let gateway = Process::with_upstream(sim.clone(), &servers, fields).await;
        let trouble = until("the trouble", async || troubles(&gateway.admin).await.into_iter().next()).await;
        assert_eq!((trouble.kind.as_str(), trouble.path.as_deref()), (kind, None), "{trouble:?}");
        assert!(trouble.error.contains(words), "{trouble:?}");
        sim.accept_all();
        until("the cache is filled", async || {
            let ready = gateway.admin("/readyz").await.starts_with("HTTP/1.1 200");
            (ready && troubles(&gateway.admin).await.is_empty()).then_some(())
        })
        .await;
        gateway.send(Signal::TERM);
        let output = within("the end", gateway.child.wait_with_output()).await.unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(log.lines().filter(|line| line.contains(words)).count(), 1, "{log}");
        assert!(!log.contains("check its address in the kubeconfig, its proxy"), "{log}");
    }
}

#[tokio::test]
async fn a_prewarmed_resource_that_is_not_cached_is_reported_with_the_reason() {
    let sim = Sim::new();
    let services = Some("apiservices.apiregistration.k8s.io".to_owned());
    sim.refuse(Refusal { resource: services, status: 403, ..Refusal::default() });
    let fields = "cache: {prewarm: [pods, deployments.apps]}\nlogging: {format: json}";
    let gateway = Process::in_front_of(sim.clone(), fields).await;
    let told = "undiscovered: the gateway may not list apiservices";
    let line = format!("[-]cache/deployments.apps failed: {told}");
    until("the reason in readyz", async || gateway.admin("/readyz").await.contains(&line).then_some(())).await;
    let gateway_status = status(&gateway.admin).await.gateway;
    let check = gateway_status.checks.iter().find(|check| check.name == "cache/deployments.apps").unwrap();
    assert!(!check.ready && check.reason.starts_with(told), "{check:?}");
    assert!(gateway.admin("/").await.contains(told));
    let text = shown(&gateway.admin, 3).await;
    assert!(text.contains(&format!("cache/deployments.apps: {told}")), "{text}");
    gateway.send(Signal::TERM);
    let output = within("the end", gateway.child.wait_with_output()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains(told)).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("deployments.apps"), "{log}");
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_is_reported_in_words() {
    let gateway = Process::start("logging: {format: json}\ncache: {peers: {addresses: ['http://127.0.0.1:1']}}").await;
    assert!(shown(&gateway.admin, 0).await.contains("\npeer      http://127.0.0.1:1, not asked yet\n"));
    assert!(gateway.get("/api/v1/pods?resourceVersion=0").await.starts_with("HTTP/1.1 200"));
    let told = "http://127.0.0.1:1, never used, cannot connect to the peer since ";
    let look = async || {
        let peers = status(&gateway.admin).await.peers;
        (peers[0].state == "unreachable").then_some(peers)
    };
    let peers = until("the question", look).await;
    assert!(peers.len() == 1 && peers[0].error.contains("refused"), "{peers:?}");
    let (text, page) = (shown(&gateway.admin, 0).await, gateway.admin("/").await);
    assert!(text.contains(told) && page.contains(told), "{text}");
    gateway.send(Signal::TERM);
    let output = within("the end", gateway.child.wait_with_output()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("cannot connect to the peer")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("check cache.peers.addresses"), "{log}");
    let serving = log.lines().find(|line| line.contains(r#""serving""#)).unwrap();
    assert!(serving.contains("config.yaml"), "{serving}");
}

#[tokio::test]
async fn a_peer_that_is_this_gateway_alone_is_reported_as_such_and_fills_no_log() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let fields = format!("logging: {{format: json}}\ncache: {{peers: {{addresses: ['{address}']}}}}");
    let gateway = Process::start(&fields).await;
    let _relaying = relaying(listener, gateway.client.clone());
    // Each cache asks three times, as long as there may be another gateway.
    for plural in ["pods", "configmaps", "services"] {
        let path = format!("/api/v1/{plural}?resourceVersion=0");
        assert!(gateway.get(&path).await.starts_with("HTTP/1.1 200"));
    }
    let led_back = async || Some(status(&gateway.admin).await.peers).filter(|peers| peers[0].state == "itself");
    until("the questions", led_back).await;
    let told = format!("{address}, never used, is this gateway, and no other one answers there");
    let (text, page) = (shown(&gateway.admin, 0).await, gateway.admin("/").await);
    assert!(text.contains(&told) && page.contains(&told), "{text}");
    gateway.send(Signal::TERM);
    let output = within("the end", gateway.child.wait_with_output()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let notable: Vec<_> =
        log.lines().filter(|line| !line.contains(r#""level":"INFO""#) || line.contains(r#""error":"#)).collect();
    assert!(notable.is_empty(), "{notable:?}");
}

/// The troubles with the API server in a gateway's status.
async fn troubles(admin: &Path) -> Vec<Trouble> {
    upstream(admin).await.troubles
}

/// Waits until the request that a gateway makes at its start is answered. Until then its outcome may be reported
/// together with, or in place of, that of later requests.
async fn first_probe_has_passed(admin: &Path) {
    until("the first probe", async || upstream(admin).await.version).await;
}

/// The part of a gateway's status that is about the API server.
async fn upstream(admin: &Path) -> Upstream {
    status(admin).await.upstream
}

async fn status(admin: &Path) -> GatewayStatus {
    let answer = within("the status", ask(admin, "/status.json")).await;
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
