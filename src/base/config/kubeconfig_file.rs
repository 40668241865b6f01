//! Reads a kubeconfig. The errors of its parser quote lines and values of the file, and some of them are credentials:
//! those here say where the fault is, and quote nothing.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use kube_client::config::{Kubeconfig, KubeconfigError};

use crate::config::{KIND, Location, UpstreamConfigError, location::Locations};

/// Why the content of a file is not a kubeconfig, without any of the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MalformedKubeconfig {
    path: PathBuf,
    /// `None` if the parser does not say it.
    at: Option<Location>,
    found: String,
}

/// Reads one file.
///
/// # Errors
/// It cannot be read, or is not a kubeconfig.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, UpstreamConfigError> {
    match Kubeconfig::read_from(path) {
        Err(KubeconfigError::Parse(error)) => {
            Err(UpstreamConfigError::Malformed(MalformedKubeconfig::new(path, &error)))
        }
        read => Ok(read?),
    }
}

/// Reads a file that is named, which therefore has to be a kubeconfig; in kubectl's own list, it may be empty.
///
/// # Errors
/// It cannot be read, or is not a kubeconfig.
pub(super) fn read_named(path: &Path) -> Result<Kubeconfig, UpstreamConfigError> {
    let kubeconfig = read(path)?;
    let found = match kubeconfig.kind.as_deref() {
        Some(KIND) => "this is a configuration of the gateway, not a kubeconfig",
        None if fs::read_to_string(path).is_ok_and(|text| text.trim().is_empty()) => "the file is empty",
        _ => return Ok(kubeconfig),
    };
    Err(UpstreamConfigError::Malformed(MalformedKubeconfig {
        path: path.to_owned(),
        at: None,
        found: found.to_owned(),
    }))
}

impl MalformedKubeconfig {
    fn new(path: &Path, error: &serde_saphyr::Error) -> Self {
        // The same content, unless the file has just been replaced.
        let text = fs::read_to_string(path).unwrap_or_default();
        let path = path.to_owned();
        let repeated = Locations::of(&text).into_repeated();
        if let Some(fault) = repeated.map_or_else(Some, |repeated| repeated.into_iter().next()) {
            let found = if fault.field.is_empty() { fault.found } else { format!("a field is {}", fault.found) };
            return Self { path, at: fault.at, found };
        }
        let at = error.location().and_then(|at| {
            let [line, column] = [at.line(), at.column()].map(|number| usize::try_from(number).unwrap_or_default());
            (line > 0).then_some(Location { line, column })
        });
        Self { path, at, found: words(error.without_snippet()) }
    }
}

/// What a parser's error says, in fixed words and names of a kubeconfig's fields.
fn words(error: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::SerdeMissingField { field, .. } = error {
        return format!("the field `{field}` is missing");
    }
    let (error, other) = (error.to_string(), "a value is not of the type that a kubeconfig has here");
    SHAPES.iter().find(|(words, _)| error.contains(words)).map_or(other, |(_, found)| found).to_owned()
}

/// The parser's words for a value of the wrong shape, and ours, the more special first.
const SHAPES: [(&str, &str); 5] = [
    ("expected sequence start", "this is not a list"),
    ("expected mapping start", "this has no fields"),
    ("expected struct", "this has no fields"),
    ("invalid type: sequence", "a list was given"),
    ("invalid type: map", "a mapping was given"),
];

impl fmt::Display for MalformedKubeconfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.path.display())?;
        if let Some(at) = self.at {
            write!(formatter, "{at}: ")?;
        }
        formatter.write_str(&self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Chain;

    const SECRET: &str = "SUPERSECRETTOKEN";

    /// The error for a kubeconfig with its causes, as `{}` and as `{:?}`.
    fn told(text: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.kc");
        fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        let shown = Chain(&error).to_string();
        (shown.replace(path.to_str().unwrap(), "x.kc"), format!("{error:?}"))
    }

    #[test]
    fn a_file_that_is_no_kubeconfig_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.kc");
        for (text, expected) in [
            ("", Some("the file is empty")),
            ("\n", Some("the file is empty")),
            (
                "kind: GatewayConfiguration\nupstream: {kubeconfig: /k}\n",
                Some("this is a configuration of the gateway, not a kubeconfig"),
            ),
            ("kind: Config\n", None),
        ] {
            fs::write(&path, text).unwrap();
            let expected = expected.map(|expected| format!("{}: {expected}", path.display()));
            assert_eq!(read_named(&path).err().map(|error| error.to_string()), expected);
            assert!(read(&path).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn an_error_has_its_position_and_no_content_of_the_file() {
        let user = format!("users:\n- name: u\n  user:\n    token: {SECRET}\n");
        for (text, expected) in [
            (format!("{user}   client-key-data: x\n"), "x.kc: line 5, column 4: this line's indentation"),
            (format!("{user}\tclient-key-data: x\n"), "x.kc: line 4, column 12: while scanning"),
            (
                format!("{user}    token: {SECRET}2\n"),
                "x.kc: line 5, column 5: a field is given twice, first in line 4",
            ),
            (format!("users:\n- name: u\n  user: {SECRET}\n"), "x.kc: line 3, column "),
            (format!("users: {SECRET}\n"), "x.kc: line 1, column 8: this is not a list"),
            (format!("users:\n- name: u\n  user:\n    token: [{SECRET}]\n"), "x.kc: line 4, column "),
            (format!("users:\n- user: {{token: {SECRET}}}\n"), "the field `name` is missing"),
            (
                format!("clusters:\n- name: c\n  cluster: {{insecure-skip-tls-verify: {SECRET}}}\n"),
                "a value is not of the type that a kubeconfig has here",
            ),
            (format!("users:\n- name: u\n  user: {{token: \"{SECRET}\n"), "x.kc: line 3, column "),
            (format!("users:\n- name: u\n  user: {{token: *{SECRET}}}\n"), "x.kc: line 3, column "),
            (format!("{SECRET}\n"), "x.kc: line 1, column "),
        ] {
            let (shown, debugged) = told(&text);
            assert!(shown.contains(expected), "{text}\n{shown}");
            assert!(
                !shown.contains(SECRET) && !debugged.contains(SECRET) && !shown.contains('\n'),
                "{text}\n{shown}\n{debugged}"
            );
        }
    }
}
