//! The address of one of several API servers of a cluster.

use std::{fmt, net::IpAddr, str::FromStr};

use http::uri::Authority;

/// A host and a port. Compares without regard to the case of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress(Authority);

/// Why a text is not the address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidServerAddress {
    #[error("it has a scheme; that of the kubeconfig is used")]
    Scheme,
    #[error("it has a path; that of the kubeconfig is used")]
    Path,
    #[error("it has credentials; those of the kubeconfig are used")]
    Credentials,
    #[error("it has no port")]
    Port,
    #[error("it is no host with a port")]
    Malformed,
}

impl ServerAddress {
    /// The form that [`Self::from_str`] accepts, in words.
    pub const ALLOWED: &str = "HOST:PORT of an API server of the same cluster, such as 10.0.0.1:6443";

    /// Of the host of a URI, whose port it may not name.
    ///
    /// # Panics
    /// If it is no host of a URI.
    pub fn of(host: &str, port: u16) -> Self {
        Self(format!("{host}:{port}").parse().expect("a host and a port are an authority"))
    }

    pub fn authority(&self) -> &Authority {
        &self.0
    }

    /// Whether it is this machine, by its name or its address.
    pub fn is_loopback(&self) -> bool {
        let host = self.0.host().trim_matches(['[', ']']);
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidServerAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            return Err(InvalidServerAddress::Scheme);
        }
        if text.contains(['/', '?', '#']) {
            return Err(InvalidServerAddress::Path);
        }
        if text.contains('@') {
            return Err(InvalidServerAddress::Credentials);
        }
        let authority: Authority = text.parse().map_err(|_| InvalidServerAddress::Malformed)?;
        if authority.host().is_empty() {
            return Err(InvalidServerAddress::Malformed);
        }
        match authority.port_u16() {
            Some(port) if port > 0 => Ok(Self(authority)),
            Some(_) | None => Err(InvalidServerAddress::Port),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_are_an_address() {
        for (text, is_loopback) in
            [("10.0.0.1:6443", false), ("API.example:443", false), ("[::1]:6443", true), ("localhost:1", true)]
        {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_loopback()), (text, is_loopback));
        }
        assert_eq!("API:1".parse::<ServerAddress>(), "api:1".parse());
    }

    #[test]
    fn what_belongs_into_the_kubeconfig_is_refused() {
        use InvalidServerAddress::{Credentials, Malformed, Path, Port, Scheme};
        for (text, why) in [
            ("https://10.0.0.1:6443", Scheme),
            ("10.0.0.1:6443/prefix", Path),
            ("10.0.0.1:6443/", Path),
            ("jane:secret@10.0.0.1:6443", Credentials),
            ("10.0.0.1", Port),
            ("10.0.0.1:0", Port),
            ("10.0.0.1:", Port),
            (":6443", Malformed),
            ("", Malformed),
            ("a b:1", Malformed),
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(why), "{text}");
        }
    }
}
