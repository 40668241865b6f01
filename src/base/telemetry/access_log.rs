//! The access log: one line per finished request or watch.

use std::{net::IpAddr, time::Duration};

use crate::apimachinery::GroupResource;

/// The origin of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// From memory.
    Served,
    /// From upstream.
    Forwarded,
    /// From the gateway itself, with an error.
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

/// The part of a finished request or watch that is counted in the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// Kubernetes' verb, for example `get`, `list` or `watch`.
    pub verb: &'static str,
    /// `None` for a path that is not a resource.
    pub resource: Option<&'a GroupResource>,
    /// Whether discovery or a cache knows the resource, so that it may become a label: clients can invent any other
    /// name.
    pub resource_known: bool,
    pub outcome: Outcome,
    /// Why it was forwarded or rejected: a value of an enum.
    pub reason: Option<&'static str>,
    /// HTTP status of the response; [`CLIENT_CLOSED`] if there was none.
    pub status: u16,
    /// From the head of the request to the end of the response.
    pub duration: Duration,
    /// Bytes of the response's body.
    pub bytes: u64,
}

/// A line of the access log.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    pub finished: Finished<'a>,
    /// Without the query.
    pub path: &'a str,
    pub namespace: Option<&'a str>,
    /// The user's name, if the gateway knows it.
    pub user: Option<&'a str>,
    /// `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// As in the response's head, and therefore in audit logs.
    pub audit_id: Option<&'a str>,
    pub user_agent: &'a str,
}

/// Which finished requests and watches are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLines {
    All,
    /// Errors, refusals, and slow requests.
    #[default]
    Notable,
    None,
}

/// The duration from which a request is slow: the limit of Kubernetes' SLO for 99 % of requests for single objects.
pub const SLOW: Duration = Duration::from_secs(1);

/// The status of a request whose client closed the connection before it got a response, as in nginx.
pub const CLIENT_CLOSED: u16 = 499;

impl AccessLines {
    /// The lines that the log's level lets through: none at levels above info.
    #[must_use]
    pub fn logged(self) -> Self {
        if tracing::enabled!(target: "access", tracing::Level::INFO) { self } else { Self::None }
    }

    /// Whether a response with these properties is logged. `duration` is the time to the end of the response, or to its
    /// head if the client decides when it ends.
    pub fn include(self, outcome: Outcome, status: u16, duration: Duration) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Notable => {
                let is_refused = outcome == Outcome::Rejected && status != CLIENT_CLOSED;
                is_refused || matches!(status, 401 | 403 | 429 | 500..) || duration >= SLOW
            }
        }
    }
}

/// Writes the line.
pub fn access_log(record: &AccessRecord<'_>) {
    let Finished { verb, resource, outcome, reason, status, duration, bytes, .. } = record.finished;
    tracing::info!(
        target: "access",
        verb,
        path = record.path,
        resource = resource.map(tracing::field::display),
        namespace = record.namespace,
        outcome = outcome.as_str(),
        reason,
        status,
        duration_ms = (duration.as_secs_f64() * 1e6).round() / 1e3,
        bytes,
        user = record.user,
        address = record.address.map(tracing::field::display),
        audit_id = record.audit_id,
        user_agent = record.user_agent,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::logging::tests::{capture, record};

    #[test]
    fn a_line_omits_absent_fields() {
        let resource = GroupResource { group: "apps".into(), resource: "deployments".into() };
        let line = capture(|| {
            let finished = Finished { resource: Some(&resource), reason: Some("most_recent"), ..record().finished };
            access_log(&AccessRecord { finished, user: Some("jane"), audit_id: Some("id-1"), ..record() });
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
        assert_eq!(
            (&line["user"], &line["address"], &line["audit_id"]),
            (&"jane".into(), &"10.0.0.1".into(), &"id-1".into())
        );
        assert_eq!(line.get("namespace"), None);
    }

    #[test]
    fn failed_refused_and_slow_requests_are_notable() {
        use Outcome::*;
        let (quick, notable) = (Duration::from_millis(999), AccessLines::Notable);
        for (outcome, status, duration, expected) in [
            (Served, 200, quick, false),
            (Served, 200, SLOW, true),
            (Forwarded, 404, quick, false),
            (Forwarded, 409, quick, false),
            (Forwarded, 401, quick, true),
            (Forwarded, 403, quick, true),
            (Forwarded, 429, quick, true),
            (Forwarded, 500, quick, true),
            (Forwarded, 504, quick, true),
            (Rejected, 400, quick, true),
            (Rejected, CLIENT_CLOSED, quick, false),
            (Rejected, CLIENT_CLOSED, SLOW, true),
        ] {
            assert_eq!(notable.include(outcome, status, duration), expected, "{outcome:?} {status} {duration:?}");
            assert!(AccessLines::All.include(outcome, status, duration));
            assert!(!AccessLines::None.include(outcome, status, duration));
        }
    }
}
