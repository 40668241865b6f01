//! The parameters of get, list and watch, in the terms of the decision tables (read-path 1.1, 1.2, 1.4).
//!
//! Every combination that the API server would refuse, and every unusual one, is an error here: the request is then
//! forwarded, and the API server words the response.

mod get;
mod list;
mod table;
mod watch;

pub use get::GetOptions;
pub use list::ListOptions;
pub use table::IncludeObject;
pub use watch::{WatchOptions, WatchStart};

use std::time::Duration;

use crate::apimachinery::query::{InvalidQuery, Query};
use crate::apimachinery::{
    FieldSelector, InvalidContinueToken, InvalidSelector, InvalidShardSelector, LabelSelector, ResourceVersion,
    ShardSelector,
};

/// The state of a collection that a read requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// At least everything that was acknowledged before the request: no version is given.
    MostRecent,
    /// Any state: the version is "0".
    Any,
    NotOlderThan(ResourceVersion),
    Exact(ResourceVersion),
}

/// Why the parameters of a request are left to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    #[error("cannot parse the query")]
    Query(#[from] InvalidQuery),
    #[error("resourceVersion is not a valid version")]
    ResourceVersion,
    #[error("cannot parse the continue token")]
    Continue(#[from] InvalidContinueToken),
    #[error("the label selector is invalid")]
    Labels(#[source] InvalidSelector),
    #[error("the field selector is invalid")]
    Fields(#[source] InvalidSelector),
    #[error(transparent)]
    Shards(#[from] InvalidShardSelector),
    /// The parameter is refused or unspecified in combination with the others, or its value is refused.
    #[error("{0} is not supported here")]
    Unsupported(&'static str),
}

/// `resourceVersion` of a request; the three cases have different meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Unset,
    Zero,
    At(ResourceVersion),
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Exact,
    NotOlderThan,
}

impl Version {
    fn parse(query: &Query<'_>) -> Result<Self, InvalidOptions> {
        match query.text("resourceVersion") {
            None => Ok(Self::Unset),
            Some("0") => Ok(Self::Zero),
            Some(text) => ResourceVersion::parse(text).map(Self::At).map_err(|_| InvalidOptions::ResourceVersion),
        }
    }

    /// The meaning of the version where no other parameter changes it.
    fn freshness(self) -> Freshness {
        match self {
            Self::Unset => Freshness::MostRecent,
            Self::Zero => Freshness::Any,
            Self::At(version) => Freshness::NotOlderThan(version),
        }
    }
}

impl Match {
    fn parse(query: &Query<'_>) -> Result<Option<Self>, InvalidOptions> {
        match query.text("resourceVersionMatch") {
            None => Ok(None),
            Some("Exact") => Ok(Some(Self::Exact)),
            Some("NotOlderThan") => Ok(Some(Self::NotOlderThan)),
            Some(_) => Err(InvalidOptions::Unsupported("resourceVersionMatch")),
        }
    }
}

fn selectors(query: &Query<'_>) -> Result<(LabelSelector, FieldSelector), InvalidOptions> {
    let labels = query.first("labelSelector").unwrap_or_default();
    let fields = query.first("fieldSelector").unwrap_or_default();
    Ok((
        LabelSelector::parse(labels).map_err(InvalidOptions::Labels)?,
        FieldSelector::parse(fields).map_err(InvalidOptions::Fields)?,
    ))
}

/// `None` if the parameter is missing or empty.
fn shards(query: &Query<'_>) -> Result<Option<ShardSelector>, InvalidShardSelector> {
    query.text("shardSelector").map(ShardSelector::parse).transpose()
}

/// The result of Go's `ParseBool`; with an empty value, the user agent decides (read-path 4.1).
fn pretty(query: &Query<'_>) -> Option<bool> {
    query.text("pretty").map(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// `timeout` bounds a request that is not long-running. Responses from memory take no time worth bounding, so the value
/// must only be valid for the API server and not about to end the request.
fn check_timeout(query: &Query<'_>) -> Result<(), InvalidOptions> {
    let Some(text) = query.first("timeout") else { return Ok(()) };
    let enough = parse_duration(text).is_some_and(|timeout| timeout >= TIMEOUT_MIN);
    if enough { Ok(()) } else { Err(InvalidOptions::Query(InvalidQuery::Duration("timeout"))) }
}

/// Go's notation in whole numbers of hours, minutes, seconds and milliseconds, such as `1m30s`.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let unit_length = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let number: u32 = number.parse().ok()?;
        let one = match &unit[..unit_length] {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return None,
        };
        total = total.checked_add(one.checked_mul(number)?)?;
        rest = &unit[unit_length..];
    }
    Some(total)
}

/// Requests with a shorter timeout are forwarded: it could elapse while the gateway waits for a version.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::{RequestInfo, SelectableField, Target, Verb, selectable_fields};

    /// Whether memory may answer the request, as far as its parameters are concerned.
    fn is_understood(path: &str, query: Option<&str>) -> bool {
        let info = RequestInfo::parse(&http::Method::GET, path, query);
        let Target::Resource(request) = info.target else { return false };
        let fields = if info.verb == Verb::Get {
            return GetOptions::parse(query).is_ok();
        } else if info.verb == Verb::List {
            ListOptions::parse(query).map(|options| options.fields)
        } else {
            WatchOptions::parse(query, request.watch_path).map(|options| options.fields)
        };
        let mut supported = selectable_fields(&request.resource.group_resource(), true);
        if &*request.resource.resource == "widgets" {
            supported.extend(SelectableField::custom(".spec.color"));
        }
        fields.is_ok_and(|fields| {
            let is_supported = |field: &str| supported.iter().any(|known| &*known.label == field);
            fields.requirements().iter().all(|requirement| is_supported(&requirement.field))
        })
    }

    #[test]
    fn parameters_that_a_real_server_refused_are_not_accepted() {
        let recorded = include_str!("../../../../tests/data/golden/parameters.tsv");
        let mut rows = 0;
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let (status, url) = line.split_once('\t').unwrap();
            let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
            // Missing objects and versions in the future are only detected later.
            let accepted = matches!(status, "200" | "404" | "504");
            assert_eq!(is_understood(path, query), accepted, "{line}");
            rows += 1;
        }
        assert!(rows > 50);
    }

    #[test]
    fn durations_are_parsed_in_go_notation() {
        let cases = [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1h0m0s", Some(3_600_000)),
            ("250ms", Some(250)),
            ("abc", None),
            ("5", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1d", None),
            ("99999999999s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }
}
