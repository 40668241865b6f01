//! What is wrong between the gateway and API servers.

use std::time::SystemTime;

use jiff::Timestamp;

use super::{Detail, Trouble};
use crate::connector::{self, TroubleKind};

/// Each trouble once, of several connections to one server. Credentials are accepted for all requests or for none, so
/// that the first request that is refused for them stands for all.
pub(super) fn of(troubles: impl Iterator<Item = connector::Trouble>, now: SystemTime, detail: Detail) -> Vec<Trouble> {
    let mut shown: Vec<Trouble> = Vec::new();
    for trouble in troubles {
        let row = row(trouble, now, detail);
        let is_same = |other: &Trouble| {
            let is_of_all = row.kind == TroubleKind::Unauthorized.as_str();
            (&other.kind, &other.server) == (&row.kind, &row.server) && (is_of_all || other.path == row.path)
        };
        if !shown.iter().any(is_same) {
            shown.push(row);
        }
    }
    shown
}

fn row(trouble: connector::Trouble, now: SystemTime, detail: Detail) -> Trouble {
    let connector::Trouble { kind, server, since, path, error } = trouble;
    // A refusal names the gateway's user; the other errors contain no user.
    let is_refusal = matches!(kind, TroubleKind::Unauthorized | TroubleKind::Forbidden);
    let is_told = detail == Detail::Full || !is_refusal;
    let seconds = now.duration_since(since).unwrap_or_default().as_secs();
    let since = Timestamp::try_from(since).and_then(|since| Timestamp::from_second(since.as_second()));
    Trouble {
        kind: kind.as_str().to_owned(),
        server,
        since: since.map(|since| since.to_string()).unwrap_or_default(),
        seconds,
        path,
        error: if is_told { error } else { String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_trouble_is_shown_once_and_users_only_in_full_detail() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let trouble = |kind, path: Option<&str>| connector::Trouble {
            kind,
            server: "https://api".to_owned(),
            since,
            path: path.map(str::to_owned),
            error: "User \"gateway\"".to_owned(),
        };
        let all = || {
            let unreachable = trouble(TroubleKind::Unreachable, None);
            let refused = trouble(TroubleKind::Forbidden, Some("/api/v1/secrets"));
            [unreachable.clone(), refused, unreachable].into_iter()
        };
        let now = since + Duration::from_secs(9);
        let full = of(all(), now, Detail::Full);
        assert_eq!(full.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>(), ["unreachable", "forbidden"]);
        assert_eq!((full[0].since.as_str(), full[0].seconds), ("1970-01-01T00:00:01Z", 9));
        assert_eq!(full[1].error, "User \"gateway\"");
        let withheld = of(all(), now, Detail::WithoutNames);
        assert_eq!((withheld[0].error.as_str(), withheld[1].error.as_str()), ("User \"gateway\"", ""));
    }
}
