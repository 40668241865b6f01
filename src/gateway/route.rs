//! Whether memory may answer a request at all: a pure function of the request.

use http::{Method, Request, header};

use crate::{
    apimachinery::{self, Query, Representation, RequestInfo, ResourceRequest, ResponseKind, Target, Verb, View},
    cacher::Cachers,
    forward,
    serve::{self, ForwardReason, MostRecent, SMALL_ANSWER},
};

/// A read that memory may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadVerb {
    Get,
    List,
    Watch,
}

/// What to read, and in which representations, best first.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) verb: ReadVerb,
    pub(super) target: &'a ResourceRequest,
    pub(super) representations: Vec<Representation>,
}

impl ReadVerb {
    const fn response_kind(self) -> ResponseKind {
        match self {
            Self::Get => ResponseKind::Object,
            Self::List => ResponseKind::List,
            Self::Watch => ResponseKind::Watch,
        }
    }
}

/// What to read, or why the request goes upstream whatever the caches hold.
pub(super) fn decide<'a, B>(request: &Request<B>, info: &'a RequestInfo) -> Result<Route<'a>, ForwardReason> {
    let target = match &info.target {
        Target::Resource(target) => target,
        Target::NonResource => return Err(ForwardReason::NonResourcePath),
        Target::Ambiguous => return Err(ForwardReason::AmbiguousPath),
    };
    let verb = match info.verb {
        Verb::Get => ReadVerb::Get,
        Verb::List => ReadVerb::List,
        Verb::Watch => ReadVerb::Watch,
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection | Verb::Other => {
            return Err(ForwardReason::NotARead);
        }
    };
    if request.method() != Method::GET {
        return Err(ForwardReason::NotARead);
    }
    if target.subresource.is_some() {
        return Err(ForwardReason::Subresource);
    }
    if forward::is_upgrade(request) {
        return Err(ForwardReason::Upgrade);
    }
    let accept = request.headers().get_all(header::ACCEPT);
    let representations =
        apimachinery::negotiate(accept, verb.response_kind()).map_err(|_| ForwardReason::Representation)?;
    // No cache is started for what cannot be printed.
    if representations.iter().any(is_table) && !serve::may_print(&target.resource, None) {
        return Err(ForwardReason::Representation);
    }
    Ok(Route { verb, target, representations })
}

pub(super) fn is_table(representation: &Representation) -> bool {
    matches!(representation.view, View::Table(_))
}

/// Why a get or a list of the most recent state has to be forwarded, if that is known without a review of the client;
/// `None` otherwise.
pub(super) fn hopeless(
    Route { verb, target, representations }: &Route<'_>,
    query: Option<&str>,
    most_recent: MostRecent,
    cachers: &Cachers,
) -> Option<ForwardReason> {
    if !wants_most_recent(*verb, query) {
        return None;
    }
    let held =
        || representations.iter().find_map(|representation| cachers.bytes(&target.resource, representation.encoding));
    match (most_recent, verb) {
        (MostRecent::Forward, _) => Some(ForwardReason::MostRecent),
        (MostRecent::Auto, ReadVerb::Get) => Some(ForwardReason::MostRecentSmall),
        (MostRecent::Auto, _) => held().filter(|bytes| *bytes <= SMALL_ANSWER).map(|_| ForwardReason::MostRecentSmall),
        (MostRecent::Prove, _) => None,
    }
}

/// Whether a read is of the most recent state and no watch.
fn wants_most_recent(verb: ReadVerb, query: Option<&str>) -> bool {
    let Ok(query) = Query::parse(query) else { return false };
    let is_empty = |parameter| query.text(parameter).is_none_or(str::is_empty);
    match verb {
        ReadVerb::Get => is_empty("resourceVersion"),
        ReadVerb::List => is_empty("resourceVersion") && is_empty("continue"),
        ReadVerb::Watch => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<ReadVerb, ForwardReason> {
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(()).expect("a request");
        let info = RequestInfo::parse(request.method(), request.uri().path(), request.uri().query());
        decide(&request, &info).map(|route| route.verb)
    }

    #[test]
    fn only_plain_reads_in_json_may_come_from_memory() {
        use ForwardReason::*;
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
        let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
        for (method, path, headers, expected) in [
            ("GET", "/api/v1/pods", &[][..], Ok(ReadVerb::List)),
            ("GET", "/api/v1/pods?watch=1", &[], Ok(ReadVerb::Watch)),
            ("GET", "/api/v1/watch/pods", &[], Ok(ReadVerb::Watch)),
            ("GET", "/api/v1/namespaces/a/pods/b", &[("accept", "application/json, */*")], Ok(ReadVerb::Get)),
            ("GET", "/api/v1/namespaces/a/pods/b/log", &[], Err(Subresource)),
            ("GET", "/api/v1/namespaces/a/pods/b/exec", &upgrade, Err(Subresource)),
            ("GET", "/api/v1/pods?watch=1", &upgrade, Err(Upgrade)),
            ("POST", "/api/v1/namespaces/a/pods", &[], Err(NotARead)),
            ("HEAD", "/apis/x.io/v1/widgets", &[], Err(NotARead)),
            ("GET", "/version", &[], Err(NonResourcePath)),
            ("GET", "/api/v1/namespaces/a%2Fb/pods", &[], Err(AmbiguousPath)),
            ("GET", "/api/v1/pods", &[("accept", "application/yaml")], Err(Representation)),
            ("GET", "/api/v1/pods", &table, Ok(ReadVerb::List)),
            ("GET", "/api/v1/events", &table, Err(Representation)),
            ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &table, Err(Representation)),
            ("GET", "/apis/x.io/v1/widgets", &table, Ok(ReadVerb::List)),
            ("GET", "/apis/x.io/v1/widgets?watch=1", &table, Err(Representation)),
        ] {
            assert_eq!(decided(method, path, headers), expected, "{method} {path} {headers:?}");
        }
    }
}
