//! Assertions on a run, for example `event.delay.p99<200ms`.

use std::{fmt, str::FromStr, time::Duration};

use crate::{recorder::Recorded, times::Times};

/// One condition on the measurements of `--url`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    text: String,
    /// `None` for all workloads together.
    pub(super) workload: Option<String>,
    metric: Metric,
    operator: Operator,
    /// In milliseconds for times, otherwise a count or rate.
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Time(TimeMetric, Statistic),
    Requests,
    RequestsPerSecond,
    Events,
    EventsPerSecond,
    Relists,
    Errors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeMetric {
    Latency,
    FirstByte,
    Sync,
    EventDelay,
    Back,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Percentile(f64),
    Mean,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
}

/// The rates of the workloads that an assertion is about, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) events: f64,
}

/// The result of an assertion. It fails if there is no value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// In milliseconds for times, otherwise a count or rate.
    pub(super) value: Option<f64>,
    pub(super) passed: bool,
}

/// Why a text is not an assertion. Each variant contains the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAssertion {
    #[error(
        "{0:?} has no operator; allowed: METRIC or WORKLOAD:METRIC, one of < <= > >= ==, and a bound, as in \
         event.delay.p99<200ms; or the objective APIResponsiveness"
    )]
    Operator(String),
    #[error(
        "{0:?} is not a metric; allowed: latency, firstByte, sync, event.delay or back, followed by .p50, .p90, .p99, \
         .p99.9, .mean or .max; requests, requests.perSecond, events, events.perSecond, relists, errors"
    )]
    Metric(String),
    #[error("{0:?} is not a time; allowed: a number with the unit us, ms or s, as in 200ms")]
    Time(String),
    #[error("{0:?} is not a count or rate; allowed: a number without a unit, as in 0 or 2.5")]
    Number(String),
}

const OPERATORS: [(&str, Operator); 5] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("==", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];
const TIMES: [(&str, TimeMetric); 5] = [
    ("latency.", TimeMetric::Latency),
    ("firstByte.", TimeMetric::FirstByte),
    ("sync.", TimeMetric::Sync),
    ("event.delay.", TimeMetric::EventDelay),
    ("back.", TimeMetric::Back),
];
const UNITS: [(&str, f64); 3] = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];

impl Assertion {
    /// `WORKLOAD:latency.p99<=BOUND`, with a bound of whole seconds.
    pub(super) fn latency_p99(workload: &str, bound: Duration) -> Self {
        Self {
            text: format!("{workload}:latency.p99<={}s", bound.as_secs()),
            workload: Some(workload.to_owned()),
            metric: Metric::Time(TimeMetric::Latency, Statistic::Percentile(99.0)),
            operator: Operator::LessOrEqual,
            bound: bound.as_secs_f64() * 1e3,
        }
    }

    /// Evaluates the assertion.
    pub(super) fn evaluate(&self, recorded: &Recorded, rates: Rates) -> Outcome {
        let value = match self.metric {
            Metric::Time(metric, statistic) => statistic.of(match metric {
                TimeMetric::Latency => &recorded.latency,
                TimeMetric::FirstByte => &recorded.first_byte,
                TimeMetric::Sync => &recorded.sync,
                TimeMetric::EventDelay => &recorded.delay,
                TimeMetric::Back => &recorded.back,
            }),
            Metric::Requests => Some(recorded.answered as f64),
            Metric::RequestsPerSecond => Some(rates.requests),
            Metric::Events => Some(recorded.events as f64),
            Metric::EventsPerSecond => Some(rates.events),
            // Without informers, which list at least once, nothing was measured.
            Metric::Relists => (recorded.lists > 0).then_some(recorded.relists as f64),
            Metric::Errors => Some(recorded.failures.total() as f64),
        };
        let passed = value.is_some_and(|value| match self.operator {
            Operator::Less => value < self.bound,
            Operator::LessOrEqual => value <= self.bound,
            Operator::Greater => value > self.bound,
            Operator::GreaterOrEqual => value >= self.bound,
            // Only counts can equal a bound, and they are exact.
            Operator::Equal => (value - self.bound).abs() < f64::EPSILON,
        });
        Outcome { value, passed }
    }

    /// The unit of the values.
    pub(super) fn unit(&self) -> &'static str {
        if matches!(self.metric, Metric::Time(..)) { "ms" } else { "" }
    }
}

impl Statistic {
    fn of(self, times: &Times) -> Option<f64> {
        (times.count() > 0).then(|| match self {
            Self::Percentile(percent) => times.percentile(percent),
            Self::Mean => times.mean(),
            Self::Max => times.max(),
        })
    }
}

impl FromStr for Assertion {
    type Err = NotAnAssertion;

