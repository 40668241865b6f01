//! What the compiler does not keep: members of the workspace depend only on lower ones; modules within one form no
//! circles, and some names are for some modules.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    assert_none,
    source::{Source, sources},
};

/// The members that are cut into modules which other modules use.
const MEMBERS: [&str; 3] = ["base", "engine", "gateway"];

/// Names that only some modules may use, wherever they are declared.
#[rustfmt::skip]
const ONLY_IN: &[(&str, &[&str])] = &[
    // Of the gateway, nothing but the connector dials, and traces a collector; `load` is a client.
    ("hyper_util::client", &["connector"]),
    ("TcpStream::connect", &["connector", "traces", "load"]),
    ("kube_client::",      &["connector", "config", "run", "demo", "status_command", "load"]),
    // What is sent with them is sent as the gateway: never a client's request.
    ("own_requests()",     &["connector", "upstream"]),
    // The scope of what is read comes from the permit, and is attached to the store in one place; `authz` checks it.
    ("View::new",          &["cacher", "authz"]),
    // Metrics are declared in one place.
    ("::metrics::",        &["telemetry"]),
    ("metrics::counter",   &["telemetry"]),
];

/// Crates that some modules may not name: parsing, bytes and state do no IO.
#[rustfmt::skip]
const NOT_IN: &[(&str, &[&str])] = &[
    ("tokio",     &["apimachinery", "encode"]),
    ("hyper",     &["apimachinery", "encode", "store", "fanout", "reflector", "authz", "config"]),
    ("http_body", &["apimachinery", "encode", "store", "fanout", "reflector", "authn", "authz"]),
];

/// A use of another module of the same member.
struct Use {
    line: usize,
    module: String,
}

#[test]
fn the_modules_of_a_member_form_no_circles() {
    for member in MEMBERS {
        let mut left: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for source in library().iter().filter(|source| source.member() == member) {
            let used = left.entry(source.module().to_owned()).or_default();
            used.extend(uses(source).into_iter().map(|used| used.module).filter(|used| used != source.module()));
        }
        // Removes modules that use none of the remaining ones until no module is left. That fails only if there is a
        // circle.
        while !left.is_empty() {
            let names: Vec<_> = left.keys().cloned().collect();
            left.retain(|_, uses| uses.iter().any(|used| names.contains(used)));
            assert!(left.len() < names.len(), "{member}: a circle among {names:?}");
        }
    }
}

#[test]
fn restricted_names_are_used_only_where_allowed() {
    let mut problems = Vec::new();
    for source in library() {
        let module = source.module();
        for line in source.code() {
            let only = ONLY_IN.iter().filter(|(name, modules)| line.code.contains(name) && !modules.contains(&module));
            let not = NOT_IN.iter().filter(|(name, modules)| names_crate(line.code, name) && modules.contains(&module));
            for (name, _) in only.chain(not) {
                problems.push(format!("{}:{}: {module} may not name {name}", source.path, line.number));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn imports_name_modules_from_the_root() {
    let mut problems = Vec::new();
    for source in library() {
        for line in source.code() {
            let leaves = line.code.contains("super::super::") && source.depth() == 1;
            let is_crate = source.is_module_root() && line.code.contains("super::");
            if leaves || is_crate {
                problems.push(format!("{}:{}: say crate:: where super:: is the crate", source.path, line.number));
            }
        }
    }
    assert_none(&problems);
}

/// The files of the library without wiring and tests.
fn library() -> Vec<Source> {
    let sources = sources("src").into_iter();
    let is_wiring = |source: &Source| matches!(source.module(), "lib" | "main" | "run" | "demo" | "command_line");
    sources.filter(|source| !source.is_test && !is_wiring(source)).collect()
}

/// The uses of other modules in the code of a file.
fn uses(source: &Source) -> Vec<Use> {
    let mut uses = Vec::new();
    // The depth of braces after `use crate::` at the start of a line; 0 outside of an import.
    let mut depth = 0;
    for line in source.code() {
        let mut add = |text: &str| {
            let module: String = text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            if module.chars().next().is_some_and(char::is_lowercase) {
                uses.push(Use { line: line.number, module });
            }
        };
        if depth > 0 {
            for module in at_the_root(line.code, &mut depth) {
                add(module);
            }
        }
        for (at, root) in line.code.match_indices("crate::") {
            match line.code[at + root.len()..].strip_prefix('{') {
                None => add(&line.code[at + root.len()..]),
                Some(names) => {
                    depth = 1;
                    for module in at_the_root(names, &mut depth) {
                        add(module);
                    }
                }
            }
        }
    }
    uses
}

/// The names in a piece of an import's braces that are modules of the root. `depth` becomes the depth at the end of the
/// piece.
fn at_the_root<'a>(text: &'a str, depth: &mut usize) -> Vec<&'a str> {
    let (mut names, mut expected) = (Vec::new(), *depth == 1);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => *depth += 1,
            '}' => *depth = depth.saturating_sub(1),
            ',' => expected = *depth == 1,
            _ if expected && *depth == 1 && !letter.is_whitespace() => {
                names.push(&text[at..]);
                expected = false;
            }
            _ => {}
        }
    }
    names
}

/// Whether the line names this crate, as opposed to a crate whose name ends in the same way.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(&format!("{name}::"))
        .any(|(at, _)| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':'))
}

#[test]
fn uses_are_found_in_paths_and_in_braces() {
    let text = concat!(
        "use crate::{\n",
        "    alpha::{A, b},\n",
        "    beta,\n",
        "};\n",
        "fn f() -> crate::gamma::C {} // crate::delta\n",
        "use crate::{epsilon::E, zeta};\n",
    );
    let source = Source { path: "src/engine/x/y.rs".into(), text: text.into(), is_test: false };
    let found: Vec<_> = uses(&source).into_iter().map(|used| (used.line, used.module)).collect();
    let expected = [(2, "alpha"), (3, "beta"), (5, "gamma"), (6, "epsilon"), (6, "zeta")];
    assert_eq!(found, expected.map(|(line, module)| (line, module.to_owned())));
}
