//! The status as an HTML page, with one style sheet and a small script that keeps it current.
//!
//! Invariant: everything that comes from clients or upstream is text. maud escapes it, and the page's content security
//! policy allows no script but the one below.

mod clients;
mod draw;
mod reads;
mod summary;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{GatewayStatus, State};

/// The files that the page loads, the same for every reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    Style,
    Script,
    Icon,
}

impl Asset {
    pub fn of(path: &str) -> Option<Self> {
        match path {
            "/status.css" => Some(Self::Style),
            "/status.js" => Some(Self::Script),
            "/icon.svg" => Some(Self::Icon),
            _ => None,
        }
    }

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Style => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
            Self::Icon => "image/svg+xml",
        }
    }

    pub const fn text(self) -> &'static str {
        match self {
            Self::Style => include_str!("style.css"),
            Self::Script => include_str!("script.js"),
            Self::Icon => include_str!("icon.svg"),
        }
    }
}

/// The page.
pub fn html(status: &GatewayStatus) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (state_word(status.gateway.state)) " – kube-fanout" }
                link rel="icon" href="/icon.svg";
                link rel="stylesheet" href="/status.css";
                noscript { meta http-equiv="refresh" content="15"; }
                script src="/status.js" defer {}
            }
            body { (content(status)) }
        }
    };
    page.into_string()
}

/// The part of the page that is refreshed.
fn content(status: &GatewayStatus) -> Markup {
    html! {
        main {
            (summary::header(status))
            (summary::tiles(status))
            (tables::caches(&status.caches))
            (reads::resources(&status.resources))
            (reads::forwarded(&status.forwarded))
            div.pair {
                (clients::top(status))
                (tables::limits(&status.limits))
            }
            (clients::slowest(status))
            (tables::configuration(status))
            footer {
                a href="/status.json" { "status.json" }
                a href="/metrics" { "metrics" }
                a href="/readyz?verbose" { "readyz" }
                a href="/livez?verbose" { "livez" }
            }
        }
    }
}

const fn state_word(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::NotReady => "not ready",
        State::Draining => "draining",
    }
}

/// A table, as wide as it needs to be; or `none`, if it has no rows.
fn table(id: &str, none: Option<&str>, head: &Markup, rows: &Markup) -> Markup {
    html! {
        div.wide id=(id) tabindex="0" {
            @if let Some(none) = none {
                p.empty { (none) }
            } @else {
                table {
                    thead { tr { (head) } }
                    tbody { (rows) }
                }
            }
        }
    }
}

/// A number, with its exact value in an attribute for readers that copy or check it. `field` is its name in
/// `/status.json`.
fn number(field: &str, exact: u64, text: &str) -> Markup {
    html! { data data-field=(field) value=(exact) .zero[exact == 0] { (text) } }
}

/// The logo, in the colour of the text around it.
fn mark() -> Markup {
    PreEscaped(Asset::Icon.text().replace("#0b8a91", "currentColor"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{
        Cache, ClientStatus, Forwarded, Peer, Reload, Resource, Setting, SlowWatcher, Trouble, Upstream,
    };

    #[test]
    fn hostile_names_are_text() {
        let hostile = "<script>alert(1)</script>\"'&".to_owned();
        let name = || hostile.clone();
        let trouble =
            Trouble { server: name(), path: Some(name()), error: name(), since: name(), ..Trouble::default() };
        let status = GatewayStatus {
            upstream: Upstream { troubles: vec![trouble], ..Upstream::default() },
            peers: vec![Peer { address: name(), state: name(), error: name(), ..Peer::default() }],
            clients: vec![ClientStatus { user_agent: name(), user: Some(name()), ..ClientStatus::default() }],
            slowest_watchers: vec![SlowWatcher {
                user_agent: name(),
                interest: Some(name()),
                ..SlowWatcher::default()
            }],
            caches: vec![Cache { resource: name(), state: name(), ..Cache::default() }],
            resources: vec![Resource { resource: name(), reasons: [(name(), 1)].into(), ..Resource::default() }],
            forwarded: vec![Forwarded { reason: name(), meaning: name(), requests: 1 }],
            configuration: vec![Setting { field: name(), value: name() }],
            reload: Reload { failed_at: Some(name()), error: name(), ..Reload::default() },
            ..GatewayStatus::default()
        };
        let page = html(&status);
        assert!(!page.contains("<script>") && !page.contains("alert(1)</script>\""), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count(), 29, "{page}");
    }

    #[test]
    fn trouble_with_the_api_server_stands_above_everything() {
        let page = |troubles| {
            html(&GatewayStatus { upstream: Upstream { troubles, ..Upstream::default() }, ..GatewayStatus::default() })
        };
        let trouble = |kind: &str| Trouble { kind: kind.into(), server: "https://api".into(), ..Trouble::default() };
        let (healthy, troubled) = (page(vec![]), page(vec![trouble("unreachable"), trouble("unauthorized")]));
        assert!(!healthy.contains("trouble"), "{healthy}");
        let main = troubled.split_once("<main>").unwrap().1;
        assert!(main.starts_with("<section class=\"troubles\" role=\"alert\""), "{main}");
        for words in ["https://api cannot be reached", "https://api does not accept the gateway's credentials"] {
            assert!(main.split_once("<header>").unwrap().0.contains(words), "{words} in {main}");
        }
    }

    #[test]
    fn the_page_needs_no_style_or_script_of_its_own() {
        let page = html(&GatewayStatus::default());
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onload"), "{page}");
        assert_eq!(page.matches("<script").count(), 1);
        for path in ["/status.css", "/status.js", "/icon.svg"] {
            assert!(page.contains(&format!("\"{path}\"")) && Asset::of(path).is_some(), "{path}");
        }
    }
}
