//! Choices among servers, and connections to them.

use futures_util::FutureExt;
use tokio::{net::TcpListener, task::JoinSet, time::advance};

use super::*;
use crate::connector::{
    NotBelieved, Verdict, acceptance::Acceptance, client_certificate::Presented, connection_closer::ConnectionCloser,
    test_authority::certified,
};

fn servers(addresses: &[String]) -> Servers {
    let addresses: Vec<ServerAddress> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Servers::new(&addresses, None).unwrap()
}

fn named(names: &[&str]) -> Servers {
    servers(&names.iter().map(|name| format!("{name}:1")).collect::<Vec<_>>())
}

fn ready(version: &str) -> Option<Finding> {
    Some(Finding::Ready { version: Some(version.to_owned()) })
}

fn unwell() -> Option<Finding> {
    Some(Finding::Unwell { reason: "silent", error: String::new() })
}

fn foreign() -> Option<Finding> {
    Some(Finding::Foreign { error: "another cluster".to_owned() })
}

fn unknown() -> Option<Finding> {
    Some(Finding::Unknown { reason: "unreachable", error: "refused".to_owned() })
}

fn choose(servers: &Servers, choice: Choice, tried: &[usize]) -> Option<usize> {
    servers.lock().choose(choice, tried, Instant::now())
}

