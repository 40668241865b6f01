//! Persistent volumes and the claims of them.

use std::borrow::Cow;

use serde::Deserialize;

use super::{AGE, Heading, Release, Row, Source, Unprintable, source::or_default};

const CAPACITY: Heading = ("Capacity", "string", 0);
const ACCESS_MODES: Heading = ("Access Modes", "string", 0);
const STATUS: Heading = ("Status", "string", 0);
const STORAGE_CLASS: Heading = ("StorageClass", "string", 0);
const ATTRIBUTES_CLASS: Heading = ("VolumeAttributesClass", "string", 0);
const VOLUME_MODE: Heading = ("VolumeMode", "string", 1);
const UNSET: &str = "<unset>";
/// The annotation that was the class before the field, and still precedes it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Access modes in the order and the words in which they are printed; others are left out. 1.20 does not know the last.
const MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

pub(super) fn volume_headings(release: Release) -> &'static [Heading] {
    const POLICY: Heading = ("Reclaim Policy", "string", 0);
    const CLAIM: Heading = ("Claim", "string", 0);
    const REASON: Heading = ("Reason", "string", 0);
    match release {
        Release::V1_20 => &[CAPACITY, ACCESS_MODES, POLICY, STATUS, CLAIM, STORAGE_CLASS, REASON, AGE, VOLUME_MODE],
        Release::V1_36 => {
            &[CAPACITY, ACCESS_MODES, POLICY, STATUS, CLAIM, STORAGE_CLASS, ATTRIBUTES_CLASS, REASON, AGE, VOLUME_MODE]
        }
    }
}

pub(super) fn claim_headings(release: Release) -> &'static [Heading] {
    const VOLUME: Heading = ("Volume", "string", 0);
    match release {
        Release::V1_20 => &[STATUS, VOLUME, CAPACITY, ACCESS_MODES, STORAGE_CLASS, AGE, VOLUME_MODE],
        Release::V1_36 => &[STATUS, VOLUME, CAPACITY, ACCESS_MODES, STORAGE_CLASS, ATTRIBUTES_CLASS, AGE, VOLUME_MODE],
    }
}

/// What volumes and claims have in common.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow, deserialize_with = "or_default")]
    access_modes: Vec<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "or_default")]
    storage_class_name: Cow<'a, str>,
    #[serde(borrow)]
    volume_attributes_class_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    volume_mode: Option<Cow<'a, str>>,
    /// Of a volume.
    #[serde(borrow)]
    capacity: Storage<'a>,
    #[serde(borrow)]
    persistent_volume_reclaim_policy: Cow<'a, str>,
    #[serde(borrow)]
    claim_ref: Option<ClaimRef<'a>>,
    /// Of a claim.
    #[serde(borrow)]
    volume_name: Cow<'a, str>,
}

/// A quantity. Upstream writes the ones of its objects as it prints them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Storage<'a> {
    #[serde(borrow)]
    storage: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "or_default")]
    access_modes: Vec<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "or_default")]
    capacity: Storage<'a>,
}

impl Storage<'_> {
    fn print(&self) -> &str {
        self.storage.as_deref().unwrap_or("0")
    }
}

impl Spec<'_> {
    /// The storage class, and from 1.36 that of attributes.
    fn put_classes(&self, release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
        let annotated = source.annotation(CLASS_ANNOTATION)?;
        row.text(annotated.as_deref().unwrap_or(&self.storage_class_name))?;
        match release {
            Release::V1_20 => Ok(()),
            Release::V1_36 => row.text(self.volume_attributes_class_name.as_deref().unwrap_or(UNSET)),
        }
    }
}

fn modes(modes: &[Cow<'_, str>], release: Release) -> String {
    let known = match release {
        Release::V1_20 => &MODES[..3],
        Release::V1_36 => &MODES[..],
    };
    let words = known.iter().filter(|(mode, _)| modes.iter().any(|given| given == mode)).map(|(_, word)| *word);
    words.collect::<Vec<_>>().join(",")
}

fn phase<'a>(source: &Source<'_>, status: &'a Status<'_>) -> &'a str {
    if source.is_deleted() { "Terminating" } else { &status.phase }
}

pub(super) fn volume(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(spec.capacity.print())?;
    row.text(&modes(&spec.access_modes, release))?;
    row.text(&spec.persistent_volume_reclaim_policy)?;
    row.text(phase(source, &status))?;
    row.text(&spec.claim_ref.as_ref().map_or_else(String::new, |claim| format!("{}/{}", claim.namespace, claim.name)))?;
    spec.put_classes(release, source, row)?;
    row.text(&status.reason)?;
    row.age(source.created())?;
    row.text(spec.volume_mode.as_deref().unwrap_or(UNSET))
}

pub(super) fn claim(release: Release, source: &Source<'_>, row: &mut Row<'_>) -> Result<(), Unprintable> {
    let (spec, status): (Spec<'_>, Status<'_>) = (source.read("spec")?, source.read("status")?);
    row.text(phase(source, &status))?;
    row.text(&spec.volume_name)?;
    if spec.volume_name.is_empty() {
        row.text("")?;
        row.text("")?;
    } else {
        row.text(status.capacity.print())?;
        row.text(&modes(&status.access_modes, release))?;
    }
    spec.put_classes(release, source, row)?;
    row.age(source.created())?;
    row.text(spec.volume_mode.as_deref().unwrap_or(UNSET))
}
