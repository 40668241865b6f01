//! Nodes.

use std::{borrow::Cow, collections::BTreeSet};

use serde::Deserialize;

use super::{AGE, Heading, NONE, Release, Row, Source, Unprintable, condition::Condition};

const UNKNOWN: &str = "<unknown>";
/// Labels whose names end with a role.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// The label whose value is a role.
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) const HEADINGS: &[Heading] = &[
    ("Status", "string", 0),
    ("Roles", "string", 0),
    AGE,
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
    ("External-IP", "string", 1),
    ("OS-Image", "string", 1),
    ("Kernel-Version", "string", 1),
    ("Container-Runtime", "string", 1),
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
    #[serde(borrow)]
    addresses: Vec<Address<'a>>,
    #[serde(borrow)]
    node_info: NodeInfo<'a>,
}

#[derive(Deserialize)]
struct Address<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    address: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo<'a> {
    #[serde(borrow)]
    kubelet_version: Cow<'a, str>,
    #[serde(borrow)]
    os_image: Cow<'a, str>,
    #[serde(borrow)]
    kernel_version: Cow<'a, str>,
    #[serde(borrow)]
    container_runtime_version: Cow<'a, str>,
    #[serde(borrow)]
    architecture: Cow<'a, str>,
}

pub(super) fn print(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec, Status<'_>) = (source.read("spec")?, source.read("status")?);
    // Of several conditions the last one counts.
    let ready = match status.conditions.iter().rfind(|condition| condition.kind == "Ready") {
        Some(condition) if condition.is_true() => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    row.text(&if spec.unschedulable { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })?;
    row.text_or(&roles(source), NONE)?;
    row.age(source.created())?;
    let info = &status.node_info;
    row.text(&info.kubelet_version)?;
    for kind in ["InternalIP", "ExternalIP"] {
        let address = status.addresses.iter().find(|address| address.kind == kind);
        row.text(address.map_or(NONE, |address| &address.address))?;
    }
    row.text_or(&info.os_image, UNKNOWN)?;
    let kernel = if info.kernel_version.is_empty() { UNKNOWN } else { &info.kernel_version };
    match &*info.architecture {
        architecture if release >= Release::V1_36 && !architecture.is_empty() => {
            row.text(&format!("{kernel} ({architecture})"))?;
        }
        _ => row.text(kernel)?,
    }
    row.text_or(&info.container_runtime_version, UNKNOWN)
}

fn roles(source: &Source<'_>) -> String {
    let role = |(key, value)| match str::strip_prefix(key, ROLE_PREFIX) {
        Some(role) => role,
        None if key == ROLE_LABEL => value,
        None => "",
    };
    let roles: BTreeSet<_> = source.labels().map(role).filter(|role| !role.is_empty()).collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}
