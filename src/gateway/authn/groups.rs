//! The anonymous user, and the groups that Kubernetes adds to users (read-path 8.1).

use base::apimachinery::UserInfo;

/// The user of a request without credentials.
pub(super) fn anonymous() -> UserInfo {
    UserInfo { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..UserInfo::default() }
}

pub(super) fn is_anonymous(user: &UserInfo) -> bool {
    user.name == ANONYMOUS
}

/// Adds `system:authenticated`, unless the user is anonymous or already has that group or `system:unauthenticated`.
pub(super) fn add_authenticated(mut user: UserInfo) -> UserInfo {
    let is_settled = user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if !is_anonymous(&user) && !is_settled {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