/// All that may be chosen.
fn chosen(servers: &Servers, choice: Choice) -> Vec<usize> {
    let mut chosen: Vec<_> = (0..100).filter_map(|_| choose(servers, choice, &[])).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[test]
fn no_server_is_used_before_it_is_found_to_be_of_the_cluster() {
    let servers = named(&["a", "b", "c"]);
    assert_eq!(choose(&servers, Choice::Any, &[]), None);
    servers.found(vec![foreign(), unknown(), None]);
    assert_eq!(choose(&servers, Choice::Any, &[]), None);
    assert_eq!(choose(&servers, Choice::Only(0), &[]), Some(0), "it may be checked");
    assert_eq!(choose(&servers, Choice::Only(0), &[0]), None);
    servers.found(vec![None, None, ready("v1")]);
    assert_eq!(choose(&servers, Choice::Any, &[]), Some(2));
    assert_eq!(choose(&servers, Choice::Any, &[2]), None);
}

#[test]
fn a_server_set_aside_is_used_if_there_is_no_other() {
    let servers = named(&["a", "b"]);
    servers.found(vec![unwell(), ready("v1")]);
    assert_eq!(chosen(&servers, Choice::Any), [1]);
    assert_eq!(choose(&servers, Choice::Any, &[1]), Some(0));
    servers.found(vec![unwell(), unwell()]);
    assert_eq!(choose(&servers, Choice::Any, &[]), Some(0));
    let states: Vec<_> = servers.states().into_iter().map(|state| state.state).collect();
    assert_eq!(states, [Usage::Aside; 2]);
}

#[test]
fn the_server_with_the_fewest_connections_is_chosen() {
    let servers = named(&["a", "b"]);
    servers.found(vec![ready("v1"), ready("v1")]);
    let first = servers.hold(Choice::Any, &[]).unwrap();
    let second = servers.hold(Choice::Any, &[]).unwrap();
    assert_ne!(first.index, second.index);
    assert_eq!(chosen(&servers, Choice::Any), [0, 1]);
    let (freed, kept) = (first.index, second);
    drop(first);
    assert_eq!(chosen(&servers, Choice::Any), [freed]);
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_connections_is_set_aside_for_longer_each_time() {
    let servers = named(&["a", "b"]);
    servers.found(vec![ready("v1"), ready("v1")]);
    let refused = || servers.lock().servers[0].refused(&servers.0.addresses[0], "refused", Instant::now());
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        refused();
        refused();
        advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
        assert_eq!(chosen(&servers, Choice::Any), [1], "{seconds}");
        advance(Duration::from_millis(1)).await;
        assert_eq!(chosen(&servers, Choice::Any), [0, 1], "{seconds}");
    }
    advance(WELL_AFTER).await;
    refused();
    advance(ASIDE_MIN).await;
    assert_eq!(chosen(&servers, Choice::Any), [0, 1]);
}

#[test]
fn own_requests_keep_to_one_version_through_a_rolling_upgrade() {
    let servers = named(&["a", "b", "c"]);
    let own = || chosen(&servers, Choice::OneVersion);
    servers.found(vec![ready("v1"), ready("v1"), ready("v1")]);
    assert_eq!(own(), [0, 1, 2]);
    // The one with a connection is chosen if there is no other.
    let held = servers.hold(Choice::OneVersion, &[0, 1]).unwrap();
    for (findings, expected) in [
        (vec![unknown(), ready("v1"), ready("v1")], vec![1]),
        (vec![ready("v2"), ready("v1"), ready("v1")], vec![1]),
        (vec![ready("v2"), unknown(), ready("v1")], vec![2]),
        (vec![ready("v2"), ready("v2"), ready("v1")], vec![2]),
    ] {
        servers.found(findings);
        assert_eq!(own(), expected);
        assert!(!held.breaks.is_broken());
    }
    assert_eq!(chosen(&servers, Choice::Any), [0, 1], "clients go to any that has few connections");
    // It drains, and its connections stay open until the others are used.
    servers.found(vec![ready("v2"), ready("v2"), unwell()]);
    assert!(!held.breaks.is_broken());
    assert_eq!(own(), [0, 1]);
    assert!(held.breaks.is_broken(), "caches find out that another program answers");
    servers.found(vec![ready("v2"), ready("v2"), ready("v1")]);
    assert_eq!(own(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn each_state_of_a_server_is_logged_once() {
    let servers = named(&["a"]);
    let told = || servers.lock().servers[0].told;
    assert_eq!(told(), None);
    servers.found(vec![ready("v1")]);
    assert_eq!(told(), Some(Usage::InUse));
    servers.lock().servers[0].refused(&servers.0.addresses[0], "refused", Instant::now());
    assert_eq!(told(), Some(Usage::Aside));
    servers.found(vec![ready("v1")]);
    assert_eq!(told(), Some(Usage::Aside), "still");
    advance(ASIDE_MIN).await;
    servers.found(vec![ready("v1")]);
    assert_eq!(told(), Some(Usage::InUse), "and of its end");
}

#[test]
fn own_connections_to_a_server_of_another_version_than_before_break() {
    let servers = named(&["a"]);
    servers.found(vec![ready("v1")]);
    let (own, any) = (servers.hold(Choice::OneVersion, &[]).unwrap(), servers.hold(Choice::Any, &[]).unwrap());
    servers.found(vec![ready("v1")]);
    assert!(!own.breaks.is_broken());
    servers.found(vec![ready("v2")]);
    assert!(own.breaks.is_broken() && !any.breaks.is_broken());
}

#[test]
fn a_server_that_does_not_say_its_version_keeps_the_last_one() {
    let servers = named(&["a"]);
    let untold = || vec![Some(Finding::Ready { version: None })];
    servers.found(untold());
    servers.found(vec![ready("v1")]);
    let own = servers.hold(Choice::OneVersion, &[]).unwrap();
    servers.found(untold());
    assert_eq!(servers.states()[0].version.as_deref(), Some("v1"));
    servers.found(vec![ready("v1")]);
    assert_eq!(choose(&servers, Choice::OneVersion, &[]), Some(0));
    assert!(!own.breaks.is_broken());
    servers.found(vec![ready("v2")]);
    assert!(own.breaks.is_broken());
}

#[test]
fn servers_that_are_all_set_aside_share_the_connections() {
    let servers = named(&["a", "b", "c"]);
    servers.found(vec![ready("v1"), ready("v1"), ready("v1")]);
    servers.lock().servers[0].refused(&servers.0.addresses[0], "refused", Instant::now());
    servers.found(vec![unwell(), unwell(), unwell()]);
    let held: Vec<_> = (0..4).map(|_| servers.hold(Choice::Any, &[]).unwrap()).collect();
    let mut indices: Vec<_> = held.iter().map(|held| held.index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [1, 1, 2, 2], "those that took their last connection");
    assert_eq!(choose(&servers, Choice::Any, &[1, 2]), Some(0));
}

#[test]
fn connections_to_a_server_that_is_not_used_any_more_break() {
    let servers = named(&["a", "b"]);
    servers.found(vec![ready("v1"), ready("v1")]);
    let held = [0, 1].map(|other| servers.hold(Choice::Any, &[other]).unwrap());
    let own = servers.hold(Choice::OneVersion, &[0]).unwrap();
    let broken = || [&held[0], &held[1], &own].map(|held| held.breaks.is_broken());
    servers.found(vec![ready("v1"), unwell()]);
    assert_eq!(broken(), [false; 3]);
    servers.found(vec![ready("v1"), foreign()]);
    assert_eq!((held[0].index, held[1].index), (1, 0));
    assert_eq!(broken(), [true, false, true]);
}

#[test]
fn all_connections_break_when_the_cluster_is_another_one() {
    let servers = named(&["a", "b"]);
    servers.found(vec![ready("v1"), ready("v1")]);
    let held = [0, 1].map(|other| servers.hold(Choice::Any, &[other]).unwrap());
    let own = servers.hold(Choice::OneVersion, &[0]).unwrap();
    servers.break_all();
    assert!([&held[0], &held[1], &own].iter().all(|held| held.breaks.is_broken()));
    assert!(!servers.hold(Choice::Any, &[]).unwrap().breaks.is_broken());
}

/// The index of the server that a connection leads to, and its error.
async fn connected(servers: &Servers) -> Result<usize, String> {
    connected_with(servers, None).await
}

async fn connected_with(servers: &Servers, acceptance: Option<Acceptance>) -> Result<usize, String> {
    let route = Route { servers: servers.clone(), choice: Choice::Any, acceptance };
    let open = |address: http::Uri| -> futures_util::future::BoxFuture<'static, _> {
        Box::pin(async move {
            let address = address.authority().unwrap().as_str().to_owned();
            Ok(tokio::net::TcpStream::connect(address).await?)
        })
    };
    let connected = route.connect(open, || None, "https://cluster:6443/api".parse().unwrap()).await;
    connected.map(|(_, held)| held.index).map_err(|error| error.to_string())
}

/// By which of two servers an identity is accepted.
fn accepted_by(servers: &[usize]) -> Acceptance {
    let names = ["a", "b"].map(str::to_owned).to_vec();
    let acceptance = Acceptance::new(names, true, Presented::new(certified("proxy")), ConnectionCloser::default());
    servers.iter().for_each(|server| acceptance.note(*server, &Verdict::Accepted, Instant::now()));
    acceptance
}

#[tokio::test]
async fn only_servers_that_accept_an_identity_get_its_connections() {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let servers = servers(&listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string()));
    servers.found(vec![ready("v1"), ready("v1")]);
    let (acceptance, mut held) = (accepted_by(&[1]), Vec::new());
    for _ in 0..10 {
        assert_eq!(connected_with(&servers, Some(acceptance.clone())).await, Ok(1));
        // The other one has fewer connections.
        held.push(servers.hold(Choice::Only(1), &[]).unwrap());
    }
}

#[tokio::test]
async fn a_server_breaks_only_its_own_connections_and_another_certificate_all() {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let servers = servers(&listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string()));
    servers.found(vec![ready("v1"), ready("v1")]);
    let (certificate, mut held) = (ConnectionCloser::default(), Vec::new());
    let route = Route { servers: servers.clone(), choice: Choice::Any, acceptance: None };
    for _ in 0..2 {
        let open = |_| -> futures_util::future::BoxFuture<'static, _> { Box::pin(async { Ok(()) }) };
        let address = "https://cluster:6443/api".parse().unwrap();
        held.push(route.connect(open, || Some(certificate.token()), address).await.unwrap().1);
    }
    held.sort_by_key(|held| held.index);
    let broken = || [&held[0], &held[1]].map(|held| held.breaks.is_broken());
    assert_eq!((held[0].index, held[1].index, broken()), (0, 1, [false, false]));
    servers.found(vec![foreign(), None]);
    assert_eq!(broken(), [true, false]);
    certificate.trip();
    assert_eq!(broken(), [true, true]);
}

#[tokio::test]
async fn a_server_that_stops_accepting_an_identity_meanwhile_does_not_keep_the_connection() {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let servers = servers(&addresses);
    servers.found(vec![ready("v1"), ready("v1")]);
    let acceptance = accepted_by(&[0, 1]);
    let route = Route { servers: servers.clone(), choice: Choice::Any, acceptance: Some(acceptance.clone()) };
    let (first, known) = (Arc::new(std::sync::OnceLock::new()), acceptance.clone());
    let opened = first.clone();
    let open = move |address: http::Uri| -> futures_util::future::BoxFuture<'static, _> {
        let address = address.authority().unwrap().as_str().to_owned();
        let server = addresses.iter().position(|known| *known == address).unwrap();
        if *opened.get_or_init(|| server) == server {
            known.note(server, &Verdict::Refused(NotBelieved::Unknown), Instant::now());
        }
        Box::pin(async move { Ok(tokio::net::TcpStream::connect(address).await?) })
    };
    let (_stream, held) = route.connect(open, || None, "https://cluster:6443/api".parse().unwrap()).await.unwrap();
    assert_ne!(Some(&held.index), first.get());
}