    fn from_str(text: &str) -> Result<Self, NotAnAssertion> {
        let no_operator = || NotAnAssertion::Operator(text.to_owned());
        // First, since the name of a workload may contain anything, and what follows it no colon.
        let (workload, condition) = match text.rsplit_once(':') {
            Some((workload, condition)) => (Some(workload.trim().to_owned()), condition),
            None => (None, text),
        };
        let at = condition.find(['<', '>', '=']).ok_or_else(no_operator)?;
        let (name, rest) = condition.split_at(at);
        let operator = OPERATORS.iter().find_map(|(sign, operator)| Some((rest.strip_prefix(sign)?, *operator)));
        let (bound, operator) = operator.ok_or_else(no_operator)?;
        let (name, bound) = (name.trim(), bound.trim());
        let metric = metric(name).ok_or_else(|| NotAnAssertion::Metric(name.to_owned()))?;
        let bound = if matches!(metric, Metric::Time(..)) {
            milliseconds(bound).ok_or_else(|| NotAnAssertion::Time(bound.to_owned()))?
        } else {
            number(bound).ok_or_else(|| NotAnAssertion::Number(bound.to_owned()))?
        };
        Ok(Self { text: text.to_owned(), workload, metric, operator, bound })
    }
}

fn metric(name: &str) -> Option<Metric> {
    for (prefix, metric) in TIMES {
        if let Some(statistic) = name.strip_prefix(prefix) {
            return Some(Metric::Time(metric, self::statistic(statistic)?));
        }
    }
    Some(match name {
        "requests" => Metric::Requests,
        "requests.perSecond" => Metric::RequestsPerSecond,
        "events" => Metric::Events,
        "events.perSecond" => Metric::EventsPerSecond,
        "relists" => Metric::Relists,
        "errors" => Metric::Errors,
        _ => return None,
    })
}

fn statistic(name: &str) -> Option<Statistic> {
    match name {
        "mean" => Some(Statistic::Mean),
        "max" => Some(Statistic::Max),
        _ => Some(Statistic::Percentile(number(name.strip_prefix('p')?).filter(|percent| *percent <= 100.0)?)),
    }
}

fn milliseconds(text: &str) -> Option<f64> {
    UNITS.iter().find_map(|(unit, factor)| Some(number(text.strip_suffix(unit)?)? * factor))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

impl fmt::Display for Assertion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_evaluated_on_the_measurements() {
        let mut recorded = Recorded { answered: 20, ..Recorded::default() };
        for milliseconds in 1..=100 {
            recorded.delay.add(Duration::from_millis(milliseconds));
        }
        let rates = Rates { requests: 10.0, events: 0.0 };
        for (text, passed) in [
            ("event.delay.p99<200ms", true),
            ("event.delay.p50 <= 49ms", false),
            ("event.delay.max>0.05s", true),
            ("event.delay.p99.9 < 90000us", false),
            ("requests.perSecond>=10", true),
            ("errors==0", true),
            ("errors>0", false),
            // Nothing was measured.
            ("sync.p99<1s", false),
            ("relists==0", false),
        ] {
            let assertion: Assertion = text.parse().unwrap();
            assert_eq!(assertion.evaluate(&recorded, rates).passed, passed, "{text}");
            assert_eq!(assertion.to_string(), text);
        }
        let of_one: Assertion = "lists:latency.p90<1s".parse().unwrap();
        assert_eq!(of_one.workload.as_deref(), Some("lists"));
    }

    #[test]
    fn every_name_of_a_workload_can_be_given() {
        for (text, name) in [
            ("a<b: latency.p90 < 1s", "a<b"),
            ("size>=5:errors==0", "size>=5"),
            ("a=b:c:relists==0", "a=b:c"),
            ("==:requests>1", "=="),
        ] {
            let assertion: Assertion = text.parse().unwrap();
            assert_eq!((assertion.workload.as_deref(), assertion.to_string().as_str()), (Some(name), text));
        }
        let error = "a<b:errors".parse::<Assertion>().unwrap_err().to_string();
        assert!(error.starts_with("\"a<b:errors\" has no operator"), "{error}");
    }

    #[test]
    fn an_invalid_assertion_is_refused_with_what_is_allowed() {
        for (text, expected) in [
            ("", "\"\" has no operator; allowed: METRIC"),
            ("latency.p50", "\"latency.p50\" has no operator; allowed: "),
            ("errors=0", "\"errors=0\" has no operator; allowed: "),
            ("latency<5ms", "\"latency\" is not a metric; allowed: latency, "),
            ("lists:latency.p101<5ms", "\"latency.p101\" is not a metric; allowed: "),
            ("speed>1", "\"speed\" is not a metric; allowed: "),
            ("latency.p50 < 5", "\"5\" is not a time; allowed: a number with the unit us, ms or s"),
            ("errors<5ms", "\"5ms\" is not a count or rate; allowed: a number without a unit"),
            ("errors<-1", "\"-1\" is not a count or rate; allowed: "),
        ] {
            let error = text.parse::<Assertion>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{expected}\nbut {error}");
        }
    }
}
