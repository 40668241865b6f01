//! The status over HTTP: the page, its assets, and JSON.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;

use super::{Check, metrics_access};
use crate::listener::{self, Connection};
use crate::status::{self, Asset, CheckStatus, Detail, Source};

/// The source of the status, and where the port can be reached from.
#[derive(Clone, Debug)]
pub(super) struct StatusPage {
    pub(super) source: Source,
    /// Whether the port is reachable from this machine only.
    pub(super) is_local: bool,
}

/// The page loads only from its own origin, and sends nothing elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PAGE: &str = "/";
/// Assets do not change while the process runs, and are small.
const ASSET_CACHE: &str = "no-cache";

/// Whether the path shows the status.
pub(super) fn tells(path: &str) -> bool {
    matches!(path, PAGE | metrics_access::STATUS)
}

impl StatusPage {
    /// Whether the request was made from this machine on purpose: the port is local, and the request names it as
    /// `localhost` or by address, not by a host name that a web page may have had resolved to it (DNS rebinding).
    pub(super) fn is_near<B>(&self, request: &Request<B>, connection: &Connection) -> bool {
        let is_own = |host: String| {
            let host = host.trim_matches(['[', ']']);
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
        };
        let mut hosts = listener::hosts(request).peekable();
        // A `Host` that is not a valid name is not among them.
        self.is_local && (connection.peer.is_none() || hosts.peek().is_some() && hosts.all(is_own))
    }

    /// Answers the page, its assets and the JSON; `None` for other paths. `checked` returns the readiness checks, and
    /// whether the gateway drains.
    pub(super) fn respond(
        &self,
        path: &str,
        checked: impl FnOnce() -> (Vec<Check>, bool),
        detail: Detail,
    ) -> Option<Response<Full<Bytes>>> {
        if let Some(asset) = Asset::of(path) {
            return Some(response(asset.media_type(), asset.text().into(), ASSET_CACHE));
        }
        if !tells(path) {
            return None;
        }
        let (checks, is_draining) = checked();
        let checks = checks.into_iter().map(|Check { name, ready, required, otherwise }| CheckStatus {
            name,
            ready,
            required,
            reason: if ready { String::new() } else { otherwise.to_owned() },
        });
        let status = self.source.collect(checks.collect(), is_draining, detail);
        Some(match path {
            PAGE => response("text/html; charset=utf-8", status::html(&status).into(), "no-store"),
            _ => {
                let mut json = serde_json::to_vec_pretty(&status).expect("names and numbers can be written");
                json.push(b'\n');
                response("application/json", json.into(), "no-store")
            }
        })
    }
}

fn response(media_type: &'static str, body: Bytes, cache: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::OK;
    let fixed: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, cache),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
