//! Shared limits: no client can use up another client's share, whatever it sends and however little it reads.

use std::{net::SocketAddr, ops::Range, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use http::{Response, StatusCode};
use hyper_util::client::legacy::connect::HttpInfo;

use crate::{
    delegated::{PODS, Scene, WATCH},
    harness::{Client, Route, forwarded, passing, until},
};

/// A most-recent read: always forwarded.
const MOST_RECENT: &str = "/api/v1/namespaces/default/pods/a";
/// Events are never cached: this watch is forwarded.
const EVENTS: &str = "/api/v1/events?watch=1&timeoutSeconds=1800";

/// The local address of the client's connection for this answer.
fn connection<B>(answer: &Response<B>) -> SocketAddr {
    answer.extensions().get::<HttpInfo>().unwrap().local_addr()
}

#[tokio::test]
async fn a_peer_without_credentials_that_does_not_read_keeps_no_other_out() {
    let scene = Scene::start().await;
    scene.upstream.add_user("new-token", "jane");
    let hostile = scene.gateway.client.that_does_not_read();
    let mut held = Vec::new();
    for _ in 0..1000 {
        held.push(hostile.head("/version", &[]).await);
    }
    let refused = held.iter().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(refused, 750, "an address has a quarter of the 1,000 places");

    // A new token is accepted from another address, a known one even from the same address.
    let new = [("authorization", "Bearer new-token")];
    let elsewhere = scene.gateway.client.at([127, 0, 0, 2]).request("GET", MOST_RECENT, &new, "".into()).await;
    assert_eq!((elsewhere.status, elsewhere.route), (StatusCode::OK, forwarded("most_recent")));
    let known = scene.get("jane-token", MOST_RECENT).await;
    assert_eq!((known.status, known.route), (StatusCode::OK, forwarded("most_recent")));
    scene.upstream.add_user("another-token", "jane");
    let another = scene.get("another-token", MOST_RECENT).await;
    assert_eq!((another.status, another.route), (StatusCode::OK, forwarded("most_recent")));
    let same = scene.ask("GET", "/version", &[]).await;
    assert_eq!((same.status.as_u16(), same.route), (429, Route::Rejected("client_share".to_owned())));

    // The places of unread answers are given back after a while, although the client reads nothing and keeps its
    // connection.
    let again = async || {
        let answer = scene.ask("GET", "/version", &[]).await;
        (answer.status == StatusCode::FORBIDDEN).then_some(())
    };
    passing(Duration::from_secs(5), until("a place that was given back", again)).await;
    drop(held.pop());
    assert_eq!(connection(&hostile.head("/version", &[]).await), connection(&held[0]));
}

#[tokio::test]
async fn a_client_is_its_user_with_any_credentials() {
    let scene = Scene::start_with(|config| {
        config.limits.watches_per_client = 2;
        config.limits.forwarded_per_client = 2;
    })
    .await;
    scene.upstream.add_user("jane-second-token", "jane");
    scene.upstream.grant("jane", "watch", "events");
    scene.upstream.grant("john", "watch", "events");
    assert_eq!(scene.get("jane-second-token", PODS).await.route, Route::Served);
    for (path, refusal, field) in
        [(WATCH, "client_watches", "limits.watchesPerClient"), (EVENTS, "client_share", "limits.forwardedPerClient")]
    {
        let mut open = Vec::new();
        for token in ["jane-token", "jane-token 1"] {
            let authorization = format!("Bearer {token}");
            open.push(scene.gateway.client.watch_with(path, &[("authorization", &authorization)]).await);
        }
        for token in ["jane-token", "jane-token 2", "jane-second-token"] {
            let answer = scene.get(token, path).await;
            assert_eq!(answer.route, Route::Rejected(refusal.to_owned()), "{token} {path}");
            let body = String::from_utf8_lossy(&answer.body);
            assert!(body.contains(field), "{body}");
        }
        drop(scene.gateway.client.watch_with(EVENTS, &[("authorization", "Bearer john-token")]).await);
    }
}

/// Upstream cannot limit them itself: its own fairness comes after authentication.
#[tokio::test]
async fn invented_tokens_of_one_address_are_delayed_but_no_client_is_refused() {
    let scene = Scene::start().await;
    scene.upstream.add_user("new-token", "jane");
    let hostile = scene.gateway.client.at([127, 0, 0, 3]);
    let ask = async |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str())];
        hostile.request("GET", PODS, &headers, "".into()).await
    };
    let invent = async |numbers: Range<usize>| {
        let tokens: Vec<_> = numbers.map(|number| format!("invented-{number}")).collect();
        let answers = join_all(tokens.iter().map(|token| ask(token)));
        for answer in answers.await {
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{:?}", answer.route);
        }
    };
    for numbers in [0..200, 200..400, 400..600] {
        invent(numbers).await;
    }
    let (reviews, _) = scene.upstream.reviews();
    assert!(reviews < 300, "{reviews}: most cost upstream one request, not two");

    // Another client of that address: answered by upstream first, and from memory once upstream has accepted its token.
    assert_eq!(ask("new-token").await.status, StatusCode::OK);
    until("a review", async || (ask("new-token").await.route == Route::Served).then_some(())).await;
    scene.upstream.add_user("another-token", "jane");
    assert_eq!(scene.get("another-token", PODS).await.route, Route::Served, "of another address");
}

