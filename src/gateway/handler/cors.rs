//! Decides which requests of web pages `trusted` mode answers. Requests need no credentials there, and any page can
//! make a browser send some.
//!
//! A browser names the page's origin in `Origin`: always for requests that can change something, for upgrades (to which
//! the same-origin policy does not apply: the page could read them), and for answers of another origin that a page
//! wants to read. Requests without it (`<img>`, a link) carry `Sec-Fetch-Site`; browsers that do not know that header
//! yet keep such an answer from the page. Other clients send neither.
//!
//! * A page of an origin that the configuration names is a client like every other, and may read its answers (as with
//!   an API server's `--cors-allowed-origins`).
//! * A page of the gateway's own origin was made by a pod or a service and fetched through a `proxy` subresource. It
//!   may do what `kubectl proxy` allows: everything except running commands. (`kubectl proxy` rejects `exec` and
//!   `attach` of pods for all clients, by `--reject-paths`.)
//! * Any other page is refused.

use std::collections::HashSet;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

use super::refusal::Refusal;
use base::apimachinery::{Origin, RequestInfo, Target};

/// A web page of another origin that the configuration names: its `Origin`, as the browser sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedOrigin(HeaderValue);

/// Refuses a request of a page that is not allowed; returns the page if its origin was named. `own` is the gateway's
/// origin, as the request names it. Pure.
pub(super) fn check(
    headers: &HeaderMap,
    info: &RequestInfo,
    own: Option<&Origin>,
    named: &HashSet<Origin>,
) -> Result<Option<AllowedOrigin>, Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if let Some(written) = origins.next() {
        let origin: Option<Origin> = written.to_str().ok().and_then(|text| text.parse().ok());
        let origin = origin.filter(|_| origins.next().is_none()).ok_or(Refusal::ForeignOrigin)?;
        if named.contains(&origin) {
            return Ok(Some(AllowedOrigin(written.clone())));
        }
        if own != Some(&origin) {
            return Err(Refusal::ForeignOrigin);
        }
        if runs_commands(info) {
            return Err(Refusal::OwnPage);
        }
    }
    let is_own = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get_all(SEC_FETCH_SITE).iter().all(is_own) { Ok(None) } else { Err(Refusal::ForeignOrigin) }
}

/// How the page's origin relates to the requested one (Fetch Metadata, section 2.4). `none` stands for the user's own
/// action.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request may run commands. A node's `proxy` leads to its kubelet, which runs commands, too. An ambiguous
/// path may be any of these.
fn runs_commands(info: &RequestInfo) -> bool {
    match &info.target {
        Target::Resource(request) => match request.subresource.as_deref() {
            Some("exec" | "attach" | "portforward") => true,
            Some("proxy") => &*request.resource.resource == "nodes",
            _ => false,
        },
        Target::NonResource => false,
        Target::Ambiguous => true,
    }
}

impl AllowedOrigin {
    /// The answer to a preflight request, with which a browser asks whether the page may use another method or further
    /// headers: it may.
    pub(super) fn leave<B>(&self, request: &Request<B>) -> Option<Response<Bytes>> {
        let asked = |name| request.headers().get(name).cloned();
        let method = asked(header::ACCESS_CONTROL_REQUEST_METHOD).filter(|_| request.method() == Method::OPTIONS)?;
        let mut leave = Response::new(Bytes::new());
        *leave.status_mut() = StatusCode::NO_CONTENT;
        let headers = leave.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method);
        if let Some(names) = asked(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
        self.may_read(headers);
        Some(leave)
    }

