//! All representations that clients request, for every resource that a server serves.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, future, stream};
use serde_json::json;

use crate::{
    Side, cases,
    client::{Ask, Endpoint},
    kinds::{self, Resource},
    printed,
    report::Tally,
    wire,
};

/// The number of large objects: their list is larger than 128 KiB in every representation.
const LARGE: usize = 300;
/// The number of concurrent requests while caches are started and objects are created.
const AT_ONCE: usize = 12;

/// A representation as in `Accept`; `{List}` stands for `List` in the request of a list, and for nothing otherwise.
struct Representation {
    accept: &'static str,
    source: Source,
}

/// The source of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From memory for all resources.
    Memory,
    /// From memory, except for custom resources, which upstream refuses to write in this way.
    BuiltinMemory,
    /// From memory, except for custom resources of servers without watch-list, whose metadata had other fields.
    PartialProtobuf,
    /// Tables: from memory; from upstream for custom resources of servers without watch-list, and for built-in
    /// resources without a printer.
    Table,
}

const REPRESENTATIONS: [Representation; 8] = [
    Representation { accept: "application/json", source: Source::Memory },
    Representation { accept: wire::CONTENT, source: Source::BuiltinMemory },
    Representation { accept: "application/vnd.kubernetes.protobuf, application/json", source: Source::Memory },
    Representation {
        accept: "application/json;as=PartialObjectMetadata{List};g=meta.k8s.io;v=v1",
        source: Source::Memory,
    },
    Representation {
        accept: "application/json;as=PartialObjectMetadata{List};g=meta.k8s.io;v=v1beta1",
        source: Source::Memory,
    },
    Representation {
        accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata{List};g=meta.k8s.io;v=v1",
        source: Source::PartialProtobuf,
    },
    Representation {
        accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata{List};g=meta.k8s.io;v=v1beta1",
        source: Source::PartialProtobuf,
    },
    Representation { accept: "application/json;as=Table;g=meta.k8s.io;v=v1", source: Source::Table },
];

