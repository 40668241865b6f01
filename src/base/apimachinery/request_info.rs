//! Verb and target of a request, from its method, path and query alone.
//!
//! A path is only interpreted if the API server must read it in the same way. A path that two parsers could read
//! differently (an encoded slash, dots, empty segments, the old proxy prefix) is [`Target::Ambiguous`].

use std::borrow::Cow;

use http::Method;

use crate::apimachinery::GroupVersionResource;
use crate::apimachinery::query::{Query, percent_decode};

/// Kubernetes' verb of a request on a resource, which is not the HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Any other method. This includes HEAD, which built-in and custom resources answer differently (read-path 4.1), so
    /// it is never treated as a get.
    Other,
}

impl Verb {
    /// The word that authorization, logs and metrics use for a resource. (For a path that is not a resource,
    /// authorization uses the method in lower case instead.)
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }
}

/// A path under `/api/VERSION/` or `/apis/GROUP/VERSION/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    pub resource: GroupVersionResource,
    /// `None` for all namespaces, for a cluster-scoped resource, and for the namespace `x` of `namespaces/x` itself.
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// The first segment of the subresource; any further segments (paths of `proxy`) are not kept.
    pub subresource: Option<String>,
    /// Whether the path has the deprecated `/watch/` prefix.
    pub watch_path: bool,
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Resource(ResourceRequest),
    /// Discovery, health, metrics, and all other paths outside of the groups.
    NonResource,
    /// Must be forwarded, never interpreted.
    Ambiguous,
}

/// Verb and target of a request: parsed before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    pub verb: Verb,
    pub target: Target,
}

impl RequestInfo {
    /// Takes path and query as they were sent, still encoded.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Self {
        let plain = verb_of_method(method);
        let Some(target) = parse_path(path) else { return Self { verb: plain, target: Target::Ambiguous } };
        let Target::Resource(request) = &target else { return Self { verb: plain, target } };
        match verb_of_resource(plain, request, query) {
            Some(verb) => Self { verb, target },
            None => Self { verb: plain, target: Target::Ambiguous },
        }
    }

    /// Whether the response may last as long as the client wants (read-path 9). An ambiguous path may be that of a
    /// proxied server.
    pub fn is_long_running(&self) -> bool {
        match &self.target {
            Target::Resource(request) => {
                self.verb == Verb::Watch
                    || request.subresource.as_deref().is_some_and(|part| LONG_RUNNING_SUBRESOURCES.contains(&part))
            }
            Target::NonResource => false,
            Target::Ambiguous => true,
        }
    }
}

const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

fn verb_of_method(method: &Method) -> Verb {
    match *method {
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    }
}

/// `None` if method, path and query are inconsistent.
fn verb_of_resource(plain: Verb, request: &ResourceRequest, query: Option<&str>) -> Option<Verb> {
    match (plain, request.watch_path) {
        (Verb::Get, true) => Some(Verb::Watch),
        (_, true) => None,
        (Verb::Get, false) if request.name.is_none() => {
            let watch = Query::parse(query).and_then(|query| query.flag("watch")).ok()?;
            Some(if watch == Some(true) { Verb::Watch } else { Verb::List })
        }
        (Verb::Delete, false) if request.name.is_none() => Some(Verb::DeleteCollection),
        (verb, false) => Some(verb),
    }
}

/// `None` for a path that must not be interpreted.
fn parse_path(path: &str) -> Option<Target> {
    let inner = path.strip_prefix('/')?;
    if inner.is_empty() {
        return Some(Target::NonResource);
    }
    // One trailing slash is ignored (read-path 4.4).
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let segments: Vec<Cow<'_, str>> = inner.split('/').map(decode_segment).collect::<Option<_>>()?;
    let words: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let (group, version, rest) = match *words.as_slice() {
        ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
        _ => return Some(Target::NonResource),
    };
    // No client needs to encode these segments; an encoded one may be meant to make two parsers disagree.
    if segments.iter().take(words.len() - rest.len()).any(|segment| matches!(segment, Cow::Owned(_))) {
        return None;
    }
    parse_resource(group, version, rest).map(Target::Resource)
}

