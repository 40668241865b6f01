//! Whether memory may answer a request at all: a pure function of the request and the configuration.

use std::collections::HashSet;

use http::{Method, Request, header};
use memchr::memmem;

use crate::{
    cacher::Cachers,
    forward,
    serve::{self, Downstream, ForwardReason, SMALL_ANSWER},
};
use base::{
    apimachinery::{
        self, FieldSelector, Freshness, GetOptions, GroupResource, IncludeObject, LabelSelector, ListOptions,
        Representation, RequestInfo, ResourceRequest, ResponseKind, Target, Verb, View, WatchOptions,
    },
    config::MostRecentReads,
};

/// A read that memory may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadVerb {
    Get,
    List,
    Watch,
}

/// What to read, with which parameters, and in which form to answer.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) target: &'a ResourceRequest,
    pub(super) options: ReadOptions,
    /// The representations that the client accepts, best first.
    pub(super) representations: Vec<Representation>,
    /// What the rows of a Table contain, if the client accepts one.
    pub(super) include_object: IncludeObject,
}

/// The parameters of a read. Parsed here once, from the query.
#[derive(Debug)]
pub(super) enum ReadOptions {
    Get(GetOptions),
    List(ListOptions),
    Watch(WatchOptions),
}

/// Maximum bytes of the name and the namespace of an object that memory answers about. Names of nearly all resources
/// are DNS subdomains, and namespaces are DNS labels. What is longer would be held as long as a watch lasts.
const NAME_MAX: usize = 253;
const NAMESPACE_MAX: usize = 63;

/// More commas than the selectors have that memory evaluates. They are counted first, because selectors of 64 KB take
/// milliseconds to parse.
const COMMAS_MAX: usize = 1500;

/// Whether the selectors of a query are certainly costly, or invalid.
pub(super) fn has_many_commas(query: &str) -> bool {
    let [upper, lower] = [&b"%2C"[..], b"%2c"].map(|comma| memmem::find_iter(query.as_bytes(), comma).count());
    memchr::memchr_iter(b',', query.as_bytes()).count() + upper + lower > COMMAS_MAX
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

impl ReadOptions {
    fn parse(verb: ReadVerb, target: &ResourceRequest, query: Option<&str>) -> Result<Self, ForwardReason> {
        if verb != ReadVerb::Get && query.is_some_and(has_many_commas) {
            return Err(ForwardReason::CostlySelector);
        }
        let options = match verb {
            ReadVerb::Get => GetOptions::parse(query).map(Self::Get),
            ReadVerb::List => ListOptions::parse(query).map(Self::List),
            ReadVerb::Watch => WatchOptions::parse(query, target.watch_path).map(Self::Watch),
        };
        let options = options.map_err(|_| ForwardReason::InvalidOptions)?;
        // Upstream refuses a field selector together with a name in the path, unless it selects that name.
        if let Self::Watch(WatchOptions { fields, .. }) = &options
            && let Some(name) = &target.name
            && !fields.is_empty()
            && fields.exact("metadata.name") != Some(name)
        {
            return Err(ForwardReason::InvalidOptions);
        }
        // Found here, before the client is reviewed and the cache is filled.
        if let Some((labels, fields)) = options.selectors()
            && (labels.is_costly() || fields.is_costly())
        {
            return Err(ForwardReason::CostlySelector);
        }
        Ok(options)
    }

    pub(super) const fn verb(&self) -> ReadVerb {
        match self {
            Self::Get(_) => ReadVerb::Get,
            Self::List(_) => ReadVerb::List,
            Self::Watch(_) => ReadVerb::Watch,
        }
    }

    /// `None` for a get.
    pub(super) fn selectors(&self) -> Option<(&LabelSelector, &FieldSelector)> {
        match self {
            Self::Get(_) => None,
            Self::List(ListOptions { labels, fields, .. }) | Self::Watch(WatchOptions { labels, fields, .. }) => {
                Some((labels, fields))
            }
        }
    }

    /// Whether this is a list or a watch of shards.
    pub(super) fn is_sharded(&self) -> bool {
        match self {
            Self::Get(_) => false,
            Self::List(ListOptions { shards, .. }) | Self::Watch(WatchOptions { shards, .. }) => shards.is_some(),
        }
    }

    /// Whether this is a get or a list of the most recent state.
    fn wants_most_recent(&self) -> bool {
        match self {
            Self::Get(options) => options.freshness == Freshness::MostRecent,
            Self::List(options) => options.freshness == Freshness::MostRecent && options.continue_token.is_none(),
            Self::Watch(_) => false,
        }
    }
}

/// What to read, or why the request goes upstream whatever the caches hold. `exclude` are the resources that are never
/// cached.
pub(super) fn decide<'a, B>(
    request: &Request<B>,
    info: &'a RequestInfo,
    exclude: &HashSet<GroupResource>,
) -> Result<Route<'a>, ForwardReason> {
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
    let is_long = |text: &Option<String>, most: usize| text.as_ref().is_some_and(|text| text.len() > most);
    if is_long(&target.name, NAME_MAX) || is_long(&target.namespace, NAMESPACE_MAX) {
        return Err(ForwardReason::LongName);
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
    let accepts_table = representations.iter().any(is_table);
    if accepts_table && !serve::may_print(&target.resource, None) {
        return Err(ForwardReason::Representation);
    }
    if exclude.contains(&target.resource.group_resource()) {
        return Err(ForwardReason::Excluded);
    }
    let query = request.uri().query();
    let options = ReadOptions::parse(verb, target, query)?;
    let include_object = if accepts_table {
        IncludeObject::parse(query).map_err(|_| ForwardReason::InvalidOptions)?
    } else {
        IncludeObject::Metadata
    };
    Ok(Route { target, options, representations, include_object })
}

