//! The syntax of label keys and label values.

/// An optional DNS subdomain and a slash, then a name of up to 63 characters.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Empty, or like the name part of a key.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`, at most 63 bytes.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= NAME_BYTES_MAX && has_edges(text, |byte| byte.is_ascii_alphanumeric()) && text.bytes().all(inner)
}

/// DNS-1123: labels in lower case, separated by dots, at most 253 bytes.
pub(super) fn is_subdomain(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| has_edges(label, edge) && label.bytes().all(|byte| edge(byte) || byte == b'-');
    text.len() <= SUBDOMAIN_BYTES_MAX && text.split('.').all(is_label)
}

/// Whether the text is not empty and its first and last bytes fit.
fn has_edges(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| fits(*byte)) && bytes.last().is_some_and(|byte| fits(*byte))
}

const NAME_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
