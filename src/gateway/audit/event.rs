//! Audit events, in the API server's format (`audit.k8s.io/v1`, level Metadata).

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Request, request::cut};
use base::apimachinery::{RequestInfo, ResourceRequest, Status, StatusReason, Target, UserInfo};

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// The head of a long-running answer was sent: a watch has begun.
    ResponseStarted,
    /// The answer has ended.
    ResponseComplete,
}

/// An audit event. Timestamps are wall clock time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: &'static str,
    pub user: User,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    pub response_status: ResponseStatus,
    #[serde(serialize_with = "micro_time")]
    pub request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub stage_timestamp: Timestamp,
    /// The source of the answer, and the authorization decision if there was one.
    pub annotations: BTreeMap<&'static str, &'static str>,
}

/// `authentication.k8s.io/v1` UserInfo. Shared with the request: events of watches are kept until they end.
#[derive(Clone, Debug, Default)]
pub struct User(Arc<UserInfo>);

/// The object or collection that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    pub resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    pub api_version: String,
}

/// The part of a `Status` that events contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResponseStatus {
    metadata: Nothing,
    /// `Failure` for a refusal; empty otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    pub code: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Nothing {}

impl Event {
    /// The event of a request that is about to be answered from memory with `code`.
    pub fn served(request: &Request, info: &RequestInfo, user: User, audit_id: String, code: u16) -> Self {
        let status = ResponseStatus { metadata: Nothing {}, status: None, message: None, reason: None, code };
        let annotations = BTreeMap::from([("authorization.k8s.io/decision", "allow"), (ANSWERED_FROM, "memory")]);
        Self::new(request, info, user, audit_id, status, annotations)
    }

    /// The event of a request that the gateway refuses itself. It has no authorization decision, since none was made.
    pub fn refused(request: &Request, info: &RequestInfo, user: User, audit_id: String, status: &Status) -> Self {
        let status = ResponseStatus {
            metadata: Nothing {},
            status: Some("Failure"),
            message: Some(status.message().to_owned()),
            reason: status.reason().map(StatusReason::as_str),
            code: status.code().as_u16(),
        };
        let event = Self::new(request, info, user, audit_id, status, BTreeMap::from([(ANSWERED_FROM, "gateway")]));
        event.at(Stage::ResponseComplete)
    }

    fn new(
        request: &Request,
        info: &RequestInfo,
        user: User,
        audit_id: String,
        response_status: ResponseStatus,
        annotations: BTreeMap<&'static str, &'static str>,
    ) -> Self {
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id,
            stage: Stage::ResponseComplete,
            request_uri: request.uri(),
            verb: info.verb.as_str(),
            user,
            source_ips: request.source_ips(),
            user_agent: request.user_agent(),
            object_ref: match &info.target {
                Target::Resource(target) => Some(ObjectReference::of(target)),
                Target::NonResource | Target::Ambiguous => None,
            },
            response_status,
            request_received_timestamp: request.received(),
            stage_timestamp: request.received(),
            annotations,
        }
    }

    /// The same event at `stage`, with the current time.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self.stage_timestamp = Timestamp::now();
        self
    }

    /// The event as a line of JSON.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an event has string keys only");
        line.push(b'\n');
        line
    }
}

/// Maximum bytes of each part of an object reference: of the name of an object that is served.
const OBJECT_PART_MAX: usize = 253;

/// Annotation that distinguishes these events from upstream's own where both go to the same place.
const ANSWERED_FROM: &str = "kube-fanout.io/answered-from";

impl From<Arc<UserInfo>> for User {
    fn from(user: Arc<UserInfo>) -> Self {
        Self(user)
    }
}

impl Serialize for User {
    /// Without what is empty.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let UserInfo { name, uid, groups, extra } = &*self.0;
        let mut map = serializer.serialize_map(None)?;
        for (field, text) in [("username", name), ("uid", uid)] {
            if !text.is_empty() {
                map.serialize_entry(field, text)?;
            }
        }
        if !groups.is_empty() {
            map.serialize_entry("groups", groups)?;
        }
        if !extra.is_empty() {
            map.serialize_entry("extra", extra)?;
        }
        map.end()
    }
}

