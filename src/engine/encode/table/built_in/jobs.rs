//! Jobs and cron jobs.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    AGE, Heading, NONE, Release, Row, Source, Unprintable,
    condition::{Condition, first_is_true},
    selector::LabelSelector,
    source::or_default,
    workloads::{CONTAINERS, IMAGES, SELECTOR, Template},
};
use crate::encode::table::cell::moment;
use base::apimachinery::age;

/// Cron jobs of `batch/v1`, which 1.20 does not have.
pub(super) const CRON_JOBS: &[Heading] = &[
    ("Schedule", "string", 0),
    ("Timezone", "string", 0),
    ("Suspend", "boolean", 0),
    ("Active", "integer", 0),
    ("Last Schedule", "string", 0),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn headings(release: Release) -> &'static [Heading] {
    const COMPLETIONS: Heading = ("Completions", "string", 0);
    const DURATION: Heading = ("Duration", "string", 0);
    match release {
        Release::V1_20 => &[COMPLETIONS, DURATION, AGE, CONTAINERS, IMAGES, SELECTOR],
        Release::V1_36 => &[("Status", "string", 0), COMPLETIONS, DURATION, AGE, CONTAINERS, IMAGES, SELECTOR],
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    completions: Option<i32>,
    parallelism: Option<i32>,
    #[serde(borrow, deserialize_with = "or_default")]
    selector: LabelSelector<'a>,
    #[serde(borrow)]
    template: Template<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
    // Not `or_default`: null is Go's zero time, which is left to upstream.
    #[serde(borrow)]
    start_time: Cow<'a, str>,
    #[serde(borrow)]
    completion_time: Cow<'a, str>,
    succeeded: i32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CronSpec<'a> {
    #[serde(borrow)]
    schedule: Cow<'a, str>,
    #[serde(borrow)]
    time_zone: Option<Cow<'a, str>>,
    suspend: Option<bool>,
    #[serde(borrow)]
    job_template: JobTemplate<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobTemplate<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CronStatus<'a> {
    #[serde(deserialize_with = "or_default")]
    active: Vec<IgnoredAny>,
    /// Null is Go's zero time, and not the same as none.
    #[serde(borrow, deserialize_with = "some_or_default")]
    last_schedule_time: Option<Cow<'a, str>>,
}

fn some_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    or_default(deserializer).map(Some)
}

impl Status<'_> {
    fn word(&self, is_deleted: bool) -> &'static str {
        let conditions = [
            ("Complete", "Complete"),
            ("Failed", "Failed"),
            ("", "Terminating"),
            ("Suspended", "Suspended"),
            ("FailureTarget", "FailureTarget"),
            ("SuccessCriteriaMet", "SuccessCriteriaMet"),
        ];
        let is = |kind: &str| if kind.is_empty() { is_deleted } else { first_is_true(&self.conditions, kind) };
        conditions.into_iter().find(|(kind, _)| is(kind)).map_or("Running", |(_, word)| word)
    }
}

pub(super) fn print(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    if release >= Release::V1_36 {
        row.text(status.word(source.is_deleted()))?;
    }
    let succeeded = status.succeeded;
    row.text(&match (spec.completions, spec.parallelism) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism @ 2..)) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    })?;
    row.text(&match (&*status.start_time, &*status.completion_time) {
        ("", _) => String::new(),
        (start, "") => row.age_since(moment(start)?)?,
        (start, end) => age(moment(start)?, moment(end)?).ok_or(Unprintable)?,
    })?;
    row.age(source.created())?;
    spec.template.put(row)?;
    row.text_or(&spec.selector.print()?, NONE)
}

pub(super) fn cron_job(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (CronSpec<'_>, CronStatus<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(&spec.schedule)?;
    row.text(spec.time_zone.as_deref().unwrap_or(NONE))?;
    row.text(match spec.suspend {
        None => "<unset>",
        Some(false) => "False",
        Some(true) => "True",
    })?;
    row.count(status.active.len());
    match &status.last_schedule_time {
        None => row.text(NONE)?,
        Some(time) => row.age(time)?,
    }
    row.age(source.created())?;
    let job = spec.job_template.spec;
    job.template.put(row)?;
    row.text_or(&job.selector.print()?, NONE)
}
