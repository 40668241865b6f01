//! The other gateways of the cluster: `cache.peers`.

use http::Uri;

use crate::config::fields::{Fields, Maybe, PEM, Parsed, Refused, about};
use crate::config::{PemFile, upstream::is_at_loopback};

const ADDRESS: Parsed<Uri> = Parsed {
    allowed: "the https:// address of a Service or a gateway, without path and credentials; http:// only at a loopback \
              address",
    parse: |text| address(text).ok_or_else(Refused::default),
    pattern: "^https?://[^/@?#]+/?$",
};

/// Other gateways of the same cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeersConfig {
    /// At least one: a Service's, or a gateway's own. HTTPS, or HTTP at a loopback address.
    pub addresses: Vec<Uri>,
    /// The authorities of their certificates; `None` only without TLS.
    pub ca: Option<PemFile>,
}

impl PeersConfig {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about(
            "addresses of other gateways of the cluster, which are asked for the state of a new cache before \
             upstream; usually those of two Services of the replicas: `https://`, or `http://` at a loopback \
             address. See below, and the chapter `consistency`",
        );
        fields.set("addresses", text.default("none: no peers"), &mut self.addresses, &ADDRESS);
        fields.length("addresses", 1, None);
        fields.keyword("", "required", ["addresses"].into());
        if !fields.is_given("addresses") {
            fields.problem("addresses", "missing", "at least one address, or remove cache.peers");
        }
        let text = about("the authority of their certificates; required with `https://`. Read at the start");
        fields.value("caFile", text, &mut self.ca, &Maybe(PEM));
        if !fields.is_given("caFile") && self.addresses.iter().any(is_https) {
            let allowed = "the path of a PEM file with the authority of the gateways' certificates";
            fields.problem("caFile", "missing, though an address begins with https://", allowed);
        }
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
