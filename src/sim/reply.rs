//! A response before it becomes HTTP: body, content type, and the headers that every response has.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use crate::{
    body::{self, Body},
    failure::Failure,
    json,
    options::Parameters,
    shapes::list,
    watch::WatchStream,
};

/// What the client requested for the format of the response.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pretty: bool,
    audit_id: HeaderValue,
}

impl Style {
    pub(crate) fn new(headers: &HeaderMap, parameters: &Parameters) -> Self {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let agent = text(header::USER_AGENT);
        let by_agent = ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix));
        let new_id =
            || HeaderValue::try_from(uuid::Uuid::new_v4().to_string()).expect("hexadecimal digits and hyphens");
        Self {
            pretty: parameters.pretty().unwrap_or(by_agent),
            audit_id: headers.get("audit-id").cloned().unwrap_or_else(new_id),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    code: StatusCode,
    content: Content,
    warning: Option<String>,
    retry_after: Option<u64>,
}

#[derive(Debug)]
enum Content {
    /// Compact JSON without a newline; indented if the client wants that.
    Json {
        text: Vec<u8>,
        content_type: &'static str,
    },
    /// A 406 is always indented, whatever the client requested.
    Unacceptable(Vec<u8>),
    Text(&'static str),
    Watch(Box<WatchStream>),
    /// A watch that consists of a single event.
    Event(Vec<u8>),
}

impl Reply {
    pub(crate) fn compact(code: StatusCode, text: Vec<u8>) -> Self {
        Self::new(code, Content::Json { text, content_type: "application/json" })
    }

    pub(crate) fn json(code: StatusCode, value: &Value) -> Self {
        Self::compact(code, json::encode(value))
    }

    pub(crate) fn aggregated_discovery(document: &Value) -> Self {
        let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        Self::new(StatusCode::OK, Content::Json { text: json::encode(document), content_type })
    }

    pub(crate) fn text(code: StatusCode, text: &'static str) -> Self {
        Self::new(code, Content::Text(text))
    }

    /// The response of the API server's mux for a path that is not served.
    pub(crate) fn page_not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    pub(crate) fn failure(failure: &Failure) -> Self {
        let text = json::encode(&failure.status());
        let content = if failure.code == StatusCode::NOT_ACCEPTABLE {
            Content::Unacceptable(text)
        } else {
            Content::Json { text, content_type: "application/json" }
        };
        Self { retry_after: failure.retry_after(), ..Self::new(failure.code, content) }
    }

    pub(crate) fn watch(stream: Box<WatchStream>) -> Self {
        Self::new(StatusCode::OK, Content::Watch(stream))
    }

    pub(crate) fn error_event(failure: &Failure) -> Self {
        Self::new(StatusCode::OK, Content::Event(list::error_event(&failure.status())))
    }

    pub(crate) fn with_warning(self, warning: Option<String>) -> Self {
        Self { warning, ..self }
    }

    pub(crate) fn into_response(self, style: &Style) -> Response<Body> {
        let mut response = Response::builder()
            .status(self.code)
            .header("audit-id", style.audit_id.clone())
            .header(header::CACHE_CONTROL, "no-cache, private");
        if let Some(seconds) = self.retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        if let Some(text) = self.warning {
            response = response.header(header::WARNING, format!("299 - {text:?}"));
        }
        let (content_type, body) = match self.content {
            Content::Json { text, content_type } => (content_type, body::full(printed(text, style.pretty))),
            Content::Unacceptable(text) => ("application/json", body::full(json::indent(&text))),
            Content::Watch(stream) => ("application/json", body::watch(stream)),
            Content::Event(text) => ("application/json", body::full(text)),
            Content::Text(text) => {
                response = response.header(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
                ("text/plain; charset=utf-8", body::full(text))
            }
        };
        response.header(header::CONTENT_TYPE, content_type).body(body).expect("every header is of visible text")
    }

    fn new(code: StatusCode, content: Content) -> Self {
        Self { code, content, warning: None, retry_after: None }
    }
}

fn printed(mut text: Vec<u8>, pretty: bool) -> Vec<u8> {
    if pretty {
        return json::indent(&text);
    }
    text.push(b'\n');
    text
}
