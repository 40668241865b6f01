//! Shards of lists and watches: all parts of some splits of objects with random uids, in every form, and what is not
//! quite a selector. A server without shards ignores the parameter, and so must the gateway.

use std::{collections::HashMap, iter};

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    Side, cases,
    client::version_of,
    objects,
    report::Tally,
    watches::{self, Subject},
    wire,
};

const SPLITS: [(&str, u128); 5] = [("uid", 2), ("uid", 3), ("uid", 16), ("namespace", 2), ("namespace", 3)];
/// The number of objects that are made.
const OBJECTS: usize = 200;
/// The maximum number of concurrent requests.
const AT_ONCE: usize = 12;

/// For each part of each split.
const ROWS: &str = "
    = {c}?resourceVersion=0&{shard}
    = {c}?resourceVersion={g}&{shard}
    = {c}?resourceVersion={g}&limit=3&{shard}
    = {p}?resourceVersion=0&labelSelector=app=web&{shard}
    = {p}?resourceVersion={g}&limit=2&labelSelector=app=web&{shard}
    = {c}?resourceVersion=0&fieldSelector=metadata.name=sharded-7&{shard}
    = {p}?resourceVersion=0&fieldSelector=metadata.name=sharded-7&{shard}
    ~ {c}?{shard}
    ~ {c}?limit=5&{shard}
    ~ {p}?{shard}&resourceVersion=0&pretty=true
    = {p}/sharded-7?resourceVersion=0&{shard}
    = {c}?resourceVersion=0&{shard} | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    ~ {c}?resourceVersion={g}&limit=3&{shard} | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    ~ {c}?resourceVersion=0&{shard} | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1&{shard}
";

/// The same of what has protobuf.
const PROTOBUF: &str = "
    = {c}?resourceVersion=0&{shard} | accept: {protobuf}
    = {p}?resourceVersion=0&labelSelector=app=web&{shard} | accept: {protobuf}
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1&{shard} | accept: {protobuf}
";

/// The same of servers that write continue tokens as the gateway does.
const CURRENT_PROTOBUF: &str = "
    = {c}?resourceVersion={g}&limit=3&{shard} | accept: {protobuf}
";

