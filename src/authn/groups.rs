//! The user who is nobody, and the groups that all others have in common (read-path 8.1).

use crate::apimachinery::UserInfo;

/// Whoever has shown nothing.
pub(super) fn anonymous() -> UserInfo {
    UserInfo { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..UserInfo::default() }
}

pub(super) fn is_anonymous(user: &UserInfo) -> bool {
    user.name == ANONYMOUS
}

/// Adds the group of all who are known, unless the user is nobody or is in a group that says whether he is known.
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
