//! The parameters of a get.

use crate::apimachinery::Freshness;
use crate::apimachinery::options::{InvalidOptions, Version, check_timeout, pretty};
use crate::apimachinery::query::Query;

/// The parameters of a get (read-path 1.1); all others are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetOptions {
    /// Never `Exact`.
    pub freshness: Freshness,
    /// `None` if the user agent decides.
    pub pretty: Option<bool>,
}

impl GetOptions {
    /// Parses the query.
    ///
    /// # Errors
    /// The API server refuses the query, or might: the request must be forwarded.
    pub fn parse(query: Option<&str>) -> Result<Self, InvalidOptions> {
        let query = Query::parse(query)?;
        if query.first("export").is_some() {
            return Err(InvalidOptions::Unsupported("export"));
        }
        check_timeout(&query)?;
        Ok(Self { freshness: Version::parse(&query)?.freshness(), pretty: pretty(&query) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::ResourceVersion;

    #[test]
    fn only_version_and_pretty_are_read() {
        let at = |number| Freshness::NotOlderThan(ResourceVersion::new(number).unwrap());
        let cases = [
            ("", Freshness::MostRecent, None),
            ("resourceVersion=", Freshness::MostRecent, None),
            ("resourceVersion=0&pretty=true", Freshness::Any, Some(true)),
            ("resourceVersion=260&pretty=abc", at(260), Some(false)),
            ("resourceVersion=0&resourceVersion=5&pretty=", Freshness::Any, None),
            ("watch=1&limit=abc&fieldSelector=x&resourceVersionMatch=foo&timeout=32s", Freshness::MostRecent, None),
        ];
        for (query, freshness, pretty) in cases {
            assert_eq!(GetOptions::parse(Some(query)), Ok(GetOptions { freshness, pretty }), "{query}");
        }
    }

    #[test]
    fn parameters_that_the_server_refuses_are_refused() {
        let queries = [
            "resourceVersion=abc",
            "resourceVersion=-1",
            "resourceVersion=00",
            "export=true",
            "export=0",
            "timeout=x",
            "a=%",
        ];
        for query in queries {
            assert!(GetOptions::parse(Some(query)).is_err(), "{query}");
        }
    }
}
