//! Tables of custom resources: columns and values of all kinds, printed by both sides and compared byte by byte.
//!
//! Only the format of ages in seconds and minutes is compared; older ages must be equal.

use std::collections::HashMap;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Side, cases,
    client::{Ask, version_of},
    compare::{Rules, differences},
    gateway::{PATIENCE, unique_agent},
    objects,
    report::Tally,
    servers::POLL,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "/apis/conf.example.com/v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// A watch-list of the state.
const STATE: &str =
    "resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const KUBECTL: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// Type and path of a column.
const COLUMNS: [(&str, &str); 43] = [
    ("string", ".spec.text"),
    ("string", ".spec['text']"),
    ("string", ".spec.size"),
    ("string", ".spec.ratio"),
    ("string", ".spec.on"),
    ("string", ".spec.none"),
    ("string", ".spec.none.of.it"),
    ("string", ".spec.missing"),
    ("string", ".spec.map"),
    ("string", ".spec.items"),
    ("string", ".spec.date"),
    ("string", ".spec"),
    ("integer", ".spec.size"),
    ("integer", ".spec.ratio"),
    ("integer", ".spec.text"),
    ("integer", ".spec.on"),
    ("integer", ".spec.none"),
    ("number", ".spec.size"),
    ("number", ".spec.ratio"),
    ("number", ".spec.text"),
    ("boolean", ".spec.on"),
    ("boolean", ".spec.text"),
    ("date", ".spec.date"),
    ("date", ".spec.text"),
    ("date", ".spec.size"),
    ("date", ".metadata.creationTimestamp"),
    ("string", ".metadata.name"),
    ("string", ".metadata.namespace"),
    ("string", r".metadata.annotations.example\.com/note"),
    ("string", r".metadata.annotations['example\.com/note']"),
    ("string", ".metadata.labels['color']"),
    ("string", ".metadata.generation"),
    ("string", ".spec.items[*].name"),
    ("string", ".spec.items[0].name"),
    ("string", ".spec.items[-1].name"),
    ("string", ".spec.items[1]"),
    ("string", ".spec.items[*].tags[0]"),
    ("string", ".spec.items[*].tags[*]"),
    ("integer", ".spec.items[*].count"),
    ("string", r#".status.conditions[?(@.type=="Ready")].status"#),
    ("string", ".status.conditions[?( @.type == 'Ready' )].status"),
    ("string", r#".status.conditions[?(@.type!="Ready")].type"#),
    ("date", ".status.conditions[?(@.on==true)].since"),
];

/// `{t}` is the `Accept` header for a Table, `{rv}` the version of the collection, `{token}` that of a page.
const ROWS: &str = "
    = {c}?resourceVersion=0 | accept: {t}
    = {p}?resourceVersion=0 | accept: {t}
    = {p}/{name}?resourceVersion=0 | accept: {t}
    = {c}?resourceVersion=0&includeObject=None | accept: {t}
    = {c}?resourceVersion=0&includeObject=Metadata | accept: {t}
    = {c}?resourceVersion=0&includeObject= | accept: {t}
    = {c}?resourceVersion=0&includeObject=Object | accept: {t}
    = {p}/{name}?resourceVersion=0&includeObject=None | accept: {t}
    = {p}/{name}?resourceVersion=0&includeObject=Object | accept: {t}
    > {c}?resourceVersion=0&includeObject=Foo | accept: {t}
    > {p}/{name}?resourceVersion=0&includeObject=foo | accept: {t}
    = {c}?resourceVersion={rv} | accept: {t}
    = {c}?resourceVersion={rv}&resourceVersionMatch=NotOlderThan&limit=2 | accept: {t}
    = {c}?resourceVersion={rv}&resourceVersionMatch=Exact | accept: {t}
    = {c}?resourceVersion={rv}&limit=3 | accept: {t}
    = {c}?limit=3&continue={token} | accept: {t}
    = {c}?limit=3&continue={token}&includeObject=None | accept: {t}
    = {c}?resourceVersion=0&limit=2 | accept: {t}
    > {c} | accept: {t}
    > {c}?limit=500 | accept: {t}
    > {p}/{name} | accept: {t}
    > {p}/nope?resourceVersion=0 | accept: {t}
    = {c}?resourceVersion=0&labelSelector=color=red | accept: {t}
    = {c}?resourceVersion=0&labelSelector=color=none | accept: {t}
    = {c}?resourceVersion={rv}&limit=2&labelSelector=color=red | accept: {t}
    = {c}?resourceVersion=0&fieldSelector=metadata.namespace=conf | accept: {t}
    = {p}?resourceVersion=0&fieldSelector=metadata.name={name} | accept: {t}
    = {c}?resourceVersion=0&pretty=1 | accept: {t}
    = {p}/{name}?resourceVersion=0&pretty=true | accept: {t}
    = {c}?resourceVersion=0 | accept: {t} | user-agent: curl/8
    = {c}?resourceVersion=0 | accept: {t} | accept-encoding: gzip
    = {c}?resourceVersion=0&includeObject=Object&pretty=1 | accept: {t} | accept-encoding: gzip
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: {t}
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&includeObject=Object | accept: {t}
    ~ {c}?watch=1&{state}&timeoutSeconds=1 | accept: {t}
    ~ {p}?watch=1&{state}&timeoutSeconds=1&includeObject=None&labelSelector=odd=none | accept: {t}
    ~ {p}?watch=1&{state}&timeoutSeconds=1&includeObject=Object&labelSelector=odd=none | accept: {t}
    ~ {p}?watch=1&resourceVersion=0&timeoutSeconds=1&includeObject=None&labelSelector=color=red | accept: {t}
";

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let mut tally = Tally::default();
    let columns: Vec<_> = COLUMNS.iter().enumerate().map(|(at, (kind, path))| column(at, kind, path)).collect();
    defined(side, "prints", "Print", Some(&columns)).await?;
    defined(side, "plains", "Plain", None).await?;
    for plural in ["prints", "plains"] {
        seed(side, plural).await?;
        tally.merge(compared(side, plural).await?);
    }
    tally.merge(forwarded(side).await?);
    tally.merge(changed(side).await?);
    for plural in ["prints", "plains"] {
        side.server.endpoint.delete(&format!("{DEFINITIONS}/{plural}.conf.example.com")).await?;
    }
    Ok(tally)
}

fn column(at: usize, kind: &str, path: &str) -> Value {
    let mut column = json!({"name": format!("Column {at} <&>"), "type": kind, "jsonPath": path});
    if at.is_multiple_of(3) {
        column["priority"] = json!(at);
    }
    if at.is_multiple_of(4) {
        column["description"] = json!(format!("The \"{path}\" of it, <b>"));
    }
    match kind {
        "integer" => column["format"] = json!("int64"),
        "date" if at.is_multiple_of(2) => column["format"] = json!("date-time"),
        _ => {}
    }
    column
}

/// Creates a definition whose objects may contain anything.
async fn defined(side: &Side, plural: &str, kind: &str, columns: Option<&[Value]>) -> Result<()> {
    let mut definition = objects::definition(plural, kind, "Namespaced", false);
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = definition["spec"]["versions"].as_array_mut().context("no versions")?;
    versions.truncate(1);
    versions[0]["schema"] =
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}});
    if let Some(columns) = columns {
        versions[0]["additionalPrinterColumns"] = json!(columns);
    }
    side.server.endpoint.create(DEFINITIONS, &definition).await?;
    objects::served(&side.server.endpoint, &format!("{GROUP}/{plural}")).await
}

