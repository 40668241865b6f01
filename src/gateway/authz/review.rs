//! Builds SubjectAccessReviews, and interprets their answers. Pure.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldSelectorRequirement, LabelSelectorRequirement};

use quick_cache::Equivalent;

use super::attributes::Attributes;
use base::apimachinery::{FieldRequirement, LabelCondition, LabelRequirement, UserInfo, Verb};

/// API path of the reviews.
pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Whether a user may make a request. Equal questions have the same answer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) user: Arc<UserInfo>,
    pub(super) attributes: Attributes,
    /// The number of the storage that it is about: another cluster has rules of its own.
    pub(super) storage: u64,
}

/// A borrowed question, to look up cached ones: it hashes and compares like `Question`.
#[derive(Hash)]
pub(super) struct Asked<'a> {
    pub(super) user: &'a UserInfo,
    pub(super) attributes: &'a Attributes,
    pub(super) storage: u64,
}

impl Equivalent<Arc<Question>> for Asked<'_> {
    fn equivalent(&self, question: &Arc<Question>) -> bool {
        let same_user = *self.user == *question.user;
        same_user && *self.attributes == question.attributes && self.storage == question.storage
    }
}

impl Question {
    /// The same question about another storage.
    pub(super) fn about(&self, storage: u64) -> Self {
        Self { user: self.user.clone(), attributes: self.attributes.clone(), storage }
    }

    pub(super) fn review(&self) -> SubjectAccessReview {
        let user = &*self.user;
        let spec = SubjectAccessReviewSpec {
            user: given(&user.name),
            uid: given(&user.uid),
            groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
            extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
            resource_attributes: Some(resource_attributes(&self.attributes)),
            non_resource_attributes: None,
        };
        SubjectAccessReview { spec, ..Default::default() }
    }
}

/// Whether the review allows the request; `None` if there is no status, or it both allows and denies.
pub(super) fn is_allowed(status: Option<&SubjectAccessReviewStatus>) -> Option<bool> {
    let status = status?;
    match (status.allowed, status.denied.unwrap_or(false)) {
        (true, true) => None,
        (allowed, _) => Some(allowed),
    }
}

fn resource_attributes(attributes: &Attributes) -> ResourceAttributes {
    let fields: Vec<_> = attributes.fields.requirements().iter().map(field_requirement).collect();
    let labels: Vec<_> = attributes.labels.requirements().iter().filter_map(label_requirement).collect();
    ResourceAttributes {
        verb: (attributes.verb != Verb::Other).then(|| attributes.verb.as_str().to_owned()),
        group: given(&attributes.resource.group),
        version: given(&attributes.resource.version),
        resource: given(&attributes.resource.resource),
        subresource: attributes.subresource.as_deref().map(str::to_owned),
        namespace: attributes.review_namespace().map(str::to_owned),
        name: attributes.name().map(str::to_owned),
        field_selector: (!fields.is_empty())
            .then_some(FieldSelectorAttributes { requirements: Some(fields), raw_selector: None }),
        label_selector: (!labels.is_empty())
            .then_some(LabelSelectorAttributes { requirements: Some(labels), raw_selector: None }),
    }
}

fn field_requirement(requirement: &FieldRequirement) -> FieldSelectorRequirement {
    FieldSelectorRequirement {
        key: requirement.field.clone(),
        operator: if requirement.equals { IN } else { NOT_IN }.to_owned(),
        values: Some(vec![requirement.value.clone()]),
    }
}

