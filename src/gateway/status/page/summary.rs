//! The state of the gateway, and its savings.

use maud::{Markup, html};

use super::{draw, mark, number, state_word};
use crate::status::{
    GatewayStatus, LastHour, Reload, State, Trouble,
    samples::hit_ratio,
    units::{bytes, count, duration, percent, printable, rate, seconds},
};

/// Maximum number of troubles on the page; the JSON has all.
const TROUBLES_SHOWN: usize = 5;
/// What the tile of spared CPU says when it is pointed at.
const CPU_SPARED: &str = "By the figures of the manual: what a kube-apiserver would at least have spent on the same \
                          answers.";

pub(super) fn header(status: &GatewayStatus) -> Markup {
    let GatewayStatus { gateway, upstream, .. } = status;
    let class = match gateway.state {
        State::Ready => "pill good",
        State::NotReady => "pill bad",
        State::Draining => "pill warn",
    };
    let failed: Vec<_> = gateway.checks.iter().filter(|check| check.required && !check.ready).collect();
    html! {
        (troubles(&upstream.troubles))
        (reload(&status.reload))
        header {
            h1 { (mark()) "kube-fanout" }
            span class=(class) { (state_word(gateway.state)) }
            span.updated {
                "as of " time datetime=(status.time) { (status.time.replace('T', " ").replace('Z', " UTC")) }
            }
        }
        dl.facts {
            (fact("version", html! { (gateway.version) }))
            (fact("mode", html! { (gateway.mode) }))
            (fact("up", html! { (duration(gateway.uptime_seconds)) }))
            (fact("upstream", html! { (upstream.server) (upstream.through()) }))
            (fact("its version", html! {
                @match &upstream.version {
                    Some(version) => (version),
                    None => span.soft { "not known yet" },
                }
            }))
            @for server in &upstream.servers {
                (fact("server", html! { span.bad[!server.is_well()] { (printable(&server.line())) } }))
            }
            @for peer in &status.peers {
                (fact("peer", html! { span.bad[!peer.is_well()] { (printable(&peer.line())) } }))
            }
            (fact("CPU", html! { (format!("{:.2}", gateway.cpu_cores)) " cores" }))
            (fact("memory", number("memoryBytes", gateway.memory_bytes, &bytes(gateway.memory_bytes))))
            (fact("connections", number("connections", gateway.connections, &count(gateway.connections))))
        }
        @if !failed.is_empty() {
            p.alarm role="alert" {
                "Not ready: "
                @for (at, check) in failed.iter().enumerate() {
                    @if at > 0 { ", " }
                    code { (printable(&check.line())) }
                }
            }
        }
    }
}

/// What is wrong between the gateway and the API server, above everything else.
fn troubles(troubles: &[Trouble]) -> Markup {
    html! {
        @if !troubles.is_empty() {
            section.troubles role="alert" aria-label="Trouble with the API server" {
                @for trouble in troubles.iter().take(TROUBLES_SHOWN) {
                    @let class = if trouble.kind == "forbidden" { "trouble mild" } else { "trouble" };
                    p class=(class) data-trouble=(trouble.kind) {
                        strong { (printable(&trouble.headline())) }
                        " for " (duration(trouble.seconds)) ", since "
                        time datetime=(trouble.since) { (trouble.since.replace('T', " ").replace('Z', " UTC")) }
                        @if !trouble.error.is_empty() { ": " span.words { (printable(&trouble.error)) } }
                    }
                }
                @if let Some(more) = troubles.len().checked_sub(TROUBLES_SHOWN).filter(|more| *more > 0) {
                    p.trouble.mild { "and " (more) " more refusals, in " a href="/status.json" { "status.json" } }
                }
            }
        }
    }
}

/// What of the configuration file is not in effect.
fn reload(reload: &Reload) -> Markup {
    html! {
        @if let Some(at) = &reload.failed_at {
            section.troubles role="alert" aria-label="Trouble with the configuration" {
                p.trouble data-trouble="configuration" {
                    strong { "The changed configuration is refused; the earlier one stays in effect" }
                    ", since " time datetime=(at) { (at.replace('T', " ").replace('Z', " UTC")) }
                    @if !reload.error.is_empty() { ": " span.words { (printable(&reload.error)) } }
                }
            }
        } @else if !reload.needs_restart.is_empty() {
            section.troubles role="alert" aria-label="Trouble with the configuration" {
                p.trouble.mild data-trouble="restart" {
                    strong { "Changed fields of the configuration need a restart" }
                    ": " span.words { (reload.needs_restart.join(", ")) }
                }
            }
        }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

pub(super) fn tiles(status: &GatewayStatus) -> Markup {
    let GatewayStatus { savings, reads, last_hour, .. } = status;
    let floats = |numbers: &[u64]| numbers.iter().map(|number| *number as f64).collect::<Vec<_>>();
    let (events, served) = (floats(&last_hour.events_sent), floats(&last_hour.served));
    let cpu = &savings.estimated_api_server_cpu_seconds;
    html! {
        section.tiles aria-label="What it saves" {
            div.tile {
                h2 { "Upstream watches avoided" }
                p.big { (number("watchesAvoided", savings.watches_avoided, &count(savings.watches_avoided))) }
                p {
                    (number("watchers", savings.watchers, &count(savings.watchers))) " here, "
                    (number("upstreamWatches", savings.upstream_watches, &count(savings.upstream_watches)))
                    " at the API server"
                }
                (draw::part_of_whole(savings.upstream_watches, savings.watchers, "own watches among all"))
            }
            div.tile {
                h2 { "Reads from memory" }
                p.big { (percent(reads.hit_ratio_last_hour.or(reads.hit_ratio))) }
                p {
                    "last minute " (percent(reads.hit_ratio_last_minute)) "; "
                    (number("forwarded", reads.forwarded, &count(reads.forwarded))) " forwarded"
                }
                (draw::sparkline(&hit_ratios(last_hour), 1.0, "share of reads from memory over the last hour"))
            }
            div.tile {
                h2 { "Answers from memory" }
                p.big { (number("bytes", savings.bytes, &bytes(savings.bytes))) }
                p {
                    (number("lists", savings.lists, &count(savings.lists))) " lists, "
                    (number("gets", savings.gets, &count(savings.gets))) " gets"
                }
                (draw::sparkline(&served, draw::top(&served), "reads from memory over the last hour"))
            }
            div.tile {
                h2 { "Events sent" }
                p.big { (number("eventsSent", savings.events_sent, &count(savings.events_sent))) }
                p { (rate(savings.events_per_second)) " a second" }
                (draw::sparkline(&events, draw::top(&events), "events over the last hour"))
            }
            div.tile {
                h2 { "API server CPU spared" }
                p.big title=(CPU_SPARED) {
                    small { "about " } (seconds(*cpu))
                }
                p { "an estimate, on the low side" }
                @let cores = &last_hour.cpu_cores;
                (draw::sparkline(cores, draw::top(cores), "CPU of the gateway over the last hour"))
            }
        }
    }
}

/// The hit ratio of each step; one without reads repeats the ratio before it.
fn hit_ratios(hour: &LastHour) -> Vec<f64> {
    let mut last = None;
    let steps = hour.served.iter().zip(&hour.forwarded);
    let ratios = steps.map(|(served, forwarded)| {
        last = hit_ratio(*served, *forwarded).or(last);
        last
    });
    ratios.flatten().collect()
}
