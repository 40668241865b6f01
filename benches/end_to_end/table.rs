//! The table that is printed.

use std::{
    fmt,
    io::{self, Write},
};

/// A row; the columns of the other servers are empty where there is nothing to compare with.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) api_server: Option<f64>,
    pub(crate) baseline: Option<f64>,
    pub(crate) gateway: f64,
    pub(crate) goal: Option<Goal>,
}

/// The goal of a row.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// In the unit of the goal, mostly a ratio.
    pub(crate) reached: f64,
    pub(crate) most: f64,
    /// The unit of the goal.
    pub(crate) of: &'static str,
}

pub(crate) const HEAD: &str =
    "\n| work | unit | API server | baseline | kube-fanout | reached | goal | |\n|---|---|---|---|---|---|---|---|";

impl Line {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, gateway: f64) -> Self {
        Self { name: name.into(), unit, api_server: None, baseline: None, gateway, goal: None }
    }

    pub(crate) fn api_server(self, api_server: Option<f64>) -> Self {
        Self { api_server, ..self }
    }

    pub(crate) fn baseline(self, baseline: f64) -> Self {
        Self { baseline: Some(baseline), ..self }
    }

    /// Sets the goal: at most `most` times what the baseline needs.
    pub(crate) fn times_baseline(self, most: f64) -> Self {
        let goal = self.baseline.map(|baseline| Goal { reached: self.gateway / baseline, most, of: "x baseline" });
        Self { goal, ..self }
    }

    /// Sets the goal: at most this fraction of what the API server needs.
    pub(crate) fn of_api_server(self, most: f64) -> Self {
        let reached = self.api_server.map(|api_server| self.gateway / api_server);
        Self { goal: reached.map(|reached| Goal { reached, most, of: "x API server" }), ..self }
    }

    pub(crate) fn goal(self, reached: f64, most: f64, of: &'static str) -> Self {
        Self { goal: Some(Goal { reached, most, of }), ..self }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |value: Option<f64>| value.map_or(String::new(), digits);
        write!(
            formatter,
            "| {} | {} | {} | {} | {} |",
            self.name,
            self.unit,
            figure(self.api_server),
            figure(self.baseline),
            digits(self.gateway),
        )?;
        match &self.goal {
            None => formatter.write_str(" | | |"),
            Some(Goal { reached, most, of }) => {
                let verdict = if reached <= most { "ok" } else { "MISSED" };
                write!(formatter, " {} | <= {} {of} | {verdict} |", digits(*reached), digits(*most))
            }
        }
    }
}

/// Rounds to three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// Prints a line on standard output.
pub(crate) fn say(line: &str) {
    // The reader may have closed the pipe.
    writeln!(io::stdout(), "{line}").unwrap_or_default();
}
