//! The fields of a document, each declared once: name, place in a typed struct, [`Form`], meaning.
//!
//! A section of the configuration is a struct with a function that names its fields one after the other on a
//! [`Fields`]. That one function reads a document into the struct, and writes the struct's values, the JSON schema and
//! the manual's table.

mod findings;
mod form;
mod node;

use serde_json::{Map, Value, json};

use crate::config::Redacted;

pub use findings::Findings;
pub(super) use findings::{Row, rows};
pub(super) use form::{ANY_FILE, ANY_FOLDER, PEM, TimeOrNever};
pub use form::{FLAG, Form, Maybe, Number, Parsed, Refused, Size, Text, Time, Words, unexpanded};
pub use node::Document;
use node::Node;

/// The fields of one section, in the order in which they are declared.
#[derive(Debug)]
pub struct Fields<'a> {
    /// `cache.history`; empty for the whole document.
    path: String,
    given: &'a [(String, Node)],
    purpose: Purpose,
    names: Vec<&'static str>,
    schema: Schema,
    findings: &'a mut Findings,
}

/// What the declarations are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To change the struct to what a document says.
    Read,
    /// To show the values that the struct has.
    Show,
    /// To show all fields that there are, those of absent sections too.
    Describe,
}

/// What a field means, as Markdown.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// What is so without the field, where that is not a fixed value.
    default: &'static str,
    text: &'static str,
}

/// What a field means, as Markdown; empty if its name and [`Form`] say it.
pub const fn about(text: &'static str) -> About {
    About { default: "", text }
}

impl About {
    /// What is so without the field, where that is not a fixed value.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }
}

/// The schema of a section, which has no other fields than these.
#[derive(Debug, Default)]
struct Schema {
    properties: Map<String, Value>,
    required: Vec<&'static str>,
    /// Further keywords.
    keywords: Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn new(path: String, given: &'a [(String, Node)], purpose: Purpose, findings: &'a mut Findings) -> Self {
        Self { path, given, purpose, names: Vec::new(), schema: Schema::default(), findings }
    }

    /// Declares the fields of this section, and reports the others that the document has. Returns the schema.
    fn declared(mut self, declare: impl FnOnce(&mut Fields<'_>)) -> Value {
        declare(&mut self);
        for (name, _) in self.given.iter().filter(|(name, _)| !self.names.contains(&name.as_str())) {
            self.findings.problem(&self.place(name), "no such field", &self.names.join(", "));
        }
        let Schema { properties, required, keywords } = self.schema;
        let mut schema =
            Map::from_iter([("type".to_owned(), json!("object")), ("additionalProperties".to_owned(), json!(false))]);
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.extend(keywords);
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        Value::Object(schema)
    }

    /// Declares a field; without it, the value stays as it is.
    pub fn value<T>(&mut self, name: &'static str, about: About, value: &mut T, form: &impl Form<T>) {
        if let Some(node) = self.named(name) {
            let place = self.place(name);
            if let Some(given) = self.parsed(&place, node, form) {
                *value = given;
            }
        }
        self.declare(name, about, form.schema(), || (form.text(value), form.column()));
    }

    /// The same for a field whose default depends on others.
    pub fn derived<T>(&mut self, name: &'static str, about: About, value: &mut T, form: &impl Form<T>, default: T) {
        if self.purpose == Purpose::Read {
            *value = default;
        }
        self.value(name, about, value, form);
    }

    /// The same for a field that has to be given.
    pub fn required<T>(&mut self, name: &'static str, about: About, value: &mut T, form: &impl Form<T>) {
        if !self.is_given(name) {
            self.problem(name, "missing", &form.allowed());
        }
        self.schema.required.push(name);
        self.value(name, about, value, form);
    }

    /// Declares a field that has to be given, with the only value that it may have.
    pub fn constant(&mut self, name: &'static str, only: &'static str) {
        match self.named(name) {
            None => self.problem(name, "missing", only),
            Some(Node::Single(text)) if text == only => {}
            Some(Node::Single(text)) => self.problem(name, &given(text), only),
            Some(_) => self.problem(name, "this is no single value", only),
        }
        self.names.push(name);
        self.schema.required.push(name);
        self.schema.properties.insert(name.to_owned(), json!({"const": only}));
    }

    /// Declares a list; without it, the values stay as they are.
    pub fn list<T>(&mut self, name: &'static str, about: About, values: &mut Vec<T>, form: &impl Form<T>) {
        if let Some(items) = self.items(name, || form.allowed()) {
            values.clear();
            for (place, node) in items {
                values.extend(self.parsed(&place, node, form));
            }
        }
        self.declare(name, about, json!({"type": "array", "items": form.schema()}), || {
            let texts: Vec<_> = values.iter().filter_map(|value| form.text(value)).collect();
            let shown = (!texts.is_empty()).then(|| format!("[{}]", texts.join(", ")));
            (shown, form.column())
        });
    }

    /// The same for a list that contains no value twice.
    pub fn set<T: PartialEq>(&mut self, name: &'static str, about: About, values: &mut Vec<T>, form: &impl Form<T>) {
        self.list(name, about, values, form);
        self.keyword(name, "uniqueItems", json!(true));
        let mut seen = Vec::new();
        for (index, node) in self.nodes(name).iter().enumerate() {
            let Node::Single(text) = node else { continue };
            let Ok(value) = form.parse(text) else { continue };
            if seen.contains(&value) {
                let place = format!("{}[{index}]", self.place(name));
                self.findings.problem(&place, &format!("{}: it is there already", given(text)), "each one once");
            }
            seen.push(value);
        }
    }

    /// Limits the number of items that a list has if it is given.
    pub fn length(&mut self, name: &'static str, least: usize, most: Option<usize>) {
        if let Some(Node::List(nodes)) = self.named(name) {
            if nodes.len() < least {
                self.problem(name, "the list is empty", &format!("at least {least}, or remove this field"));
            }
            if let Some(most) = most.filter(|most| nodes.len() > *most) {
                self.problem(name, &format!("{} were given", nodes.len()), &format!("at most {most}"));
            }
        }
        self.keyword(name, "minItems", json!(least));
        if let Some(most) = most {
            self.keyword(name, "maxItems", json!(most));
        }
    }

    /// Declares a section that is always there; without it, its fields have their defaults.
    pub fn section(&mut self, name: &'static str, mut declare: impl FnMut(&mut Fields<'_>)) {
        let place = self.place(name);
        let given = match self.named(name) {
            None => &[],
            Some(Node::Fields(given)) => given.as_slice(),
            Some(_) => {
                self.findings.misshapen(&place, "this has no fields", &form_of(&mut declare));
                &[]
            }
        };
        let schema = self.within(place, given, declare);
        self.names.push(name);
        self.schema.properties.insert(name.to_owned(), schema);
    }

