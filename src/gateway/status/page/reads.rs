//! How resources were read, and why reads were forwarded.

use maud::{Markup, html};

use super::{draw, number, table};
use crate::status::{
    Forwarded, Resource, reasons,
    units::{count, percent},
};

/// Maximum number of resources on the page; the JSON has all.
const RESOURCES_SHOWN: usize = 30;

pub(super) fn resources(resources: &[Resource]) -> Markup {
    let head = html! {
        th scope="col" { "Resource" }
        th scope="col" aria-label="share of memory" {}
        th.n scope="col" { "From memory" }
        th.n scope="col" { "Served" }
        th.n scope="col" { "Forwarded" }
        th.grow scope="col" { "Because" }
    };
    let rows = html! {
        @for resource in resources.iter().take(RESOURCES_SHOWN) {
            tr data-resource=(resource.resource) {
                th scope="row" { (resource.resource) }
                td { (draw::bar(resource.hit_ratio.unwrap_or(0.0), false)) }
                td.n { (percent(resource.hit_ratio)) }
                td.n { (number("served", resource.served, &count(resource.served))) }
                td.n { (number("forwarded", resource.forwarded, &count(resource.forwarded))) }
                td.grow { div.chips {
                    @for (reason, requests) in &resource.reasons {
                        span { (link(reason)) " " (count(*requests)) }
                    }
                } }
            }
        }
    };
    let none = resources.is_empty().then_some("None yet.");
    html! {
        h2 { "Reads" small { "finished gets, lists and watches since the start" } }
        (table("reads", none, &head, &rows))
        @if let Some(more) = resources.len().checked_sub(RESOURCES_SHOWN).filter(|more| *more > 0) {
            p.soft { "and " (more) " more resources, in status.json" }
        }
    }
}

/// A link to the explanation of a reason.
fn link(reason: &str) -> Markup {
    html! { a href=(format!("#reason-{reason}")) { (reason) } }
}

pub(super) fn forwarded(forwarded: &[Forwarded]) -> Markup {
    let all: u64 = forwarded.iter().map(|row| row.requests).sum();
    let others: Vec<_> =
        reasons::all().filter(|(reason, _)| forwarded.iter().all(|row| row.reason != *reason)).collect();
    let head = html! {
        th scope="col" { "Reason" }
        th scope="col" aria-label="share" {}
        th.n scope="col" { "Reads" }
        th.grow scope="col" { "It means" }
    };
    let rows = html! {
        @for row in forwarded {
            tr id=(format!("reason-{}", row.reason)) data-reason=(row.reason) {
                th scope="row" { (row.reason) }
                td { (draw::bar(row.requests as f64 / all.max(1) as f64, false)) }
                td.n { (number("requests", row.requests, &count(row.requests))) }
                td.grow { (row.meaning) }
            }
        }
    };
    let none = forwarded.is_empty().then_some("None was.");
    html! {
        h2 { "Why reads were forwarded" small { "what memory cannot answer with certainty, the API server answers" } }
        (table("forwarded", none, &head, &rows))
        details id="reasons" {
            summary { "All other reasons" }
            div.wide { table { tbody {
                @for (reason, meaning) in others {
                    tr id=(format!("reason-{reason}")) { th scope="row" { (reason) } td.grow { (meaning) } }
                }
            } } }
        }
    }
}
