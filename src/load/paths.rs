//! Paths and queries of requests. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::profile::{CLIENT, ReadVersion, Selection, Start};
use base::apimachinery::GroupVersionResource;

/// The characters that are encoded in a query's value: all except these and alphanumeric ones.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path of the collection, or of a namespace's part of it.
pub(super) fn collection(resource: &GroupVersionResource, namespace: Option<&str>) -> String {
    match namespace {
        None => resource.collection_path(),
        Some(namespace) => format!("{}/namespaces/{namespace}/{}", resource.group_version_path(), resource.resource),
    }
}

pub(super) fn object(resource: &GroupVersionResource, namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", collection(resource, namespace))
}

/// The query of a get or a list; `newest` is the newest version at the start of the turn.
pub(super) fn version(version: ReadVersion, newest: &str) -> String {
    match version {
        ReadVersion::Any => "resourceVersion=0".to_owned(),
        ReadVersion::MostRecent => String::new(),
        ReadVersion::NotOlderThan => format!("resourceVersion={newest}&resourceVersionMatch=NotOlderThan"),
    }
}

/// The query of a watch with that start.
pub(super) fn start(start: Start, newest: &str) -> String {
    let from = match start {
        Start::Now => format!("&resourceVersion={newest}"),
        Start::Any => "&resourceVersion=0".to_owned(),
        Start::MostRecent => String::new(),
        Start::WatchList => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
    };
    format!("watch=1&allowWatchBookmarks=true{from}")
}

/// The query of an informer's list: of at least the version that it knows, or of any version if it knows none.
pub(super) fn informer_list(known: &str) -> String {
    format!("resourceVersion={}", if known.is_empty() { "0" } else { known })
}

/// The query of an informer's watch: from the version that it knows or, `with_initial`, with all objects first.
pub(super) fn informer_watch(known: &str, with_initial: bool) -> String {
    let from = match (known, with_initial) {
        ("", true) => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        (known, true) => format!("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={known}"),
        (known, false) => format!("&resourceVersion={known}"),
    };
    format!("watch=1&allowWatchBookmarks=true{from}")
}

/// The query of the selectors for the client with that number.
pub(super) fn selectors(selection: &Selection, client: usize) -> String {
    let mut query = Vec::new();
    for (name, selector) in [("labelSelector", &selection.labels), ("fieldSelector", &selection.fields)] {
        if let Some(selector) = selector {
            let selector = for_client(selector, client);
            query.push(format!("{name}={}", utf8_percent_encode(&selector, VALUE)));
        }
    }
    query.join("&")
}

/// The selector of the client with that number.
pub(super) fn for_client(selector: &str, client: usize) -> String {
    selector.replace(CLIENT, &client.to_string())
}

/// The path with the parts of a query that are not empty.
pub(super) fn with_query(path: &str, parts: &[&str]) -> String {
    let query = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_those_of_the_api() {
        let deployments = GroupVersionResource::new("apps", "v1", "deployments");
        let path = collection(&deployments, Some("a"));
        assert_eq!(path, "/apis/apps/v1/namespaces/a/deployments");
        let selection = Selection {
            resource: deployments,
            namespace: None,
            labels: Some("app in (a,b)".to_owned()),
            fields: Some("spec.nodeName=node-{client}".to_owned()),
        };
        let version = version(ReadVersion::NotOlderThan, "7");
        assert_eq!(
            with_query(&path, &[&version, "", &selectors(&selection, 12)]),
            "/apis/apps/v1/namespaces/a/deployments?resourceVersion=7&resourceVersionMatch=NotOlderThan\
             &labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dnode-12"
        );
        assert_eq!(start(Start::Now, "7"), "watch=1&allowWatchBookmarks=true&resourceVersion=7");
        assert_eq!(with_query("/a", &[""]), "/a");
    }
}
