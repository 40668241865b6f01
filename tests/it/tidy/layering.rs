//! Which module may use which: the direction of both flows, requests and data.

use super::{
    assert_none,
    source::{Source, sources},
};

/// Each module with the other modules that it may use. A module that is not listed may use none.
///
/// Read flow: `listener → authn → authz → gateway → serve | forward`. Data flow: `upstream → reflector → store →
/// fanout`. They meet in `cacher`, which owns the store, the reflector and the watchers of a resource.
#[rustfmt::skip]
const MAY_USE: &[(&str, &[&str])] = &[
    // Types only: no IO, no clock.
    ("apimachinery", &[]),
    ("json",         &[]),
    ("certificate",  &[]),
    ("telemetry",    &["apimachinery"]),
    ("lifecycle",    &[]),
    ("config",       &["apimachinery", "certificate", "telemetry"]),
    // Receives the parts of a request from its caller, and does not depend on the gateway.
    ("traces",       &["apimachinery", "telemetry", "lifecycle"]),
    // Independent of HTTP, tasks and watchers.
    ("store",        &["apimachinery", "json"]),
    // Independent of the reader. Bookmarks are kept as their members.
    ("encode",       &["apimachinery", "json", "store"]),
    // Independent of watchers: it notifies a sink. Records bookmarks in the form in which `encode` sends them.
    ("reflector",    &["apimachinery", "json", "telemetry", "store", "encode"]),
    // Independent of the questions and of where they are sent.
    ("memo",         &["telemetry", "lifecycle"]),
    // The accounts of clients are a bounded cache.
    ("fairness",     &["telemetry", "lifecycle", "memo"]),
    // What a watch holds for itself counts for its client.
    ("fanout",       &["apimachinery", "store", "encode", "fairness", "telemetry", "lifecycle"]),
    // The mirror of `listener`, and the only module that opens connections. Knows nothing of the questions.
    ("connector",    &["apimachinery", "telemetry", "lifecycle", "config", "fairness", "memo"]),
    // Implements the trait that `reflector` declares: dependencies point at the domain.
    ("upstream",     &["apimachinery", "telemetry", "lifecycle", "reflector", "connector"]),
    // Asks other gateways for what the reflector would ask upstream for.
    ("peers",        &["apimachinery", "telemetry", "reflector", "connector", "upstream"]),
    // Authentication by reviews upstream. The listener owns what a connection has shown, such as its client
    // certificate.
    ("authn",        &["apimachinery", "certificate", "telemetry", "lifecycle", "config", "upstream", "listener",
                       "fairness", "memo"]),
    ("audit",        &["apimachinery", "telemetry", "lifecycle"]),
    // What was authorized is the scope of the read.
    ("authz",        &["apimachinery", "telemetry", "lifecycle", "store", "upstream", "fairness", "memo"]),
    ("cacher",       &["apimachinery", "telemetry", "lifecycle", "fairness", "memo", "store", "encode", "reflector",
                       "fanout", "authz", "upstream", "peers"]),
    // Parses what upstream sends to a forwarded watch, to continue it from memory.
    ("serve",        &["apimachinery", "json", "telemetry", "fairness", "authz", "store", "encode", "fanout",
                       "cacher"]),
    ("forward",      &["lifecycle", "fairness", "authn", "connector"]),
    // Gets a handler as an argument: it never names `gateway`.
    ("listener",     &["config", "fairness", "lifecycle", "telemetry"]),
    ("gateway",      &["apimachinery", "telemetry", "lifecycle", "listener", "fairness", "authn", "authz", "audit",
                       "cacher", "serve", "forward", "traces", "connector"]),
    // Reads everything that an operator may want to know and changes nothing.
    ("status",       &["telemetry", "fanout", "connector", "upstream", "peers", "cacher", "serve"]),
    // Metrics and status require authorization.
    ("admin",        &["lifecycle", "telemetry", "listener", "fairness", "authn", "authz", "upstream", "status"]),
    // An independent API server: shares with the gateway only the parsing of names and selectors, so that a test of one
    // against the other is meaningful.
    ("sim",          &["apimachinery", "lifecycle"]),
    // A client: it measures what clients see. Its profiles are parsed like the configuration.
    ("load",         &["apimachinery", "telemetry", "config"]),
    // Documentation only.
    ("manual",       &[]),
    // Wiring.
    ("run",          &["admin", "apimachinery", "audit", "authn", "authz", "cacher", "config", "connector", "fairness",
                       "forward", "gateway", "lifecycle", "listener", "peers", "serve", "status", "store", "telemetry",
                       "traces", "upstream"]),
    ("demo",         &["config", "listener", "load", "run", "sim", "status", "telemetry"]),
    // Reads the status of a gateway as an operator does.
    ("status_command", &["config", "status", "telemetry"]),
];

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

/// A use of another module.
struct Use {
    line: usize,
    module: String,
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut problems = Vec::new();
    for source in library() {
        let module = source.module();
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
            problems.push(format!("{}: {module} is not in the table", source.path));
            continue;
        };
        for Use { line, module: used, .. } in uses(&source) {
            if used != module && !allowed.contains(&used.as_str()) {
                problems.push(format!("{}:{line}: {module} may not use {used}", source.path));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_entry_of_the_table_is_needed() {
    let sources = library();
    let is_used = |module: &str, used: &str| {
        let own = sources.iter().filter(|source| source.module() == module);
        own.flat_map(uses).any(|Use { module, .. }| module == used)
    };
    let entries = MAY_USE.iter().flat_map(|(module, allowed)| allowed.iter().map(move |used| (*module, *used)));
    let unused = entries.filter(|(module, used)| !is_used(module, used));
    assert_none(&unused.map(|(module, used)| format!("{module} does not use {used}")).collect::<Vec<_>>());
}

#[test]
fn the_table_allows_no_circles() {
    // Removes modules that use none of the remaining ones until no module is left. That fails only if there is a
    // circle.
    let mut left: Vec<_> = MAY_USE.to_vec();
    while !left.is_empty() {
        let names: Vec<_> = left.iter().map(|(name, _)| *name).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.iter().any(|used| names.contains(used)));
        assert!(left.len() < before, "a circle among {names:?}");
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
            let leaves = line.code.contains("super::super::") && source.path.matches('/').count() == 2;
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
    sources.filter(|source| !source.is_test && !matches!(source.module(), "lib" | "main")).collect()
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
    let source = Source { path: "src/x/y.rs".into(), text: text.into(), is_test: false };
    let found: Vec<_> = uses(&source).into_iter().map(|used| (used.line, used.module)).collect();
    let expected = [(2, "alpha"), (3, "beta"), (5, "gamma"), (6, "epsilon"), (6, "zeta")];
    assert_eq!(found, expected.map(|(line, module)| (line, module.to_owned())));
}
