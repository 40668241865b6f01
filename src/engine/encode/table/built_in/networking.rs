//! Ingresses and endpoint slices.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

use super::{AGE, Heading, NONE, Row, Source, Unprintable, row::first_ones, services, source::or_default};

pub(super) const INGRESSES: &[Heading] =
    &[("Class", "string", 0), ("Hosts", "string", 0), ("Address", "string", 0), ("Ports", "string", 0), AGE];
pub(super) const ENDPOINT_SLICES: &[Heading] =
    &[("AddressType", "string", 0), ("Ports", "string", 0), ("Endpoints", "string", 0), AGE];

/// The number of hosts, ports or addresses that are printed; of the others only how many there are.
const SHOWN_MAX: usize = 3;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    ingress_class_name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "or_default")]
    rules: Vec<Rule<'a>>,
    #[serde(deserialize_with = "or_default")]
    tls: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rule<'a> {
    #[serde(borrow)]
    host: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Port<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    port: Option<i32>,
}

#[derive(Deserialize)]
struct Endpoint<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    addresses: Vec<Cow<'a, str>>,
}

pub(super) fn ingress(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, services::Status<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(spec.ingress_class_name.as_deref().unwrap_or(NONE))?;
    row.text(&hosts(&spec.rules))?;
    row.text(&status.load_balancer.addresses().into_iter().collect::<Vec<_>>().join(","))?;
    row.text(if spec.tls.is_empty() { "80" } else { "80, 443" })?;
    row.age(source.created())
}

/// The first hosts. How many more there are counts the rules without a host, too.
fn hosts(rules: &[Rule<'_>]) -> String {
    let hosts = rules.iter().enumerate().filter(|(_, rule)| !rule.host.is_empty());
    let shown: Vec<_> = hosts.take(SHOWN_MAX).collect();
    let text = shown.iter().map(|(_, rule)| &*rule.host).collect::<Vec<_>>().join(",");
    match shown.last() {
        None => "*".to_owned(),
        Some((last, _)) if shown.len() == SHOWN_MAX && last + 1 < rules.len() => {
            format!("{text} + {} more...", rules.len() - SHOWN_MAX)
        }
        Some(_) => text,
    }
}

pub(super) fn endpoint_slice(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let ports: Option<Vec<Port<'_>>> = source.read("ports")?;
    let ports = ports.unwrap_or_default();
    let endpoints: Option<Vec<Endpoint<'_>>> = source.read("endpoints")?;
    let endpoints = endpoints.unwrap_or_default();
    row.text(&source.read::<Cow<'_, str>>("addressType")?)?;
    let ports: Vec<_> = ports.iter().map(Port::print).collect();
    let addresses: Vec<_> = endpoints.iter().flat_map(|endpoint| &endpoint.addresses).collect();
    row.text_or(&first_ones(&ports, SHOWN_MAX, ","), "<unset>")?;
    row.text_or(&first_ones(&addresses, SHOWN_MAX, ","), "<unset>")?;
    row.age(source.created())
}

impl Port<'_> {
    fn print(&self) -> Cow<'_, str> {
        match (self.port, &self.name) {
            (Some(port), _) => port.to_string().into(),
            (None, Some(name)) => name.as_ref().into(),
            (None, None) => "*".into(),
        }
    }
}