impl ObjectReference {
    /// Each part is cut: a request that is refused may name anything.
    fn of(target: &ResourceRequest) -> Self {
        let part = |text: &str| cut(text, OBJECT_PART_MAX);
        Self {
            resource: part(&target.resource.resource),
            namespace: target.namespace.as_deref().map(part),
            name: target.name.as_deref().map(part),
            api_group: part(&target.resource.group),
            api_version: part(&target.resource.version),
        }
    }
}

/// Kubernetes' MicroTime: UTC with six fractional digits.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: &str = "2026-01-02T03:04:05.6Z";

    /// An event for jane, who lists deployments.
    fn listing(event: impl FnOnce(&Request, &RequestInfo, User) -> Event) -> Event {
        let request = http::Request::get("http://h/apis/apps/v1/namespaces/a/deployments?resourceVersion=0");
        let request = request.header("user-agent", "kubectl/v1").body(()).unwrap();
        let info = RequestInfo::parse(request.method(), request.uri().path(), request.uri().query());
        let user = UserInfo { name: "jane".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
        let asked = Request::of(&request, Some("10.0.0.1".parse().unwrap())).received_at(RECEIVED.parse().unwrap());
        event(&asked, &info, User::from(Arc::new(user)))
    }

    fn line(event: &Event) -> String {
        String::from_utf8(event.line()).unwrap()
    }

    #[test]
    fn an_event_is_one_line_in_the_words_of_the_api_server() {
        let event = listing(|request, info, user| Event::served(request, info, user, "id-1".to_owned(), 200));
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-1","#,
            r#""stage":"ResponseComplete","#,
            r#""requestURI":"/apis/apps/v1/namespaces/a/deployments?resourceVersion=0","verb":"list","#,
            r#""user":{"username":"jane","groups":["dev"]},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl/v1","#,
            r#""objectRef":{"resource":"deployments","namespace":"a","apiGroup":"apps","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z","#,
            r#""stageTimestamp":"2026-01-02T03:04:05.600000Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow","kube-fanout.io/answered-from":"memory"}}"#,
            "\n"
        );
        assert_eq!(line(&event), expected);
    }

    #[test]
    fn a_refusal_says_why_and_decides_nothing() {
        let status = Status::too_many_requests("too many watches", 1);
        let event = listing(|request, info, user| Event::refused(request, info, user, "id-1".to_owned(), &status));
        let line = line(&event);
        let expected = concat!(
            r#""responseStatus":{"metadata":{},"status":"Failure","message":"too many watches","#,
            r#""reason":"TooManyRequests","code":429},"#,
            r#""requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z","#,
        );
        assert!(line.contains(expected), "{line}");
        assert!(line.ends_with("\"annotations\":{\"kube-fanout.io/answered-from\":\"gateway\"}}\n"), "{line}");
    }

    /// The groups of a user may be long, and a watch keeps its event until it ends.
    #[test]
    fn an_event_shares_its_user() {
        let extra = BTreeMap::from([("scopes".to_owned(), vec!["a".to_owned()])]);
        let user = Arc::new(UserInfo { uid: "7".to_owned(), extra, ..UserInfo::default() });
        let event =
            listing(|request, info, _| Event::served(request, info, user.clone().into(), "id-1".to_owned(), 200));
        let later = event.clone();
        assert_eq!(Arc::strong_count(&user), 3);
        drop(event);
        let line = line(&later);
        assert!(line.contains(r#""user":{"uid":"7","extra":{"scopes":["a"]}},"#), "{line}");
    }

    #[test]
    fn long_names_are_cut() {
        let path = format!("/api/v1/namespaces/{0}/pods/{0}", "x".repeat(60_000));
        let info = RequestInfo::parse(&http::Method::GET, &path, None);
        let Target::Resource(target) = &info.target else { panic!("no resource") };
        let ObjectReference { namespace, name, .. } = ObjectReference::of(target);
        let expected = Some("x".repeat(OBJECT_PART_MAX) + "...TRUNCATED");
        assert_eq!((namespace, name), (expected.clone(), expected));
    }

    #[test]
    fn a_later_stage_has_a_later_time() {
        let event = listing(|request, info, user| Event::served(request, info, user, String::new(), 200));
        let event = event.at(Stage::ResponseStarted);
        let value: serde_json::Value = serde_json::from_slice(&event.line()).unwrap();
        assert_eq!(value["stage"], "ResponseStarted");
        assert!(event.stage_timestamp > event.request_received_timestamp);
    }
}
