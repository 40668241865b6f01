//! What the gateway has to be allowed to do at an API server, and whether it is.

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SubjectAccessReviewStatus},
};

use crate::upstream::{ReviewError, Upstream};
use base::{apimachinery::GroupResource, telemetry::Chain};

/// Of API servers from 1.28 on.
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A verb on all objects of a resource, in all namespaces or in one; or on one object.
pub(super) struct Right<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    /// `None` for all.
    namespace: Option<&'a str>,
    /// `None` for all.
    name: Option<&'a str>,
}

/// The gateway, as far as it is known which user it is.
#[derive(Clone, Debug)]
pub(super) struct Asker(String);

impl Asker {
    /// The user that the server takes the gateway for; otherwise that of the kubeconfig, whose name is only known
    /// there.
    pub(super) async fn of(upstream: &Upstream, in_kubeconfig: Option<&str>) -> Self {
        let review = upstream.review(WHO, &SelfSubjectReview::default()).await.ok();
        let user = review.and_then(|review| review.status?.user_info?.username).filter(|user| !user.is_empty());
        Self(match (user, in_kubeconfig.filter(|user| !user.is_empty())) {
            (Some(user), _) => format!("the gateway's user {user:?}"),
            (None, Some(user)) => format!("the gateway (the user {user:?} of the kubeconfig)"),
            (None, None) => "the gateway".to_owned(),
        })
    }
}

