//! The operator's port: livez, readyz, metrics, and the status as a page and as JSON.
//!
//! Invariant: it shows the state of the gateway and changes nothing. Health is worded as in Kubernetes, so that people
//! and tools find what they expect.

mod metrics_access;
mod status_page;

use std::{fmt, fmt::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::listener::{self, Bound, Connection, GivesWay, Handler};
use crate::status::{Detail, Source};
use base::lifecycle::Tasks;
use base::telemetry::Exposition;

pub use metrics_access::MetricsAccess;

use metrics_access::Denied;
use status_page::StatusPage;

/// One line of readyz: a cache, or another component that has to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// For example `cache/pods.v1`.
    pub name: String,
    pub ready: bool,
    /// Whether the gateway is ready only if this is. A cache that fills while requests are forwarded is not required.
    pub required: bool,
    /// What to show while it is not ready. If it is required: the cause, or nothing if that is unknown. If it is not:
    /// what the gateway does without it. Any client may read it.
    pub otherwise: &'static str,
}

impl Check {
    /// The gateway is ready only if this is.
    pub fn required(name: impl Into<String>, ready: bool) -> Self {
        Self { name: name.into(), ready, required: true, otherwise: "" }
    }
}

/// Serves the operator's port. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    exposition: Exposition,
    checks: Arc<dyn Fn() -> Vec<Check> + Send + Sync>,
    draining: CancellationToken,
    /// `None`: any client that reaches the port may read the metrics.
    metrics_access: Option<MetricsAccess>,
    status: Option<StatusPage>,
}

/// Enough for the scrapers and probes of one machine or cluster: a few of each. A new connection is always accepted, so
/// that probes do not wait for clients that keep their connections open.
const LIMITS: listener::Limits = listener::Limits {
    connections: 100,
    connections_per_address: 100,
    gives_way: GivesWay::Oldest,
    answer_timeout: Duration::from_secs(10),
};

impl Admin {
    /// `checks` is called for each readyz request and must not block. Once `draining` is cancelled, the gateway is not
    /// ready.
    pub fn new(
        exposition: Exposition,
        checks: impl Fn() -> Vec<Check> + Send + Sync + 'static,
        draining: CancellationToken,
    ) -> Self {
        Self { exposition, checks: Arc::new(checks), draining, metrics_access: None, status: None }
    }

    /// Adds the status as a page and as JSON. Without authorization, names of users and objects are shown at a local
    /// address only.
    pub fn with_status(self, source: Source, is_local: bool) -> Self {
        Self { status: Some(StatusPage { source, is_local }), ..self }
    }

    /// Restricts metrics and status to users that may get them. Health stays open to all clients.
    pub fn with_metrics_access(self, metrics_access: Option<MetricsAccess>) -> Self {
        Self { metrics_access, ..self }
    }

    /// Starts to serve, and to keep the metrics' memory bounded, until `tasks` are drained. Given tasks of its own that
    /// are drained last, the port can be scraped until the end.
    pub fn serve(&self, bound: Bound, tasks: &Tasks) {
        let (upkeep, draining) = (self.exposition.clone().upkeep(), tasks.token().clone());
        tasks.spawn("metrics upkeep", async move {
            tokio::select! {
                () = draining.cancelled() => {}
                () = upkeep => {}
            }
        });
        // Own places, separate from those of the gateway's listeners and not shown in the metrics.
        listener::serve(vec![bound], &listener::Places::new(LIMITS), self, tasks);
    }

    fn respond(&self, method: &Method, path: &str, query: Option<&str>, detail: Detail) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n".to_owned());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let verbose = query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
        match path {
            "/livez" => health("livez", &[ping()], verbose),
            "/readyz" => health("readyz", &self.readiness(), verbose),
            metrics_access::METRICS => {
                if let Some(status) = &self.status {
                    status.source.show_troubles();
                }
                metrics(&self.exposition)
            }
            _ => {
                let checked = || (self.readiness(), self.draining.is_cancelled());
                let told = self.status.as_ref().and_then(|status| status.respond(path, checked, detail));
                told.unwrap_or_else(|| text(StatusCode::NOT_FOUND, NOT_FOUND.to_owned()))
            }
        }
    }

    /// The path to authorize before `path` is answered; `None` if it is open to all clients.
    fn reviewed(path: &str) -> Option<&'static str> {
        match path {
            metrics_access::METRICS => Some(metrics_access::METRICS),
            _ if status_page::tells(path) => Some(metrics_access::STATUS),
            _ => None,
        }
    }

    /// How much detail the client of a request may see.
    fn detail<B>(&self, request: &Request<B>, connection: &Connection) -> Detail {
        let is_named = self.metrics_access.is_some();
        let is_near = self.status.as_ref().is_some_and(|status| status.is_near(request, connection));
        if is_named || is_near { Detail::Full } else { Detail::WithoutNames }
    }

    fn readiness(&self) -> Vec<Check> {
        let shutdown = Check::required("shutdown", !self.draining.is_cancelled());
        let mut checks = vec![ping(), shutdown];
        checks.extend((self.checks)());
        checks
    }
}

impl Handler for Admin {
    type Body = Full<Bytes>;