/// `None` for a requirement that reviews have no operator for; the review then covers more objects than are read.
fn label_requirement(requirement: &LabelRequirement) -> Option<LabelSelectorRequirement> {
    let (operator, values) = match &requirement.condition {
        LabelCondition::Exists => ("Exists", None),
        LabelCondition::DoesNotExist => ("DoesNotExist", None),
        LabelCondition::In(values) => (IN, Some(values)),
        LabelCondition::NotIn(values) => (NOT_IN, Some(values)),
        LabelCondition::GreaterThan(_) | LabelCondition::LessThan(_) => return None,
    };
    let values = values.map(|values| values.iter().map(|value| value.to_string()).collect());
    Some(LabelSelectorRequirement { key: requirement.key.to_string(), operator: operator.to_owned(), values })
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

const IN: &str = "In";
const NOT_IN: &str = "NotIn";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use base::apimachinery::{RequestInfo, Target};

    fn jane() -> UserInfo {
        UserInfo {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["devs".to_owned(), "system:authenticated".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
        }
    }

    fn review(user: UserInfo, url: &str) -> serde_json::Value {
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(&http::Method::GET, path, query);
        let Target::Resource(request) = &info.target else { panic!("{url} is no resource") };
        let attributes = Attributes::of(info.verb, request, query);
        serde_json::to_value(Question { user: Arc::new(user), attributes, storage: 0 }.review()).unwrap()
    }

    #[test]
    fn a_review_has_the_user_and_the_attributes() {
        let attributes = json!({"verb": "get", "group": "apps", "version": "v1", "resource": "deployments",
            "subresource": "scale", "namespace": "a", "name": "d"});
        let expected = json!({"user": "jane", "uid": "7", "groups": ["devs", "system:authenticated"],
            "extra": {"scopes": ["a", "b"]}, "resourceAttributes": attributes});
        let review = review(jane(), "/apis/apps/v1/namespaces/a/deployments/d/scale");
        assert_eq!(review["spec"], expected);
        assert_eq!(
            (&review["kind"], &review["apiVersion"]),
            (&json!("SubjectAccessReview"), &json!("authorization.k8s.io/v1"))
        );
    }

    #[test]
    fn absent_attributes_are_left_out() {
        let anonymous = UserInfo { name: "system:anonymous".to_owned(), ..Default::default() };
        let expected = json!({"user": "system:anonymous",
            "resourceAttributes": {"verb": "list", "version": "v1", "resource": "pods"}});
        assert_eq!(review(anonymous, "/api/v1/pods")["spec"], expected);
    }

    #[test]
    fn selectors_become_requirements() {
        let url = "/api/v1/pods?fieldSelector=spec.host!=n,metadata.name=x\
            &labelSelector=z,!y,b+in+(2,1),a!=1,c=,n>5,m<3,d+notin+(x)";
        let attributes = &review(jane(), url)["spec"]["resourceAttributes"];
        assert_eq!(attributes["name"], "x");
        assert_eq!(
            attributes["fieldSelector"]["requirements"],
            json!([
                {"key": "metadata.name", "operator": "In", "values": ["x"]},
                {"key": "spec.host", "operator": "NotIn", "values": ["n"]},
            ])
        );
        assert_eq!(
            attributes["labelSelector"]["requirements"],
            json!([
                {"key": "a", "operator": "NotIn", "values": ["1"]},
                {"key": "b", "operator": "In", "values": ["1", "2"]},
                {"key": "c", "operator": "In", "values": [""]},
                {"key": "d", "operator": "NotIn", "values": ["x"]},
                {"key": "y", "operator": "DoesNotExist"},
                {"key": "z", "operator": "Exists"},
            ])
        );
        let attributes = &review(jane(), "/api/v1/pods?fieldSelector=nonsense&labelSelector=n>5")["spec"];
        assert_eq!(attributes["resourceAttributes"], json!({"verb": "list", "version": "v1", "resource": "pods"}));
    }

    #[test]
    fn contradictory_answers_are_no_verdict() {
        let status = |allowed, denied| SubjectAccessReviewStatus { allowed, denied, ..Default::default() };
        assert_eq!(is_allowed(Some(&status(true, None))), Some(true));
        assert_eq!(is_allowed(Some(&status(false, None))), Some(false));
        assert_eq!(is_allowed(Some(&status(false, Some(true)))), Some(false));
        assert_eq!(is_allowed(Some(&status(true, Some(true)))), None);
        assert_eq!(is_allowed(None), None);
    }
}