/// Values of all kinds at the paths of the columns, of the right and the wrong type.
fn values() -> Vec<(Value, Value)> {
    let ready = json!({"conditions": [
        {"type": "Synced", "status": "False", "on": false, "since": "2020-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "on": true, "since": "2021-03-04T05:06:07Z"},
    ]});
    let items = json!([
        {"name": "a", "count": 1, "tags": ["x"]},
        {"name": "b", "tags": []},
        {"name": "c", "count": 3, "tags": ["z"]},
    ]);
    vec![
        (
            json!({
                "text": "a<b>&\u{2028}é\"\\\n\t", "size": 3, "ratio": 1.5, "on": true, "date": "2020-02-03T04:05:06Z",
                "items": items,
            }),
            ready.clone(),
        ),
        (
            json!({"text": "", "size": -7, "ratio": 0.0001, "on": false, "none": null, "date": "", "items": []}),
            json!({"conditions": []}),
        ),
        (
            json!({
                "text": "soon", "size": 999_999, "ratio": 999_999.25, "date": "soon", "items": [{"tags": ["only"]}],
            }),
            json!({}),
        ),
        (
            json!({
                "text": 5, "size": "5", "ratio": "1.5", "on": "true", "date": 5,
                "map": {"b": [1, 2.5, "<"], "a": null}, "items": {},
            }),
            json!({"conditions": {}}),
        ),
        (
            json!({
                "text": true, "size": 2.75, "ratio": -0.5, "on": 1, "date": null, "none": {"of": {"it": "all"}},
                "items": [null, "text", {"name": "z"}],
            }),
            json!({"conditions": null}),
        ),
        (
            json!({
                "text": ["a"], "size": null, "ratio": null, "on": null, "date": "2020-02-03T04:05:06.789+02:00",
                "items": "text",
            }),
            json!({"conditions": [{"status": "?"}, {"type": "Ready"}]}),
        ),
        (
            json!({
                "text": {"a": 1}, "size": 0, "ratio": 100,
                "items": [{"name": null, "tags": null}, {"name": "b", "tags": [null]}],
            }),
            json!({"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": 5}]}),
        ),
        (
            json!({
                "date": "1999-12-31T23:59:59Z", "text": "null", "map": {},
                "items": [{"tags": "text"}, {"tags": ["t"]}],
            }),
            json!({"conditions": [null, {"type": null, "status": "no"}]}),
        ),
        (
            json!({"date": "2999-12-31T23:59:59Z", "text": "1.5", "map": [], "items": [{"tags": [{"deep": ["<"]}]}]}),
            json!({"conditions": [{"type": "Ready", "on": true, "since": "tomorrow"}]}),
        ),
        (json!({}), json!(null)),
    ]
}

