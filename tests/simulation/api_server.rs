//! API servers, as hosts of the simulated network.

use std::{
    convert::Infallible,
    future::pending,
    net::{IpAddr, Ipv4Addr},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt, Either, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube_fanout::sim::{self, Rewrite, Sim};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};
use turmoil::net::{TcpListener, TcpStream};

use crate::{
    open::{Counted, WatchBody},
    probe::PROBE,
    world::{REPLICAS, World, gateway},
};

pub(crate) const PORT: u16 = 6443;
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// What newer programs write into each object; the oldest one writes nothing.
const EDITIONS: [Rewrite; EDITION_MAX] = [edition::<1>, edition::<2>, edition::<3>, edition::<4>];
/// The newest program.
pub(crate) const EDITION_MAX: usize = 4;

type Body = Either<Full<Bytes>, WatchBody<sim::Body>>;

/// Serves connections whenever `is_up`; going down breaks them, as a crash would. Its cache is empty when it comes
/// back. It is not a host that crashes: the storage keeps times of one clock.
pub(crate) async fn serve(world: World, number: usize, mut is_up: watch::Receiver<bool>) -> turmoil::Result {
    loop {
        is_up.wait_for(|is_up| *is_up).await?;
        let listener = TcpListener::bind((ANY, PORT)).await?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, peer) = accepted?;
                    let (world, gateway) = (world.clone(), gateway_at(peer.ip()));
                    let cut_off = cut_off(world.cut_off.subscribe(), gateway);
                    connections.spawn_local(async move {
                        tokio::select! {
                            biased;
                            () = cut_off => {}
                            () = connection(world, number, gateway, stream) => {}
                        }
                    });
                }
                Some(_) = connections.join_next() => {}
                down = is_up.wait_for(|is_up| !is_up) => {
                    down?;
                    break;
                }
            }
        }
        drop(connections);
        is_up.wait_for(|is_up| *is_up).await?;
        world.sim.empty_cache(number);
    }
}

/// Only replicas connect to API servers.
fn gateway_at(address: IpAddr) -> Option<usize> {
    (0..REPLICAS).find(|number| turmoil::lookup(gateway(*number)) == address)
}

/// Resolves when that gateway is cut off; never for other clients.
async fn cut_off(mut cut_off: watch::Receiver<Vec<bool>>, gateway: Option<usize>) {
    match gateway {
        Some(number) => drop(cut_off.wait_for(|cut_off| cut_off[number]).await),
        None => pending().await,
    }
}

/// Gives an API server another program.
pub(crate) fn upgrade(sim: &Sim, number: usize, edition: usize) {
    sim.upgrade_server(number, &format!("v1.36.{edition}"), EDITIONS[edition - 1]);
}

/// The program that wrote an object.
pub(crate) fn edition_of(object: &Value) -> usize {
    object["metadata"]["annotations"]["edition"].as_str().map_or(0, |edition| edition.parse().unwrap())
}

fn edition<const NUMBER: usize>(object: &mut Value) {
    object["metadata"]["annotations"] = json!({"edition": NUMBER.to_string()});
}

async fn connection(world: World, number: usize, gateway: Option<usize>, stream: TcpStream) {
    let World { sim, forwarded, open, .. } = world;
    let service = service_fn(move |request: Request<Incoming>| {
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        if let Some(agent) = agent.filter(|agent| agent.starts_with(PROBE)) {
            forwarded.lock().unwrap().push(agent.to_owned());
        }
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let counted = gateway.filter(|_| is_watch).map(|gateway| open.watched(gateway));
        let sim = sim.clone();
        async move { Ok::<_, Infallible>(answer(&sim, number, request, counted).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // However the connection ended, the gateway notices it.
    builder.serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
}

async fn answer(sim: &Sim, number: usize, request: Request<Incoming>, counted: Option<Counted>) -> Response<Body> {
    let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if request.method() != Method::POST {
        let answer = sim.handle_by(number, request).await;
        return answer.map(|body| Either::Right(WatchBody::new(body, counted)));
    }
    let review = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut review: Value = serde_json::from_slice(&review).unwrap_or_default();
    review["status"] = match &*kind {
        "tokenreviews" => json!({"authenticated": true, "user": {"username": review["spec"]["token"]}}),
        _ => json!({"allowed": true}),
    };
    let mut response = Response::new(Either::Left(review.to_string().into()));
    *response.status_mut() = StatusCode::CREATED;
    response
}
