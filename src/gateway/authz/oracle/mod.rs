//! Checks that what a permit lets a client read lies within what was authorized, and that the gateway and the API
//! server interpret the request alike.
//!
//! The API server's interpretation is written down here a second time, as plainly as possible and from its rules alone
//! (read-path 4.4, 5.3, 8.3). It shares no parsing with the gateway except for label selectors. For the tests and the
//! fuzz target.

#![expect(clippy::unwrap_used, reason = "what is not as it should be ends the test or the run of the fuzzer")]

#[cfg(test)]
mod tests;

use std::{iter, sync::Arc, time::Duration};

use http::Method;
use serde_json::json;

use super::{Attributes, Authorizer};
use base::apimachinery::{FieldSelector, LabelSelector, ObjectKey, RequestInfo, ResourceVersion, Target};
use engine::store::{HistoryLimits, Object, Objects, Predicate, Reader, Schema, Shape, View, store};

/// The interpretation of a request; absent parts are empty.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reading {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// The API server's interpretation. `None` if the request is not for a resource, or cannot be parsed.
fn upstream_reading(method: &Method, path: &str, query: &str) -> Option<Reading> {
    let path = unescape(path, false)?;
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut take = |least: usize| (parts.len() >= least).then(|| parts.remove(0).to_owned());
    let group = match take(3)?.as_str() {
        "api" => String::new(),
        "apis" => take(3)?,
        _ => return None,
    };
    let version = take(2)?;
    let by_prefix = matches!(parts[0], "watch" | "proxy");
    let mut verb = if by_prefix { parts.remove(0) } else { verb_of(method) };
    let mut namespace = "";
    if *parts.first()? == "namespaces" && parts.len() > 1 {
        namespace = parts[1];
        if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
            parts.drain(..2);
        }
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    let (resource, mut name, subresource) = (part(0), part(1), part(2));
    if name.is_empty() && verb == "get" {
        let parameters = parameters(query);
        let is_false = |value: &str| value == "0" || value.to_lowercase() == "false";
        verb = if first(&parameters, "watch").is_some_and(|value| !is_false(value)) { "watch" } else { "list" };
        name = required_name(&parameters).filter(|name| *name != "." && *name != "..").unwrap_or_default();
        if name.contains(['/', '%']) {
            name.clear();
        }
    }
    if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    let (verb, namespace) = (verb.to_owned(), namespace.to_owned());
    Some(Reading { verb, group, version, resource, subresource, namespace, name })
}

fn verb_of(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The name that the field selector requires, if all options can be decoded.
fn required_name(parameters: &[(String, String)]) -> Option<String> {
    for number in ["limit", "timeoutSeconds"] {
        if let Some(value) = first(parameters, number) {
            value.parse::<i64>().ok()?;
        }
    }
    LabelSelector::parse(first(parameters, "labelSelector").unwrap_or_default()).ok()?;
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for letter in first(parameters, "fieldSelector")?.chars() {
        if letter == ',' && !escaped {
            terms.push(String::new());
        } else {
            terms.last_mut()?.push(letter);
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.sort();
    let mut name = None;
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let operators = term.char_indices().flat_map(|(at, _)| ["!=", "==", "="].map(|operator| (at, operator)));
        let (at, operator) = operators.into_iter().find(|(at, operator)| term[*at..].starts_with(operator))?;
        let value = selector_value(&term[at + operator.len()..])?;
        if operator != "!=" && &term[..at] == "metadata.name" {
            name.get_or_insert(value);
        }
    }
    name
}

fn selector_value(text: &str) -> Option<String> {
    let (mut value, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.push(letters.next().filter(|letter| "\\,=".contains(*letter))?),
            ',' | '=' => return None,
            plain => value.push(plain),
        }
    }
    Some(value)
}

/// The parameters that can be decoded; others are dropped silently.
fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter_map(|(key, value)| Some((unescape(key, true)?, unescape(value, true)?))).collect()
}

fn first<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn unescape(text: &str, plus: bool) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                let valid = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                rest = &after[2..];
                u8::from_str_radix(digits, 16).ok().filter(|_| valid)?
            }
            b'+' if plus => b' ',
            plain => *plain,
        });
    }
    // Invalid UTF-8 is not interpreted any further, so a replacement character will do.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The interpretation that the gateway authorizes.