/// `{mark}` is the required source, `{watch}` and `{absent}` those of watches and of missing objects, `{l}` is the
/// representation of a list, `{f}` that of everything else.
const ROWS: &str = "
    {mark} {c}?resourceVersion=0 | accept: {l}
    {mark} {c}?resourceVersion=0&labelSelector=app=web | accept: {l}
    {mark} {c}?resourceVersion=0 | accept: {l} | accept-encoding: gzip
    {mark} {c}?resourceVersion=0&labelSelector=made | accept: {l} | accept-encoding: gzip
    {watch} {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: {f}
    {watch} {c}?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true | accept: {f} | accept-encoding: gzip
";

/// Only if there is an object.
const OBJECT_ROWS: &str = "
    {mark} {object}?resourceVersion=0 | accept: {f}
    {absent} {object}-nope?resourceVersion=0 | accept: {f}
";

/// Only if upstream has watch-list.
const WATCH_LIST_ROWS: &str = "
    {watch} {c}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan | accept: {f}
";

/// Every built-in resource, and custom ones.
pub(crate) async fn builtin(side: &Side) -> Result<Tally> {
    all(side, "/api/v1/configmaps", "/api/v1/namespaces/conf/configmaps", side.server.has_watch_list).await
}

/// Custom resources on the current library.
pub(crate) async fn custom(side: &Side) -> Result<Tally> {
    let widgets = "/apis/conf.example.com/v1/widgets";
    all(side, widgets, "/apis/conf.example.com/v1/namespaces/conf/widgets", true).await
}

async fn all(side: &Side, large: &str, large_part: &str, has_watch_list: bool) -> Result<Tally> {
    let direct = &side.server.endpoint;
    let mut tally = Tally::default();
    let resources = kinds::discover(direct).await?;
    make_objects(direct, &resources, &mut tally).await?;
    make_large(direct, large_part).await?;
    let resources = stream::iter(resources).map(|resource| prepared(side, resource));
    let resources: Vec<_> = resources.buffer_unordered(AT_ONCE).try_collect().await?;
    tally.note(format!("{} resources in {} forms", resources.len(), REPRESENTATIONS.len()));

    let mut cases = Vec::new();
    for (resource, object) in &resources {
        for representation in &REPRESENTATIONS {
            cases.extend(cases::table(
                &rows(resource, representation, object.is_some(), has_watch_list),
                &values(resource, representation, object.as_deref()),
            )?);
        }
    }
    tally.merge(cases::compare_all(cases, direct, &side.gateway, !has_watch_list).await?);
    compressed(side, large, &mut tally).await?;
    stream::iter(0..LARGE)
        .map(|number| async move { direct.delete(&format!("{large_part}/large-{number:03}")).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(tally)
}

/// Creates one object of each kind; notes in one line which could not be created.
async fn make_objects(direct: &Endpoint, resources: &[Resource], tally: &mut Tally) -> Result<()> {
    let mut missing = Vec::new();
    for resource in resources {
        if resource.first(direct).await?.is_none()
            && let Err(why) = resource.make_one(direct).await
        {
            missing.push(format!("{} ({why})", resource.collection()));
        }
    }
    if !missing.is_empty() {
        tally.note(format!("!!! ONLY EMPTY COLLECTIONS COMPARED OF {}: {}", missing.len(), missing.join("; ")));
    }
    Ok(())
}

/// Creates enough objects that every representation is large enough for gzip, even metadata alone.
async fn make_large(direct: &Endpoint, part: &str) -> Result<()> {
    let text = "<0123456789&abcdef>".repeat(30);
    let object = |number: usize| {
        let metadata =
            json!({"name": format!("large-{number:03}"), "annotations": {"text": text}, "labels": {"made": "large"}});
        if part.contains("widgets") {
            json!({"apiVersion": "conf.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"text": text}})
        } else {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
        }
    };
    let made = stream::iter(0..LARGE).map(|number| {
        let object = object(number);
        async move { direct.create(part, &object).await }
    });
    made.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Returns when the caches hold everything in each representation, with the path of an object.
async fn prepared(side: &Side, resource: Resource) -> Result<(Resource, Option<String>)> {
    let first = resource.first(&side.server.endpoint).await?;
    let collection = resource.collection();
    if !resource.is_event() {
        // A custom resource has no protobuf. Once the gateway knows that, its JSON is requested again.
        let both = format!("{}, application/json", wire::CONTENT);
        future::try_join(side.gateway.warm(&collection), side.gateway.warm_as(&collection, &both)).await?;
        if let Some((_, newest)) = first {
            future::try_join(
                side.gateway.reached(&collection, newest),
                side.gateway.reached_as(&collection, newest, &both),
            )
            .await?;
        }
    }
    Ok((resource, first.map(|(path, _)| path)))
}

fn rows(resource: &Resource, representation: &Representation, has_object: bool, has_watch_list: bool) -> String {
    let is_served = match representation.source {
        Source::Memory => true,
        Source::BuiltinMemory => !resource.is_custom(),
        Source::PartialProtobuf => !resource.is_custom() || has_watch_list,
        Source::Table if resource.is_custom() => has_watch_list,
        Source::Table => printed::is_printed(&resource.collection()),
    };
    let mark = if is_served && !resource.is_event() { "=" } else { ">" };
    // Watches of definitions with columns of metadata are forwarded.
    let watch = if representation.source == Source::Table && mark == "=" { "~" } else { mark };
    // A Status has its own representation for clients that only accept metadata, or protobuf of a resource without
    // protobuf.
    let is_absent_odd = representation.accept.contains("as=")
        || resource.is_custom() && representation.accept.starts_with(wire::CONTENT);
    let absent = if is_absent_odd { ">" } else { mark };
    let object_rows = if has_object { OBJECT_ROWS } else { "" };
    let watch_list_rows = if has_watch_list { WATCH_LIST_ROWS } else { "" };
    [ROWS, object_rows, watch_list_rows]
        .concat()
        .replace("{mark}", mark)
        .replace("{watch}", watch)
        .replace("{absent}", absent)
}

fn values(resource: &Resource, representation: &Representation, object: Option<&str>) -> HashMap<&'static str, String> {
    HashMap::from([
        ("c", resource.collection()),
        ("object", object.unwrap_or_default().to_owned()),
        ("l", representation.accept.replace("{List}", "List")),
        ("f", representation.accept.replace("{List}", "")),
    ])
}

/// Checks that large lists come in gzip from both sides, so that compressed bodies were compared.
async fn compressed(side: &Side, large: &str, tally: &mut Tally) -> Result<()> {
    for representation in &REPRESENTATIONS {
        let accept = representation.accept.replace("{List}", "List");
        let ask =
            Ask::get(format!("{large}?resourceVersion=0")).header("accept", &accept).header("accept-encoding", "gzip");
        for endpoint in [&side.server.endpoint, &side.gateway.endpoint] {
            let answer = endpoint.send(&ask).await?;
            if answer.status == 406 {
                continue;
            }
            ensure!(answer.status == 200, "{ask:?}: {} {}", answer.status, answer.text());
            let coding = answer.headers.get("content-encoding").and_then(|coding| coding.to_str().ok());
            tally.equal(&format!("{accept} of {} in gzip", endpoint.base), &Some("gzip"), &coding);
        }
    }
    Ok(())
}
