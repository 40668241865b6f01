//! Reviews: ask the API server which user a client is, and what that user may do.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Serialize, de::DeserializeOwned};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use tokio::join;

use super::Upstream;
use crate::connector::{BoxError, RequestBody, SendError};
use base::apimachinery::{CollectionScope, GroupResource};

const OWN_ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Time limit of a review, including the API server's webhooks: a client's request waits for it.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes: it repeats the review, with its token, and adds a user's groups.
const REVIEW_BYTES_MAX: usize = 4 << 20;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("cannot request {path}")]
    Send { path: &'static str, source: SendError },
    #[error("{path} was answered with {status}")]
    Status { path: &'static str, status: StatusCode },
    #[error("the response to {path} ended early")]
    Body { path: &'static str, source: BoxError },
    #[error("the response to {path} exceeds {REVIEW_BYTES_MAX} bytes")]
    TooLarge { path: &'static str },
    #[error("no complete response to {path} within {REVIEW_TIMEOUT:?}")]
    TimedOut { path: &'static str },
    #[error("the response to {path} is not a valid review")]
    Malformed { path: &'static str, source: serde_json::Error },
    #[error("the response to {path} has no verdict")]
    NoVerdict { path: &'static str },
}

impl ReviewError {
    /// Whether upstream is not there to be asked, in contrast to one that answers without a verdict.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Send { source, .. } if source.is_gone())
    }
}

impl Upstream {
    /// Whether the gateway itself has a right.
    ///
    /// # Errors
    /// There is no verdict, as for [`Self::review`].
    pub async fn own_access(&self, right: ResourceAttributes) -> Result<SubjectAccessReviewStatus, ReviewError> {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(right), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviewed = self.review(OWN_ACCESS_REVIEWS, &review).await?;
        reviewed.status.ok_or(ReviewError::NoVerdict { path: OWN_ACCESS_REVIEWS })
    }

    /// Whether the gateway may list and watch a part of a resource's collection; `None` if the API server does not say.
    pub async fn may_follow(&self, resource: &GroupResource, scope: &CollectionScope) -> Option<bool> {
        let may = async |verb: &str| {
            let right = ResourceAttributes {
                group: Some(resource.group.to_string()),
                namespace: scope.namespace.as_deref().map(str::to_owned),
                resource: Some(resource.resource.to_string()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            };
            let status = self.own_access(right).await.ok()?;
            // A webhook may fail and leave the question to others.
            status.evaluation_error.is_none().then_some(status.allowed)
        };
        let (list, watch) = join!(may("list"), may("watch"));
        Some(list? && watch?)
    }

    /// Creates a review at `path` and returns it with its status.
    ///
    /// # Errors
    /// There is no verdict: the caller must take it for neither yes nor no.
    pub async fn review<R: Serialize + DeserializeOwned>(
        &self,
        path: &'static str,
        review: &R,
    ) -> Result<R, ReviewError> {
        let body = serde_json::to_vec(review).map_err(|source| ReviewError::Malformed { path, source })?;
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, self.review_untimed(path, body.into()));
        let answer = answer.await.map_err(|_| ReviewError::TimedOut { path })??;
        serde_json::from_slice(&answer).map_err(|source| ReviewError::Malformed { path, source })
    }

    async fn review_untimed(&self, path: &'static str, body: Bytes) -> Result<Bytes, ReviewError> {
        let mut request = Request::new(RequestBody::Full(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static(path);
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        let answer = self.send(request).await.map_err(|source| ReviewError::Send { path, source })?;
        if !matches!(answer.status(), StatusCode::OK | StatusCode::CREATED) {
            return Err(ReviewError::Status { path, status: answer.status() });
        }
        match Limited::new(answer.into_body(), REVIEW_BYTES_MAX).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                base::telemetry::limit_reached("upstream_review_bytes");
                Err(ReviewError::TooLarge { path })
            }
            Err(source) => Err(ReviewError::Body { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};

    use crate::connector::test_server::{TestServer, full};

    const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

    #[tokio::test]
    async fn a_review_comes_back_with_its_status() {
        let server = TestServer::start(|request| async move {
            assert_eq!((request.method().as_str(), request.uri().path()), ("POST", PATH));
            assert_eq!(request.headers()["content-type"], "application/json");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: TokenReview = serde_json::from_slice(&body).unwrap();
            let authenticated = review.spec.token.as_deref() == Some("t");
            review.status = Some(TokenReviewStatus { authenticated: Some(authenticated), ..Default::default() });
            let mut answer = Response::new(full(serde_json::to_vec(&review).unwrap()));
            *answer.status_mut() = StatusCode::CREATED;
            answer
        })
        .await;
        let spec = TokenReviewSpec { token: Some("t".to_owned()), ..Default::default() };
        let review = server.upstream().review(PATH, &TokenReview { spec, ..Default::default() }).await.unwrap();
        assert_eq!(review.status.unwrap().authenticated, Some(true));
    }

    #[tokio::test]
    async fn a_refusal_is_no_verdict() {
        let server = TestServer::start(|_| async {
            let mut answer = Response::new(full(""));
            *answer.status_mut() = StatusCode::FORBIDDEN;
            answer
        })
        .await;
        let error = server.upstream().review(PATH, &TokenReview::default()).await.unwrap_err();
        assert!(matches!(error, ReviewError::Status { status: StatusCode::FORBIDDEN, .. }), "{error:?}");
        let server = TestServer::start(|_| async { Response::new(full("{")) }).await;
        let error = server.upstream().review(PATH, &TokenReview::default()).await.unwrap_err();
        assert!(matches!(error, ReviewError::Malformed { .. }), "{error:?}");
    }
}
