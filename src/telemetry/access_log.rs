//! The access log: one line a finished request or watch.

use std::time::Duration;

use crate::apimachinery::GroupResource;

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// From memory.
    Served,
    /// By upstream.
    Forwarded,
    /// By the gateway itself, with an error.
    Rejected,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Forwarded => "forwarded",
            Self::Rejected => "rejected",
        }
    }
}

/// One finished request or watch.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// Kubernetes' word: `get`, `list`, `watch`.
    pub verb: &'static str,
    /// Without the query.
    pub path: &'a str,
    /// None for a path that is no resource's.
    pub resource: Option<&'a GroupResource>,
    /// Discovery or a cache knows the resource, so that it may become a label: a client can make up any other.
    pub resource_known: bool,
    pub namespace: Option<&'a str>,
    pub outcome: Outcome,
    /// Why it was forwarded or rejected: the word of an enum.
    pub reason: Option<&'static str>,
    /// HTTP status of the response.
    pub status: u16,
    /// From the head of the request to the end of the response.
    pub duration: Duration,
    /// Bytes of the response's body.
    pub bytes: u64,
    pub user_agent: &'a str,
}

/// Writes the record's line.
pub fn access_log(record: &AccessRecord<'_>) {
    tracing::info!(
        target: "access",
        verb = record.verb,
        path = record.path,
        resource = record.resource.map(tracing::field::display),
        namespace = record.namespace,
        outcome = record.outcome.as_str(),
        reason = record.reason,
        status = record.status,
        duration_ms = record.duration.as_secs_f64() * 1_000.0,
        bytes = record.bytes,
        user_agent = record.user_agent,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::logging::tests::{capture, record};

    #[test]
    fn a_line_has_what_there_is_and_leaves_out_the_rest() {
        let resource = GroupResource { group: "apps".into(), resource: "deployments".into() };
        let line = capture(|| {
            access_log(&AccessRecord { resource: Some(&resource), reason: Some("most_recent"), ..record() });
        });
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["target"], "access");
        assert_eq!(line["verb"], "list");
        assert_eq!(line["resource"], "deployments.apps");
        assert_eq!(line["outcome"], "forwarded");
        assert_eq!(line["reason"], "most_recent");
        assert_eq!(line["status"], 200);
        assert_eq!(line["duration_ms"], 1.5);
        assert_eq!(line["bytes"], 42);
        assert_eq!(line.get("namespace"), None);
    }
}
