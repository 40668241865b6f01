//! Bodies of lists (read-path 4.1).

use std::sync::Arc;

use crate::{definition::Definition, json, stored::Stored};

/// The content of a list, in any representation.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The collection's version.
    pub(crate) revision: u64,
    pub(crate) continue_token: Option<String>,
    /// The number of items after this page, where the API server reports it.
    pub(crate) remaining: Option<usize>,
    /// The shards, in lists of whole objects of built-in types.
    pub(crate) shards: Option<String>,
    pub(crate) objects: Vec<Arc<Stored>>,
}

/// JSON without a newline at the end.
pub(crate) fn body(definition: &Definition, api_version: &str, page: &Page) -> Vec<u8> {
    let kind = &definition.list_kind;
    let mut text = Vec::new();
    if definition.custom {
        text.extend(format!(r#"{{"apiVersion":"{api_version}","items":["#).bytes());
        write_items(definition, api_version, page, &mut text);
        text.extend(format!(r#"],"kind":"{kind}","metadata":{}}}"#, custom_metadata(page)).bytes());
    } else {
        let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{},"items":["#, metadata(page));
        text.extend(head.bytes());
        write_items(definition, api_version, page, &mut text);
        text.extend(b"]}");
    }
    text
}

/// `metadata` of lists of built-in types and of Tables.
pub(crate) fn metadata(page: &Page) -> String {
    let mut text = format!(r#"{{"resourceVersion":"{}""#, page.revision);
    if let Some(token) = &page.continue_token {
        text += &format!(r#","continue":"{token}""#);
    }
    if let Some(remaining) = page.remaining {
        text += &format!(r#","remainingItemCount":{remaining}"#);
    }
    if let Some(shards) = &page.shards {
        text += &format!(r#","shardInfo":{{"selector":"{shards}"}}"#);
    }
    text + "}"
}

fn custom_metadata(page: &Page) -> String {
    let token = page.continue_token.as_deref().unwrap_or_default();
    let remaining = page.remaining.map(|count| format!(r#""remainingItemCount":{count},"#)).unwrap_or_default();
    format!(r#"{{"continue":"{token}",{remaining}"resourceVersion":"{}"}}"#, page.revision)
}

fn write_items(definition: &Definition, api_version: &str, page: &Page, text: &mut Vec<u8>) {
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        object.write_item(definition, api_version, text);
    }
}

/// The event of a watch, with its newline.
pub(crate) fn event(kind: &str, object: &[u8], text: &mut Vec<u8>) {
    text.extend(format!(r#"{{"type":"{kind}","object":"#).bytes());
    text.extend(object);
    text.extend(b"}\n");
}

/// An ERROR event.
pub(crate) fn error_event(status: &serde_json::Value) -> Vec<u8> {
    let mut text = Vec::new();
    event("ERROR", &json::encode(status), &mut text);
    text
}
