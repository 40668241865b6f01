//! The manual lists what the code has: limits, metrics, reasons, fields.

use std::{fs, path::Path};

use kube_fanout::{
    config::{Config, Overrides},
    telemetry::METRICS,
};

use super::{COLUMNS_MAX, assert_none, source::sources};

const OPERATIONS: &str = include_str!("../../../src/manual/operations.md");
const READ_PATH: &str = include_str!("../../../src/manual/read_path.md");
const REQUEST_PATH: &str = include_str!("../../../src/manual/request_path.md");
const STATUS: &str = include_str!("../../../src/manual/status.md");
const TOPOLOGIES: &str = include_str!("../../../src/manual/topologies.md");

const METRIC_ROWS: [&str; 2] = ["| `kube_fanout_", "| `process_"];

/// The texts that `as_str` returns in a source file.
fn words(source: &str) -> impl Iterator<Item = &str> {
    let quoted = source.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \""));
    let quoted = quoted.filter_map(|(_, rest)| rest.split_once('"')).map(|(word, _)| word);
    quoted.filter(|word| !word.contains(' '))
}

fn missing<'a>(words: impl Iterator<Item = &'a str>, chapter: &str) -> Vec<&'a str> {
    words.filter(|word| !chapter.contains(&format!("`{word}`"))).collect()
}

#[test]
fn every_metric_is_listed_with_its_labels() {
    for metric in METRICS {
        let row = format!("| `{}` | {} |", metric.name, metric.labels.join(", ")).replace("|  |", "| |");
        assert!(OPERATIONS.contains(&row), "{row}");
    }
    let listed = OPERATIONS.lines().filter(|line| METRIC_ROWS.iter().any(|begins| line.starts_with(begins))).count();
    assert_eq!(listed, METRICS.len());
}

#[test]
fn every_reason_and_cause_is_listed() {
    let reasons: Vec<_> = words(include_str!("../../../src/gateway/serve/reason.rs")).collect();
    assert!(reasons.len() > 20, "{reasons:?}");
    assert_eq!(missing(reasons.into_iter(), REQUEST_PATH), [""; 0]);
    for (source, chapter) in [
        (include_str!("../../../src/gateway/connector/error.rs"), REQUEST_PATH),
        (include_str!("../../../src/gateway/forward/error.rs"), REQUEST_PATH),
        (include_str!("../../../src/gateway/handler/refusal.rs"), REQUEST_PATH),
        (include_str!("../../../src/gateway/listener/well_formed/mod.rs"), REQUEST_PATH),
        (include_str!("../../../src/engine/fanout/end.rs"), OPERATIONS),
        (include_str!("../../../src/engine/reflector/failure.rs"), OPERATIONS),
        (include_str!("../../../src/base/telemetry/connection_metrics.rs"), OPERATIONS),
        (include_str!("../../../src/base/telemetry/access_log.rs"), OPERATIONS),
    ] {
        assert!(words(source).count() > 2);
        assert_eq!(missing(words(source), chapter), [""; 0]);
    }
}

#[test]
fn every_kind_of_trouble_is_listed() {
    let kinds: Vec<_> = words(include_str!("../../../src/gateway/connector/health.rs")).collect();
    assert!(kinds.len() > 4, "{kinds:?}");
    assert_eq!(missing(kinds.into_iter(), STATUS), [""; 0]);
}

#[test]
fn every_limit_that_is_counted_is_listed() {
    let mut limits = Vec::new();
    for source in sources("src") {
        for before in ["limit_reached(\"", "limit: \"", "Limits { requests: \"", "upgrades: \""] {
            let named = source.text.split(before).skip(1).filter_map(|rest| rest.split_once('"'));
            limits.extend(named.map(|(limit, _)| limit.to_owned()));
        }
    }
    assert!(limits.len() > 8, "{limits:?}");
    assert_eq!(missing(limits.iter().map(String::as_str), OPERATIONS), [""; 0]);
}

#[test]
fn every_rule_that_the_code_refers_to_is_in_the_manual() {
    let mut missing = Vec::new();
    for source in ["src", "tests"].into_iter().flat_map(sources) {
        for rest in source.text.split("read-path ").skip(1) {
            let number: String = rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
            let heading = match number.trim_end_matches('.') {
                "" => continue,
                section if section.contains('.') => format!("\n### {section} "),
                chapter => format!("\n## {chapter} "),
            };
            if !READ_PATH.contains(&heading) {
                missing.push(format!("{}: read-path {number}", source.path));
            }
        }
    }
    assert_none(&missing);
}

#[test]
fn the_configuration_of_the_sidecar_is_valid() {
    let lines = TOPOLOGIES.lines().skip_while(|line| *line != "  gateway.yaml: |").skip(1);
    let text: Vec<_> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    assert!(text.len() > 3, "{text:?}");
    Config::parse(&text.join("\n"), &Overrides::default()).expect("the configuration is valid");
}

#[test]
fn lines_of_prose_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["", "src/manual", "helm", "benches", "tests/data/golden", "tests/fuzz", "tests/simulation"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let mut problems = Vec::new();
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let (text, mut is_code) = (fs::read_to_string(&path).unwrap(), false);
        for (at, line) in text.lines().enumerate() {
            let (fence, columns) = (line.trim_start().starts_with("```"), line.chars().count());
            is_code ^= fence;
            if !is_code && !line.starts_with('|') && columns > COLUMNS_MAX {
                problems.push(format!("{}:{}: {columns} columns", path.display(), at + 1));
            }
        }
    }
    assert_none(&problems);
}
