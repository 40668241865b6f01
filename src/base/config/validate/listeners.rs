//! Where clients connect: `listeners`, `--listen`.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use crate::config::check::{Check, given, stand_in_address};
use crate::config::raw;
use crate::config::{Address, ClientsConfig, DEFAULT_LISTEN, ListenerConfig};

/// Below a minute, clients would reconnect too often; above a day, the limit would have little effect.
const MAX_CONNECTION_AGE: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 3600);

impl Check {
    pub(super) fn listeners(
        &mut self,
        raw: Option<&[raw::Listener]>,
        listen: Option<&str>,
        clients: &ClientsConfig,
    ) -> Vec<ListenerConfig> {
        let Some(raw) = raw.filter(|_| listen.is_none()) else {
            let address = self.address("--listen", listen.unwrap_or(DEFAULT_LISTEN));
            if !address.is_local() {
                let why = match clients {
                    ClientsConfig::Trusted(_) => "clients.mode is trusted",
                    ClientsConfig::Delegated(_) => "--listen is plain HTTP",
                };
                self.not_local("--listen", &address, why);
            }
            return vec![ListenerConfig::plain(address)];
        };
        if raw.is_empty() {
            self.problem("listeners", "the list is empty", "at least one listener");
        }
        let listeners = raw.iter().enumerate().map(|(index, raw)| self.listener(index, raw, clients));
        let listeners: Vec<_> = listeners.collect();
        let mut seen = HashSet::new();
        for (index, listener) in listeners.iter().enumerate() {
            // Port 0 lets the system choose a free port.
            let any_port = matches!(listener.address, Address::Tcp(address) if address.port() == 0);
            if !any_port && !seen.insert(&listener.address) {
                let found = format!("\"{}\" is already the address of another listener", listener.address);
                self.problem(&format!("listeners[{index}].address"), &found, "a different address for each listener");
            }
        }
        listeners
    }

    fn listener(&mut self, index: usize, raw: &raw::Listener, clients: &ClientsConfig) -> ListenerConfig {
        let field = format!("listeners[{index}]");
        self.unknown(&field, &raw.unknown, &["address", "tls", "maxConnectionAge"]);
        let address = match &raw.address {
            Some(address) => self.address(&format!("{field}.address"), &address.0),
            None => {
                self.problem(&format!("{field}.address"), "missing", Address::ALLOWED);
                stand_in_address()
            }
        };
        let local = address.is_local();
        if !local && matches!(clients, ClientsConfig::Trusted(_)) {
            self.not_local(&format!("{field}.address"), &address, "clients.mode is trusted");
        }
        let certificates = clients.by_certificate();
        let tls = raw.tls.as_ref().map(|tls| self.listener_tls(&format!("{field}.tls"), tls, certificates));
        if tls.is_none() && !local {
            let allowed = "certFile and keyFile; plain HTTP is allowed only on loopback addresses and Unix sockets";
            self.problem(&format!("{field}.tls"), "missing", allowed);
        }
        let max_connection_age = raw.max_connection_age.as_ref().map(|age| {
            let field = format!("{field}.maxConnectionAge");
            self.duration(&field, Some(age), *MAX_CONNECTION_AGE.start(), &MAX_CONNECTION_AGE)
        });
        ListenerConfig { address, tls, max_connection_age }
    }

    fn not_local(&mut self, field: &str, address: &Address, why: &str) {
        if !self.mode_is_known {
            return;
        }
        let allowed = format!("a loopback address or unix:/PATH, because {why}");
        self.problem(field, &given(&address.to_string()), &allowed);
    }
}