    /// Declares a section that may be absent.
    pub fn optional<S: Default>(
        &mut self,
        name: &'static str,
        section: &mut Option<S>,
        mut declare: impl FnMut(&mut S, &mut Fields<'_>),
    ) {
        if self.describes() || self.is_given(name) {
            section.get_or_insert_default();
        }
        match section {
            Some(section) => self.section(name, |fields| declare(section, fields)),
            None => self.names.push(name),
        }
    }

    /// Declares a list of sections; without it, the sections stay as they are.
    pub fn sections<S: Default>(
        &mut self,
        name: &'static str,
        sections: &mut Vec<S>,
        declare: impl Fn(&mut S, &mut Fields<'_>),
    ) {
        let form = || form_of(&mut |fields: &mut Fields<'_>| declare(&mut S::default(), fields));
        if let Some(items) = self.items(name, form) {
            sections.clear();
            for (place, node) in items {
                let mut section = S::default();
                if let Node::Fields(given) = node {
                    self.within(place, given, |fields| declare(&mut section, fields));
                } else {
                    self.findings.misshapen(&place, "this has no fields", &form());
                }
                sections.push(section);
            }
        }
        self.names.push(name);
        if self.purpose != Purpose::Read {
            for section in sections {
                let items = self.within(format!("{}[]", self.place(name)), &[], |fields| declare(section, fields));
                self.schema.properties.insert(name.to_owned(), json!({"type": "array", "items": items}));
            }
        }
    }

    /// Declares a list of sections, each of which may also be given as a text; without it, the values stay as they are.
    pub fn short_sections<S: Default>(
        &mut self,
        name: &'static str,
        about: About,
        sections: &mut Vec<S>,
        short: &impl Form<S>,
        declare: impl Fn(&mut S, &mut Fields<'_>),
    ) {
        let form = || {
            let fields = form_of(&mut |fields: &mut Fields<'_>| declare(&mut S::default(), fields));
            format!("{}; or {fields}", short.allowed())
        };
        if let Some(items) = self.items(name, form) {
            sections.clear();
            for (place, node) in items {
                if let Node::Fields(given) = node {
                    let mut section = S::default();
                    self.within(place, given, |fields| declare(&mut section, fields));
                    sections.push(section);
                } else {
                    sections.extend(self.parsed(&place, node, short));
                }
            }
        }
        let texts: Vec<_> = sections.iter().filter_map(|section| short.text(section)).collect();
        let shown = (!texts.is_empty()).then(|| format!("[{}]", texts.join(", ")));
        self.declare(name, about, json!({"type": "array"}), || (shown, short.column()));
        if self.describes() {
            let place = format!("{}[]", self.place(name));
            let section = self.within(place, &[], |fields| declare(&mut S::default(), fields));
            self.keyword(name, "items", json!({"anyOf": [short.schema(), section]}));
        }
    }

    /// Declares a field that this section does not have, but others in its place: those in another mode.
    pub fn foreign(&mut self, name: &'static str, of: &str, elsewhere: &str) {
        self.names.push(name);
        if self.is_given(name) {
            let allowed = format!("{elsewhere}, or remove this field");
            self.problem(name, &format!("not allowed with {of}"), &allowed);
        }
    }

    /// Declares a field of any form, which is not read.
    pub fn any(&mut self, name: &'static str) {
        self.names.push(name);
    }

    /// Says what this section means, which has no fields.
    pub fn empty(&mut self, about: About) {
        let row = Row::new(self.path.clone(), (Some("{}".to_owned()), "`{}`".to_owned()), about);
        self.keyword("", "description", row.description().into());
        self.findings.row(row);
    }

    /// Whether the document has the field.
    pub fn is_given(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// Whether a document is read, and the struct changed.
    pub fn reads(&self) -> bool {
        self.purpose == Purpose::Read
    }

    /// Whether fields are shown that the struct does not have.
    pub fn describes(&self) -> bool {
        self.purpose == Purpose::Describe
    }

    /// Reports a problem of a field of this section, or, if `name` is empty, of the section.
    pub fn problem(&mut self, name: &str, found: &str, allowed: &str) {
        self.findings.problem(&self.place(name), found, allowed);
    }

    /// Whether a problem of the field, or of what contains it, was reported.
    pub fn has_problem(&self, name: &str) -> bool {
        self.findings.has_problem(&self.place(name))
    }

    /// Adds a keyword to the schema of a field, or, if `name` is empty, of this section.
    pub fn keyword(&mut self, name: &str, keyword: &str, value: Value) {
        if name.is_empty() {
            self.schema.keywords.insert(keyword.to_owned(), value);
        } else if let Some(Value::Object(schema)) = self.schema.properties.get_mut(name) {
            schema.insert(keyword.to_owned(), value);
        }
    }

    fn declare(
        &mut self,
        name: &'static str,
        about: About,
        mut schema: Value,
        texts: impl FnOnce() -> (Option<String>, String),
    ) {
        self.names.push(name);
        if self.purpose == Purpose::Read {
            return;
        }
        let row = Row::new(self.place(name), texts(), about);
        if self.describes() {
            schema["description"] = row.description().into();
            self.schema.properties.insert(name.to_owned(), schema);
        }
        self.findings.row(row);
    }

    /// The fields of a section within this one. Returns the schema.
    fn within(&mut self, path: String, given: &[(String, Node)], declare: impl FnOnce(&mut Fields<'_>)) -> Value {
        Fields::new(path, given, self.purpose, self.findings).declared(declare)
    }

    /// The value of a text; `None` if it has none, which is reported.
    fn parsed<T>(&mut self, place: &str, node: &Node, form: &impl Form<T>) -> Option<T> {
        let found = match node {
            Node::Single(text) => match form.parse(text) {
                Ok(value) => return Some(value),
                Err(Refused { why, allowed }) => {
                    let allowed = allowed.map_or_else(|| form.allowed(), str::to_owned);
                    self.findings.problem(place, &format!("{}{why}", given(text)), &allowed);
                    return None;
                }
            },
            Node::Nothing => "nothing was given",
            Node::List(_) => "a list was given",
            Node::Fields(_) => "a mapping was given",
        };
        self.findings.misshapen(place, found, &form.allowed());
        None
    }

    /// The items of a list with their places; `None` without the list.
    fn items(&mut self, name: &str, form: impl Fn() -> String) -> Option<Vec<(String, &'a Node)>> {
        let place = self.place(name);
        let Node::List(nodes) = self.named(name)? else {
            self.findings.misshapen(&place, "this is not a list", &format!("a list, each item: {}", form()));
            return None;
        };
        Some(nodes.iter().enumerate().map(|(index, node)| (format!("{place}[{index}]"), node)).collect())
    }

    fn named(&self, name: &str) -> Option<&'a Node> {
        let named = self.given.iter().find(|(given, _)| given == name);
        named.map(|(_, node)| node).filter(|node| **node != Node::Nothing)
    }

    fn nodes(&self, name: &str) -> &'a [Node] {
        if let Some(Node::List(nodes)) = self.named(name) { nodes } else { &[] }
    }

    fn place(&self, name: &str) -> String {
        match (self.path.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{name}", self.path),
        }
    }
}

/// The names of a section's fields, in words.
fn form_of(declare: &mut impl FnMut(&mut Fields<'_>)) -> String {
    let mut findings = Findings::default();
    let mut fields = Fields::new(String::new(), &[], Purpose::Read, &mut findings);
    declare(&mut fields);
    if fields.names.is_empty() { "{}".to_owned() } else { format!("the fields {}", fields.names.join(", ")) }
}

/// A value of a field, without the password of a URL: it goes into logs.
pub fn given(text: &str) -> String {
    let may_have_password = text.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'));
    let shown = if may_have_password { Redacted::text(text).to_string() } else { text.to_owned() };
    format!("{shown:?} was given")
}
