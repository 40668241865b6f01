//! Services.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Deserialize;

use super::{AGE, Heading, NONE, Row, Source, Unprintable, selector::labels};

pub(super) const HEADINGS: &[Heading] = &[
    ("Type", "string", 0),
    ("Cluster-IP", "string", 0),
    ("External-IP", "string", 0),
    ("Port(s)", "string", 0),
    AGE,
    ("Selector", "string", 1),
];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<Cow<'a, str>>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    external_name: Cow<'a, str>,
    #[serde(borrow)]
    ports: Vec<Port<'a>>,
    selector: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port<'a> {
    port: i32,
    #[serde(default)]
    node_port: i32,
    #[serde(borrow, default)]
    protocol: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    pub(super) load_balancer: LoadBalancer<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancer<'a> {
    #[serde(borrow)]
    ingress: Vec<Ingress<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ingress<'a> {
    #[serde(borrow)]
    ip: Cow<'a, str>,
    #[serde(borrow)]
    hostname: Cow<'a, str>,
}

impl LoadBalancer<'_> {
    /// The addresses, or the names of those without one.
    pub(super) fn addresses(&self) -> BTreeSet<&str> {
        self.ingress.iter().map(Ingress::address).filter(|address| !address.is_empty()).collect()
    }
}

impl Ingress<'_> {
    fn address(&self) -> &str {
        if self.ip.is_empty() { &self.hostname } else { &self.ip }
    }
}

pub(super) fn print(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(&spec.kind)?;
    row.text(spec.cluster_ips.first().map_or(NONE, |first| first))?;
    row.text(&external_ips(&spec, &status))?;
    row.text_or(&spec.ports.iter().map(port).collect::<Vec<_>>().join(","), NONE)?;
    row.age(source.created())?;
    row.text(&labels(&spec.selector))
}

fn external_ips(spec: &Spec<'_>, status: &Status<'_>) -> String {
    let given = spec.external_ips.iter().map(|ip| &**ip);
    let (all, none) = match &*spec.kind {
        "ClusterIP" | "NodePort" => (given.collect(), NONE),
        "LoadBalancer" => (status.load_balancer.addresses().into_iter().chain(given).collect(), "<pending>"),
        "ExternalName" => (vec![&*spec.external_name], ""),
        _ => (Vec::new(), "<unknown>"),
    };
    if all.is_empty() { none.to_owned() } else { all.join(",") }
}

fn port(Port { port, node_port, protocol }: &Port<'_>) -> String {
    if *node_port > 0 { format!("{port}:{node_port}/{protocol}") } else { format!("{port}/{protocol}") }
}
