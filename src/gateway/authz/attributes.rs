//! Authorization attributes of a read, as the API server would derive them from the same request (read-path 8.3). Pure.
//!
//! This is the only place that interprets a request's target: [`Permit::scope`](super::Permit::scope) derives from the
//! same attributes what [`crate::serve`] may read, so that a request is not authorized as one thing and served as
//! another. Requests that are ambiguous, or not about a resource, have no attributes and are never answered from
//! memory.

use base::apimachinery::{FieldSelector, GroupVersionResource, LabelCondition, LabelSelector};
use base::apimachinery::{Query, ResourceRequest, Verb};

/// The attributes of a request, as authorizers see them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    pub(super) verb: Verb,
    pub(super) resource: GroupVersionResource,
    pub(super) subresource: Option<Box<str>>,
    /// The namespace of the path; see [`Self::review_namespace`].
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Option<Name>,
    /// The field selector as the client wrote it, before the resource's conversions of field names. Empty if it is
    /// absent or cannot be parsed.
    pub(super) fields: FieldSelector,
    /// The label selector as reviews express it, so that requests which authorizers cannot tell apart share one
    /// question.
    pub(super) labels: LabelSelector,
}

/// The object name that a request is about, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// From the path.
    Path(Box<str>),
    /// Required by the field selector as `metadata.name`.
    Selector(Box<str>),
}

impl Attributes {
    /// The attributes of a request, from its parsed verb, target and query.
    pub fn of(verb: Verb, request: &ResourceRequest, query: Option<&str>) -> Self {
        let mut attributes = Self {
            verb,
            resource: request.resource.clone(),
            subresource: request.subresource.as_deref().map(Into::into),
            namespace: request.namespace.as_deref().map(Into::into),
            name: request.name.as_deref().map(|name| Name::Path(name.into())),
            fields: FieldSelector::default(),
            labels: LabelSelector::default(),
        };
        let of_many = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        // For paths with the `/watch/` prefix, the API server gives authorizers no selectors.
        if of_many && !request.watch_path {
            attributes.select(query);
        }
        attributes
    }

    fn select(&mut self, query: Option<&str>) {
        let Ok(query) = Query::parse(query) else { return };
        let fields = query.text("fieldSelector").map_or_else(|| Ok(FieldSelector::default()), FieldSelector::parse);
        let labels = query.text("labelSelector").map_or_else(|| Ok(LabelSelector::default()), LabelSelector::parse);
        // If any option cannot be decoded, the API server ignores all of them when it looks for a name.
        let decodes = fields.is_ok()
            && labels.is_ok()
            && ["limit", "timeoutSeconds"].into_iter().all(|number| query.integer(number).is_ok());
        self.fields = fields.unwrap_or_default();
        self.labels = labels.unwrap_or_default().as_authorized();
        if decodes && matches!(self.verb, Verb::List | Verb::Watch) {
            let name = self.fields.exact("metadata.name").filter(|name| is_path_segment(name));
            self.name = name.map(|name| Name::Selector(name.into()));
        }
    }

    /// The namespace given to authorizers. A namespace object counts as within itself, since a role there may allow the
    /// request; but not one that a selector names.
    pub(super) fn review_namespace(&self) -> Option<&str> {
        let itself = || match &self.name {
            Some(Name::Path(name)) if &*self.resource.resource == "namespaces" => Some(&**name),
            Some(Name::Path(_) | Name::Selector(_)) | None => None,
        };
        self.namespace.as_deref().or_else(itself)
    }

    /// The name given to authorizers, from the path or the selector.
    pub(super) fn name(&self) -> Option<&str> {
        match self.name.as_ref()? {
            Name::Path(name) | Name::Selector(name) => Some(name),
        }
    }

    /// An estimate of the memory that the name and the selectors take, in bytes. Namespaces are short.
    pub(super) fn own_bytes(&self) -> usize {
        self.name().map_or(0, str::len) + self.fields.own_bytes() + self.labels.own_bytes()
    }

