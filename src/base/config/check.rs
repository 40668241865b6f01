//! Checks of single values, shared by the rules for the configuration and for load profiles: a value from a field, or a
//! problem.

use std::{
    net::{Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::config::raw::{Scalar, Unknown};
use crate::config::{Address, Problem, Redacted, quantity};

/// Collects problems. An invalid value is replaced by a stand-in, so that the rest can be checked.
#[derive(Debug, Default)]
pub struct Check {
    pub problems: Vec<Problem>,
    /// Whether `clients.mode` is valid. If not, values that depend on it are not reported.
    pub(super) mode_is_known: bool,
}

impl Check {
    pub(super) fn path(&mut self, field: &str, raw: Option<&Scalar>) -> PathBuf {
        if raw.is_none_or(|path| path.0.is_empty()) {
            self.problem(field, "missing", "the path of a PEM file");
        }
        raw.map(|path| self.whole(field, &path.0)).unwrap_or_default()
    }

    /// The path of a file that need not be named.
    pub(super) fn optional_path(&mut self, field: &str, raw: Option<&Scalar>) -> Option<PathBuf> {
        self.text(field, raw).map(|path| self.whole(field, &path))
    }

    fn whole(&mut self, field: &str, path: &str) -> PathBuf {
        if is_of_home(path) {
            self.problem(field, &given(path), "a path without ~, which only a shell replaces by the home directory");
        }
        PathBuf::from(path)
    }

    pub fn text(&mut self, field: &str, raw: Option<&Scalar>) -> Option<String> {
        let text = raw?.0.clone();
        if text.is_empty() {
            self.problem(field, &given(&text), "a non-empty text, or remove this field");
        }
        Some(text)
    }

    /// Non-empty texts without duplicates.
    pub fn texts(&mut self, field: &str, raw: Option<&[Scalar]>) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for (index, Scalar(text)) in raw.unwrap_or_default().iter().enumerate() {
            if text.is_empty() || texts.contains(text) {
                self.problem(&format!("{field}[{index}]"), &given(text), "non-empty texts without duplicates");
            }
            texts.push(text.clone());
        }
        texts
    }

    pub fn number(
        &mut self,
        field: &str,
        raw: Option<&Scalar>,
        default: usize,
        range: &RangeInclusive<usize>,
    ) -> usize {
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let parse = |text: &str| text.parse().ok().filter(|number| range.contains(number));
        self.parsed(field, raw, default, &allowed, parse)
    }

    pub(super) fn address(&mut self, field: &str, text: &str) -> Address {
        text.parse().unwrap_or_else(|_| {
            self.problem(field, &given(text), Address::ALLOWED);
            stand_in_address()
        })
    }

    pub fn duration(
        &mut self,
        field: &str,
        raw: Option<&Scalar>,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let [from, to] = [range.start(), range.end()].map(|bound| quantity::duration_text(*bound));
        let allowed = format!("{}, from {from} to {to}", quantity::DURATION);
        let parse = |text: &str| quantity::duration(text).filter(|duration| range.contains(duration));
        self.parsed(field, raw, default, &allowed, parse)
    }

    pub fn word<T: Copy>(&mut self, field: &str, raw: Option<&Scalar>, default: T, words: &[(&str, T)]) -> T {
        let allowed = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let parse = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.parsed(field, raw, default, &allowed, parse)
    }

    pub fn parsed<T>(
        &mut self,
        field: &str,
        raw: Option<&Scalar>,
        default: T,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        let Some(raw) = raw else { return default };
        parse(&raw.0).unwrap_or_else(|| {
            self.problem(field, &given(&raw.0), allowed);
            default
        })
    }

    pub fn exactly(&mut self, field: &str, raw: Option<&Scalar>, allowed: &str) {
        match raw {
            Some(raw) if raw.0 == allowed => {}
            Some(raw) => self.problem(field, &given(&raw.0), allowed),
            None => self.problem(field, "missing", allowed),
        }
    }

    pub fn unknown(&mut self, parent: &str, unknown: &Unknown, known: &[&str]) {
        for field in unknown.keys() {
            let field = if parent.is_empty() { field.clone() } else { format!("{parent}.{field}") };
            self.problem(&field, "no such field", &known.join(", "));
        }
    }

    pub fn problem(&mut self, field: &str, found: &str, allowed: &str) {
        self.problems.push(Problem::new(field, found, allowed));
    }
}

/// Whether a shell would replace the beginning of the path: `~/file`, `~user/file`.
pub(super) fn is_of_home(path: &str) -> bool {
    path.starts_with('~')
}

/// What to say of a path that no shell has replaced, as with `--kubeconfig=~/x`: kubectl takes it as it is, too.
pub fn unexpanded(path: &Path) -> &'static str {
    let is_of_home = path.to_str().is_some_and(is_of_home);
    if is_of_home { " (~ is only replaced by a shell, at the beginning of a word: write the whole path)" } else { "" }
}

/// A value of a field, without the password of a URL: it goes into logs.
pub fn given(text: &str) -> String {
    let may_have_password = text.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'));
    let shown = if may_have_password { Redacted::text(text).to_string() } else { text.to_owned() };
    format!("{shown:?} was given")
}

/// A local address with any port, which causes no further problem.
pub(super) fn stand_in_address() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
