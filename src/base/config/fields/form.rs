//! Forms of single values: how a value is read from a text, written as one, and described.

use std::{
    fmt::Display,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use serde_json::{Value, json};

use crate::config::quantity;

/// How the texts of a field stand for values of type `T`.
pub trait Form<T> {
    /// The texts that [`Self::parse`] accepts, in words for an author.
    fn allowed(&self) -> String;

    /// The same for the manual's table, as Markdown; empty if a field's meaning says it better.
    fn column(&self) -> String {
        String::new()
    }

    /// # Errors
    /// The text is not allowed.
    fn parse(&self, text: &str) -> Result<T, Refused>;

    /// A text that stands for the value; `None` for a value that only the absence of the field can have.
    fn text(&self, value: &T) -> Option<String>;

    /// The texts as a JSON schema; it may allow more than [`Self::parse`].
    fn schema(&self) -> Value;
}

/// A text is not allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// What to say after the text that was given; may be empty.
    pub why: String,
    /// What is allowed in place of it, if that differs from [`Form::allowed`].
    pub allowed: Option<&'static str>,
}

/// A time within a range.
#[derive(Clone, Debug)]
pub struct Time(pub RangeInclusive<Duration>);

impl Form<Duration> for Time {
    fn allowed(&self) -> String {
        let [from, to] = [self.0.start(), self.0.end()].map(|bound| quantity::duration_text(*bound));
        format!("{}, from {from} to {to}", quantity::DURATION)
    }

    fn column(&self) -> String {
        let [from, to] = [self.0.start(), self.0.end()].map(|bound| quantity::duration_text(*bound));
        format!("`{from}` to `{to}`")
    }

    fn parse(&self, text: &str) -> Result<Duration, Refused> {
        quantity::duration(text).filter(|time| self.0.contains(time)).ok_or_else(Refused::default)
    }

    fn text(&self, value: &Duration) -> Option<String> {
        Some(quantity::duration_text(*value))
    }

    fn schema(&self) -> Value {
        reference("duration")
    }
}

/// A time within a range; the text `0` stands for `None`: never.
#[derive(Clone, Debug)]
pub(in crate::config) struct TimeOrNever(pub(in crate::config) RangeInclusive<Duration>);

impl Form<Option<Duration>> for TimeOrNever {
    fn allowed(&self) -> String {
        format!("0 for never, or {}", Time(self.0.clone()).allowed())
    }

    fn column(&self) -> String {
        format!("`0` for never, or {}", Time(self.0.clone()).column())
    }

    fn parse(&self, text: &str) -> Result<Option<Duration>, Refused> {
        if text == "0" { Ok(None) } else { Time(self.0.clone()).parse(text).map(Some) }
    }

    fn text(&self, value: &Option<Duration>) -> Option<String> {
        Some(quantity::duration_text(value.unwrap_or_default()))
    }

    fn schema(&self) -> Value {
        reference("duration")
    }
}

/// A whole number within a range.
#[derive(Clone, Debug)]
pub struct Number<T>(pub RangeInclusive<T>);

impl<T: FromStr + PartialOrd + Display> Form<T> for Number<T> {
    fn allowed(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn column(&self) -> String {
        format!("`{}` to `{}`", self.0.start(), self.0.end())
    }

    fn parse(&self, text: &str) -> Result<T, Refused> {
        text.parse().ok().filter(|number| self.0.contains(number)).ok_or_else(Refused::default)
    }

    fn text(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }

    fn schema(&self) -> Value {
        let bound = |bound: &T| bound.to_string().parse::<u64>().unwrap_or_default();
        json!({"type": "integer", "minimum": bound(self.0.start()), "maximum": bound(self.0.end())})
    }
}

/// A number of bytes within a range.
#[derive(Clone, Debug)]
pub struct Size(pub RangeInclusive<u64>);

impl Form<u64> for Size {
    fn allowed(&self) -> String {
        let least = quantity::size_text(*self.0.start());
        let up_to = if *self.0.end() == u64::MAX { String::new() } else { format!(", {} bytes at most", self.0.end()) };
        format!("{}, {least} at least{up_to}", quantity::SIZE)
    }

    fn column(&self) -> String {
        format!("at least `{}`", quantity::size_text(*self.0.start()))
    }

    fn parse(&self, text: &str) -> Result<u64, Refused> {
        quantity::size(text).filter(|bytes| self.0.contains(bytes)).ok_or_else(Refused::default)
    }

    fn text(&self, value: &u64) -> Option<String> {
        Some(quantity::size_text(*value))
    }