pub(super) fn is_table(representation: &Representation) -> bool {
    matches!(representation.view, View::Table(_))
}

/// Why a get or a list of the most recent state has to be forwarded, if that is known without a review of the client;
/// `None` otherwise.
pub(super) fn unanswerable(
    Route { target, options, representations, .. }: &Route<'_>,
    downstream: Downstream,
    most_recent: MostRecentReads,
    cachers: &Cachers,
) -> Option<ForwardReason> {
    if !options.wants_most_recent() {
        return None;
    }
    if matches!(options, ReadOptions::List(options) if downstream.asks_for_head(options)) {
        return None;
    }
    let held =
        || representations.iter().find_map(|representation| cachers.bytes(&target.resource, representation.encoding));
    match (most_recent, options.verb()) {
        (MostRecentReads::Forward, _) => Some(ForwardReason::MostRecent),
        (MostRecentReads::Auto, ReadVerb::Get) => Some(ForwardReason::MostRecentSmall),
        (MostRecentReads::Auto, _) => {
            held().filter(|bytes| *bytes <= SMALL_ANSWER).map(|_| ForwardReason::MostRecentSmall)
        }
        (MostRecentReads::Prove, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::apimachinery::GroupVersionResource;

    fn decided(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<ReadVerb, ForwardReason> {
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(()).expect("a request");
        let info = RequestInfo::parse(request.method(), request.uri().path(), request.uri().query());
        let exclude = [("", "events"), ("apps", "deployments")];
        let exclude = exclude.map(|(group, name)| GroupVersionResource::new(group, "v1", name).group_resource());
        let exclude = HashSet::from(exclude);
        decide(&request, &info, &exclude).map(|route| route.options.verb())
    }

    #[test]
    fn only_plain_reads_of_cached_resources_may_come_from_memory() {
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
            ("GET", &format!("/api/v1/watch/namespaces/a/pods/{}", "x".repeat(253)), &[], Ok(ReadVerb::Watch)),
            ("GET", &format!("/api/v1/watch/namespaces/a/pods/{}", "x".repeat(254)), &[], Err(LongName)),
            ("GET", &format!("/api/v1/namespaces/{}/pods", "x".repeat(63)), &[], Ok(ReadVerb::List)),
            ("GET", &format!("/api/v1/namespaces/{}/pods", "x".repeat(64)), &[], Err(LongName)),
            ("POST", "/api/v1/namespaces/a/pods", &[], Err(NotARead)),
            ("HEAD", "/apis/x.io/v1/widgets", &[], Err(NotARead)),
            ("GET", "/version", &[], Err(NonResourcePath)),
            ("GET", "/api/v1/namespaces/a%2Fb/pods", &[], Err(AmbiguousPath)),
            ("GET", "/api/v1/pods", &[("accept", "application/yaml")], Err(Representation)),
            ("GET", "/api/v1/pods", &table, Ok(ReadVerb::List)),
            ("GET", "/api/v1/events", &table, Err(Representation)),
            ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &table, Err(Representation)),
            ("GET", "/apis/x.io/v1/widgets", &table, Ok(ReadVerb::List)),
            ("GET", "/apis/x.io/v1/widgets?watch=1", &table, Ok(ReadVerb::Watch)),
            ("GET", "/api/v1/events?watch=1", &table, Err(Representation)),
            ("GET", "/api/v1/pods?watch=1&includeObject=x", &table, Err(InvalidOptions)),
            ("GET", "/api/v1/events", &[], Err(Excluded)),
            ("GET", "/api/v1/namespaces/a/events/b?resourceVersion=x", &[], Err(Excluded)),
            ("GET", "/apis/apps/v1/deployments?watch=1", &[], Err(Excluded)),
            ("GET", "/apis/events.k8s.io/v1/events", &[], Ok(ReadVerb::List)),
            ("GET", "/api/v1/pods?resourceVersion=x", &[], Err(InvalidOptions)),
            ("GET", "/api/v1/pods?watch=1&sendInitialEvents=true", &[], Err(InvalidOptions)),
            ("GET", "/api/v1/namespaces/a/pods/b?export=1", &[], Err(InvalidOptions)),
            ("GET", "/api/v1/pods?includeObject=x", &table, Err(InvalidOptions)),
            ("GET", "/api/v1/pods?includeObject=x", &[], Ok(ReadVerb::List)),
        ] {
            assert_eq!(decided(method, path, headers), expected, "{method} {path} {headers:?}");
        }
    }
}
