//! The status for a terminal: plain lines and tables of notable values.

use std::fmt::Write;

use super::{
    Cache, ClientStatus, Forwarded, GatewayStatus, Limit, Reload, SlowWatcher, State, Trouble,
    units::{bytes, count, duration, percent, printable, rate, seconds},
};

/// Maximum number of rows in a table.
const ROWS_MAX: usize = 20;
/// Maximum number of lines about what is wrong between the gateway and the API server.
const TROUBLES_MAX: usize = 5;
/// A limit has a row if at least this share of it is used.
const NOTABLE_SHARE: f64 = 0.5;

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}
use Side::{Left, Right};

/// The status as text, a table for each part that has something to show.
pub fn text(status: &GatewayStatus) -> String {
    let mut text = troubles(&status.upstream.troubles);
    text.push_str(&reload(&status.reload));
    text.push_str(&summary(status));
    caches(&mut text, &status.caches);
    forwarded(&mut text, &status.forwarded);
    limits(&mut text, &status.limits);
    clients(&mut text, &status.clients);
    slow_watchers(&mut text, &status.slowest_watchers);
    text
}

/// A line for each trouble: they come first.
fn troubles(troubles: &[Trouble]) -> String {
    let line = |trouble: &Trouble| {
        let mut line = format!("{}, for {} (since {})", trouble.headline(), duration(trouble.seconds), trouble.since);
        if !trouble.error.is_empty() {
            line = format!("{line}: {}", trouble.error);
        }
        format!("!! {}\n", printable(&line))
    };
    let mut text: String = troubles.iter().take(TROUBLES_MAX).map(line).collect();
    if let Some(more) = troubles.len().checked_sub(TROUBLES_MAX).filter(|more| *more > 0) {
        writeln!(text, "!! and {more} more refusals, in /status.json").expect("a string takes everything");
    }
    text
}

/// A line if the configuration file is not in effect as it is.
fn reload(reload: &Reload) -> String {
    let line = match &reload.failed_at {
        Some(at) => {
            let because = if reload.error.is_empty() { String::new() } else { format!(": {}", reload.error) };
            format!("The changed configuration is refused; the earlier one stays in effect, since {at}{because}")
        }
        None if reload.needs_restart.is_empty() => return String::new(),
        None => format!("Changed fields of the configuration need a restart: {}", reload.needs_restart.join(", ")),
    };
    format!("!! {}\n", printable(&line))
}

fn summary(status: &GatewayStatus) -> String {
    let GatewayStatus { gateway, upstream, savings, reads, .. } = status;
    let state = match gateway.state {
        State::Ready => "ready",
        State::NotReady => "NOT READY",
        State::Draining => "DRAINING",
    };
    let version = upstream.version.as_deref().unwrap_or("version not known yet");
    let mut lines = vec![
        (
            "gateway",
            format!(
                "kube-fanout {}, {state}, {}, up {}, {:.2} CPU cores, {} of memory, {} connections",
                gateway.version,
                gateway.mode,
                duration(gateway.uptime_seconds),
                gateway.cpu_cores,
                bytes(gateway.memory_bytes),
                count(gateway.connections),
            ),
        ),
        ("upstream", format!("{} ({version}){}", upstream.server, upstream.through())),
        (
            "watches",
            format!(
                "{} here, {} at the API server: {} avoided; {} events sent, {} a second",
                count(savings.watchers),
                count(savings.upstream_watches),
                count(savings.watches_avoided),
                count(savings.events_sent),
                rate(savings.events_per_second),
            ),
        ),
        (
            "reads",
            format!(
                "{} from memory ({} in the last hour): {} lists, {} gets, {} watches that ended; {} forwarded, {} \
                 refused",
                percent(reads.hit_ratio),
                percent(reads.hit_ratio_last_hour),
                count(savings.lists),
                count(savings.gets),
                count(savings.watches),
                count(reads.forwarded),
                count(reads.rejected),
            ),
        ),
        (
            "saved",
            format!(
                "{} of answers, about {} of the API server's CPU (an estimate)",
                bytes(savings.bytes),
                seconds(savings.estimated_api_server_cpu_seconds),
            ),
        ),
    ];
    lines.splice(2..2, upstream.servers.iter().map(|server| ("server", server.line())));
    lines.extend(status.peers.iter().map(|peer| ("peer", peer.line())));
    let failed = gateway.checks.iter().filter(|check| check.required && !check.ready);
    lines.extend(failed.map(|check| ("failed", check.line())));
    let mut text = String::new();
    for (name, line) in lines {
        writeln!(text, "{name:9} {}", printable(&line)).expect("a string takes everything");
    }
    text
}

