//! The style of the crate as tests: which module may use which, the length of files and functions, forbidden names, and
//! what the manual has to list.

mod layering;
mod manual;
mod source;

use std::collections::HashSet;

use source::{Source, sources};

/// The maximum number of lines of a file, without its tests.
const CODE_LINES_MAX: usize = 700;
/// The maximum number of lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// The maximum number of columns of a line of code or prose. Rows of data in a literal, and of tables, may be longer: a
/// row reads best on one line.
const COLUMNS_MAX: usize = 120;
/// File and module names that say nothing about the contents.
const BANNED_NAMES: [&str; 5] = ["util", "helper", "common", "misc", "manager"];
/// Notes about unfinished work. Each is written in two halves because this file is checked, too.
const BANNED_WORDS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("to", "do!(")];

/// Fails with one line for each problem.
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

fn all() -> Vec<Source> {
    ["src", "tests", "benches"].into_iter().flat_map(sources).collect()
}

#[test]
fn every_file_has_a_header() {
    let silent = all().into_iter().filter(|source| !source.text.starts_with("//! "));
    assert_none(&silent.map(|source| format!("{}: no //! at the top", source.path)).collect::<Vec<_>>());
}

#[test]
fn every_file_is_part_of_the_crate() {
    let sources = all();
    let declared: HashSet<_> = sources.iter().flat_map(Source::declared_files).collect();
    // Each fuzz target is its own program and so the root of a crate.
    let is_root = |path: &str| {
        path.starts_with("src/") && (path.ends_with("/lib.rs") || path.ends_with("/main.rs"))
            || path.starts_with("tests/") && path.ends_with("/main.rs")
            || path == "benches/parts.rs"
            || path == "benches/end_to_end/main.rs"
            || path.starts_with("tests/fuzz/fuzz_targets/")
    };
    let orphans = sources.iter().filter(|source| !is_root(&source.path) && !declared.contains(&source.path));
    assert_none(&orphans.map(|source| format!("{}: no module declares it", source.path)).collect::<Vec<_>>());
}

#[test]
fn no_file_has_a_meaningless_name() {
    let named = all().into_iter().filter(|source| BANNED_NAMES.iter().any(|name| source.name().starts_with(name)));
    assert_none(&named.map(|source| format!("{}: name it after what it owns", source.path)).collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_to_do() {
    let mut problems = Vec::new();
    for source in all() {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(word) = BANNED_WORDS.iter().find(|word| line.contains(**word)) {
                problems.push(format!("{}:{}: {word}", source.path, at + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn files_are_short() {
    let long = all().into_iter().filter(|source| source.code_lines() > CODE_LINES_MAX);
    assert_none(&long.map(|source| format!("{}: {} lines", source.path, source.code_lines())).collect::<Vec<_>>());
}

#[test]
fn lines_are_short() {
    let mut problems = Vec::new();
    for source in all() {
        let is_row = |line: &str| ["//! |", "/// |"].iter().any(|begins| line.trim_start().starts_with(begins));
        let lines = source.text.lines().enumerate().filter(|(_, line)| !is_row(line));
        let lines = lines.map(|(at, line)| (at, line.chars().count()));
        let mut long = lines.filter(|(_, columns)| *columns > COLUMNS_MAX).peekable();
        let rows = if long.peek().is_some() { source.rows_of_literals() } else { HashSet::new() };
        let long = long.filter(|(at, _)| !rows.contains(at));
        problems.extend(long.map(|(at, columns)| format!("{}:{}: {columns} columns", source.path, at + 1)));
    }
    assert_none(&problems);
}

#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    for source in all() {
        for (line, name, length) in functions(&source.text) {
            if length > FUNCTION_LINES_MAX {
                problems.push(format!("{}:{line}: {name} has {length} lines", source.path));
            }
        }
    }
    assert_none(&problems);
}

/// The line, the name and the length of each function. Relies on the layout of rustfmt.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some(name) = function_name(code) else { continue };
        if line.ends_with(['}', ';']) {
            continue;
        }
        let closes = |line: &&&str| {
            line.strip_prefix(indent).is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let length = lines[start..].iter().take_while(|line| !closes(line)).count() + 1;
        functions.push((start + 1, name, length));
    }
    functions
}

/// The name of the function that starts on this line; `None` if no function does.
fn function_name(code: &str) -> Option<&str> {
    let (before, after) = code.split_once("fn ")?;
    let is_qualifier =
        |word: &str| matches!(word, "pub" | "async" | "const" | "unsafe" | "extern") || word.starts_with("pub(");
    if !before.split_whitespace().all(is_qualifier) {
        return None;
    }
    after.split(['(', '<']).next()
}

#[test]
fn lengths_of_functions_are_read_from_their_layout() {
    let text = concat!(
        "fn one() {}\n",
        "impl X {\n",
        "    pub(super) async fn three(\n",
        "        a: A,\n",
        "    ) {\n",
        "        if a {\n",
        "        }\n",
        "    }\n",
        "    fn declared(\n",
        "    );\n",
        "}\n",
    );
    assert_eq!(functions(text), [(3, "three", 6), (9, "declared", 2)]);
}
