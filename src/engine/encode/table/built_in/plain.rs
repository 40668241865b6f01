//! Resources whose cells are plain values or counts.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

use super::{AGE, Heading, Release, Row, Source, Unprintable};

pub(super) const CONFIG_MAPS: &[Heading] = &[("Data", "string", 0), AGE];
pub(super) const NAMESPACES: &[Heading] = &[("Status", "string", 0), AGE];
pub(super) const SECRETS: &[Heading] = &[("Type", "string", 0), ("Data", "string", 0), AGE];

pub(super) fn service_accounts(release: Release) -> &'static [Heading] {
    match release {
        Release::V1_20 => &[("Secrets", "string", 0), AGE],
        Release::V1_36 => &[AGE],
    }
}

pub(super) fn config_map(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    row.count(source.count("data")? + source.count("binaryData")?);
    row.age(source.created())
}

pub(super) fn namespace(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status<'a> {
        #[serde(borrow)]
        phase: Cow<'a, str>,
    }
    let Status { phase } = source.read("status")?;
    row.text(&phase)?;
    row.age(source.created())
}

pub(super) fn secret(source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    row.text(&source.read::<String>("type")?)?;
    row.count(source.count("data")?);
    row.age(source.created())
}

pub(super) fn service_account(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    if release == Release::V1_20 {
        row.count(source.read::<Vec<IgnoredAny>>("secrets")?.len());
    }
    row.age(source.created())
}
