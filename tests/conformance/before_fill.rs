//! Watches that resume from a version before the start of a gateway, and are more than their client may have at the API
//! server: they wait, the API server is asked once for what happened in between, and each gets the events that the API
//! server's own watches get.

use std::path::Path;

use anyhow::{Context, Result};
use futures_util::future;
use serde_json::{Value, json};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, Protocol, version_of},
    events::Events,
    identity::{Asserts, Delegated},
    report::Tally,
    resumes::{Used, sum},
    resuming::{self, CONFIG_MAPS, Followed, SELECTORS},
};

/// What the client may have at the API server at once.
const PLACES: usize = 8;
const LIMITS: &str = ", forwardedPerClient: 8";
const GATE: usize = 64;
const FULL: usize = 1_000;
/// The number of objects of each kind of change.
const OBJECTS: usize = 10;
/// A part of their names.
const NAME: &str = "before-fill";

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let (direct, mut tally) = (&side.server.endpoint, Tally::default());
    let Followed { collection, part, encodings, .. } = CONFIG_MAPS;
    let version = changed(direct, part).await?;
    let used = Used::by(direct, collection).await?;

    let delegated =
        Delegated::start_with("gateway-before-fill", LIMITS, Asserts::FrontProxy, None, &side.server, certificates)
            .await?;
    let authority = certificates.file("ca.crt");
    let client = Endpoint::showing(&delegated.secure, Path::new(&authority), None, Protocol::Http1)?;
    let different: Vec<_> = SELECTORS
        .iter()
        .flat_map(|selector| encodings.iter().map(move |accept| ask(collection, version, selector, accept)))
        .collect();
    let count = if resuming::is_full() { FULL } else { GATE };
    let asks = || different.iter().cycle().take(count);
    let watches = future::try_join_all(asks().map(|ask| Events::open(&client, ask))).await?;

    // The gateway has one watch of its own in each encoding.
    let (now, most) = (Used::by(direct, collection).await?, (encodings.len() + PLACES) as f64);
    tally.holds("watches at the API server", now.watches <= used.watches + most, || {
        format!("{} more than before the gateway's start, {most} allowed", now.watches - used.watches)
    });
    let admin = Endpoint::plain(&format!("http://{}", delegated.gateway.admin().context("no admin port")?))?;
    let metrics = admin.get("/metrics").await?.text();
    let extensions = "kube_fanout_cache_history_extensions_total";
    let made = sum(&metrics, extensions, &["outcome=\"made\""]);
    tally.equal("caches whose history begins earlier", &(encodings.len() as f64), &made);

    let last = json!({"metadata": {"annotations": {"last": "yes"}}});
    let last = version_of(&direct.patch(&format!("{part}/{NAME}-stays-0"), &last).await?);
    let mut expected = Vec::new();
    for ask in &different {
        expected.push(until(last, Events::open(direct, ask).await?).await?);
    }
    for ((ask, expected), watch) in asks().zip(expected.iter().cycle()).zip(watches) {
        tally.equal(&format!("events of {}", ask.path), expected, &until(last, watch).await?);
    }
    tally.note(format!(
        "{count} watches resumed from before the fill, at most {PLACES} of them at the API server, which was asked for \
         the past once in each of {} encodings",
        encodings.len()
    ));
    Ok(tally)
}

fn ask(collection: &str, version: u64, selector: &str, accept: &str) -> Ask {
    let path = format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=300{selector}");
    Ask::get(path).header("authorization", "Bearer conformance-keeper").header("accept", accept)
}

/// Objects that change in every way after the version that is returned.
async fn changed(direct: &Endpoint, part: &str) -> Result<u64> {
    let path = |what: &str, number: usize| format!("{part}/{NAME}-{what}-{number}");
    let mut version = 0;
    for number in 0..OBJECTS {
        for what in ["stays", "leaves", "goes"] {
            let name = format!("{NAME}-{what}-{number}");
            version = version_of(&direct.create(part, &config_map(&name, "red")).await?);
        }
    }
    let shade = |shade: &str| json!({"metadata": {"labels": {"shade": shade}}});
    for number in 0..OBJECTS {
        direct.patch(&path("leaves", number), &shade("blue")).await?;
        direct.delete(&path("goes", number)).await?;
        direct.create(part, &config_map(&format!("{NAME}-comes-{number}"), "red")).await?;
        direct.patch(&path("comes", number), &shade("blue")).await?;
        direct.patch(&path("comes", number), &shade("red")).await?;
    }
    Ok(version)
}

fn config_map(name: &str, shade: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"shade": shade}}})
}

/// The events of a watch up to that version.
async fn until(last: u64, mut watch: Events) -> Result<Vec<String>> {
    let mut told = Vec::new();
    loop {
        let event = watch.next().await?.context("a watch has ended")?;
        told.push(event.line);
        if event.version == last {
            return Ok(told);
        }
    }
}