/// To know clients by their tokens.
pub(super) const TOKEN_REVIEWS: Right<'_> = Right::new("create", "authentication.k8s.io", "tokenreviews");
/// To know what clients may read.
pub(super) const ACCESS_REVIEWS: Right<'_> = Right::new("create", "authorization.k8s.io", "subjectaccessreviews");
/// To name clients to the API server. They may be narrowed to some names, which this question does not show.
pub(super) const OF_IMPERSONATION: [Right<'_>; 2] =
    [Right::new("impersonate", "", "users"), Right::new("impersonate", "", "groups")];
/// To know whether peers are of the same cluster, and whether the cluster behind the address is still the same.
pub(super) const CLUSTER: Right<'_> =
    Right { verb: "get", group: "", resource: "namespaces", namespace: None, name: Some("kube-system") };
/// The name of the resource that has the definitions of custom resources.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions";
/// To know which resources may be cached, and what is missing without.
pub(super) const OF_DOCUMENTS: [(Right<'_>, &str); 2] = [
    (
        Right::new("list", "apiregistration.k8s.io", "apiservices"),
        "without, only the core group and custom resources are cached",
    ),
    (Right::new("get", "apiextensions.k8s.io", DEFINITIONS), "without, only resources of the core group are cached"),
];

/// Whether the gateway has a right.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RightState {
    Granted,
    /// What is missing, in words.
    Missing(String),
    /// Why the server does not say.
    Unknown(String),
}

impl<'a> Right<'a> {
    pub(super) const fn new(verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { verb, group, resource, namespace: None, name: None }
    }

    /// In one namespace, or, if that is `None`, in all.
    pub(super) const fn within(self, namespace: Option<&'a str>) -> Self {
        Self { namespace, ..self }
    }

    /// Asks the server, with the gateway's own credentials.
    pub(super) async fn ask(&self, upstream: &Upstream, asker: &Asker) -> RightState {
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(self.resource.to_owned()),
            namespace: self.namespace.map(str::to_owned),
            name: self.name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        match upstream.own_access(attributes).await {
            Ok(status) => self.verdict(&status, asker),
            // A server without this API, such as an embedded one, has no rules either.
            Err(ReviewError::Status { status: http::StatusCode::NOT_FOUND, .. }) => RightState::Granted,
            Err(error) => {
                RightState::Unknown(format!("{}: the API server cannot be asked: {}", self.asked(), Chain(&error)))
            }
        }
    }

    fn verdict(&self, status: &SubjectAccessReviewStatus, Asker(asker): &Asker) -> RightState {
        if status.allowed {
            return RightState::Granted;
        }
        let reasons = [&status.reason, &status.evaluation_error].into_iter().flatten();
        let reasons: Vec<_> = reasons.filter(|reason| !reason.is_empty()).map(String::as_str).collect();
        let because = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        RightState::Missing(format!("the API server does not let {asker} {}{because}", self.words()))
    }

    fn asked(&self) -> String {
        format!("whether the gateway may {}", self.words())
    }

    fn words(&self) -> String {
        let resource = GroupResource { group: self.group.into(), resource: self.resource.into() };
        let name = self.name.map_or_else(String::new, |name| format!(" {name}"));
        let place = self.namespace.map_or_else(String::new, |namespace| format!(" in the namespace {namespace}"));
        format!("{} {resource}{name}{place}", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use http_body_util::BodyExt;
    use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;

    use crate::connector::test_server::{TestServer, full};

    fn gateway() -> Asker {
        Asker("the gateway".to_owned())
    }

    /// A server that answers reviews like this.
    async fn asked(status: u16, answer: fn(SelfSubjectAccessReview) -> String) -> RightState {
        let server = TestServer::start(move |request| async move {
            assert_eq!(
                (request.method().as_str(), request.uri().path()),
                ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            );
            let review = request.into_body().collect().await.unwrap().to_bytes();
            let answer = answer(serde_json::from_slice(&review).unwrap());
            Response::builder().status(status).body(full(answer)).unwrap()
        })
        .await;
        TOKEN_REVIEWS.ask(&server.upstream(), &gateway()).await
    }

    #[tokio::test]
    async fn a_missing_right_is_named_with_its_reason() {
        let allowed = |allowed| SubjectAccessReviewStatus { allowed, ..SubjectAccessReviewStatus::default() };
        assert_eq!(TOKEN_REVIEWS.verdict(&allowed(true), &gateway()), RightState::Granted);
        let missing = "the API server does not let the gateway create tokenreviews.authentication.k8s.io";
        assert_eq!(TOKEN_REVIEWS.verdict(&allowed(false), &gateway()), RightState::Missing(missing.to_owned()));
        let answer = asked(201, |mut review| {
            let attributes = review.spec.resource_attributes.as_ref().unwrap();
            assert_eq!(attributes.verb.as_deref(), Some("create"));
            assert_eq!(attributes.group.as_deref(), Some("authentication.k8s.io"));
            assert_eq!((attributes.resource.as_deref(), &attributes.namespace), (Some("tokenreviews"), &None));
            let reason = Some("no rule".to_owned());
            review.status = Some(SubjectAccessReviewStatus { reason, ..SubjectAccessReviewStatus::default() });
            serde_json::to_string(&review).unwrap()
        });
        assert_eq!(answer.await, RightState::Missing(format!("{missing} (no rule)")));
    }

    #[tokio::test]
    async fn without_a_verdict_nothing_is_known() {
        for (status, answer) in [(403, ""), (500, ""), (201, "{}"), (201, r#"{"spec":{}}"#)] {
            let found = match answer {
                "" => asked(status, |_| String::new()).await,
                "{}" => asked(status, |_| "{}".to_owned()).await,
                _ => asked(status, |_| r#"{"spec":{}}"#.to_owned()).await,
            };
            let RightState::Unknown(why) = found else { panic!("{status} {answer}: {found:?}") };
            assert!(why.starts_with("whether the gateway may create tokenreviews.authentication.k8s.io: "), "{why}");
        }
        assert_eq!(asked(404, |_| String::new()).await, RightState::Granted);
    }

    #[tokio::test]
    async fn the_user_is_named_as_the_server_knows_it() {
        for (status, in_kubeconfig, expected) in [
            (201, Some("jane"), "the gateway's user \"system:serviceaccount:a:b\""),
            (404, Some("jane"), "the gateway (the user \"jane\" of the kubeconfig)"),
            (404, Some(""), "the gateway"),
            (403, None, "the gateway"),
        ] {
            let server = TestServer::start(move |request| async move {
                assert_eq!((request.method().as_str(), request.uri().path()), ("POST", WHO));
                let answer = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1",
                    "status":{"userInfo":{"username":"system:serviceaccount:a:b"}}}"#;
                Response::builder().status(status).body(full(answer)).unwrap()
            })
            .await;
            assert_eq!(Asker::of(&server.upstream(), in_kubeconfig).await.0, expected);
        }
    }

    #[test]
    fn a_right_on_one_object_names_it() {
        let denied = CLUSTER.verdict(&SubjectAccessReviewStatus::default(), &gateway());
        let told = "the API server does not let the gateway get namespaces kube-system";
        assert_eq!(denied, RightState::Missing(told.to_owned()));
    }
}
