//! The source files of the crate: the module to which each belongs, and its lines without tests and comments.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// The folders of the members of the workspace, below `src`.
const MEMBERS: [&str; 5] = ["base", "engine", "gateway", "load", "sim"];

/// One Rust file.
#[derive(Debug)]
pub(super) struct Source {
    /// Relative to the root of the crate, for example `src/store/history.rs`.
    pub(super) path: String,
    pub(super) text: String,
    /// Whether the file is compiled for tests only.
    pub(super) is_test: bool,
}

/// A line of code without its comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) code: &'a str,
}

/// All Rust files in a folder of the crate and its subfolders.
pub(super) fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths);
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        sources.push(Source { path, text, is_test: folder != "src" });
    }
    let tests: HashSet<_> = sources.iter().flat_map(Source::test_files).collect();
    for source in &mut sources {
        source.is_test |= tests.contains(&source.path);
    }
    sources
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

impl Source {
    /// The member of the workspace: `engine` for `src/engine/store/history.rs`, and `src` for the files of the binary.
    pub(super) fn member(&self) -> &str {
        let folder = self.path.split('/').nth(1).unwrap_or_default();
        if MEMBERS.contains(&folder) { folder } else { "src" }
    }

    /// The path below the root of the crate: `store/history.rs` for `src/engine/store/history.rs`.
    fn below(&self) -> &str {
        let below = self.path.split_once('/').unwrap().1;
        below.strip_prefix(self.member()).map_or(below, |below| &below[1..])
    }

    /// For example `store` for `src/engine/store/history.rs` and `lifecycle` for `src/base/lifecycle.rs`.
    pub(super) fn module(&self) -> &str {
        // Of these, each is one module for the others.
        if matches!(self.member(), "load" | "sim") {
            return self.member();
        }
        self.below().split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The number of folders between the root of the crate and the file.
    pub(super) fn depth(&self) -> usize {
        self.below().matches('/').count()
    }

    /// Whether this file is the root of its module, so that `super` is the crate.
    pub(super) fn is_module_root(&self) -> bool {
        self.depth() == 0 || self.depth() == 1 && self.path.ends_with("/mod.rs")
    }

    /// The file name without its extension.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The number of lines above the tests.
    pub(super) fn code_lines(&self) -> usize {
        let lines: Vec<_> = self.text.lines().collect();
        let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{');
        lines.windows(2).position(is_tests).unwrap_or(lines.len())
    }

    /// The lines above the tests, without comments.
    pub(super) fn code(&self) -> impl Iterator<Item = Line<'_>> {
        let lines = self.text.lines().take(self.code_lines()).enumerate();
        lines.map(|(at, line)| Line { number: at + 1, code: line.split("//").next().unwrap_or_default() })
    }

    /// The indexes of the lines that begin inside a string literal, unless a backslash continues the line above.
    pub(super) fn rows_of_literals(&self) -> HashSet<usize> {
        let mut rows = HashSet::new();
        let (mut literal, mut is_continued) = (None::<Literal>, false);
        for (at, line) in self.text.lines().enumerate() {
            if literal.is_some() && !is_continued {
                rows.insert(at);
            }
            is_continued = false;
            let mut rest = line;
            while let Some(letter) = rest.chars().next() {
                let mut length = letter.len_utf8();
                if let Some(Literal { closing, has_escapes }) = &literal {
                    if rest.starts_with(closing) {
                        length = closing.len();
                        literal = None;
                    } else if letter == '\\' && *has_escapes {
                        is_continued = rest.len() == 1;
                        length += rest.chars().nth(1).map_or(0, char::len_utf8);
                    }
                } else if rest.starts_with("//") {
                    length = rest.len();
                } else if let Some(quote) = ["'\"'", "'\\\"'"].into_iter().find(|quote| rest.starts_with(quote)) {
                    length = quote.len();
                } else if let Some((opening, opened)) = Literal::opened(rest) {
                    length = opening;
                    literal = Some(opened);
                }
                rest = &rest[length..];
            }
        }
        rows
    }

    /// The files that this file declares as modules.
    pub(super) fn declared_files(&self) -> Vec<String> {
        self.text.lines().filter_map(declared_module).flat_map(|name| self.file_of(name)).collect()
    }

    /// The declared files that are compiled for tests only.
    fn test_files(&self) -> Vec<String> {
        let lines: Vec<_> = self.text.lines().collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
        declared.filter_map(|pair| declared_module(pair[1])).flat_map(|name| self.file_of(name)).collect()
    }

    /// The two possible files of a module that this file declares.
    fn file_of(&self, module: &str) -> [String; 2] {
        let folder = match self.path.rsplit_once('/').unwrap() {
            (folder, "mod.rs" | "lib.rs" | "main.rs") => folder.to_owned(),
            (folder, file) => format!("{folder}/{}", file.trim_end_matches(".rs")),
        };
        [format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")]
    }
}

/// A string literal that has begun.
struct Literal {
    closing: String,
    has_escapes: bool,
}

impl Literal {
    /// The literal that begins here, and the length of what opens it.
    fn opened(code: &str) -> Option<(usize, Self)> {
        if code.starts_with('"') {
            return Some((1, Self { closing: "\"".to_owned(), has_escapes: true }));
        }
        let (hashes, _) = code.strip_prefix('r')?.split_once('"')?;
        let is_raw = hashes.bytes().all(|byte| byte == b'#');
        is_raw.then(|| (hashes.len() + 2, Self { closing: format!("\"{hashes}"), has_escapes: false }))
    }
}

/// The name of the module that this line declares, if the module has its own file.
fn declared_module(line: &str) -> Option<&str> {
    let (visibility, name) = line.strip_suffix(';')?.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

#[test]
fn rows_of_literals_are_found() {
    let text = concat!(
        "const A: &str = \"\n",
        "    row \\\" \\\\\n",
        "    row\n",
        "\";\n",
        "f('\"', r#\"row \"\n",
        "    row \\\n",
        "    row\"#); // a \"\n",
        "format!(\"continued \\\n",
        "    here\");\n",
        "end\n",
    );
    let source = Source { path: "src/engine/x/y.rs".into(), text: text.into(), is_test: false };
    let mut rows: Vec<_> = source.rows_of_literals().into_iter().collect();
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3, 5, 6]);
}
