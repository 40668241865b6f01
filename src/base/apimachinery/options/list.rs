//! The parameters of a list.

use std::num::NonZeroU64;

use crate::apimachinery::options::{InvalidOptions, Match, Version, check_timeout, pretty, selectors, shards};
use crate::apimachinery::query::Query;
use crate::apimachinery::{ContinueAt, ContinueToken, FieldSelector, Freshness, LabelSelector, ShardSelector};

/// The parameters of a list (read-path 1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// With a continue token: the state that the token selects. A version together with a limit is exact, by the legacy
    /// rule. That rule does not apply to a list of a single name, which the user of `fields` must check.
    pub freshness: Freshness,
    /// `None` where the API server ignores it: with `resourceVersion=0`, on any page.
    pub limit: Option<NonZeroU64>,
    pub continue_token: Option<ContinueToken>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// Which upstream may ignore: see [`ShardSelector`].
    pub shards: Option<ShardSelector>,
    /// `None` if the user agent decides.
    pub pretty: Option<bool>,
}

impl ListOptions {
    /// Parses the query.
    ///
    /// # Errors
    /// The API server refuses the query, or might: the request must be forwarded.
    pub fn parse(query: Option<&str>) -> Result<Self, InvalidOptions> {
        let query = Query::parse(query)?;
        for name in ["sendInitialEvents", "export"] {
            if query.first(name).is_some() {
                return Err(InvalidOptions::Unsupported(name));
            }
        }
        check_timeout(&query)?;
        // Has no effect, but is refused if it is not a number (read-path 1.2).
        query.integer("timeoutSeconds")?;
        let limit = query.integer("limit")?.and_then(|limit| u64::try_from(limit).ok()).and_then(NonZeroU64::new);
        let version = Version::parse(&query)?;
        let version_match = Match::parse(&query)?;
        let (labels, fields) = selectors(&query)?;
        let shards = shards(&query)?;
        let continue_token = query.text("continue").map(ContinueToken::parse).transpose()?;
        let freshness = match &continue_token {
            Some(token) => continued(token, version, version_match)?,
            None => first_page(version, version_match, limit.is_some())?,
        };
        let limit = limit.filter(|_| version != Version::Zero);
        Ok(Self { freshness, limit, continue_token, labels, fields, shards, pretty: pretty(&query) })
    }
}

fn continued(
    token: &ContinueToken,
    version: Version,
    version_match: Option<Match>,
) -> Result<Freshness, InvalidOptions> {
    match (version, version_match) {
        (Version::Unset | Version::Zero, None) => Ok(match token.version {
            ContinueAt::Latest => Freshness::MostRecent,
            ContinueAt::At(version) => Freshness::Exact(version),
        }),
        _ => Err(InvalidOptions::Unsupported("continue")),
    }
}

fn first_page(version: Version, version_match: Option<Match>, limited: bool) -> Result<Freshness, InvalidOptions> {
    match (version, version_match) {
        (Version::Unset, Some(_)) | (Version::Zero, Some(Match::Exact)) => {
            Err(InvalidOptions::Unsupported("resourceVersionMatch"))
        }
        (Version::At(version), Some(Match::Exact)) => Ok(Freshness::Exact(version)),
        // The legacy rule.
        (Version::At(version), None) if limited => Ok(Freshness::Exact(version)),
        (version, _) => Ok(version.freshness()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::ResourceVersion;

    const TOKEN: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzYyLCJzdGFydCI6Ii9wb2QtMDRcdTAwMDAifQ";

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    #[test]
    fn versions_and_limits_follow_the_table() {
        let cases = [
            ("", Freshness::MostRecent, None),
            ("limit=5", Freshness::MostRecent, Some(5)),
            ("limit=-5", Freshness::MostRecent, None),
            ("limit=0", Freshness::MostRecent, None),
            ("resourceVersion=0", Freshness::Any, None),
            ("resourceVersion=0&limit=5", Freshness::Any, None),
            ("resourceVersion=0&limit=5&resourceVersionMatch=NotOlderThan", Freshness::Any, None),
            ("resourceVersion=359", Freshness::NotOlderThan(version(359)), None),
            ("resourceVersion=359&limit=0", Freshness::NotOlderThan(version(359)), None),
            ("resourceVersion=359&resourceVersionMatch=", Freshness::NotOlderThan(version(359)), None),
            ("resourceVersion=359&limit=5", Freshness::Exact(version(359)), Some(5)),
            (
                "resourceVersion=359&limit=5&resourceVersionMatch=NotOlderThan",
                Freshness::NotOlderThan(version(359)),
                Some(5),
            ),
            ("resourceVersion=359&resourceVersionMatch=Exact", Freshness::Exact(version(359)), None),
            ("resourceVersion=359&resourceVersionMatch=Exact&limit=5", Freshness::Exact(version(359)), Some(5)),
            ("limit=5&continue=TOKEN", Freshness::Exact(version(362)), Some(5)),
            ("limit=5&continue=TOKEN&resourceVersion=0", Freshness::Exact(version(362)), None),
            ("limit=5&continue=", Freshness::MostRecent, Some(5)),
            ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9", Freshness::MostRecent, None),
            ("timeoutSeconds=5&allowWatchBookmarks=1&foo=bar&timeout=30s", Freshness::MostRecent, None),
        ];
        for (query, freshness, limit) in cases {
            let options = ListOptions::parse(Some(&query.replace("TOKEN", TOKEN))).unwrap();
            assert_eq!((options.freshness, options.limit.map(NonZeroU64::get)), (freshness, limit), "{query}");
        }
    }

    #[test]
    fn parameters_that_the_server_refuses_are_refused() {
        let queries = [
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=5&resourceVersionMatch=Sometimes",
            "resourceVersion=5&resourceVersionMatch=exact",
            "resourceVersion=abc",
            "resourceVersion=-1",
            "resourceVersion=18446744073709551616",
            "limit=abc",
            "limit=",
            "limit",
            "timeoutSeconds=abc",
            "timeout=abc",
            "timeout=",
            "timeout=10ms",
            "sendInitialEvents=foo",
            "sendInitialEvents=false",
            "continue=TOKEN&resourceVersion=5",
            "continue=TOKEN&resourceVersionMatch=Exact",
            "continue=TOKEN&resourceVersion=0&resourceVersionMatch=NotOlderThan",
            "continue=garbage",
            "shardSelector=x",
            "labelSelector=a%3D%3D%3Db",
            "fieldSelector=justakey",
            "labelSelector=%",
            "a;b",
        ];
        for query in queries {
            assert!(ListOptions::parse(Some(&query.replace("TOKEN", TOKEN))).is_err(), "{query}");
        }
    }

    #[test]
    fn selectors_are_decoded_once() {
        let options =
            ListOptions::parse(Some("labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx&pretty=1"))
                .unwrap();
        assert_eq!(options.labels, LabelSelector::parse("a in (b,c)").unwrap());
        assert_eq!((options.fields.exact("metadata.name"), options.pretty), (Some("x"), Some(true)));
    }
}
