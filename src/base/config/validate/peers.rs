//! The other gateways of the cluster: `cache.peers`.

use http::Uri;

use crate::config::check::{Check, given};
use crate::config::raw::{self, Scalar};
use crate::config::{PeersConfig, PemFile, upstream::is_at_loopback};

const ALLOWED: &str = "the https:// address of a Service or a gateway, without path and credentials; http:// only at a \
                       loopback address";

impl Check {
    pub(super) fn peers(&mut self, raw: Option<&raw::Peers>) -> Option<PeersConfig> {
        let raw = raw?;
        self.unknown("cache.peers", &raw.unknown, &["addresses", "caFile"]);
        let given_addresses = raw.addresses.as_deref().unwrap_or_default();
        if given_addresses.is_empty() {
            self.problem("cache.peers.addresses", "missing or empty", "at least one address, or remove cache.peers");
        }
        let mut addresses = Vec::new();
        for (index, Scalar(text)) in given_addresses.iter().enumerate() {
            match address(text) {
                Some(address) if !addresses.contains(&address) => addresses.push(address),
                _ => self.problem(&format!("cache.peers.addresses[{index}]"), &given(text), ALLOWED),
            }
        }
        let ca = raw.ca_file.is_some().then(|| PemFile(self.path("cache.peers.caFile", raw.ca_file.as_ref())));
        if ca.is_none() && addresses.iter().any(is_https) {
            let allowed = "the path of a PEM file with the authority of the gateways' certificates";
            self.problem("cache.peers.caFile", "missing, though an address begins with https://", allowed);
        }
        Some(PeersConfig { addresses, ca })
    }
}

fn address(text: &str) -> Option<Uri> {
    let address: Uri = text.parse().ok()?;
    let is_plain = matches!(address.path(), "" | "/") && address.query().is_none();
    let has_credentials = address.authority()?.as_str().contains('@');
    let is_secure = is_https(&address) || address.scheme_str() == Some("http") && is_at_loopback(&address);
    (is_plain && !has_credentials && is_secure).then_some(address)
}

fn is_https(address: &Uri) -> bool {
    address.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_never_cross_a_network_in_clear_text() {
        for (text, is_allowed) in [
            ("https://gateway.kube-system.svc:8443", true),
            ("https://[fd00::1]:8443/", true),
            ("http://127.0.0.1:8001", true),
            ("http://localhost:8001", true),
            ("http://10.0.0.1:8001", false),
            ("https://user:password@gateway:8443", false),
            ("https://gateway:8443/prefix", false),
            ("https://gateway:8443/?a", false),
            ("gateway:8443", false),
            ("", false),
        ] {
            assert_eq!(address(text).is_some(), is_allowed, "{text}");
        }
    }
}
