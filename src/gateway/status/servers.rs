//! The API servers of `upstream.servers`.

use super::{Detail, Server, Upstream, units::count};
use crate::connector::{ServerState, Usage};

/// An error may name a user of the gateway.
pub(super) fn row(state: ServerState, detail: Detail) -> Server {
    let ServerState { server, state, version, connections, error } = state;
    let error = if detail == Detail::Full { error } else { String::new() };
    Server { server, state: state.as_str().to_owned(), version, connections: connections as u64, error }
}

impl Upstream {
    /// The gateways on the way to the API server, in words; empty without any.
    pub(super) fn through(&self) -> String {
        match self.gateways {
            0 => String::new(),
            1 => ", a gateway".to_owned(),
            more => format!(", the first of {more} gateways"),
        }
    }
}

impl Server {
    /// `None` for a state that only a newer gateway has.
    fn usage(&self) -> Option<Usage> {
        [Usage::InUse, Usage::Aside, Usage::Unknown, Usage::Foreign, Usage::Standby]
            .into_iter()
            .find(|usage| usage.as_str() == self.state)
    }

    /// Whether it is as it ought to be.
    pub(super) fn is_well(&self) -> bool {
        matches!(self.usage(), Some(Usage::InUse | Usage::Standby))
    }

    /// Its state in words.
    pub(super) fn line(&self) -> String {
        let state = self.usage().map_or(self.state.clone(), |usage| usage.in_words().to_owned());
        let version = self.version.as_deref().unwrap_or("version not known yet");
        let because = if self.error.is_empty() { String::new() } else { format!(": {}", self.error) };
        format!("{} ({version}), {} connections, {state}{because}", self.server, count(self.connections))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_line() {
        let state = |state, error: &str| ServerState {
            server: "a:1".to_owned(),
            state,
            version: Some("v1.36.2".to_owned()),
            connections: 3,
            error: error.to_owned(),
        };
        let line = |of, detail| row(of, detail).line();
        assert_eq!(line(state(Usage::InUse, ""), Detail::Full), "a:1 (v1.36.2), 3 connections, in use");
        let foreign = state(Usage::Foreign, "another uid");
        let told = "a:1 (v1.36.2), 3 connections, never used, since it is not of the cluster";
        assert_eq!(line(foreign.clone(), Detail::Full), format!("{told}: another uid"));
        assert_eq!(line(foreign, Detail::WithoutNames), told);
    }
}
