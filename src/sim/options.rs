//! Query parameters of reads, decoded and validated like in the API server, with its error texts.
//!
//! Independent of the gateway's own parser, so that testing one against the other is meaningful.

use std::{collections::HashMap, num::NonZeroU64, time::Duration};

use base::apimachinery::{FieldSelector, LabelSelector};

use crate::{
    continue_token::ContinueToken,
    failure::{Cause, Failure},
};

/// The state that a read must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Latest,
    Any,
    NotOlderThan(u64),
    /// `legacy` is set if the request has a version and a limit, but no `resourceVersionMatch`. Such a read of one
    /// name is not exact (read-path 1.2).
    Exact {
        revision: u64,
        legacy: bool,
    },
}

#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) freshness: Freshness,
    pub(crate) limit: Option<NonZeroU64>,
    pub(crate) token: Option<ContinueToken>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// The existing objects are sent first, once the state is as fresh as requested.
    State(Freshness),
    Now,
    After(u64),
}

#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) start: WatchStart,
    /// Whether a bookmark must end the initial events.
    pub(crate) initial_events_end: bool,
    pub(crate) bookmarks: bool,
    /// `None` if the server decides.
    pub(crate) timeout: Option<Duration>,
    /// `timeoutSeconds` is negative: the watch ends at once.
    pub(crate) no_time: bool,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

/// Parameters by name. If one is repeated, its first value counts.
#[derive(Debug, Default)]
pub(crate) struct Parameters(HashMap<String, String>);