/// Once for each collection; `{half}` is half of them, `{rest}` the other one.
const ODD: &str = "
    = {c}?resourceVersion=0&shardSelector=
    = {c}?resourceVersion=0&shardSelector={half}%7C%7C{rest}
    = {c}?resourceVersion=0&shardSelector={half}+%7C%7C+{half}
    = {c}?resourceVersion=0&shardSelector={half}&shardSelector={rest}
    ~ {c}?resourceVersion=0&shardSelector={half}%7C%7C
    ~ {c}?resourceVersion=0&shardSelector={half}%7C{half}
    ~ {c}?resourceVersion=0&shardSelector=({half})
    ~ {c}?resourceVersion=0&shardSelector=+
    ~ {c}?resourceVersion=0&shardSelector=shardRange()
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.name,'0x0000000000000000','0x8000000000000000')
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,'0x0','0x8000000000000000')
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,'0x8000000000000000','0x8000000000000000')
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x800000000000000A')
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,0,1)
    ~ {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x10000000000000001')
    = {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,%22{low}%22,%22{high}%22)
    = {c}?resourceVersion=0&shardSelector=%0Ashard%52ange+(object+.metadata.%09uid,'{low}','{high}')
    = {c}?resourceVersion=0&shardSelector=shardRange(object.metadata.uid,'0xffffffffffffffff','0x10000000000000000')
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&shardSelector=x
";

pub(crate) async fn builtin(side: &Side) -> Result<Tally> {
    let mut tally = of(side, "/api/v1", "configmaps", true).await?;
    tally.merge(custom(side).await?);
    Ok(tally)
}

pub(crate) async fn custom(side: &Side) -> Result<Tally> {
    of(side, "/apis/conf.example.com/v1", "widgets", false).await
}

async fn of(side: &Side, group: &'static str, plural: &'static str, has_protobuf: bool) -> Result<Tally> {
    let (all, part) = (format!("{group}/{plural}"), format!("{group}/namespaces/conf/{plural}"));
    let direct = &side.server.endpoint;
    let namespaced = |number: usize| format!("{group}/namespaces/{}/{plural}", objects::NAMESPACES[number % 2]);
    let create = |number: usize| async move {
        let object = watches::labelled(plural, number, "sharded", ["web", "db"][number / 2 % 2]);
        direct.create(&namespaced(number), &object).await.map(drop)
    };
    stream::iter((0..OBJECTS).map(create)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let version = version_of(&direct.json(&format!("{all}?limit=1")).await?);
    side.gateway.warm(&all).await?;
    side.gateway.reached(&all, version).await?;
    if has_protobuf {
        side.gateway.warm_as(&all, wire::CONTENT).await?;
        side.gateway.reached_as(&all, version, wire::CONTENT).await?;
    }
    let values = |shard: &str| {
        let texts = [("c", &*all), ("p", &part), ("shard", shard), ("protobuf", wire::CONTENT)];
        let mut values: HashMap<_, _> = texts.map(|(name, text)| (name, text.to_owned())).into();
        values.extend([("g", version.to_string()), ("half", half(0)), ("rest", half(1))]);
        values.extend([("low", end(0)), ("high", end(HASHES / 2))]);
        values
    };
    let rows = match (has_protobuf, side.server.has_watch_list) {
        (true, true) => [ROWS, PROTOBUF, CURRENT_PROTOBUF].concat(),
        (true, false) => [ROWS, PROTOBUF].concat(),
        (false, _) => ROWS.to_owned(),
    };
    let of_parts = parts().map(|shard| cases::table(&rows, &values(&format!("shardSelector={shard}"))));
    let odd = cases::table(ODD, &values(""));
    let cases = of_parts.chain(iter::once(odd)).collect::<Result<Vec<_>>>()?.concat();
    let any_order = !side.server.has_watch_list;
    let mut tally = cases::compare_all(cases, direct, &side.gateway, any_order).await?;
    tally.merge(watched(side, group, plural, has_protobuf).await?);
    let delete =
        |number: usize| async move { direct.delete(&format!("{}/sharded-{number}", namespaced(number))).await };
    stream::iter((0..OBJECTS).map(delete)).buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await?;
    Ok(tally)
}

/// Watches of all parts of all splits, while objects change.
async fn watched(side: &Side, group: &'static str, plural: &'static str, has_protobuf: bool) -> Result<Tally> {
    let protobuf = if has_protobuf { "= {c}?resourceVersion={v}&shardSelector={shard} | {P}" } else { "" };
    // Forwarded to servers without watch-list: those close such watches that are read slowly, and so many are.
    let has_watch_list = side.server.has_watch_list;
    let most_recent = if has_watch_list { "~ {c}?allowWatchBookmarks=true&shardSelector={shard}" } else { "" };
    let rows = |shard: String| {
        let rows = [
            "= {c}?resourceVersion={v}&shardSelector={shard}",
            "= {p}?resourceVersion=0&labelSelector=app=web&shardSelector={shard}",
            most_recent,
            protobuf,
        ];
        rows.join("\n").replace("{shard}", &shard)
    };
    // Only of one split: where two watches of Tables share an event, the server may repeat its columns, because it
    // keeps the encoded event for both.
    let tables = split("uid", 3).map(|shard| format!("~ {{c}}?resourceVersion={{v}}&shardSelector={shard} | {{T}}"));
    let rows = parts().map(rows).chain(tables).collect::<Vec<_>>().join("\n");
    let subject = Subject { group, plural, watches: &[&rows], has_protobuf };
    watches::subject(side, &subject, !has_watch_list).await
}

/// One more than the largest hash.
const HASHES: u128 = 1 << 64;

/// The selectors of all parts of all splits.
fn parts() -> impl Iterator<Item = String> {
    SPLITS.into_iter().flat_map(|(field, parts)| split(field, parts))
}

fn split(field: &str, parts: u128) -> impl Iterator<Item = String> {
    (0..parts).map(move |part| range(field, HASHES * part / parts, HASHES * (part + 1) / parts))
}

fn half(number: u128) -> String {
    range("uid", HASHES / 2 * number, HASHES / 2 * (number + 1))
}

fn range(field: &str, from: u128, to: u128) -> String {
    format!("shardRange(object.metadata.{field},'{}','{}')", end(from), end(to))
}

fn end(hash: u128) -> String {
    format!("0x{hash:016x}")
}
