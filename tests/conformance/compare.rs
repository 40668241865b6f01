//! Compares two responses, except for parts in which two servers may differ.

use std::io::Read;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderMap;
use serde_json::value::RawValue;

use crate::{client::Answer, wire};

/// Permitted differences between two responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The order of items and of initial events is undefined: a 1.20 server reads them from a hash map.
    pub(crate) any_order: bool,
    /// The collection's version is the current one, and not the one in the request.
    pub(crate) any_version: bool,
}

/// Headers that the gateway must send exactly like the server.
const EQUAL: [&str; 9] = [
    "content-type",
    "warning",
    "cache-control",
    "retry-after",
    "x-content-type-options",
    "vary",
    "content-encoding",
    "allow",
    "etag",
];
/// Headers that depend on the time or the connection, or belong to the server's flow control.
const IGNORED: [&str; 5] = ["date", "audit-id", "content-length", "transfer-encoding", "connection"];
const FLOW_CONTROL: &str = "x-kubernetes-pf-";

/// All differences, as text.
pub(crate) fn differences(rules: Rules, direct: &Answer, gateway: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    if direct.status != gateway.status {
        found.push(format!("status: {} from the server, {} from the gateway", direct.status, gateway.status));
    }
    found.extend(header_differences(&direct.headers, &gateway.headers));
    let (expected, actual) = (comparable(rules, direct), comparable(rules, gateway));
    if expected != actual {
        found.push(first_difference(&expected, &actual));
    }
    found
}

fn header_differences(direct: &HeaderMap, gateway: &HeaderMap) -> Vec<String> {
    let mut found = Vec::new();
    for name in EQUAL {
        let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        let (expected, actual) = (values(direct), values(gateway));
        if expected != actual {
            found.push(format!("{name}: {expected:?} from the server, {actual:?} from the gateway"));
        }
    }
    let is_odd = |name: &str| {
        !EQUAL.contains(&name)
            && !IGNORED.contains(&name)
            && !name.starts_with(FLOW_CONTROL)
            && !direct.contains_key(name)
    };
    found.extend(
        gateway.keys().filter(|name| is_odd(name.as_str())).map(|name| format!("{name}: only from the gateway")),
    );
    found
}

/// The place where two texts begin to differ.
pub(crate) fn first_difference(expected: &str, actual: &str) -> String {
    let at = expected.bytes().zip(actual.bytes()).position(|(a, b)| a != b).unwrap_or(expected.len().min(actual.len()));
    let part = |text: &str| {
        let bytes = text.as_bytes();
        let from = at.saturating_sub(80).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..(at + 160).min(bytes.len())]).into_owned()
    };
    format!("body from byte {at} on:\n      server:  …{}\n      gateway: …{}", part(expected), part(actual))
}

/// The decompressed body; a body that cannot be decompressed counts as a difference.
fn decoded(answer: &Answer) -> Vec<u8> {
    let mut body = answer.body.to_vec();
    if answer.headers.get("content-encoding").is_some_and(|coding| coding == "gzip") {
        body.clear();
        if let Err(error) = flate2::read::GzDecoder::new(&*answer.body).read_to_end(&mut body) {
            body.extend_from_slice(format!("not gzip: {error}").as_bytes());
        }
    }
    body
}

/// Masks the ages of objects in the cells of a Table: `5s`, `3m12s`. Ages in days are kept.
pub(crate) fn masked_ages(text: &str) -> String {
    let is_age = |part: &str| {
        let number = part.trim_end_matches(['s', 'm', 'h', 'd', 'y']);
        number.len() < part.len()
            && part.contains(['s', 'm'])
            && part.starts_with(|first: char| first.is_ascii_digit())
            && part.bytes().all(|byte| byte.is_ascii_digit() || b"smhdy".contains(&byte))
    };
    text.split('"').map(|part| if is_age(part) { "*" } else { part }).collect::<Vec<_>>().join("\"")
}