fn authorized(attributes: &Attributes) -> Reading {
    let word = |word: Option<&str>| word.unwrap_or_default().to_owned();
    Reading {
        verb: attributes.verb.as_str().to_owned(),
        group: attributes.resource.group.to_string(),
        version: attributes.resource.version.to_string(),
        resource: attributes.resource.resource.to_string(),
        subresource: word(attributes.subresource.as_deref()),
        namespace: word(attributes.review_namespace()),
        name: word(attributes.name()),
    }
}

/// A store of objects whose namespaces and names are words of the paths and selectors in the tests.
fn reader(namespaced: bool) -> Reader {
    let shape = Shape::Custom;
    let schema = Arc::new(Schema::new(shape, Vec::new()));
    let words = ["a", "a.b", "b", "c", "q", "pods", "status", "namespaces", "a,b"];
    let namespaces =
        words.iter().map(|word| namespaced.then_some(*word)).take(if namespaced { words.len() } else { 1 });
    let keys = namespaces.flat_map(|namespace| words.map(|name| (namespace, name)));
    let objects = keys.zip(2..).map(|((namespace, name), version)| {
        let mut metadata = json!({"name": name, "resourceVersion": version.to_string()});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        let object = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": metadata});
        Arc::new(Object::from_item(object.to_string().into(), &schema).unwrap())
    });
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
    let objects = Objects::new(objects.collect()).unwrap();
    store(schema.clone(), &objects, ResourceVersion::new(1000).unwrap(), limits).1
}

/// The keys of all objects that an answer could include.
fn readable(view: &View) -> Vec<ObjectKey> {
    let state = view.newest();
    let everything = Predicate::new(LabelSelector::default(), &FieldSelector::default(), view.schema()).unwrap();
    let in_leaves = state.leaves().into_iter().flatten();
    let mut keys: Vec<_> =
        in_leaves.flat_map(|leaf| leaf.objects().to_vec()).map(|object| object.key.clone()).collect();
    let prefix = state.prefix();
    let singly = state.examine(&prefix, &prefix, &everything).filter_map(|(_, selected)| selected);
    let mut search = state.search("", usize::MAX, &everything);
    let found = iter::repeat_with(|| search.step()).flatten().take(1).flat_map(|page| page.objects);
    keys.extend(found.map(|object| object.key.clone()));
    keys.extend(singly.chain(state.object()).map(|object| object.key.clone()));
    keys
}

/// Checks that what may be read lies within what is authorized, and that upstream interprets the request alike. Returns
/// the keys that may be read.
fn check(method: &Method, path: &str, query: &str, reader: &Reader, namespaced: bool) -> Vec<ObjectKey> {
    let info = RequestInfo::parse(method, path, Some(query));
    let Target::Resource(request) = &info.target else { return Vec::new() };
    let attributes = Attributes::of(info.verb, request, Some(query));
    let permit = Authorizer::trusted().authorize_gateway(attributes.clone()).unwrap();
    let Ok(scope) = permit.scope(info.verb, &request.resource, namespaced) else { return Vec::new() };
    let reading = upstream_reading(method, path, query).expect("upstream reads what is served");
    assert_eq!(authorized(&attributes), reading, "{method} {path}?{query}");

    let keys = readable(&View::new(reader.clone(), scope));
    for key in &keys {
        // A namespace object is authorized within itself.
        let itself = !namespaced && reading.resource == "namespaces" && !reading.namespace.is_empty();
        let namespace = if itself { key.name() } else { key.namespace().unwrap_or_default() };
        let allows = |granted: &str, read: &str| granted.is_empty() || granted == read;
        assert!(allows(&reading.namespace, namespace), "{key} by {method} {path}?{query}");
        assert!(allows(&reading.name, key.name()), "{key} by {method} {path}?{query}");
    }
    assert_eq!(reading.subresource, "", "{method} {path}?{query}");
    keys
}

thread_local! {
    /// Readers of a cluster-scoped resource and of a namespaced one.
    static READERS: [Reader; 2] = [reader(false), reader(true)];
}

/// Runs the check for a cluster-scoped and a namespaced resource.
pub(crate) fn check_both(method: &Method, path: &str, query: &str) -> Vec<ObjectKey> {
    let readers = READERS.with(Clone::clone);
    let of = |namespaced: bool| check(method, path, query, &readers[usize::from(namespaced)], namespaced);
    [of(false), of(true)].concat()
}
