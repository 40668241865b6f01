//! Tables of requests, each sent to the server and through the gateway, and compared.

use std::collections::HashMap;

use anyhow::{Context, Result};
use futures_util::{StreamExt, future, stream};
use http::Method;

use crate::{
    client::{Answer, Ask, Endpoint},
    compare::{Rules, differences},
    gateway::{Gateway, unique_agent},
    report::Tally,
};

/// The maximum number of concurrent requests on either side.
const AT_ONCE: usize = 24;
/// A comparison is repeated, since something else may have been written between its two requests.
const TRIES: usize = 3;

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    ask: Ask,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// `=`: must be answered from memory.
    Served,
    /// `>`: must be forwarded.
    Forwarded,
    /// `~`: may be either.
    Either,
}

/// Parses rows such as `= GET /api/v1/pods | accept: application/json`. GET may be omitted. `{name}` is replaced by a
/// value.
pub(crate) fn table(rows: &str, values: &HashMap<&str, String>) -> Result<Vec<Case>> {
    let rows = rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'));
    rows.map(|row| case(row, values).with_context(|| format!("row: {row}"))).collect()
}

fn case(row: &str, values: &HashMap<&str, String>) -> Result<Case> {
    let mut row = row.to_owned();
    for (name, value) in values {
        row = row.replace(&format!("{{{name}}}"), value);
    }
    let (mark, rest) = row.split_at(1);
    let expected = match mark {
        "=" => Expected::Served,
        ">" => Expected::Forwarded,
        "~" => Expected::Either,
        _ => anyhow::bail!("no mark"),
    };
    let mut parts = rest.split(" | ");
    let request = parts.next().unwrap_or_default().trim();
    let (method, path) = match request.split_once(' ') {
        Some((method, path)) => (method.parse()?, path.trim()),
        None => (Method::GET, request),
    };
    let mut ask = Ask { method, ..Ask::get(path.replace('<', "%3C").replace('>', "%3E")) };
    for header in parts {
        let (name, value) = header.split_once(": ").context("header")?;
        ask = ask.header(name, value);
    }
    Ok(Case { ask, expected })
}

/// Sends all cases to both sides and compares the responses.
pub(crate) async fn compare_all(
    cases: Vec<Case>,
    direct: &Endpoint,
    gateway: &Gateway,
    any_order: bool,
) -> Result<Tally> {
    let compared = stream::iter(cases.into_iter().map(|case| compare(case, direct, gateway, any_order)));
    let tallies: Vec<_> = compared.buffer_unordered(AT_ONCE).collect().await;
    let mut sum = Tally::default();
    for tally in tallies {
        sum.merge(tally?);
    }
    Ok(sum)
}

async fn compare(case: Case, direct: &Endpoint, gateway: &Gateway, any_order: bool) -> Result<Tally> {
    let Case { mut ask, expected } = case;
    let what = format!("{} {} {:?}", ask.method, ask.path, ask.headers);
    let asked_agent = ask.headers.iter().position(|(name, _)| name == "user-agent").map(|at| ask.headers.remove(at).1);
    let rules = Rules { any_order, any_version: !names_its_version(&ask.path) };
    let mut tries = 0;
    let (outcome, found) = loop {
        let agent = unique_agent(asked_agent.as_deref().unwrap_or("test"));
        let ask = ask.clone().header("user-agent", &agent);
        let (direct_answer, actual) = future::try_join(direct.send(&ask), gateway.endpoint.send(&ask)).await?;
        let outcome = gateway.outcome(&agent).await?;
        let found = differences(rules, &direct_answer, &actual);
        tries += 1;
        if found.is_empty() || tries == TRIES {
            break (outcome, with_outcome(found, &outcome_of(&actual)));
        }
    };
    let mut tally = Tally::default();
    tally.answered(&outcome);
    tally.compared(&what, found);
    let by = outcome.by.as_str();
    if matches!(
        (expected, by),
        (Expected::Served, "forwarded" | "rejected") | (Expected::Forwarded, "served" | "rejected")
    ) {
        tally.compared(&what, [format!("should be {expected:?}, but is {outcome:?}")]);
    }
    Ok(tally)
}

fn outcome_of(answer: &Answer) -> String {
    format!("({} bytes, {})", answer.body.len(), answer.status)
}

fn with_outcome(mut found: Vec<String>, outcome: &str) -> Vec<String> {
    if let Some(last) = found.last_mut() {
        last.push(' ');
        last.push_str(outcome);
    }
    found
}

/// Whether the response has exactly the version in the request (read-path 1.2).
fn names_its_version(path: &str) -> bool {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let has = |part: &str| query.split('&').any(|parameter| parameter.starts_with(part));
    let is_numbered = has("resourceVersion=") && !has("resourceVersion=0");
    has("resourceVersionMatch=Exact") || is_numbered && has("limit=") && !has("resourceVersionMatch")
}
