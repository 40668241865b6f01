//! Conditions on a run: an assertion, or one of Kubernetes' service level objectives under its name in clusterloader2.

use std::{str::FromStr, time::Duration};

use crate::{
    Assertion, NotAnAssertion,
    profile::{Profile, Work},
};

/// The name of [`Condition::ApiResponsiveness`].
pub(super) const API_RESPONSIVENESS: &str = "APIResponsiveness";
/// The bounds of the 99th percentile for calls for one object and for lists (Kubernetes' SIG Scalability,
/// `slos/api_call_latency.md`).
const ONE_OBJECT: Duration = Duration::from_secs(1);
const LISTS: Duration = Duration::from_secs(30);

/// A condition of `--assert`.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Of(Assertion),
    /// The 99th percentile of the latency of each workload that sends requests.
    ApiResponsiveness,
}

impl Condition {
    /// The assertions that the condition stands for with this profile.
    pub(super) fn assertions(&self, profile: &Profile) -> Vec<Assertion> {
        if let Self::Of(assertion) = self {
            return vec![assertion.clone()];
        }
        let of_workload = |workload: &crate::profile::Workload| {
            let bound = match workload.work {
                Work::Get { .. } | Work::Churn(_) => ONE_OBJECT,
                Work::List(_) => LISTS,
                // Kubernetes has no objective for long-running requests, and the profile determines the latency of a
                // slow reader.
                Work::Watch(_) | Work::Informer(_) | Work::Reconnect(_) | Work::SlowReader(_) => return None,
            };
            Some(Assertion::latency_p99(&workload.name, bound))
        };
        profile.workloads.iter().filter_map(of_workload).collect()
    }
}

impl FromStr for Condition {
    type Err = NotAnAssertion;

    fn from_str(text: &str) -> Result<Self, NotAnAssertion> {
        if text == API_RESPONSIVENESS { Ok(Self::ApiResponsiveness) } else { text.parse().map(Self::Of) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_becomes_one_assertion_for_each_workload() {
        let text = "apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\nduration: 1s\nworkloads:\n\
                    - {name: gets, rate: 1, get: {resource: pods}}\n- {name: lists, rate: 1, list: {resource: pods}}\n\
                    - {name: watches, watch: {resource: pods}}\n- {name: writes, rate: 1, churn: {resource: pods}}\n";
        let profile = Profile::parse("test", text).unwrap();
        let objective: Condition = "APIResponsiveness".parse().unwrap();
        let texts: Vec<_> = objective.assertions(&profile).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["gets:latency.p99<=1s", "lists:latency.p99<=30s", "writes:latency.p99<=1s"]);
        let plain: Condition = "gets:latency.p99<=1s".parse().unwrap();
        assert_eq!(plain.assertions(&profile), objective.assertions(&profile)[..1]);
    }
}
