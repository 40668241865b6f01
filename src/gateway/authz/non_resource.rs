//! Authorization for paths that are not resources, such as `/metrics`.

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use super::review::{PATH, is_allowed};
use crate::upstream::{ReviewError, Upstream};
use base::apimachinery::UserInfo;

/// Asks `reviewer` whether the user may `get` the path. `None` if the answer is not conclusive.
///
/// # Errors
/// The review failed.
pub async fn may_get(reviewer: &Upstream, user: &UserInfo, path: &str) -> Result<Option<bool>, ReviewError> {
    let review = reviewer.review(PATH, &review(user, path)).await?;
    Ok(is_allowed(review.status.as_ref()))
}

fn review(user: &UserInfo, path: &str) -> SubjectAccessReview {
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        resource_attributes: None,
        non_resource_attributes: Some(attributes),
    };
    SubjectAccessReview { spec, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_review_has_the_user_and_the_path() {
        let user = UserInfo { name: "jane".to_owned(), groups: vec!["devs".to_owned()], ..UserInfo::default() };
        let review = serde_json::to_value(review(&user, "/metrics")).unwrap();
        let attributes = json!({"path": "/metrics", "verb": "get"});
        assert_eq!(review["spec"], json!({"user": "jane", "groups": ["devs"], "nonResourceAttributes": attributes}));
    }
}
