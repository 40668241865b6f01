//! The clients with the most requests and watches, and the watchers that have fallen behind.

use maud::{Markup, html};

use super::{number, table};
use crate::status::{
    GatewayStatus,
    units::{bytes, count, duration, printable},
};

pub(super) fn top(status: &GatewayStatus) -> Markup {
    let has_users = status.clients.iter().any(|client| client.user.is_some());
    let head = html! {
        th scope="col" { "User agent" }
        @if has_users { th scope="col" { "User" } }
        th.n scope="col" { "Watches" }
        th.n scope="col" title="finished requests answered from memory" { "Served" }
        th.n scope="col" { "Forwarded" }
        th.n scope="col" { "Refused" }
        th.n scope="col" { "Bytes" }
    };
    let rows = html! {
        @for client in &status.clients {
            tr {
                th.name scope="row" title=(client.user_agent) { (agent(&client.user_agent)) }
                @if has_users { td.name { (printable(client.user.as_deref().unwrap_or_default())) } }
                td.n { (number("watches", client.watches, &count(client.watches))) }
                td.n { (number("served", client.served, &count(client.served))) }
                td.n { (number("forwarded", client.forwarded, &count(client.forwarded))) }
                td.n { (number("rejected", client.rejected, &count(client.rejected))) }
                td.n { (number("bytes", client.bytes, &bytes(client.bytes))) }
            }
        }
    };
    let none = status.clients.is_empty().then_some("None yet.");
    html! {
        section {
            h2 {
                "Top clients"
                @if status.names_withheld {
                    small { "users are not named on a port that others reach without authorization" }
                }
            }
            (table("clients", none, &head, &rows))
        }
    }
}

/// The user agent of a client, or a note that it sends none.
fn agent(user_agent: &str) -> Markup {
    html! { @if user_agent.is_empty() { span.soft { "no user agent" } } @else { (printable(user_agent)) } }
}

pub(super) fn slowest(status: &GatewayStatus) -> Markup {
    let head = html! {
        th scope="col" { "User agent" }
        th scope="col" { "User" }
        th scope="col" { "Resource" }
        th scope="col" { "Of it" }
        th.n scope="col" { "Open" }
        th.n scope="col" { "Behind" }
        th.n scope="col" title="of the resource, since then" { "Changes" }
    };
    let rows = html! {
        @for watcher in &status.slowest_watchers {
            tr {
                th.name scope="row" { (agent(&watcher.user_agent)) }
                td.name { (printable(watcher.user.as_deref().unwrap_or_default())) }
                td { (watcher.resource) " " span.soft { (watcher.encoding) } }
                td.name { (printable(watcher.interest.as_deref().unwrap_or_default())) }
                td.n { (duration(watcher.open_seconds)) }
                td.n { (duration(watcher.behind_seconds)) }
                td.n { (count(watcher.behind_changes)) }
            }
        }
    };
    let none = status.slowest_watchers.is_empty().then_some("None: all watchers have everything.");
    html! {
        h2 { "Slowest watchers" small { "a change has been waiting for them for a second or more" } }
        (table("slowest", none, &head, &rows))
    }
}