    /// Size in bytes of what the client chose.
    pub(super) fn size(&self) -> usize {
        let words = [self.subresource.as_deref(), self.review_namespace(), self.name()];
        let words = words.into_iter().flatten().map(str::len).sum::<usize>();
        let resource = [&self.resource.group, &self.resource.version, &self.resource.resource];
        let resource = resource.map(|word| word.len()).into_iter().sum::<usize>();
        let fields = self.fields.requirements().iter().map(|term| term.field.len() + term.value.len()).sum::<usize>();
        let labels = self.labels.requirements().iter().map(|term| {
            let values = match &term.condition {
                LabelCondition::In(values) | LabelCondition::NotIn(values) => &**values,
                LabelCondition::Exists
                | LabelCondition::DoesNotExist
                | LabelCondition::GreaterThan(_)
                | LabelCondition::LessThan(_) => &[],
            };
            term.key.len() + values.iter().map(|value| value.len()).sum::<usize>()
        });
        words + resource + fields + labels.sum::<usize>()
    }
}

/// Whether the text is valid as a name in a path.
fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    use base::apimachinery::{RequestInfo, Target};

    fn attributes(method: &Method, url: &str) -> Attributes {
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(method, path, query);
        let Target::Resource(request) = &info.target else { panic!("{url} is no resource") };
        Attributes::of(info.verb, request, query)
    }

    /// `verb group/version/resource[/subresource] namespace name`, with `-` for what is absent.
    fn words(attributes: &Attributes) -> String {
        let Attributes { verb, resource, subresource, .. } = attributes;
        let (namespace, name) = (attributes.review_namespace().unwrap_or("-"), attributes.name().unwrap_or("-"));
        let sub = subresource.as_ref().map(|word| format!("/{word}")).unwrap_or_default();
        format!("{} {resource}{sub} {namespace} {name}", verb.as_str())
    }

    #[test]
    fn methods_and_paths_give_verb_resource_namespace_and_name() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/pods/x", "get pods.v1 a x"),
            ("GET", "/api/v1/namespaces/a/pods/x?watch=1", "get pods.v1 a x"),
            ("GET", "/api/v1/namespaces/a/pods", "list pods.v1 a -"),
            ("GET", "/api/v1/pods?watch=0", "list pods.v1 - -"),
            ("GET", "/api/v1/pods?watch", "watch pods.v1 - -"),
            ("GET", "/api/v1/watch/namespaces/a/pods/x", "watch pods.v1 a x"),
            ("GET", "/api/v1/watch/pods?watch=0", "watch pods.v1 - -"),
            ("POST", "/api/v1/namespaces/a/pods", "create pods.v1 a -"),
            ("PUT", "/api/v1/namespaces/a/pods/x", "update pods.v1 a x"),
            ("PATCH", "/api/v1/namespaces/a/pods/x", "patch pods.v1 a x"),
            ("DELETE", "/api/v1/namespaces/a/pods/x", "delete pods.v1 a x"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods.v1 a -"),
            ("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", "get deployments.v1.apps/scale a d"),
            ("GET", "/api/v1/namespaces/a/pods/x/exec", "get pods.v1/exec a x"),
            ("GET", "/api/v1/nodes/n", "get nodes.v1 - n"),
            // A namespace object is within itself; a list of namespaces, with or without a selector, is in none.
            ("GET", "/api/v1/namespaces/a", "get namespaces.v1 a a"),
            ("GET", "/api/v1/namespaces/a/status", "get namespaces.v1/status a a"),
            ("GET", "/api/v1/watch/namespaces/a", "watch namespaces.v1 a a"),
            ("GET", "/api/v1/namespaces", "list namespaces.v1 - -"),
            ("GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Da", "list namespaces.v1 - a"),
        ];
        for (method, url, expected) in cases {
            assert_eq!(words(&attributes(&method.parse().unwrap(), url)), expected, "{method} {url}");
        }
    }

    #[test]
    fn one_required_name_is_the_name() {
        let cases = [
            ("fieldSelector=metadata.name=x", "list pods.v1 a x"),
            ("fieldSelector=metadata.name==x", "list pods.v1 a x"),
            ("watch=1&fieldSelector=metadata.name=x", "watch pods.v1 a x"),
            ("fieldSelector=spec.nodeName=n,metadata.name=x", "list pods.v1 a x"),
            ("fieldSelector=metadata.name=y,metadata.name=x", "list pods.v1 a x"),
            ("fieldSelector=metadata.name=x&fieldSelector=metadata.name=y", "list pods.v1 a x"),
            ("fieldSelector=metadata.name=x&limit=5&timeoutSeconds=7&resourceVersion=abc", "list pods.v1 a x"),
            ("fieldSelector=metadata.name!=x", "list pods.v1 a -"),
            ("fieldSelector=Metadata.name=x", "list pods.v1 a -"),
            ("fieldSelector=spec.nodeName=n", "list pods.v1 a -"),
            // Not a valid path segment.
            ("fieldSelector=metadata.name=", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=.", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=..", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=a/b", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=a%2525", "list pods.v1 a -"),
            // Another option cannot be decoded.
            ("fieldSelector=metadata.name=x&limit=abc", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=x&limit=", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=x&timeoutSeconds=1.5", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=x&labelSelector=%21%21", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=x,nonsense", "list pods.v1 a -"),
            ("watch=1&fieldSelector=metadata.name=x&limit=abc", "watch pods.v1 a -"),
        ];
        for (query, expected) in cases {
            let url = format!("/api/v1/namespaces/a/pods?{query}");
            assert_eq!(words(&attributes(&Method::GET, &url)), expected, "{query}");
        }
        let deletion = attributes(&Method::DELETE, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=x");
        assert_eq!(words(&deletion), "deletecollection pods.v1 a -");
        let by_prefix = attributes(&Method::GET, "/api/v1/watch/namespaces/a/pods?fieldSelector=metadata.name=x");
        assert_eq!(words(&by_prefix), "watch pods.v1 a -");
    }

    #[test]
    fn only_requests_for_many_objects_have_selectors() {
        let selectors = "fieldSelector=spec.host=n&labelSelector=app=web";
        let cases = [
            ("GET", "/api/v1/pods?", true),
            ("GET", "/api/v1/pods?watch=1&", true),
            ("DELETE", "/api/v1/namespaces/a/pods?", true),
            ("GET", "/api/v1/watch/pods?", false),
            ("GET", "/api/v1/namespaces/a/pods/x?", false),
            ("DELETE", "/api/v1/namespaces/a/pods/x?", false),
            ("POST", "/api/v1/namespaces/a/pods?", false),
        ];
        for (method, url, selected) in cases {
            let Attributes { fields, labels, .. } = attributes(&method.parse().unwrap(), &format!("{url}{selectors}"));
            assert_eq!((!fields.is_empty(), !labels.is_empty()), (selected, selected), "{method} {url}");
        }
    }

    #[test]
    fn only_the_invalid_selector_is_left_out() {
        let attributes = attributes(&Method::GET, "/api/v1/pods?fieldSelector=nonsense&labelSelector=a&limit=abc");
        assert!(attributes.fields.is_empty() && !attributes.labels.is_empty());
    }

    #[test]
    fn size_counts_the_text_chosen_by_the_client() {
        let plain = attributes(&Method::GET, "/api/v1/namespaces/a/pods").size();
        let url = "/api/v1/namespaces/a/pods?fieldSelector=ab=c&labelSelector=k+in+(v,ww),x";
        assert_eq!(attributes(&Method::GET, url).size(), plain + 3 + 4 + 1);
    }
}