#[tokio::test]
async fn the_next_server_is_tried_until_one_takes_the_connection() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = servers(&[closed, listener.local_addr().unwrap().to_string()]);
    servers.found(vec![ready("v1"), ready("v1")]);
    while servers.states()[0].error.is_empty() {
        assert_eq!(connected(&servers).await, Ok(1));
    }
    assert_eq!(servers.states()[0].state, Usage::Aside);
    servers.found(vec![None, unknown()]);
    let error = connected(&servers).await.unwrap_err();
    assert!(error.contains("refused"), "the error of the last one: {error}");
}

#[tokio::test]
async fn a_connection_waits_for_a_check_and_says_why_there_is_no_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = servers(&[listener.local_addr().unwrap().to_string(), "b:1".to_owned()]);
    let mut checks = JoinSet::new();
    let checked = servers.clone();
    checks.spawn(async move {
        checked.wanted().await;
        checked.found(vec![ready("v1"), foreign()]);
        checked.wanted().await;
        checked.found(vec![foreign(), foreign()]);
    });
    assert_eq!(connected(&servers).await, Ok(0));
    servers.found(vec![unknown(), None]);
    let error = connected(&servers).await.unwrap_err();
    let [one, other] = [&servers.states()[0].server, "b:1"].map(|server| format!("{server}: another cluster"));
    assert_eq!(error, format!("no server of upstream is usable: {one}; {other}"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_into_use_after_none_was_is_told_of_once() {
    let (servers, begun) = (named(&["a", "b"]), Instant::now());
    let told = |since| servers.recovered_since(since).now_or_never().is_some();
    servers.found(vec![unknown(), foreign()]);
    assert!(!told(begun));
    advance(ASIDE_MIN).await;
    servers.found(vec![ready("v1"), None]);
    assert!(told(begun), "also if it was found before it was asked for");
    advance(ASIDE_MIN).await;
    let then = Instant::now();
    servers.found(vec![ready("v1"), ready("v1")]);
    servers.found(vec![unknown(), ready("v1")]);
    assert!(!told(then), "there was one all the time");
    advance(ASIDE_MIN).await;
    servers.found(vec![unknown(), unwell()]);
    servers.found(vec![unknown(), ready("v1")]);
    assert!(told(then));
}

fn gone() -> Option<Finding> {
    Some(Finding::Gone { reason: "unreachable", error: "refused".to_owned() })
}

/// Servers `a` and `b`, and `c` of the fallback, to which this gateway goes.
fn with_fallback() -> Servers {
    let [a, b, c] = ["a:1", "b:1", "c:1"].map(|address| address.parse().unwrap());
    Servers::new(&[a, b], Some(&FallbackConfig { servers: vec![c], ca: None, percent: 100 })).unwrap()
}

fn states(servers: &Servers) -> [Usage; 3] {
    servers.states().iter().map(|state| state.state).collect::<Vec<_>>().try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_fallback_is_used_while_none_of_the_others_can_be() {
    use Usage::{Aside, InUse, Standby, Unknown};
    let servers = with_fallback();
    servers.found(vec![ready("v1"), ready("v1"), None]);
    assert_eq!((chosen(&servers, Choice::Any), servers.is_checked(2)), (vec![0, 1], false));
    servers.found(vec![gone(), unwell(), None]);
    advance(Duration::from_secs(60)).await;
    servers.found(vec![gone(), unwell(), None]);
    assert_eq!((states(&servers), servers.is_checked(2)), ([Unknown, Aside, Standby], false), "one answers");
    servers.found(vec![gone(), gone(), None]);
    assert_eq!(choose(&servers, Choice::Any, &[]), None, "before it lasts");
    advance(Duration::from_secs(20)).await;
    servers.found(vec![gone(), gone(), None]);
    assert!(servers.is_checked(2));
    servers.found(vec![gone(), gone(), ready("v1")]);
    assert_eq!((chosen(&servers, Choice::OneVersion), states(&servers)), (vec![2], [Unknown, Unknown, InUse]));
    let (own, forwarded) = (servers.hold(Choice::OneVersion, &[]).unwrap(), servers.hold(Choice::Any, &[]).unwrap());

    servers.found(vec![ready("v1"), gone(), ready("v1")]);
    assert_eq!(chosen(&servers, Choice::Any), [0], "new connections go back at once");
    assert!(!own.breaks.is_broken(), "those that are open do so by and by");
    advance(Duration::from_secs(60)).await;
    servers.found(vec![ready("v1"), gone(), ready("v1")]);
    assert_eq!((own.breaks.is_broken(), forwarded.breaks.is_broken()), (true, false));
    assert_eq!((states(&servers), servers.is_checked(2)), ([InUse, Unknown, Standby], false));
}

#[tokio::test(start_paused = true)]
async fn servers_are_gone_if_nothing_answers_at_any_that_may_be_used() {
    let servers = with_fallback();
    let are_gone = || servers.none().are_gone();
    servers.found(vec![gone(), gone(), None]);
    assert!(are_gone());
    servers.found(vec![gone(), unknown(), None]);
    assert!(!are_gone(), "the reason of one may be the gateway's own");
    advance(Duration::from_secs(20)).await;
    servers.found(vec![gone(), gone(), None]);
    servers.found(vec![None, None, unknown()]);
    assert!(!are_gone(), "the fallback counts while it is used");
    servers.found(vec![None, None, gone()]);
    assert!(are_gone());
}
