//! One event, as the API server writes it (`audit.k8s.io/v1`, level Metadata).

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::apimachinery::{RequestInfo, ResourceRequest, Target, UserInfo};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// The head of an answer that lasts: a watch has begun.
    ResponseStarted,
    /// The answer is over.
    ResponseComplete,
}

/// What is logged of a request. Times are of the wall clock.
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
    /// How it came to be answered.
    pub annotations: BTreeMap<&'static str, &'static str>,
}

/// `authentication.k8s.io/v1` UserInfo.
#[derive(Clone, Debug, Default, Serialize)]
pub struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What was read.
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

/// The part of a Status that is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ResponseStatus {
    metadata: Nothing,
    pub code: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Nothing {}

/// The request that an event is of.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub info: &'a RequestInfo,
    pub uri: &'a http::Uri,
    pub headers: &'a http::HeaderMap,
    pub client: Option<IpAddr>,
}

impl Event {
    /// The event of a request that is about to be answered with `code`; it was received at `received`.
    pub fn new(request: Request<'_>, user: User, audit_id: String, code: u16, received: Timestamp) -> Self {
        let Request { info, uri, headers, client } = request;
        let user_agent = headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id,
            stage: Stage::ResponseComplete,
            request_uri: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            verb: info.verb.as_str(),
            user,
            source_ips: client.into_iter().collect(),
            user_agent: String::from_utf8_lossy(user_agent).into_owned(),
            object_ref: match &info.target {
                Target::Resource(target) => Some(ObjectReference::of(target)),
                Target::NonResource | Target::Ambiguous => None,
            },
            response_status: ResponseStatus { metadata: Nothing {}, code },
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations: BTreeMap::from([("authorization.k8s.io/decision", "allow"), (ANSWERED_BY, "memory")]),
        }
    }

    /// The same event at a stage that is reached now.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self.stage_timestamp = Timestamp::now();
        self
    }

    /// The event's line.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an event has string keys only");
        line.push(b'\n');
        line
    }
}

/// Tells these events from upstream's own where both end in one place.
const ANSWERED_BY: &str = "kube-fanout.io/answered-from";

impl From<&UserInfo> for User {
    fn from(user: &UserInfo) -> Self {
        let UserInfo { name, uid, groups, extra } = user.clone();
        Self { username: name, uid, groups, extra }
    }
}

impl ObjectReference {
    fn of(target: &ResourceRequest) -> Self {
        Self {
            resource: target.resource.resource.to_string(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            api_group: target.resource.group.to_string(),
            api_version: target.resource.version.to_string(),
        }
    }
}

/// Kubernetes' MicroTime: UTC, six digits.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method, Uri};

    #[test]
    fn an_event_is_one_line_in_the_words_of_the_api_server() {
        let uri: Uri = "http://h/apis/apps/v1/namespaces/a/deployments?resourceVersion=0".parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, uri.path(), uri.query());
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", "kubectl/v1".parse().unwrap());
        let user = UserInfo { name: "jane".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
        let received: Timestamp = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let request = Request { info: &info, uri: &uri, headers: &headers, client: Some("10.0.0.1".parse().unwrap()) };
        let event = Event::new(request, User::from(&user), "id-1".to_owned(), 200, received);
        let line = String::from_utf8(event.line()).unwrap();
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-1","stage":"ResponseComplete","#,
            r#""requestURI":"/apis/apps/v1/namespaces/a/deployments?resourceVersion=0","verb":"list","#,
            r#""user":{"username":"jane","groups":["dev"]},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl/v1","#,
            r#""objectRef":{"resource":"deployments","namespace":"a","apiGroup":"apps","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z","#,
            r#""stageTimestamp":"2026-01-02T03:04:05.600000Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow","kube-fanout.io/answered-from":"memory"}}"#,
            "\n"
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn a_later_stage_has_a_later_time() {
        let uri: Uri = "/api/v1/nodes?watch=1".parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, uri.path(), uri.query());
        let received: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let request = Request { info: &info, uri: &uri, headers: &HeaderMap::new(), client: None };
        let event = Event::new(request, User::default(), String::new(), 200, received).at(Stage::ResponseStarted);
        let value: serde_json::Value = serde_json::from_slice(&event.line()).unwrap();
        assert_eq!(value["stage"], "ResponseStarted");
        assert!(event.stage_timestamp > received);
        assert_eq!(value.get("sourceIPs"), None);
    }
}