impl Parameters {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut parameters = HashMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            parameters.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self(parameters)
    }

    /// Empty if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Everything except `0` and `false` is true, even an empty value (read-path 4.4).
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// `pretty` alone is parsed like Go's `ParseBool`: invalid values are false.
    pub(crate) fn pretty(&self) -> Option<bool> {
        self.0.get("pretty").map(|value| matches!(&**value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.0.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: {}", number_problem(text, true)))
        })
    }

    fn selectors(&self) -> Result<(LabelSelector, FieldSelector), Failure> {
        let labels = LabelSelector::parse(self.text("labelSelector"));
        let text = self.text("fieldSelector");
        let fields = FieldSelector::parse(text);
        // The error text of a real server has more detail for label selectors.
        let labels = labels.map_err(|invalid| format!("unable to parse requirement: {invalid}"));
        let fields = fields.map_err(|_| format!("invalid selector: '{text}'; can't understand '{text}'"));
        Ok((labels.map_err(Failure::bad_request)?, fields.map_err(Failure::bad_request)?))
    }

    /// The version of a get.
    pub(crate) fn get(&self) -> Result<Freshness, Failure> {
        Ok(match self.revision().map_err(server_error)? {
            None => Freshness::Latest,
            Some(0) => Freshness::Any,
            Some(revision) => Freshness::NotOlderThan(revision),
        })
    }

    /// The options of a list (read-path 1.2).
    pub(crate) fn list(&self) -> Result<ListOptions, Failure> {
        let limit = self.integer("limit")?.and_then(|limit| u64::try_from(limit).ok()).and_then(NonZeroU64::new);
        self.integer("timeoutSeconds")?;
        let (labels, fields) = self.selectors()?;
        check(&self.broken_list_rules())?;
        let token = match self.text("continue") {
            "" => None,
            token => Some(ContinueToken::parse(token).map_err(|problem| {
                Failure::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
            })?),
        };
        let revision =
            self.revision().map_err(|problem| Failure::bad_request(format!("invalid resource version: {problem}")))?;
        let freshness = match (revision, self.text("resourceVersionMatch")) {
            (Some(1..), _) if token.is_some() => {
                return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
            }
            (None, _) => Freshness::Latest,
            (Some(0), _) => Freshness::Any,
            (Some(revision), "Exact") => Freshness::Exact { revision, legacy: false },
            (Some(revision), "") if limit.is_some() => Freshness::Exact { revision, legacy: true },
            (Some(revision), _) => Freshness::NotOlderThan(revision),
        };
        Ok(ListOptions { freshness, limit, token, labels, fields })
    }

    /// The options of a watch (read-path 1.4). `watch_list` is set if the server supports `sendInitialEvents`, and
    /// `bare_path` for a `/watch/` path without the parameter `watch`.
    pub(crate) fn watch(&self, watch_list: bool, bare_path: bool) -> Result<WatchOptions, Failure> {
        self.integer("limit")?;
        let timeout = self.integer("timeoutSeconds")?;
        let (labels, fields) = self.selectors()?;
        let text = self.text("resourceVersion");
        let unset = matches!(text, "" | "0");
        let matching = self.text("resourceVersionMatch");
        let mut initial = self.flag("sendInitialEvents").filter(|_| watch_list);
        if bare_path {
            check(&self.broken_list_rules())?;
        } else if watch_list && initial.is_none() && matching.is_empty() && unset {
            check(&forbidden_continue(self.text("continue")))?;
            initial = Some(true);
        } else {
            check(&self.broken_watch_rules(initial, watch_list))?;
        }
        let revision = self.revision().map_err(server_error)?;
        let freshness = match revision {
            None => Freshness::Latest,
            Some(0) => Freshness::Any,
            Some(revision) => Freshness::NotOlderThan(revision),
        };
        let start = match (initial, revision) {
            (Some(true), _) => WatchStart::State(freshness),
            (Some(false), None | Some(0)) => WatchStart::Now,
            (None, None | Some(0)) => WatchStart::State(Freshness::Any),
            (_, Some(revision)) => WatchStart::After(revision),
        };
        let bookmarks = self.flag("allowWatchBookmarks").unwrap_or(false);
        let seconds = timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        Ok(WatchOptions {
            start,
            initial_events_end: bookmarks && initial == Some(true),
            bookmarks,
            timeout: seconds.map(Duration::from_secs),
            no_time: timeout.is_some_and(|seconds| !(0..=i64::MAX / 1_000_000_000).contains(&seconds)),
            labels,
            fields,
        })
    }

    fn broken_list_rules(&self) -> Vec<Cause> {
        let (revision, matching) = (self.text("resourceVersion"), self.text("resourceVersionMatch"));
        let mut broken = Vec::new();
        if !matching.is_empty() {
            if revision.is_empty() {
                broken.push(forbidden("resourceVersionMatch", "is forbidden unless resourceVersion is provided"));
            }
            broken.extend(forbidden_continue(self.text("continue")));
            if !matches!(matching, "Exact" | "NotOlderThan") {
                broken.push(unsupported(matching, r#""Exact", "NotOlderThan", """#));
            }
            if matching == "Exact" && revision == "0" {
                let message = r#"Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
                broken.push(cause("FieldValueForbidden", message, "resourceVersionMatch"));
            }
        }
        if self.flag("sendInitialEvents").is_some() {
            broken.push(forbidden("sendInitialEvents", "is forbidden for list"));
        }
        broken
    }

    fn broken_watch_rules(&self, initial: Option<bool>, watch_list: bool) -> Vec<Cause> {
        let matching = self.text("resourceVersionMatch");
        let mut broken = Vec::new();
        if initial.is_some() && matching != "NotOlderThan" && matching.is_empty() {
            let message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            broken.push(cause("FieldValueForbidden", message, "resourceVersionMatch"));
        }
        if matching.is_empty() {
            return broken;
        }
        if initial.is_none() {
            let rule = if watch_list {
                "is forbidden for watch unless sendInitialEvents is provided"
            } else {
                "is forbidden for watch"
            };
            broken.push(forbidden("resourceVersionMatch", rule));
        }
        if matching != "NotOlderThan" && watch_list {
            broken.push(unsupported(matching, r#""NotOlderThan""#));
        }
        broken.extend(forbidden_continue(self.text("continue")));
        broken
    }

    fn revision(&self) -> Result<Option<u64>, String> {
        let text = self.text("resourceVersion");
        if text.is_empty() {
            return Ok(None);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(revision) = text.parse()
        {
            return Ok(Some(revision));
        }
        Err(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {}",
            number_problem(text, false)
        ))
    }
}

fn check(broken: &[Cause]) -> Result<(), Failure> {
    if broken.is_empty() { Ok(()) } else { Err(Failure::invalid("ListOptions", "meta.k8s.io", "", broken)) }
}

fn number_problem(text: &str, signed: bool) -> &'static str {
    let digits = if signed { text.trim_start_matches(['-', '+']) } else { text };
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if number { "value out of range" } else { "invalid syntax" }
}

/// Invalid versions of a get or a watch are detected so late that they are reported as an internal error (read-path
/// 1.1).
fn server_error(problem: String) -> Failure {
    Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", problem)
}

fn cause(reason: &'static str, message: &str, field: &str) -> Cause {
    Cause { reason, message: message.into(), field: field.into() }
}

fn forbidden(field: &str, rule: &str) -> Cause {
    cause("FieldValueForbidden", &format!("Forbidden: {field} {rule}"), field)
}

fn forbidden_continue(token: &str) -> Vec<Cause> {
    if token.is_empty() {
        return Vec::new();
    }
    vec![forbidden("resourceVersionMatch", "is forbidden when continue is provided")]
}

fn unsupported(value: &str, supported: &str) -> Cause {
    let message = format!("Unsupported value: {value:?}: supported values: {supported}");
    cause("FieldValueNotSupported", &message, "resourceVersionMatch")
}