fn parse_resource(group: &str, version: &str, rest: &[&str]) -> Option<ResourceRequest> {
    let (watch_path, rest) = match rest {
        // The old proxy prefix, and a watch without a resource.
        ["proxy", ..] | ["watch"] => return None,
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // `status` and `finalize` are subresources of the namespace itself.
        ["namespaces", _, "status" | "finalize", ..] => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let word = |index: usize| rest.get(index).map(|word| (*word).to_owned());
    Some(ResourceRequest {
        resource: GroupVersionResource::new(group, version, rest.first()?),
        namespace: namespace.map(str::to_owned),
        name: word(1),
        subresource: word(2),
        watch_path,
    })
}

/// Owned only if something was encoded. `None` for a segment that is empty, `.` or `..`, or contains characters that
/// names do not need.
fn decode_segment(segment: &str) -> Option<Cow<'_, str>> {
    let decoded = if segment.contains('%') {
        Cow::Owned(String::from_utf8(percent_decode(segment)?).ok()?)
    } else {
        Cow::Borrowed(segment)
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,=".contains(&byte);
    let fits = !decoded.is_empty() && decoded != "." && decoded != ".." && decoded.bytes().all(plain);
    fits.then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(method: Method, url: &str) -> RequestInfo {
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        RequestInfo::parse(&method, path, query)
    }

    /// `verb resource [ns] [name] [sub] [watch path]`, or another kind of target.
    fn words(info: &RequestInfo) -> String {
        let verb = info.verb.as_str();
        match &info.target {
            Target::NonResource => format!("{verb} non-resource"),
            Target::Ambiguous => "ambiguous".to_owned(),
            Target::Resource(request) => {
                let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
                let prefix = if request.watch_path { " /watch/" } else { "" };
                let (namespace, name, sub) =
                    (part(&request.namespace), part(&request.name), part(&request.subresource));
                format!("{verb} {} {namespace} {name} {sub}{prefix}", request.resource)
            }
        }
    }

    #[test]
    fn paths_name_resources() {
        let cases = [
            ("/api/v1/pods", "list pods.v1 - - -"),
            ("/api/v1/pods/", "list pods.v1 - - -"),
            ("/api/v1/namespaces/a/pods", "list pods.v1 a - -"),
            ("/api/v1/namespaces/a/pods/x", "get pods.v1 a x -"),
            ("/api/v1/namespaces/a/pods/x/", "get pods.v1 a x -"),
            ("/api/v1/namespaces/a/pods/x/log?follow=1", "get pods.v1 a x log"),
            ("/api/v1/namespaces/a/pods/x/proxy/some/path", "get pods.v1 a x proxy"),
            ("/api/v1/namespaces", "list namespaces.v1 - - -"),
            ("/api/v1/namespaces/a", "get namespaces.v1 - a -"),
            ("/api/v1/namespaces/a/status", "get namespaces.v1 - a status"),
            ("/api/v1/namespaces/a/finalize", "get namespaces.v1 - a finalize"),
            ("/api/v1/nodes/n1", "get nodes.v1 - n1 -"),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", "get deployments.v1.apps a d scale"),
            ("/apis/x.example.com/v1beta1/widgets", "list widgets.v1beta1.x.example.com - - -"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get clusterroles.v1.rbac.authorization.k8s.io - system:node -",
            ),
            ("/api/v1/namespaces/a/pods/%78", "get pods.v1 a x -"),
            ("/api/v1/watch/pods", "watch pods.v1 - - - /watch/"),
            ("/api/v1/watch/namespaces/a/pods/x", "watch pods.v1 a x - /watch/"),
            ("/api/v1/watch/namespaces/a", "watch namespaces.v1 - a - /watch/"),
            ("/api/v1/watch/namespaces", "watch namespaces.v1 - - - /watch/"),
        ];
        for (url, expected) in cases {
            assert_eq!(words(&parse(Method::GET, url)), expected, "{url}");
        }
    }

    #[test]
    fn other_paths_have_no_resource() {
        for url in [
            "/",
            "/version",
            "/healthz/etcd",
            "/api",
            "/api/v1",
            "/api/v1/",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/apix/v1/pods",
        ] {
            assert_eq!(words(&parse(Method::GET, url)), "get non-resource", "{url}");
        }
    }

    #[test]
    fn ambiguous_paths_are_left_to_the_server() {
        let urls = [
            "",
            "*",
            "api/v1/pods",
            "//api/v1/pods",
            "//",
            "/api/v1//pods",
            "/api/v1/namespaces//configmaps",
            "/api/v1/pods//",
            "/api/v1/namespaces/a/pods/a%2Fb",
            "/api/v1/namespaces/a/pods/a%2fb",
            "/api/v1/./pods",
            "/api/v1/namespaces/../pods",
            "/api/v1/namespaces/a/pods/%2e%2E",
            "/api/v1/pods/%",
            "/api/v1/pods/%4",
            "/api/v1/pods/%zz",
            "/api/v1/pods/%00",
            "/api/v1/pods/%ff",
            "/api/v1/pods/%25",
            "/api/v1/pods/a%20b",
            "/api/v1/pods/a%5Cb",
            "/api/v1/pods/é",
            "/api/v1/pods;x/y",
            "/%61pi/v1/pods",
            "/api/v%31/pods",
            "/apis/%61pps/v1/deployments",
            "/api/v1/proxy/nodes/n1",
            "/api/v1/watch",
            "/apis/apps/v1/watch/",
            "/api/v1/pods?watch=%zz",
            "/api/v1/pods?a=1;watch=1",
            "/api/v1/pods?watch=fal%C5%BFe",
        ];
        for url in urls {
            assert_eq!(words(&parse(Method::GET, url)), "ambiguous", "{url}");
        }
    }

    #[test]
    fn the_watch_parameter_only_matters_for_collections() {
        let cases = [
            ("/api/v1/pods?watch", "watch"),
            ("/api/v1/pods?watch=", "watch"),
            ("/api/v1/pods?watch=no", "watch"),
            ("/api/v1/pods?watch=1&watch=0", "watch"),
            ("/api/v1/pods?watch=0&watch=1", "list"),
            ("/api/v1/pods?watch=False", "list"),
            ("/api/v1/pods?Watch=1", "list"),
            ("/api/v1/namespaces/a/pods/x?watch=1", "get"),
            ("/api/v1/namespaces/a/pods/x?watch=%zz", "get"),
            ("/api/v1/watch/pods?watch=0", "watch"),
        ];
        for (url, expected) in cases {
            assert_eq!(parse(Method::GET, url).verb.as_str(), expected, "{url}");
        }
    }

    #[test]
    fn watches_logs_and_streams_are_long_running() {
        for (url, expected) in [
            ("/api/v1/pods", false),
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/watch/pods", true),
            ("/api/v1/namespaces/a/pods/x", false),
            ("/api/v1/namespaces/a/pods/x?watch=1", false),
            ("/api/v1/namespaces/a/pods/x/log", true),
            ("/api/v1/namespaces/a/pods/x/exec?command=sh", true),
            ("/api/v1/namespaces/a/services/x/proxy/some/path", true),
            ("/api/v1/namespaces/a/services/x/proxy/some%2Fpath", true),
            ("/api/v1/namespaces/a/pods/x/status", false),
            ("/version", false),
        ] {
            assert_eq!(parse(Method::GET, url).is_long_running(), expected, "{url}");
        }
    }

    #[test]
    fn methods_have_verbs() {
        let object = "/api/v1/namespaces/a/pods/x";
        let collection = "/api/v1/namespaces/a/pods";
        let cases = [
            (Method::POST, collection, Verb::Create),
            (Method::PUT, object, Verb::Update),
            (Method::PATCH, object, Verb::Patch),
            (Method::DELETE, object, Verb::Delete),
            (Method::DELETE, collection, Verb::DeleteCollection),
            (Method::HEAD, collection, Verb::Other),
            (Method::OPTIONS, object, Verb::Other),
        ];
        for (method, url, verb) in cases {
            assert_eq!(parse(method.clone(), url).verb, verb, "{method} {url}");
        }
        assert_eq!(parse(Method::POST, "/api/v1/watch/pods").target, Target::Ambiguous);
    }

    proptest! {
        #[test]
        fn never_panics(path in "(/|/api/v1|/apis/apps/v1|namespaces|watch|%2[fFe]|\\PC){0,8}", query in "\\PC{0,12}") {
            let info = RequestInfo::parse(&Method::GET, &path, Some(&query));
            if let Target::Resource(request) = info.target {
                let words = [request.namespace, request.name, request.subresource];
                for word in words.into_iter().flatten() {
                    prop_assert!(!word.contains('/') && !word.is_empty() && word != "..");
                }
            }
        }
    }
}
