//! Horizontal pod autoscalers of `autoscaling/v2`, which 1.20 does not have.

use std::borrow::Cow;

use serde::Deserialize;

use super::{AGE, Heading, NONE, Row, Source, Unprintable, row::first_ones, source::or_default};

pub(super) const HEADINGS: &[Heading] = &[
    ("Reference", "string", 0),
    ("Targets", "string", 0),
    ("MinPods", "string", 0),
    ("MaxPods", "string", 0),
    ("Replicas", "string", 0),
    AGE,
];
/// The number of metrics that are printed; of the others only how many there are.
const SHOWN_MAX: usize = 2;
const UNKNOWN: &str = "<unknown>";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    scale_target_ref: Reference<'a>,
    min_replicas: Option<i32>,
    max_replicas: i32,
    #[serde(borrow, deserialize_with = "or_default")]
    metrics: Vec<Metric<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    current_replicas: i32,
    #[serde(borrow, deserialize_with = "or_default")]
    current_metrics: Vec<Metric<'a>>,
}

/// A metric with its target, or as it was measured: the one at the same place of the status.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metric<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    resource: Option<Measure<'a>>,
    #[serde(borrow)]
    container_resource: Option<Measure<'a>>,
    #[serde(borrow)]
    pods: Option<Measure<'a>>,
    #[serde(borrow)]
    object: Option<Measure<'a>>,
    #[serde(borrow)]
    external: Option<Measure<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Measure<'a> {
    /// Of a resource.
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    target: Values<'a>,
    #[serde(borrow)]
    current: Values<'a>,
}

/// Quantities are as upstream writes them, which is how it prints them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Values<'a> {
    average_utilization: Option<i32>,
    #[serde(borrow)]
    average_value: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
}

impl<'a> Metric<'a> {
    fn measure(&self, kind: &str) -> Option<&Measure<'a>> {
        match kind {
            "Resource" => self.resource.as_ref(),
            "ContainerResource" => self.container_resource.as_ref(),
            "Pods" => self.pods.as_ref(),
            "Object" => self.object.as_ref(),
            "External" => self.external.as_ref(),
            _ => None,
        }
    }

    /// The measured value and the target. What was measured of another type is not known.
    fn print(&self, measured: Option<&Self>) -> Result<String, Unprintable> {
        let Measure { name, target, .. } = self.measure(&self.kind).ok_or(Unprintable)?;
        let current = measured.and_then(|metric| metric.measure(&self.kind)).map(|measure| &measure.current);
        // A quantity that is missing although there is a measurement.
        let quantity = |of: for<'v> fn(&'v Values<'a>) -> Option<&'v str>| {
            current.map_or(UNKNOWN, |current| of(current).unwrap_or("<nil>"))
        };
        Ok(match (&*self.kind, &target.average_value, &target.value) {
            ("Resource" | "ContainerResource", Some(target), _) => {
                format!("{name}: {}/{target}", quantity(|values| values.average_value.as_deref()))
            }
            ("Resource" | "ContainerResource", None, _) => {
                let percent = |values: &Values<'_>| values.average_utilization.map(|percent| format!("{percent}%"));
                let current = current.and_then(percent).unwrap_or_else(|| UNKNOWN.to_owned());
                format!("{name}: {current}/{}", percent(target).unwrap_or_else(|| "<auto>".to_owned()))
            }
            ("Pods", Some(target), _) => format!("{}/{target}", quantity(|values| values.average_value.as_deref())),
            (_, Some(target), _) => {
                let current = current.and_then(|values| values.average_value.as_deref()).unwrap_or(UNKNOWN);
                format!("{current}/{target} (avg)")
            }
            ("Object" | "External", None, Some(target)) => {
                format!("{}/{target}", quantity(|values| values.value.as_deref()))
            }
            _ => return Err(Unprintable),
        })
    }
}

fn targets(spec: &Spec<'_>, status: &Status<'_>) -> Result<String, Unprintable> {
    let print = |(at, metric): (usize, &Metric<'_>)| metric.print(status.current_metrics.get(at));
    let all: Vec<_> = spec.metrics.iter().enumerate().map(print).collect::<Result<_, _>>()?;
    Ok(first_ones(&all, SHOWN_MAX, ", "))
}

pub(super) fn print(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(&format!("{}/{}", spec.scale_target_ref.kind, spec.scale_target_ref.name))?;
    row.text_or(&targets(&spec, &status)?, NONE)?;
    row.text(&spec.min_replicas.map_or_else(|| "<unset>".to_owned(), |replicas| replicas.to_string()))?;
    row.number(spec.max_replicas.into());
    row.number(status.current_replicas.into());
    row.age(source.created())
}
