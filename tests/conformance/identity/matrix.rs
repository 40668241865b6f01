//! Sends every request as every user, directly and through a gateway.

use std::fmt::Write;

use anyhow::{Context, Result};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::{
    gateways::Delegated,
    requests::{self, Request},
    users::{Caller, User},
};
use crate::{
    client::Answer,
    compare::{Rules, differences},
    gateway::{Outcome, unique_agent},
    report::Tally,
};

/// The number of concurrent requests; watches among them take a second.
const AT_ONCE: usize = 96;
/// The gateway may not know yet what the server already knows.
const TRIES: usize = 4;
/// Order and versions may differ between servers (read-path 4.1).
const RULES: Rules = Rules { any_order: true, any_version: true };

/// The users and their requests.
pub(super) struct Matrix {
    pub(super) users: Vec<User>,
    pub(super) requests: Vec<Request>,
    /// Connections to the server, in the order of `users`.
    pub(super) direct: Vec<Caller>,
}

/// The same users with connections to a gateway.
pub(super) struct Through<'a> {
    pub(super) delegated: &'a Delegated,
    pub(super) callers: &'a [Caller],
    /// Whether its caches hold the requested collections.
    pub(super) is_warm: bool,
}

/// The responses of one side: by user, then by request.
pub(super) type Answers = Vec<Vec<Answer>>;

impl Matrix {
    /// All users send one request, then the next one, so that each user needs few connections.
    fn cells(&self) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.users.len();
        (0..self.requests.len()).flat_map(move |column| (0..rows).map(move |row| (row, column)))
    }

    /// The results for `cells`, grouped by user.
    fn rows<T>(&self, found: Vec<T>) -> Vec<Vec<T>> {
        let mut rows: Vec<Vec<T>> = self.users.iter().map(|_| Vec::new()).collect();
        for ((row, _), found) in self.cells().zip(found) {
            rows[row].push(found);
        }
        rows
    }

    /// The server's own responses.
    pub(super) async fn ask_directly(&self) -> Result<Answers> {
        let asked = self.cells().map(|(row, column)| async move {
            let answer = self.direct[row].send(&self.requests[column].ask).await;
            answer.map(requests::settled).with_context(|| format!("{}, directly", self.what(row, column)))
        });
        let answers: Vec<Result<Answer>> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        Ok(self.rows(answers.into_iter().collect::<Result<Vec<_>>>()?))
    }

    /// Compares the gateway's responses with the server's. Returns the table.
    pub(super) async fn compare(&self, direct: &Answers, through: &Through<'_>, tally: &mut Tally) -> Result<String> {
        let asked = self.cells().map(|(row, column)| self.cell(row, column, &direct[row][column], through));
        let cells: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let mut words = Vec::new();
        for cell in cells {
            let (compared, word) = cell?;
            tally.merge(compared);
            words.push(word);
        }
        Ok(self.table(self.rows(words).iter().map(Vec::as_slice)))
    }

    async fn cell(&self, row: usize, column: usize, direct: &Answer, through: &Through<'_>) -> Result<(Tally, String)> {
        let request = &self.requests[column];
        let may_be_rejected = through.delegated.rejects(&self.users[row]);
        let mut direct = direct.clone();
        let mut tries = 1;
        let (actual, outcome, found, is_rejected) = loop {
            let agent = unique_agent("matrix");
            let ask = request.ask.clone().header("user-agent", &agent);
            let actual = through.callers[row].send(&ask).await.with_context(|| self.what(row, column))?;
            let actual = requests::settled(actual);
            let outcome = through.delegated.gateway.outcome(&agent).await?;
            let is_rejected = may_be_rejected && outcome.by == "rejected" && actual.status >= 400;
            let found = if is_rejected { Vec::new() } else { differences(RULES, &direct, &actual) };
            if found.is_empty() || tries == TRIES {
                break (actual, outcome, found, is_rejected);
            }
            tries += 1;
            direct = requests::settled(self.direct[row].send(&request.ask).await?);
        };
        let mut tally = Tally::default();
        tally.answered(&outcome);
        let what = self.what(row, column);
        tally.compared(&what, found);
        let wrong = !is_rejected && self.is_wrong_source(row, request, &actual, &outcome, through.is_warm);
        tally.compared(&what, wrong.then(|| format!("{} by {outcome:?}: {}", actual.status, actual.text())));
        Ok((tally, format!("{}{}", actual.status, outcome.by.get(..1).unwrap_or("?"))))
    }

    /// Whether a response comes from the wrong source: memory must answer what it may, and nothing else.
    fn is_wrong_source(
        &self,
        row: usize,
        request: &Request,
        actual: &Answer,
        outcome: &Outcome,
        is_warm: bool,
    ) -> bool {
        let user = &self.users[row];
        let is_allowed = matches!(actual.status, 200 | 404) && !user.impersonates() && !user.is_left_to_upstream();
        let may = is_allowed && (request.from_memory || request.from_either);
        let must = is_allowed && request.from_memory && is_warm;
        let is_served = outcome.by == "served";
        is_served && !may || must && !is_served || outcome.by == "rejected"
    }

    fn what(&self, row: usize, column: usize) -> String {
        format!("{}: {}", self.users[row].name, self.requests[column].name)
    }

    /// One line per user, one column per request.
    pub(super) fn table<'a>(&self, rows: impl Iterator<Item = &'a [String]>) -> String {
        let mut table = format!("{:<24}", "");
        let width = |request: &Request| request.name.len().max(4);
        for request in &self.requests {
            write!(table, " {:<1$}", request.name, width(request)).ok();
        }
        for (user, row) in self.users.iter().zip(rows) {
            write!(table, "\n{:<24}", user.name).ok();
            for (request, word) in self.requests.iter().zip(row) {
                write!(table, " {:<1$}", word, width(request)).ok();
            }
        }
        table
    }

    /// Whether the users who lost their right to read pods are refused through `callers`.
    pub(super) async fn changed(&self, callers: &[Caller]) -> Result<bool> {
        let request = self.requests.first().context("no requests")?;
        for (user, caller) in self.users.iter().zip(callers) {
            let statuses = (user.status(request, false)?, user.status(request, true)?);
            if statuses == (200, 403) && caller.send(&request.ask).await?.status == 200 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks that the statuses match the tables, and that refusals are worded as API servers word them.
    pub(super) fn check_directly(&self, answers: &Answers, is_swapped: bool, tally: &mut Tally) -> Result<()> {
        for (row, user) in self.users.iter().enumerate() {
            for (column, request) in self.requests.iter().enumerate() {
                let answer = &answers[row][column];
                let what = format!("{}, directly", self.what(row, column));
                tally.equal(&what, &user.status(request, is_swapped)?, &answer.status);
                let refusal = match answer.status {
                    401 => Some(json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
                    })),
                    403 => user.forbidden(request),
                    _ => None,
                };
                // Other representations have the same text in other bytes.
                if let (Some(refusal), Ok(found)) = (refusal, serde_json::from_slice::<Value>(&answer.body)) {
                    tally.equal(&what, &refusal, &found);
                }
                if request.name == "whoami" {
                    tally.equal(&what, &user.who.to_owned(), &requests::seen_as(answer)?);
                }
            }
        }
        Ok(())
    }
}
