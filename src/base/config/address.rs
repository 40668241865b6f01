//! Where to listen: a TCP address or a Unix socket.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// A socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    /// An absolute path.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid address")]
pub struct InvalidAddress;

impl Address {
    /// The forms that [`Self::from_str`] accepts, in words.
    pub const ALLOWED: &str = "IP:PORT, localhost:PORT or unix:/PATH";

    /// Whether it is reachable from this machine only.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whether the two addresses cannot both be listened on. Port 0 lets the system choose a free port.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => {
                let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
                one.port() == other.port() && one.port() != 0 && (is_any || one.ip() == other.ip())
            }
            (Self::Unix(one), Self::Unix(other)) => one == other,
            (Self::Tcp(_), Self::Unix(_)) | (Self::Unix(_), Self::Tcp(_)) => false,
        }
    }
}

impl Default for Address {
    /// Any port of this machine.
    fn default() -> Self {
        Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    /// Rejects host names other than `localhost`: whether they are local is known only after they are resolved.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(InvalidAddress) };
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            let port = port.parse().map_err(|_| InvalidAddress)?;
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse().map(Self::Tcp).map_err(|_| InvalidAddress)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_address_and_what_is_local() {
        let cases = [
            ("127.0.0.1:8001", Some(true)),
            ("localhost:80", Some(true)),
            ("[::1]:80", Some(true)),
            ("[::ffff:127.0.0.1]:80", Some(true)),
            ("unix:/run/gateway.sock", Some(true)),
            ("0.0.0.0:80", Some(false)),
            ("[::]:80", Some(false)),
            ("10.0.0.1:443", Some(false)),
            ("unix:gateway.sock", None),
            ("example.org:80", None),
            ("127.0.0.1", None),
            ("localhost:70000", None),
            (":80", None),
            ("", None),
        ];
        for (text, local) in cases {
            assert_eq!(Address::from_str(text).ok().map(|address| address.is_local()), local, "{text}");
        }
    }
}
