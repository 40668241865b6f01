//! Deployments, replica sets, daemon sets and stateful sets.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

use super::{
    AGE, Heading, NONE, Row, Source, Unprintable,
    selector::{LabelSelector, labels},
    source::or_default,
};

pub(super) const CONTAINERS: Heading = ("Containers", "string", 1);
pub(super) const IMAGES: Heading = ("Images", "string", 1);
pub(super) const SELECTOR: Heading = ("Selector", "string", 1);
const READY: Heading = ("Ready", "string", 0);

pub(super) const DEPLOYMENTS: &[Heading] =
    &[READY, ("Up-to-date", "string", 0), ("Available", "string", 0), AGE, CONTAINERS, IMAGES, SELECTOR];
pub(super) const REPLICA_SETS: &[Heading] =
    &[("Desired", "integer", 0), ("Current", "integer", 0), ("Ready", "integer", 0), AGE, CONTAINERS, IMAGES, SELECTOR];
pub(super) const DAEMON_SETS: &[Heading] = &[
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    ("Up-to-date", "integer", 0),
    ("Available", "integer", 0),
    ("Node Selector", "string", 0),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const STATEFUL_SETS: &[Heading] = &[READY, AGE, CONTAINERS, IMAGES];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    replicas: Option<i32>,
    #[serde(borrow, deserialize_with = "or_default")]
    selector: LabelSelector<'a>,
    #[serde(borrow)]
    template: Template<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Template<'a> {
    #[serde(borrow)]
    spec: PodSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec<'a> {
    #[serde(borrow, deserialize_with = "or_default")]
    containers: Vec<Container<'a>>,
    node_selector: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    image: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    replicas: i32,
    ready_replicas: i32,
    updated_replicas: i32,
    available_replicas: i32,
    desired_number_scheduled: i32,
    current_number_scheduled: i32,
    number_ready: i32,
    updated_number_scheduled: i32,
    number_available: i32,
}

impl Template<'_> {
    /// The containers' names and images, each joined by commas.
    pub(super) fn put(&self, row: &mut Row<'_>) -> Result<(), Unprintable> {
        let containers = &self.spec.containers;
        row.text(&containers.iter().map(|container| &*container.name).collect::<Vec<_>>().join(","))?;
        row.text(&containers.iter().map(|container| &*container.image).collect::<Vec<_>>().join(","))
    }
}

impl Spec<'_> {
    /// `Unprintable` if missing: upstream sets a default.
    fn replicas(&self) -> Result<i32, Unprintable> {
        self.replicas.ok_or(Unprintable)
    }
}

pub(super) fn deployment(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status) = (source.read("spec")?, source.read("status")?);
    row.text(&format!("{}/{}", status.ready_replicas, spec.replicas()?))?;
    row.number(status.updated_replicas.into());
    row.number(status.available_replicas.into());
    row.age(source.created())?;
    spec.template.put(row)?;
    row.text(&spec.selector.print()?)
}

pub(super) fn replica_set(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status) = (source.read("spec")?, source.read("status")?);
    for number in [spec.replicas()?, status.replicas, status.ready_replicas] {
        row.number(number.into());
    }
    row.age(source.created())?;
    spec.template.put(row)?;
    row.text_or(&spec.selector.print()?, NONE)
}

pub(super) fn daemon_set(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status) = (source.read("spec")?, source.read("status")?);
    for number in [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
    ] {
        row.number(number.into());
    }
    row.text(&labels(&spec.template.spec.node_selector))?;
    row.age(source.created())?;
    spec.template.put(row)?;
    row.text_or(&spec.selector.print()?, NONE)
}

pub(super) fn stateful_set(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status) = (source.read("spec")?, source.read("status")?);
    row.text(&format!("{}/{}", status.ready_replicas, spec.replicas()?))?;
    row.age(source.created())?;
    spec.template.put(row)
}