    /// Lets the page read an answer with these headers.
    pub(super) fn may_read(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Date, Retry-After, Warning"));
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "http://localhost:8001";
    const NAMED: &str = "http://localhost:4466";
    const PODS: &str = "/api/v1/pods";

    fn checked(path: &str, named: &[&str], headers: &[(&'static str, &str)]) -> Result<Option<AllowedOrigin>, Refusal> {
        let info = RequestInfo::parse(&Method::POST, path, None);
        let named = named.iter().map(|origin| origin.parse().unwrap()).collect();
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        check(&headers.collect(), &info, Some(&OWN.parse().unwrap()), &named)
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        for headers in [
            &[("origin", "http://evil.example")][..],
            &[("origin", "http://localhost:8002")],
            &[("origin", "http://localhost")],
            &[("origin", "https://localhost:8001")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "*")],
            &[("origin", "http://localhost:8001/")],
            &[("origin", "http://localhost:8001.evil.example")],
            &[("origin", "http://localhost:8001@evil.example")],
            &[("origin", "http://localhost:8001 http://evil.example")],
            &[("origin", OWN), ("origin", "http://evil.example")],
            &[("origin", OWN), ("origin", OWN)],
            &[("origin", NAMED), ("origin", "http://evil.example")],
            &[("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")],
            &[("origin", OWN), ("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "")],
            &[("sec-fetch-site", "later-invention")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(checked(PODS, &[NAMED], headers), Err(Refusal::ForeignOrigin), "{headers:?}");
        }
    }

    #[test]
    fn clients_without_origin_and_allowed_pages_are_accepted() {
        let exec = "/api/v1/namespaces/a/pods/b/exec";
        for (path, headers) in [
            (exec, &[][..]),
            ("/api//v1", &[]),
            (PODS, &[("origin", OWN)]),
            (PODS, &[("origin", OWN), ("sec-fetch-site", "same-origin")]),
            (PODS, &[("sec-fetch-site", "same-origin")]),
            (PODS, &[("sec-fetch-site", "none")]),
            ("/api/v1/namespaces/a/services/b/proxy/", &[("origin", OWN)]),
        ] {
            assert_eq!(checked(path, &[NAMED], headers), Ok(None), "{path} {headers:?}");
        }
        let page = Ok(Some(AllowedOrigin(HeaderValue::from_static(NAMED))));
        for path in [PODS, exec, "/api//v1"] {
            for site in ["same-site", "cross-site"] {
                assert_eq!(checked(path, &[NAMED], &[("origin", NAMED), ("sec-fetch-site", site)]), page, "{path}");
            }
        }
    }

    #[test]
    fn pages_of_the_gateway_s_own_origin_run_no_commands_unless_named() {
        for path in [
            "/api/v1/namespaces/a/pods/b/exec",
            "/api/v1/namespaces/a/pods/b/attach",
            "/api/v1/namespaces/a/pods/b/portforward",
            "/api/v1/nodes/a/proxy/run/b/c/d",
            "/api/v1/namespaces/a/pods/b/%65xec",
            "//api/v1/namespaces/a/pods/b/exec",
        ] {
            assert_eq!(checked(path, &[NAMED], &[("origin", OWN)]), Err(Refusal::OwnPage), "{path}");
            assert!(checked(path, &[OWN], &[("origin", OWN)]).is_ok_and(|page| page.is_some()), "{path}");
        }
    }

    #[test]
    fn a_preflight_request_of_an_allowed_page_is_answered() {
        let page = AllowedOrigin(HeaderValue::from_static(NAMED));
        let asked = |method: &str| {
            let request = Request::builder().method(method).uri(PODS);
            request.header("access-control-request-method", "PATCH").header("access-control-request-headers", "a, b")
        };
        let leave = page.leave(&asked("OPTIONS").body(()).unwrap()).unwrap();
        let text = |name: &str| leave.headers()[name].to_str().unwrap();
        assert_eq!(leave.status(), StatusCode::NO_CONTENT);
        assert_eq!(text("access-control-allow-origin"), NAMED);
        assert_eq!(text("access-control-allow-methods"), "PATCH");
        assert_eq!(text("access-control-allow-headers"), "a, b");
        assert_eq!(text("vary"), "Origin");
        assert!(page.leave(&asked("GET").body(()).unwrap()).is_none());
        assert!(page.leave(&Request::builder().method("OPTIONS").uri(PODS).body(()).unwrap()).is_none());
    }
}
