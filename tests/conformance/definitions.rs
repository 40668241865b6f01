//! Changes of a resource as a whole: another definition with the same name, other selectable fields, storage that goes
//! back in time. The gateway must end watches that cannot continue, and must not serve outdated state.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Side,
    client::{Ask, version_of},
    compare::{Rules, differences},
    events::Events,
    gateway::PATIENCE,
    objects,
    report::Tally,
    servers::POLL,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/conf.example.com/v1/gadgets";

fn gadget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "conf.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

/// A definition is deleted and created again with other objects, then loses its selectable fields.
pub(crate) async fn redefined(side: &Side) -> Result<Tally> {
    let mut tally = Tally::default();
    let direct = &side.server.endpoint;
    let definition = format!("{DEFINITIONS}/gadgets.conf.example.com");
    direct.create(DEFINITIONS, &objects::definition("gadgets", "Gadget", "Namespaced", true)).await?;
    objects::served(direct, GADGETS).await?;
    let old = gadget("old", &json!({"color": "red"}));
    direct.create("/apis/conf.example.com/v1/namespaces/conf/gadgets", &old).await?;
    side.gateway.warm(GADGETS).await?;
    let watch = Events::open(
        &side.gateway.endpoint,
        &Ask::get(format!("{GADGETS}?watch=1&resourceVersion=0&timeoutSeconds=300")),
    )
    .await?;

    direct.delete(&definition).await?;
    let events = watch.rest().await?;
    let last = events.last().map(|event| event.kind.clone());
    tally.holds("a watch ends when the resource goes", last.as_deref() != Some("ERROR"), || format!("{last:?}"));
    tally.compared("a deleted resource", same_soon(side, &format!("{GADGETS}?resourceVersion=0")).await?);

    // Cluster-scoped now, and with other fields.
    let mut other = objects::definition("gadgets", "Gadget", "Cluster", true);
    other["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    let started = Instant::now();
    while let Err(error) = direct.create(DEFINITIONS, &other).await {
        anyhow::ensure!(started.elapsed() < PATIENCE, "{error:#}");
        sleep(POLL).await;
    }
    objects::served(direct, GADGETS).await?;
    let new = gadget("new", &json!({"size": 3}));
    direct.create(GADGETS, &new).await?;
    for query in [
        "?resourceVersion=0",
        "/new?resourceVersion=0",
        "?resourceVersion=0&fieldSelector=spec.size=3",
        "?resourceVersion=0&fieldSelector=spec.color=red",
    ] {
        tally
            .compared(&format!("a resource made again: {query}"), same_soon(side, &format!("{GADGETS}{query}")).await?);
    }
    side.gateway.warm(GADGETS).await?;
    tally.compared("the same from memory", same_soon(side, &format!("{GADGETS}?resourceVersion=0")).await?);

    // Selectable fields change with the definition.
    let mut changed = direct.json(&definition).await?;
    changed["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.text"}]);
    direct.write(Method::PUT, &definition, &changed).await?;
    for query in [
        "?resourceVersion=0&fieldSelector=spec.size=3",
        "?resourceVersion=0&fieldSelector=spec.text=",
        "?resourceVersion=0",
    ] {
        tally.compared(
            &format!("other selectable fields: {query}"),
            same_soon(side, &format!("{GADGETS}{query}")).await?,
        );
    }
    side.gateway.warm(GADGETS).await?;
    tally.compared(
        "the new field from memory",
        same_soon(side, &format!("{GADGETS}?resourceVersion=0&fieldSelector=spec.text=")).await?,
    );
    direct.delete(&definition).await?;
    Ok(tally)
}

/// The differences that remain after a while. Notes how long it took.
async fn same_soon(side: &Side, path: &str) -> Result<Vec<String>> {
    let started = Instant::now();
    let rules = Rules { any_order: false, any_version: true };
    loop {
        let direct = side.server.endpoint.get(path).await?;
        let gateway = side.gateway.endpoint.get(path).await?;
        let found = differences(rules, &direct, &gateway);
        if found.is_empty() || started.elapsed() > PATIENCE {
            return Ok(found);
        }
        sleep(POLL).await;
    }
}

/// Storage is restored to an older state: versions go backwards.
pub(crate) async fn restored(side: &mut Side) -> Result<Tally> {
    let mut tally = Tally::default();
    let widgets = "/apis/conf.example.com/v1/widgets";
    let part = "/apis/conf.example.com/v1/namespaces/conf/widgets";
    let object = |name: &str| {
        json!({
            "apiVersion": "conf.example.com/v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"color": "red"},
        })
    };
    let direct = side.server.endpoint.clone();
    direct.create(part, &object("kept")).await?;
    side.gateway.warm(widgets).await?;
    let backup = stop_and_copy(side)?;
    start(side).await?;

    let mut newest = 0;
    for number in 0..50 {
        newest = version_of(&direct.create(part, &object(&format!("lost-{number}"))).await?);
    }
    side.gateway.reached(widgets, newest).await?;
    let ask = Ask::get(format!("{widgets}?watch=1&resourceVersion={newest}&timeoutSeconds=300"));
    let watch = Events::open(&side.gateway.endpoint, &ask).await?;

    side.server.kill_api();
    side.server.kill_storage();
    let data = side.server.data();
    std::fs::remove_dir_all(&data)?;
    copy(&backup, &data)?;
    start(side).await?;
    tally.compared("a list after storage went back", same_soon(side, &format!("{widgets}?resourceVersion=0")).await?);
    let rest = watch.rest().await?;
    tally.holds("a watch from a version that is gone ends", rest.is_empty(), || format!("{rest:?}"));
    let list = side.gateway.endpoint.json(&format!("{widgets}?resourceVersion=0")).await?;
    tally.holds("versions are those of upstream", version_of(&list) < newest, || {
        format!("{} after {newest}", version_of(&list))
    });
    side.gateway.warm(widgets).await?;
    let created = direct.create(part, &object("after")).await?;
    side.gateway.reached(widgets, version_of(&created)).await?;
    tally.compared("a list from memory after that", same_soon(side, &format!("{widgets}?resourceVersion=0")).await?);
    Ok(tally)
}

fn stop_and_copy(side: &mut Side) -> Result<PathBuf> {
    side.server.kill_api();
    side.server.kill_storage();
    let data = side.server.data();
    let backup = data.with_extension("backup");
    copy(&data, &backup)?;
    Ok(backup)
}

async fn start(side: &mut Side) -> Result<()> {
    side.server.start_storage()?;
    side.server.start_api()?;
    side.server.ready().await?;
    objects::served(&side.server.endpoint, "/apis/conf.example.com/v1/widgets").await
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target).context("copy of storage")?;
        }
    }
    Ok(())
}
