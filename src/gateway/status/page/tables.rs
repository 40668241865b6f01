//! The tables of caches, limits and the configuration.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{draw, number, table};
use crate::status::{
    Cache, GatewayStatus, Limit,
    units::{bytes, count, duration, rate, seconds},
};

/// Seconds since upstream last confirmed a cache, above which the page marks them. Without trouble, a bookmark confirms
/// each cache about once a minute.
const LAG_NOTABLE: f64 = 120.0;

pub(super) fn caches(caches: &[Cache]) -> Markup {
    let head = html! {
        th scope="col" { "Resource" }
        th scope="col" { "Encoding" }
        th scope="col" { "State" }
        th.n scope="col" { "Watchers" }
        th.n scope="col" { "Events/s" }
        th.n scope="col" { "Objects" }
        th.n scope="col" title="encoded objects" { "Bytes" }
        th.n scope="col" title="joined, compressed or derived for lists, and shared by them" { "For lists" }
        th.n scope="col" title="bytes held for changes that watches can start from" { "History" }
        th.n scope="col" title="how far back a watch can start" { "Reaches" }
        th.n scope="col" { "Version" }
        th.n scope="col" title="since upstream last showed the cache to be complete" { "Lag" }
        th.n scope="col" title="freshness proofs that succeeded, of all" { "Proofs" }
        th.n scope="col" title="times that it was filled" { "Fills" }
        th scope="col" title="upstream had to be asked anew" { "Last restart" }
    };
    let rows = html! {
        @for cache in caches { (row(cache)) }
    };
    let none = caches.is_empty().then_some("None yet: the first read of a resource starts its cache.");
    html! {
        h2 { "Caches" small { "a resource in one encoding, followed with one watch" } }
        (table("caches", none, &head, &rows))
    }
}

fn row(cache: &Cache) -> Markup {
    let Cache { bytes: held, .. } = cache;
    let for_lists = held.joined + held.deflated + held.derived;
    let parts =
        format!("joined {}, compressed {}, derived {}", bytes(held.joined), bytes(held.deflated), bytes(held.derived));
    let cold = format!("{} of them only compressed", bytes(held.cold));
    let state = if cache.state == "ready" { "good" } else { "warn" };
    html! {
        tr data-cache=(format!("{} {} {}", cache.name(), cache.version, cache.encoding)) {
            th scope="row" { (cache.name()) @if cache.version != "v1" { " " span.soft { (cache.version) } } }
            td { (cache.encoding) }
            td class=(state) { (cache.state_words()) }
            td.n { (number("watchers", cache.watchers, &count(cache.watchers))) }
            td.n { span.zero[cache.events_per_second < 0.05] { (rate(cache.events_per_second)) } }
            td.n { (number("objects", cache.objects, &count(cache.objects))) }
            td.n title=(cold) { (number("bytes", held.objects, &bytes(held.objects))) }
            td.n title=(parts) { (number("forLists", for_lists, &bytes(for_lists))) }
            td.n title=(format!("{} changes", count(cache.history_changes))) {
                (number("historyBytes", held.history, &bytes(held.history)))
            }
            td.n { @if let Some(seconds) = cache.history_seconds { (duration(seconds)) } }
            td.n { (cache.resource_version) }
            td.n { span.warn[cache.lag_seconds > LAG_NOTABLE] { (seconds(cache.lag_seconds)) } }
            td.n title=(listed(&cache.proofs)) { (proofs(&cache.proofs)) }
            td.n { (number("epoch", cache.epoch, &count(cache.epoch))) }
            td title=(listed(&cache.restarts)) {
                @match &cache.last_restart {
                    Some(restart) => { (restart.cause) " " span.soft { (duration(restart.seconds_ago)) " ago" } },
                    None => span.zero { "–" },
                }
            }
        }
    }
}

fn proofs(outcomes: &BTreeMap<String, u64>) -> Markup {
    let (all, proven) = (outcomes.values().sum::<u64>(), outcomes.get("proven").copied().unwrap_or(0));
    html! {
        @if all == proven { span.zero[all == 0] { (count(all)) } }
        @else { span.warn { (count(proven)) " of " (count(all)) } }
    }
}

/// The counts in one line: `ended 3, expired 1`.
fn listed(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn limits(limits: &[Limit]) -> Markup {
    let head = html! {
        th scope="col" { "Limit" }
        th scope="col" aria-label="share" {}
        th.n scope="col" { "Used" }
        th.n scope="col" { "Of" }
        th.n scope="col" { "Reached" }
    };
    let rows = html! {
        @for limit in limits { (limit_row(limit)) }
    };
    html! {
        section {
            h2 { "Limits" small { "used now, and how often one was reached" } }
            (table("limits", None, &head, &rows))
        }
    }
}

fn limit_row(limit: &Limit) -> Markup {
    let shown = |number: u64| if limit.name.ends_with("bytes") { bytes(number) } else { count(number) };
    html! {
        tr data-limit=(limit.name) {
            th scope="row" { (limit.name) }
            td { @if limit.most.is_some() { (draw::bar(limit.share(), true)) } }
            td.n { @if let Some(used) = limit.used { (number("used", used, &shown(used))) } }
            td.n { @if let Some(most) = limit.most { (number("most", most, &shown(most))) } }
            td.n { span.bad[limit.reached > 0] { (number("reached", limit.reached, &count(limit.reached))) } }
        }
    }
}

pub(super) fn configuration(status: &GatewayStatus) -> Markup {
    html! {
        @if !status.configuration.is_empty() {
            details id="configuration" {
                summary { "Configuration in effect" }
                div.wide { table { tbody {
                    @for setting in &status.configuration {
                        tr { th scope="row" { (setting.field) } td.grow { (setting.value) } }
                    }
                } } }
            }
        }
    }
}