    async fn handle(&self, mut request: Request<Incoming>, connection: &Connection) -> Response<Self::Body> {
        if let Some(access) = &self.metrics_access
            && let Some(path) = Self::reviewed(request.uri().path())
            && let Err(denied) = access.check(path, request.headers_mut(), connection).await
        {
            return refused(&denied);
        }
        let detail = self.detail(&request, connection);
        self.respond(request.method(), request.uri().path(), request.uri().query(), detail)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Admin").field("draining", &self.draining.is_cancelled()).finish_non_exhaustive()
    }
}

const NOT_FOUND: &str = "not found; the paths are /, /status.json, /metrics, /livez and /readyz\n";

/// Shows only that the gateway answers.
fn ping() -> Check {
    Check::required("ping", true)
}

/// `ok`, or one line per check if `verbose` or if a required one fails.
fn health(endpoint: &str, checks: &[Check], verbose: bool) -> Response<Full<Bytes>> {
    let passed = checks.iter().all(|check| check.ready || !check.required);
    if passed && !verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let mut lines = String::new();
    for Check { name, ready, required, otherwise } in checks {
        let written = match (ready, required) {
            (true, _) => writeln!(lines, "[+]{name} ok"),
            (false, false) => writeln!(lines, "[i]{name} not ready: {otherwise}"),
            (false, true) => {
                let reason = if otherwise.is_empty() { "not ready" } else { otherwise };
                writeln!(lines, "[-]{name} failed: {reason}")
            }
        };
        written.expect("a string takes everything");
    }
    lines.push_str(endpoint);
    lines.push_str(if passed { " check passed\n" } else { " check failed\n" });
    text(if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, lines)
}

fn metrics(exposition: &Exposition) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, exposition.render());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(Exposition::CONTENT_TYPE));
    response
}

fn refused(denied: &Denied) -> Response<Full<Bytes>> {
    match denied {
        Denied::Unauthenticated => {
            let mut response =
                text(StatusCode::UNAUTHORIZED, "metrics and status require a valid bearer token\n".to_owned());
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Denied::Forbidden { user, path } => {
            text(StatusCode::FORBIDDEN, format!("user {user:?} cannot get path {path:?}\n"))
        }
        Denied::Busy => text(StatusCode::TOO_MANY_REQUESTS, "too many requests at once\n".to_owned()),
        Denied::NoVerdict => {
            text(StatusCode::SERVICE_UNAVAILABLE, "cannot verify access: no verdict from the API server\n".to_owned())
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    use base::telemetry;

    fn admin(checks: Vec<Check>) -> Admin {
        Admin::new(telemetry::install().unwrap(), move || checks.clone(), CancellationToken::new())
    }

    fn check(name: &str, ready: bool, required: bool) -> Check {
        Check {
            name: name.to_owned(),
            ready,
            required,
            otherwise: if required { "" } else { "requests are forwarded" },
        }
    }

    async fn get(admin: &Admin, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let response = admin.respond(&Method::GET, path, query, Detail::Full);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_is_worded_as_kubernetes_words_it() {
        let healthy = admin(vec![check("cache/pods.v1", true, true), check("cache/nodes.v1", false, false)]);
        assert_eq!(get(&healthy, "/livez").await, (200, "ok".to_owned()));
        assert_eq!(get(&healthy, "/livez?verbose").await, (200, "[+]ping ok\nlivez check passed\n".to_owned()));
        assert_eq!(get(&healthy, "/readyz").await, (200, "ok".to_owned()));
        let lines = "[+]ping ok\n[+]shutdown ok\n[+]cache/pods.v1 ok\n\
            [i]cache/nodes.v1 not ready: requests are forwarded\nreadyz check passed\n";
        assert_eq!(get(&healthy, "/readyz?verbose").await, (200, lines.to_owned()));
        assert_eq!(get(&healthy, "/readyz?timeout=1s&verbose=true").await, (200, lines.to_owned()));
    }

    #[tokio::test]
    async fn a_required_cache_that_is_not_ready_fails_readyz_alone() {
        let filling = admin(vec![check("cache/pods.v1", false, true)]);
        let lines = "[+]ping ok\n[+]shutdown ok\n[-]cache/pods.v1 failed: not ready\nreadyz check failed\n";
        assert_eq!(get(&filling, "/readyz").await, (500, lines.to_owned()));
        assert_eq!(get(&filling, "/livez").await.0, 200);
    }

    #[tokio::test]
    async fn a_draining_gateway_is_alive_and_not_ready() {
        let admin = admin(Vec::new());
        admin.draining.cancel();
        assert_eq!(get(&admin, "/livez").await.0, 200);
        let (status, lines) = get(&admin, "/readyz").await;
        assert_eq!(status, 500);
        assert!(lines.contains("[-]shutdown failed"), "{lines}");
    }

    #[tokio::test]
    async fn metrics_are_in_prometheus_text_format() {
        let admin = admin(Vec::new());
        let response = admin.respond(&Method::GET, "/metrics", None, Detail::Full);
        assert_eq!(response.headers()[header::CONTENT_TYPE], Exposition::CONTENT_TYPE);
        assert!(get(&admin, "/metrics").await.1.contains("# TYPE kube_fanout_build_info gauge"));
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        let admin = admin(Vec::new());
        assert_eq!(get(&admin, "/").await.0, 404);
        let response = admin.respond(&Method::POST, "/livez", None, Detail::Full);
        assert_eq!(
            (response.status(), &response.headers()[header::ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &HeaderValue::from_static("GET, HEAD"))
        );
    }
}
