//! The comparisons and their results.

use std::collections::BTreeMap;

use crate::gateway::Outcome;

/// The sums of one scenario.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    compared: usize,
    served: usize,
    forwarded: BTreeMap<String, usize>,
    differences: Vec<String>,
    notes: Vec<String>,
}

impl Tally {
    /// Counts a comparison and its differences.
    pub(crate) fn compared(&mut self, what: &str, differences: impl IntoIterator<Item = String>) {
        self.compared += 1;
        for difference in differences {
            self.differences.push(format!("{what}\n    {difference}"));
        }
    }

    /// Compares two values that should be equal.
    pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: &T, actual: &T) {
        let difference = (expected != actual).then(|| format!("expected {expected:?}\n    but found {actual:?}"));
        self.compared(what, difference);
    }

    /// Checks a condition that should be true.
    pub(crate) fn holds(&mut self, what: &str, is_true: bool, details: impl FnOnce() -> String) {
        self.compared(what, (!is_true).then(details));
    }

    /// Adds a figure to the report.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn answered(&mut self, outcome: &Outcome) {
        if outcome.by == "served" {
            self.served += 1;
        } else {
            let reason =
                if outcome.by == "forwarded" { outcome.reason.clone() } else { format!("rejected:{}", outcome.reason) };
            *self.forwarded.entry(reason).or_default() += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.served += other.served;
        for (reason, count) in other.forwarded {
            *self.forwarded.entry(reason).or_default() += count;
        }
        self.differences.extend(other.differences);
        self.notes.extend(other.notes);
    }

    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        Self { compared: 1, differences: vec![format!("the scenario broke off: {error:#}")], ..Self::default() }
    }
}

/// The results of all scenarios.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<(String, Tally, f64)>,
}

#[expect(clippy::print_stdout, reason = "the report is what the suite is for")]
impl Report {
    pub(crate) fn add(&mut self, scenario: &str, tally: Tally, seconds: f64) {
        for difference in &tally.differences {
            println!("DIFFERENCE in {scenario}: {difference}");
        }
        println!("{scenario}: {} compared, {} differences, {seconds:.1} s", tally.compared, tally.differences.len());
        for note in &tally.notes {
            println!("  {note}");
        }
        self.rows.push((scenario.to_owned(), tally, seconds));
    }

    /// Prints the table; true if there are no differences.
    pub(crate) fn print(&self) -> bool {
        println!(
            "\n{:<34} {:>8} {:>7} {:>9} {:>11} {:>7}",
            "scenario", "compared", "served", "forwarded", "differences", "seconds"
        );
        let mut reasons = BTreeMap::<&str, usize>::new();
        for (scenario, tally, seconds) in &self.rows {
            let forwarded: usize = tally.forwarded.values().sum();
            let differences = tally.differences.len();
            println!(
                "{scenario:<34} {:>8} {:>7} {forwarded:>9} {differences:>11} {seconds:>7.1}",
                tally.compared, tally.served
            );
            for (reason, count) in &tally.forwarded {
                *reasons.entry(reason).or_default() += count;
            }
        }
        // Once more, where the end of a log shows them.
        for (scenario, tally, _) in &self.rows {
            for difference in &tally.differences {
                println!("DIFFERENCE in {scenario}: {difference}");
            }
        }
        let reasons: Vec<_> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        println!("\nforwarded because: {}", reasons.join(", "));
        self.rows.iter().all(|(_, tally, _)| tally.differences.is_empty())
    }
}