/// The API server verifies a token in a subprotocol of a WebSocket as it does any other.
#[tokio::test]
async fn invented_tokens_of_websockets_count_like_others() {
    let scene = Scene::start().await;
    for (token, name) in [("shown-token", "jane"), ("new-token", "jane"), ("another-token", "jane")] {
        scene.upstream.add_user(token, name);
    }
    let hostile = scene.gateway.client.at([127, 0, 0, 3]);
    let show = async |token: &str| {
        let token = BASE64_URL_SAFE_NO_PAD.encode(token);
        let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, x");
        let (upgrade, protocols) = (("connection", "Upgrade"), ("sec-websocket-protocol", protocols.as_str()));
        let headers = [upgrade, ("upgrade", "websocket"), protocols];
        hostile.request("GET", MOST_RECENT, &headers, "".into()).await
    };
    let ask = async |client: &Client, token: &str| {
        let authorization = format!("Bearer {token}");
        client.request("GET", PODS, &[("authorization", &authorization)], "".into()).await
    };
    let invented: Vec<_> = (0..200).map(|number| format!("invented-{number}")).collect();
    for answer in join_all(invented.iter().map(|token| show(token))).await {
        assert_eq!((answer.status, answer.route), (StatusCode::UNAUTHORIZED, forwarded("upgrade")));
    }
    let new = ask(&hostile, "new-token").await;
    assert_eq!((new.status, new.route), (StatusCode::OK, forwarded("no_verdict")), "not reviewed first");
    assert_eq!(show("shown-token").await.status, StatusCode::OK);
    assert_eq!(ask(&scene.gateway.client, "another-token").await.route, Route::Served, "of another address");
}

/// Its client may share an address, and even a connection, with one whose token has expired.
#[tokio::test]
async fn a_token_that_upstream_accepted_does_not_wait_for_refused_ones() {
    const AT_ONCE: usize = 50;
    let scene = Scene::start().await;
    scene.upstream.add_user("writers-token", "jane");
    let together = scene.gateway.client.over_http2();
    let ask = async |client: &Client, token: &str| {
        let authorization = format!("Bearer {token}");
        client.request("GET", MOST_RECENT, &[("authorization", &authorization)], "".into()).await
    };
    // All of its requests are forwarded, so it is never reviewed.
    assert_eq!(ask(&together, "writers-token").await.status, StatusCode::OK);
    let invented: Vec<_> = (0..600).map(|number| format!("invented-{number}")).collect();
    for tokens in invented.chunks(300) {
        join_all(tokens.iter().map(|token| ask(&scene.gateway.client, token))).await;
    }
    let known = ["writers-token", "jane-token"].into_iter().cycle().take(2 * AT_ONCE);
    for answer in join_all(known.map(|token| ask(&together, token))).await {
        assert_eq!((answer.status, answer.route), (StatusCode::OK, forwarded("most_recent")));
    }
}

#[tokio::test]
async fn delayed_requests_keep_no_other_client_of_their_address_out() {
    let scene = Scene::start_with(|config| config.limits.forwarded_per_client = 100).await;
    scene.upstream.add_user("new-token", "jane");
    let each_alone = &scene.gateway.client;
    let together = each_alone.over_http2();
    let invented = async |client: &Client, number: usize| {
        let authorization = format!("Bearer invented-{number}");
        client.request("GET", MOST_RECENT, &[("authorization", &authorization)], "".into()).await
    };
    for numbers in [0..300, 300..600] {
        join_all(numbers.map(|number| invented(each_alone, number))).await;
    }
    let mut delayed: FuturesUnordered<_> = (600..720).map(|number| invented(&together, number)).collect();
    let first = delayed.next().await.unwrap();
    assert_eq!(first.route, Route::Rejected("client_share".to_owned()), "a connection has eight places");
    let body = String::from_utf8_lossy(&first.body);
    assert!(body.contains("too many requests of this connection are delayed"), "{body}");
    let (new, delayed) = tokio::join!(scene.get("new-token", MOST_RECENT), delayed.collect::<Vec<_>>());
    assert_eq!((new.status, new.route), (StatusCode::OK, forwarded("most_recent")));
    let refused = delayed.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).count();
    assert!(1 + refused >= 100, "{refused}: places are taken for delays");
}