fn caches(text: &mut String, caches: &[Cache]) {
    let row = |cache: &Cache| {
        let restart = cache.last_restart.as_ref();
        [
            cache.name(),
            cache.version.clone(),
            cache.encoding.clone(),
            cache.state_words(),
            count(cache.objects),
            bytes(cache.bytes.all()),
            cache.resource_version.clone(),
            seconds(cache.lag_seconds),
            cache.history_seconds.map(duration).unwrap_or_default(),
            count(cache.watchers),
            rate(cache.events_per_second),
            restart
                .map(|restart| format!("{} {} ago", restart.cause, duration(restart.seconds_ago)))
                .unwrap_or_default(),
        ]
    };
    let head = [
        ("CACHE", Left),
        ("API", Left),
        ("ENCODING", Left),
        ("STATE", Left),
        ("OBJECTS", Right),
        ("BYTES", Right),
        ("VERSION", Right),
        ("LAG", Right),
        ("HISTORY", Right),
        ("WATCHERS", Right),
        ("EVENTS/S", Right),
        ("RESTARTED", Left),
    ];
    table(text, head, caches.iter().map(row).collect());
}

fn forwarded(text: &mut String, reasons: &[Forwarded]) {
    let row = |reason: &Forwarded| [reason.reason.clone(), count(reason.requests), reason.meaning.clone()];
    table(text, [("FORWARDED", Left), ("READS", Right), ("BECAUSE", Left)], reasons.iter().map(row).collect());
}

fn limits(text: &mut String, limits: &[Limit]) {
    let number = |number: Option<u64>| number.map(count).unwrap_or_default();
    let row = |limit: &Limit| [limit.name.clone(), number(limit.used), number(limit.most), count(limit.reached)];
    let notable = limits.iter().filter(|limit| limit.reached > 0 || limit.share() >= NOTABLE_SHARE);
    let head = [("LIMIT", Left), ("USED", Right), ("OF", Right), ("REACHED", Right)];
    table(text, head, notable.map(row).collect());
}

fn clients(text: &mut String, clients: &[ClientStatus]) {
    let row = |client: &ClientStatus| {
        [
            client.user_agent.clone(),
            client.user.clone().unwrap_or_default(),
            count(client.watches),
            count(client.served),
            count(client.forwarded),
            count(client.rejected),
            bytes(client.bytes),
        ]
    };
    let head = [
        ("CLIENT", Left),
        ("USER", Left),
        ("WATCHES", Right),
        ("SERVED", Right),
        ("FORWARDED", Right),
        ("REFUSED", Right),
        ("BYTES", Right),
    ];
    table(text, head, clients.iter().map(row).collect());
}

fn slow_watchers(text: &mut String, watchers: &[SlowWatcher]) {
    let row = |watcher: &SlowWatcher| {
        [
            watcher.user_agent.clone(),
            watcher.user.clone().unwrap_or_default(),
            watcher.resource.clone(),
            watcher.interest.clone().unwrap_or_default(),
            duration(watcher.behind_seconds),
            count(watcher.behind_changes),
        ]
    };
    let head = [
        ("SLOW WATCHER", Left),
        ("USER", Left),
        ("RESOURCE", Left),
        ("OF IT", Left),
        ("BEHIND", Right),
        ("CHANGES", Right),
    ];
    table(text, head, watchers.iter().map(row).collect());
}