    fn schema(&self) -> Value {
        reference("size")
    }
}

/// One of several words, each of which stands for a value.
#[derive(Clone, Copy, Debug)]
pub struct Words<T: 'static>(pub &'static [(&'static str, T)]);

/// `true` or `false`.
pub const FLAG: Words<bool> = Words(&[("true", true), ("false", false)]);

impl<T: Copy + PartialEq> Form<T> for Words<T> {
    fn allowed(&self) -> String {
        self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }

    fn column(&self) -> String {
        self.0.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    }

    fn parse(&self, text: &str) -> Result<T, Refused> {
        self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(Refused::default)
    }

    fn text(&self, value: &T) -> Option<String> {
        self.0.iter().find(|(_, other)| other == value).map(|(word, _)| (*word).to_owned())
    }

    fn schema(&self) -> Value {
        let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        if words == ["true", "false"] { json!({"type": "boolean"}) } else { json!({"enum": words}) }
    }
}

/// Any text but the empty one.
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl Form<String> for Text {
    fn allowed(&self) -> String {
        "a non-empty text".to_owned()
    }

    fn parse(&self, text: &str) -> Result<String, Refused> {
        let allowed = Some("a non-empty text, or remove this field");
        if text.is_empty() { Err(Refused { allowed, ..Refused::default() }) } else { Ok(text.to_owned()) }
    }

    fn text(&self, value: &String) -> Option<String> {
        (!value.is_empty()).then(|| value.clone())
    }

    fn schema(&self) -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// The path of a file, in words for an author and for the manual's table.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct FilePath {
    allowed: &'static str,
    column: &'static str,
}

pub(in crate::config) const ANY_FILE: FilePath = FilePath { allowed: "the path of a file", column: "" };
pub(in crate::config) const ANY_FOLDER: FilePath = FilePath { allowed: "the path of a folder", column: "" };
pub(in crate::config) const PEM: FilePath = FilePath { allowed: "the path of a PEM file", column: "PEM file" };

impl<P: From<PathBuf> + AsRef<Path>> Form<P> for FilePath {
    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn column(&self) -> String {
        self.column.to_owned()
    }

    fn parse(&self, text: &str) -> Result<P, Refused> {
        let path = PathBuf::from(Text.parse(text)?);
        let allowed = Some("a path without ~, which only a shell replaces by the home directory");
        if is_of_home(text) { Err(Refused { allowed, ..Refused::default() }) } else { Ok(path.into()) }
    }

    fn text(&self, value: &P) -> Option<String> {
        let path = value.as_ref();
        (!path.as_os_str().is_empty()).then(|| path.display().to_string())
    }

    fn schema(&self) -> Value {
        reference("path")
    }
}

/// A value with a notation of its own.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<T> {
    pub allowed: &'static str,
    pub parse: fn(&str) -> Result<T, Refused>,
    /// The pattern of the schema: a regular expression that every allowed text matches.
    pub pattern: &'static str,
}

impl<T: Display> Form<T> for Parsed<T> {
    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn parse(&self, text: &str) -> Result<T, Refused> {
        (self.parse)(text)
    }

    fn text(&self, value: &T) -> Option<String> {
        Some(value.to_string()).filter(|text| !text.is_empty())
    }

    fn schema(&self) -> Value {
        if self.pattern.is_empty() { Text.schema() } else { json!({"type": "string", "pattern": self.pattern}) }
    }
}

/// The value of a field that may be absent.
#[derive(Clone, Copy, Debug)]
pub struct Maybe<F>(pub F);

impl<T, F: Form<T>> Form<Option<T>> for Maybe<F> {
    fn allowed(&self) -> String {
        self.0.allowed()
    }

    fn column(&self) -> String {
        self.0.column()
    }

    fn parse(&self, text: &str) -> Result<Option<T>, Refused> {
        self.0.parse(text).map(Some)
    }

    fn text(&self, value: &Option<T>) -> Option<String> {
        self.0.text(value.as_ref()?)
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }
}

/// A definition of [`super::definitions`].
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

/// Whether a shell would replace the beginning of the path: `~/file`, `~user/file`.
fn is_of_home(path: &str) -> bool {
    path.starts_with('~')
}

/// What to say of a path that no shell has replaced, as with `--kubeconfig=~/x`: kubectl takes it as it is, too.
pub fn unexpanded(path: &Path) -> &'static str {
    let is_of_home = path.to_str().is_some_and(is_of_home);
    if is_of_home { " (~ is only replaced by a shell, at the beginning of a word: write the whole path)" } else { "" }
}