fn comparable(rules: Rules, answer: &Answer) -> String {
    let body = decoded(answer);
    let content = answer.headers.get("content-type").and_then(|content| content.to_str().ok()).unwrap_or_default();
    if content.starts_with(wire::CONTENT)
        && let Some(pieces) = wire::comparable(rules, &body, content.ends_with("stream=watch"))
    {
        return pieces;
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    let text = if ["\"kind\":\"Table\"", "\"kind\": \"Table\""].iter().any(|kind| text.contains(kind)) {
        masked_ages(&text)
    } else {
        text
    };
    if is_watch(&text) {
        return comparable_events(rules, &text);
    }
    let text = masked_status(&text);
    let Ok(list) = serde_json::from_str::<ListBody<'_>>(&text) else {
        // Neither JSON nor a list: only forwarded.
        return if rules.any_order { sorted_bytes(&text) } else { text };
    };
    let Some(items) = list.items else {
        // A list of metadata has no empty array (read-path 4.1).
        return if text.contains("\"items\":null") { masked_envelope(rules, &text, &list.metadata) } else { text };
    };
    // The unchanged text without its items.
    let (before, after) = match (items.first(), items.last()) {
        (Some(first), Some(last)) => {
            let offset = |item: &RawValue| item.get().as_ptr() as usize - text.as_ptr() as usize;
            (&text[..offset(first)], &text[offset(last) + last.get().len()..])
        }
        _ => (text.as_str(), ""),
    };
    let mut items: Vec<_> = items.iter().map(|item| item.get()).collect();
    if rules.any_order {
        items.sort_unstable();
    }
    format!("{}\n{}", masked_envelope(rules, &format!("{before}\n{after}"), &list.metadata), items.join("\n"))
}

#[derive(serde::Deserialize)]
struct ListBody<'a> {
    /// The rows of a Table are its items.
    #[serde(borrow, alias = "rows")]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
}

/// The only comparison for YAML in any order.
fn sorted_bytes(text: &str) -> String {
    let mut characters: Vec<_> = text.chars().collect();
    characters.sort_unstable();
    characters.into_iter().collect()
}

fn masked_envelope(rules: Rules, envelope: &str, metadata: &ListMetadata) -> String {
    let version = &metadata.resource_version;
    let token = URL_SAFE_NO_PAD.decode(&metadata.r#continue).unwrap_or_default();
    let mut token = String::from_utf8_lossy(&token).replace("\"start\":\"/", "\"start\":\"");
    let mut masked = envelope.to_owned();
    if rules.any_version && !version.is_empty() {
        masked = masked.replace(&format!("\"{version}\""), "\"*\"");
        token = token.replace(&format!("\"rv\":{version},"), "\"rv\":*,");
    }
    // Tokens made by a cache begin with a slash, and those made by storage do not; both are accepted everywhere.
    if metadata.r#continue.is_empty() { masked } else { masked.replace(&metadata.r#continue, &token) }
}

/// Masks the current version and the start of history, which differ between servers.
fn masked_status(text: &str) -> String {
    let mut masked = text.to_owned();
    for (before, after) in [(", current: ", "\""), ("too old resource version: ", "\"")] {
        if let Some(start) = masked.find(before).map(|at| at + before.len())
            && let Some(length) = masked[start..].find(after)
        {
            masked.replace_range(start..start + length, "*");
        }
    }
    masked
}

fn is_watch(text: &str) -> bool {
    text.starts_with("{\"type\":\"")
}

/// The lines of a watch without bookmarks, whose times are arbitrary, except for the one that ends initial events.
fn comparable_events(rules: Rules, text: &str) -> String {
    let is_timed = |line: &&str| line.starts_with("{\"type\":\"BOOKMARK\"") && !line.contains("initial-events-end");
    let mut lines: Vec<_> = text.lines().filter(|line| !is_timed(line)).map(masked_event).collect();
    if rules.any_order {
        lines.iter_mut().for_each(without_columns);
    }
    if rules.any_order {
        lines.sort_unstable();
    }
    lines.join("\n")
}

/// The first event of a watch of Tables has the columns, whichever event that is.
pub(crate) fn without_columns(line: &mut String) {
    if let (Some(from), Some(to)) = (line.find("\"columnDefinitions\":"), line.find(",\"rows\":")) {
        line.replace_range(from..to, "");
    }
}

fn masked_event(line: &str) -> String {
    if line.starts_with("{\"type\":\"ERROR\"") {
        return masked_status(line);
    }
    if !line.starts_with("{\"type\":\"BOOKMARK\"") {
        return line.to_owned();
    }
    // A Table has the version once more in its row.
    let mut parts = line.split("\"resourceVersion\":\"");
    let first = parts.next().unwrap_or_default().to_owned();
    let behind = |part: &str| part.find('"').map_or_else(String::new, |end| part[end..].to_owned());
    parts.fold(first, |text, part| text + "\"resourceVersion\":\"*" + &behind(part))
}