async fn seed(side: &Side, plural: &str) -> Result<()> {
    let kind = if plural == "prints" { "Print" } else { "Plain" };
    for (number, (spec, status)) in values().into_iter().enumerate() {
        let namespace = objects::NAMESPACES[number % objects::NAMESPACES.len()];
        let color = ["red", "green"][number % 2];
        let object = json!({
            "apiVersion": "conf.example.com/v1", "kind": kind,
            "metadata": {"name": format!("p-{number:02}"), "labels": {"color": color},
                "annotations": {"example.com/note": format!("<{number}>"), "large": "0123456789".repeat(2_000)}},
            "spec": spec, "status": status,
        });
        side.server.endpoint.create(&format!("{GROUP}/namespaces/{namespace}/{plural}"), &object).await?;
    }
    Ok(())
}

async fn compared(side: &Side, plural: &str) -> Result<Tally> {
    let (all, part) = (format!("{GROUP}/{plural}"), format!("{GROUP}/namespaces/conf/{plural}"));
    side.gateway.warm(&all).await?;
    let version = version_of(&side.server.endpoint.json(&all).await?);
    side.gateway.reached(&all, version).await?;
    let newest = side.gateway.endpoint.json(&format!("{all}?resourceVersion={version}")).await?;
    let version = version_of(&newest);
    let page = side.server.endpoint.json(&format!("{all}?resourceVersion={version}&limit=3")).await?;
    let token = page["metadata"]["continue"].as_str().context("no token")?.to_owned();
    let mut rows = Vec::new();
    for accept in [TABLE, "application/json;as=Table;g=meta.k8s.io;v=v1beta1", KUBECTL] {
        let values = HashMap::from([
            ("c", all.clone()),
            ("p", part.clone()),
            ("name", "p-00".to_owned()),
            ("rv", version.to_string()),
            ("token", token.clone()),
            ("t", accept.to_owned()),
            ("state", STATE.to_owned()),
        ]);
        rows.extend(cases::table(ROWS, &values)?);
    }
    cases::compare_all(rows, &side.server.endpoint, &side.gateway, false).await
}

