//! What a read is authorized as: the attributes that the API server would derive from the same request
//! (read-path 8.3). Pure.
//!
//! The only reading of a request's target: [`Permit::scope`](super::Permit::scope) makes from the same attributes what
//! [`crate::serve`] may look at, so that nothing is authorized as one thing and served as another. Requests that are about no
//! resource, or ambiguous, have no attributes: they are never answered from memory.

use crate::apimachinery::{FieldSelector, GroupVersionResource, LabelCondition, LabelSelector};
use crate::apimachinery::{Query, ResourceRequest, Verb};

/// What is asked for, as authorizers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    pub(super) verb: Verb,
    pub(super) resource: GroupVersionResource,
    pub(super) subresource: Option<Box<str>>,
    /// The namespace of the path; see [`Self::review_namespace`].
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Option<Name>,
    /// As the client wrote them, whatever other names the resource has for its fields. Empty if it wrote none, or none
    /// that can be read.
    pub(super) fields: FieldSelector,
    /// As authorizers are told of it, so that what they do not see makes no other question.
    pub(super) labels: LabelSelector,
}

/// The name of the one object, or of those in all namespaces, that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The path has it.
    Path(Box<str>),
    /// The field selector requires it as `metadata.name`.
    Selector(Box<str>),
}

impl Attributes {
    /// The attributes of a request, from its verb, target and query as they were read once.
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
        // The paths that are watches by their prefix have never had selectors for authorizers.
        if of_many && !request.watch_path {
            attributes.select(query);
        }
        attributes
    }

    fn select(&mut self, query: Option<&str>) {
        let Ok(query) = Query::parse(query) else { return };
        let fields = query.text("fieldSelector").map_or_else(|| Ok(FieldSelector::default()), FieldSelector::parse);
        let labels = query.text("labelSelector").map_or_else(|| Ok(LabelSelector::default()), LabelSelector::parse);
        // One parameter that cannot be decoded, and the server knows none of them when it looks for a name.
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

    /// The namespace that authorizers are told: a namespace itself is read within itself, since a role there may allow it.
    /// Not so one that a selector names.
    pub(super) fn review_namespace(&self) -> Option<&str> {
        let itself = || match &self.name {
            Some(Name::Path(name)) if &*self.resource.resource == "namespaces" => Some(&**name),
            Some(Name::Path(_) | Name::Selector(_)) | None => None,
        };
        self.namespace.as_deref().or_else(itself)
    }

    /// The name that authorizers are told, wherever it stands.
    pub(super) fn name(&self) -> Option<&str> {
        match self.name.as_ref()? {
            Name::Path(name) | Name::Selector(name) => Some(name),
        }
    }

    /// Bytes that the client chose.
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

/// Whether the text can stand for a name in a path.
fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    use crate::apimachinery::{RequestInfo, Target};

    fn attributes(method: &Method, url: &str) -> Attributes {
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(method, path, query);
        let Target::Resource(request) = &info.target else { panic!("{url} is no resource") };
        Attributes::of(info.verb, request, query)
    }

    /// `verb group/version/resource[/subresource] namespace name`, `-` for what is not there.
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
            // A namespace lies within itself; all of them, and those of selectors, in none.
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
            // No segment of a path.
            ("fieldSelector=metadata.name=", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=.", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=..", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=a/b", "list pods.v1 a -"),
            ("fieldSelector=metadata.name=a%2525", "list pods.v1 a -"),
            // Something else does not decode.
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
    fn selectors_are_those_of_many_objects() {
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
    fn a_selector_that_cannot_be_read_is_left_out_alone() {
        let attributes = attributes(&Method::GET, "/api/v1/pods?fieldSelector=nonsense&labelSelector=a&limit=abc");
        assert!(attributes.fields.is_empty() && !attributes.labels.is_empty());
    }

    #[test]
    fn size_counts_what_the_client_chose() {
        let plain = attributes(&Method::GET, "/api/v1/namespaces/a/pods").size();
        let url = "/api/v1/namespaces/a/pods?fieldSelector=ab=c&labelSelector=k+in+(v,ww),x";
        assert_eq!(attributes(&Method::GET, url).size(), plain + 3 + 4 + 1);
    }
}