/// Appends an empty line and the table; nothing if there are no rows. Makes text from clients printable.
fn table<const COLUMNS: usize>(text: &mut String, head: [(&str, Side); COLUMNS], rows: Vec<[String; COLUMNS]>) {
    if rows.is_empty() {
        return;
    }
    let (left_out, rows) = (rows.len().saturating_sub(ROWS_MAX), rows.into_iter().take(ROWS_MAX));
    let rows: Vec<_> = rows.map(|row| row.map(|cell| printable(&cell))).collect();
    let all = || std::iter::once(head.map(|(name, _)| name.to_owned())).chain(rows.iter().cloned());
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    text.push('\n');
    for row in all() {
        let cells = row.iter().zip(widths).zip(head).map(|((cell, width), (_, side))| match side {
            Left => format!("{cell:<width$}"),
            Right => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    if left_out > 0 {
        writeln!(text, "and {left_out} more").expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Upstream;

    #[test]
    fn columns_are_aligned_and_hostile_names_are_text() {
        let client = |user_agent: &str, served| ClientStatus {
            user_agent: user_agent.into(),
            served,
            ..ClientStatus::default()
        };
        let clients = vec![client("kubelet/v1.36.0", 12_345), client("\x1b[2J", 1)];
        let text = text(&GatewayStatus { clients, ..GatewayStatus::default() });
        let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("CLIENT")).collect();
        let expected = [
            "CLIENT           USER  WATCHES  SERVED  FORWARDED  REFUSED  BYTES",
            "kubelet/v1.36.0              0  12,345          0        0    0 B",
            "\\u{1b}[2J                    0       1          0        0    0 B",
        ];
        assert_eq!(lines, expected);
        assert!(text.starts_with("gateway   kube-fanout , NOT READY"), "{text}");
    }

    #[test]
    fn problems_come_first_with_one_line_each() {
        let trouble = |kind: &str, path: Option<&str>| Trouble {
            kind: kind.into(),
            server: "https://api:6443".into(),
            since: "2026-11-22T18:00:00Z".into(),
            seconds: 65,
            path: path.map(str::to_owned),
            error: "no\n\x1b[2Jway".into(),
        };
        let mut troubles = vec![trouble("unreachable", None)];
        troubles.extend(vec![trouble("forbidden", Some("/api/v1/secrets")); TROUBLES_MAX]);
        let upstream = Upstream { troubles, ..Upstream::default() };
        let text = text(&GatewayStatus { upstream, ..GatewayStatus::default() });
        let lines: Vec<_> = text.lines().collect();
        let tail = "for 1 min 5 s (since 2026-11-22T18:00:00Z): no\\u{a}\\u{1b}[2Jway";
        assert_eq!(lines[0], format!("!! The API server https://api:6443 cannot be reached, {tail}"));
        assert_eq!(
            lines[1],
            format!("!! The API server https://api:6443 refuses /api/v1/secrets to the gateway, {tail}")
        );
        assert_eq!(lines[TROUBLES_MAX], "!! and 1 more refusals, in /status.json");
        assert!(lines[TROUBLES_MAX + 1].starts_with("gateway "), "{text}");
    }

    #[test]
    fn a_long_table_says_how_much_is_left_out() {
        let caches = vec![Cache { resource: "pods".into(), ..Cache::default() }; ROWS_MAX + 3];
        let text = text(&GatewayStatus { caches, ..GatewayStatus::default() });
        assert_eq!(text.lines().filter(|line| line.starts_with("pods")).count(), ROWS_MAX);
        assert!(text.ends_with("\nand 3 more\n"), "{text}");
    }
}