/// A Table that could be printed in two ways, or is not supported, is forwarded.
async fn forwarded(side: &Side) -> Result<Tally> {
    let odd = [
        ("slices", &[("string", ".spec.list[0:1]")][..], json!({"list": [1]})),
        ("stars", &[("string", ".spec.text"), ("string", ".spec.*")], json!({"a": 1})),
        ("anys", &[("string", ".spec..text")], json!({"text": "a"})),
        ("breaks", &[("string", ".spec.text"), ("string", ".spec["), ("string", ".spec.text")], json!({"text": "a"})),
        ("larges", &[("string", ".spec.number")], json!({"number": 1_000_000})),
        ("smalls", &[("string", ".spec.number")], json!({"number": 0.000_01})),
        ("vasts", &[("integer", ".spec.number")], json!({"number": 1e19})),
        ("floats", &[("number", ".spec.number")], json!({"number": 9_007_199_254_740_993_u64})),
        ("times", &[("date", ".spec.date")], json!({"date": "2026-01-01"})),
    ];
    for (plural, columns, spec) in &odd {
        let columns: Vec<_> = columns.iter().enumerate().map(|(at, (kind, path))| column(at, kind, path)).collect();
        let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
        defined(side, plural, &kind, Some(&columns)).await?;
        let object =
            json!({"apiVersion": "conf.example.com/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec});
        side.server.endpoint.create(&format!("{GROUP}/namespaces/conf/{plural}"), &object).await?;
    }
    let mut tally = Tally::default();
    for (plural, ..) in &odd {
        side.gateway.warm(&format!("{GROUP}/{plural}")).await?;
        let values = HashMap::from([("c", format!("{GROUP}/{plural}")), ("t", TABLE.to_owned())]);
        let row = cases::table("> {c}?resourceVersion=0 | accept: {t}", &values)?;
        tally.merge(cases::compare_all(row, &side.server.endpoint, &side.gateway, false).await?);
        side.server.endpoint.delete(&format!("{DEFINITIONS}/{plural}.conf.example.com")).await?;
    }
    Ok(tally)
}

/// New columns appear as soon as the server has them, and from memory a while later.
async fn changed(side: &Side) -> Result<Tally> {
    let mut tally = Tally::default();
    let (direct, gateway) = (&side.server.endpoint, &side.gateway);
    let (definition, list) =
        (format!("{DEFINITIONS}/prints.conf.example.com"), format!("{GROUP}/prints?resourceVersion=0"));
    // The head of the Table does not show the second change, because the description stays the same.
    for path in [".spec.text", ".spec.size"] {
        let ask = Ask::get(&list).header("accept", TABLE);
        let before = direct.send(&ask).await?.text();
        let mut changed = direct.json(&definition).await?;
        changed["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Changed", "type": "string", "jsonPath": path, "description": "changed"}]);
        direct.write(Method::PUT, &definition, &changed).await?;
        let started = Instant::now();
        while direct.send(&ask).await?.text() == before {
            anyhow::ensure!(started.elapsed() < PATIENCE, "the columns stay");
            sleep(POLL).await;
        }
        let rules = Rules { any_order: false, any_version: true };
        let mut was_served = false;
        while !was_served {
            anyhow::ensure!(started.elapsed() < PATIENCE * 2, "Tables with other columns are not served");
            let agent = unique_agent("changed");
            let ask = ask.clone().header("user-agent", &agent);
            let expected = direct.send(&ask).await?;
            let found = differences(rules, &expected, &gateway.endpoint.send(&ask).await?);
            // The server may be about to fill its own cache again.
            let found = if expected.status == 429 { Vec::new() } else { found };
            tally.compared(&format!("a Table whose column has become {path}"), found);
            was_served = gateway.outcome(&agent).await?.by == "served";
            sleep(POLL).await;
        }
    }
    Ok(tally)
}
