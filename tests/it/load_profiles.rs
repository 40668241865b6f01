//! The profiles of `config/load`, and the rows of `.ci/scale` that measure with them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use kube_fanout::load::{BUILT_IN, Profile};

const SCALE: &str = include_str!("../../.ci/scale");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The files in a folder, without those of its folders.
fn files(folder: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
}

/// The names of the profiles in a folder.
fn names(folder: &str) -> BTreeSet<String> {
    files(folder).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The first word after each `before` in a text.
fn words_after(text: &str, before: &str) -> BTreeSet<String> {
    let rest = text.split(before).skip(1);
    rest.map(|rest| rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next().unwrap().to_owned())
        .collect()
}

/// The rows of `.ci/scale`: the labels of its last `case`.
fn rows() -> BTreeSet<String> {
    let (_, cases) = SCALE.rsplit_once("case $row in").unwrap();
    let labels = cases.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(')'));
    labels
        .filter(|label| !label.starts_with([' ', '*']))
        .flat_map(|label| label.split(" | "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_profile_of_the_project_is_valid() {
    for path in files("config/load").union(&files("config/load/scale")) {
        if let Err(error) = Profile::load(path.to_str().unwrap()) {
            panic!("{path:?}: {error:?}");
        }
    }
    assert_eq!(BUILT_IN.map(|(name, _)| name.to_owned()).into_iter().collect::<BTreeSet<_>>(), names("config/load"));
}

#[test]
fn every_profile_of_a_row_exists_and_every_other_has_a_row() {
    let mut named = words_after(SCALE, "\n    profile ");
    named.append(&mut words_after(SCALE, "\n  profile "));
    assert_eq!(named, names("config/load/scale"));
}

#[test]
fn every_row_that_the_manual_names_exists_and_is_described() {
    let rows = rows();
    assert!(rows.contains("watchers"), "{rows:?}");
    assert_eq!(words_after(SCALE, "\n#   .ci/scale "), rows);
    for name in ["README.md", "src/manual/figures.md", "src/manual/sizing.md", "src/manual/load.md"] {
        let text = fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        let named: BTreeSet<_> = words_after(&text, ".ci/scale ").into_iter().filter(|row| !row.is_empty()).collect();
        assert_eq!(named.difference(&rows).collect::<Vec<_>>(), [&""; 0], "{name}");
    }
}
