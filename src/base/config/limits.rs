//! Limits of one gateway: `limits`.

use std::{ops::RangeInclusive, time::Duration};

use crate::config::fields::{Fields, Number, Size, Time, about};
use crate::config::{ClientsConfig, Config, Problem};

/// A tenth of all connections: enough for the processes of a large machine, or for the clients behind one proxy.
const CONNECTIONS_PER_ADDRESS: usize = 1_000;
/// The maximum is above the number of files that one process can have open on any usual system.
const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
/// The maximum is a quarter of the 4,000 that share connections, as for everything that clients share
/// ([`crate::fairness`]).
const FORWARDED_PER_CLIENT: RangeInclusive<usize> = 1..=1_000;
const WATCHES_PER_CLIENT: RangeInclusive<usize> = 1..=10_000_000;
/// A second is enough for an answer that fits into a socket's buffers. Request timeouts of API servers are rarely
/// longer than a few minutes.
const ANSWER_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Limits of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Open connections of all listeners together; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Open connections from one IP address, at most as many as `connections`; further ones are closed. If both are
    /// equal, they wait in the kernel's queue.
    pub connections_per_address: usize,
    /// Concurrent forwarded requests of one client; further ones are answered with 429.
    pub forwarded_per_client: usize,
    /// Concurrent watches of one client from memory; further ones are answered with 429.
    pub watches_per_client: usize,
    /// How long a client may take to read an answer that is not long-running; then its stream or connection is closed.
    pub answer_timeout: Duration,
    /// Bytes that all answers from memory may hold while they are sent; further ones are answered with 429.
    pub answer_bytes: u64,
    /// The same for one client, at most `answer_bytes`. Applies in `delegated` mode, where clients are distinguished.
    pub answer_bytes_per_client: u64,
}

impl LimitsConfig {
    /// Space for a few of the largest objects (about 1.5 MiB each) and for their compressors.
    pub(super) const ANSWER_BYTES_MIN: u64 = 16 << 20;

    pub(super) fn fields(&mut self, clients: &ClientsConfig, fields: &mut Fields<'_>) {
        fields.value(
            "connections",
            about("open at once, of all listeners")
                .default("`10000`, or as many as an eighth of the memory limit has room for, at 32 KiB each"),
            &mut self.connections,
            &Number(CONNECTIONS),
        );
        let all = self.connections;
        let each = match clients {
            // All clients are on one machine.
            ClientsConfig::Trusted(_) => all,
            ClientsConfig::Delegated(_) => CONNECTIONS_PER_ADDRESS.min(all),
        };
        let text = about("open at once, from one IP address; at most `limits.connections`")
            .default("`1000` in `delegated` mode, otherwise `limits.connections`");
        let most = if fields.describes() { *CONNECTIONS.end() } else { all };
        let form = Number(*CONNECTIONS.start()..=most);
        fields.derived("connectionsPerAddress", text, &mut self.connections_per_address, &form, each);
        let text = "a quarter of the concurrent requests upstream at most; in `delegated` mode. Forwarded watches, \
                    `exec`, `logs -f` and the like count as long as they last";
        let form = Number(FORWARDED_PER_CLIENT);
        fields.value("forwardedPerClient", about(text), &mut self.forwarded_per_client, &form);
        let text = "watches from memory; in `delegated` mode";
        let form = Number(WATCHES_PER_CLIENT);
        fields.value("watchesPerClient", about(text), &mut self.watches_per_client, &form);
        let text = "how long a client may take to read an answer that is no stream";
        fields.value("answerTimeout", about(text), &mut self.answer_timeout, &Time(ANSWER_TIMEOUT));
        let text = "what answers from memory may hold while they are sent";
        let text = about(text).default("`1Gi`, but at most an eighth of the memory limit");
        fields.value("answerBytes", text, &mut self.answer_bytes, &Size(Self::ANSWER_BYTES_MIN..=u64::MAX));
        let (all, quarter) = (self.answer_bytes, default_answer_bytes_per_client(self.answer_bytes));
        let text = about("the same for one client, `limits.answerBytes` at most; in `delegated` mode")
            .default("a quarter of `limits.answerBytes`");
        let form = Size(Self::ANSWER_BYTES_MIN..=all);
        fields.derived("answerBytesPerClient", text, &mut self.answer_bytes_per_client, &form, quarter);
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            // Several hundred clients with a handful of connections each, within common limits on open files.
            connections: 10_000,
            connections_per_address: CONNECTIONS_PER_ADDRESS,
            // A quarter of all concurrent requests upstream: three such clients still leave room for others.
            forwarded_per_client: 1_000,
            // As many as connections: enough for a load test by one user, and a bound for a client that leaks watches.
            watches_per_client: 10_000,
            // The default of an API server's `--request-timeout`.
            answer_timeout: Duration::from_secs(60),
            // Enough for thousands of concurrent lists with 64 KiB in flight each; one client gets a quarter.
            answer_bytes: 1 << 30,
            answer_bytes_per_client: 1 << 28,
        }
    }
}

/// The default of `limits.answerBytesPerClient`, by `limits.answerBytes`.
const fn default_answer_bytes_per_client(all: u64) -> u64 {
    if all / 4 > LimitsConfig::ANSWER_BYTES_MIN { all / 4 } else { LimitsConfig::ANSWER_BYTES_MIN }
}

impl Config {
    /// The limits of each client that are set although the mode does not tell clients apart.
    pub fn ineffective_limits(&self) -> Vec<Problem> {
        let ClientsConfig::Trusted(_) = self.clients else { return Vec::new() };
        let (limits, defaults) = (&self.limits, LimitsConfig::default());
        let fields = [
            ("limits.forwardedPerClient", limits.forwarded_per_client != defaults.forwarded_per_client),
            ("limits.watchesPerClient", limits.watches_per_client != defaults.watches_per_client),
            (
                "limits.answerBytesPerClient",
                limits.answer_bytes_per_client != default_answer_bytes_per_client(limits.answer_bytes),
            ),
        ];
        let set = fields.into_iter().filter_map(|(field, is_set)| is_set.then_some(field));
        set.map(|field| Problem::new(field, "has no effect in mode trusted, which does not tell clients apart", ""))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};

    #[test]
    fn limits_per_client_are_reported_in_trusted_mode() {
        let told = |fields: &str| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
            let config = Config::parse(&text, &Overrides::default()).unwrap();
            config.ineffective_limits().into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let limits = "limits: {forwardedPerClient: 10, watchesPerClient: 10, answerBytesPerClient: 20Mi}";
        let all = ["forwardedPerClient", "watchesPerClient", "answerBytesPerClient"];
        assert_eq!(told(limits), all.map(|field| format!("limits.{field}")));
        assert_eq!(told(&format!("clients: {{mode: delegated}}\n{limits}")), [""; 0]);
        assert_eq!(told("limits: {connections: 5, connectionsPerAddress: 2, answerBytes: 2Gi}"), [""; 0]);
    }
}
