//! The TLS sessions that a listener accepts, in Kubernetes' terms.

use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, crypto::aws_lc_rs, version};

/// Versions and cipher suites. The default accepts all that the gateway supports, each of which is secure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    pub min_version: TlsVersion,
    /// `None`: all. If the list has no suite of TLS 1.3, all of these stay enabled, as in Go, where they cannot be
    /// configured.
    pub cipher_suites: Option<Vec<CipherSuite>>,
}

/// A version of TLS. Older ones are not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    #[default]
    Tls12,
    Tls13,
}

impl TlsVersion {
    /// The versions by their names in `--tls-min-version` of Kubernetes' components.
    pub(super) const WORDS: [(&str, Self); 2] = [("VersionTLS12", Self::Tls12), ("VersionTLS13", Self::Tls13)];
}

impl TlsPolicy {
    /// The versions that sessions may use.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static FROM_TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];
        match self.min_version {
            TlsVersion::Tls12 => rustls::ALL_VERSIONS,
            TlsVersion::Tls13 => FROM_TLS13,
        }
    }

    /// Whether a session of the suite's version may use that suite.
    pub fn takes(&self, suite: SupportedCipherSuite) -> bool {
        let Some(listed) = &self.cipher_suites else { return true };
        listed.contains(&suite.suite())
            || is_tls13(suite) && !available().iter().any(|other| is_tls13(*other) && listed.contains(&other.suite()))
    }
}

fn is_tls13(suite: SupportedCipherSuite) -> bool {
    suite.version() == &version::TLS13
}

fn available() -> &'static [SupportedCipherSuite] {
    aws_lc_rs::ALL_CIPHER_SUITES
}

/// Names of all suites, as in IANA's registry and in Go.
pub(super) fn names() -> Vec<String> {
    available().iter().filter_map(|suite| name(suite.suite())).collect()
}

/// The suite of a name, and whether it belongs to TLS 1.3. Go has a second, short name for two suites.
pub(super) fn suite(text: &str) -> Option<(CipherSuite, bool)> {
    let text = match text {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => format!("{text}_SHA256"),
        _ => text.to_owned(),
    };
    let found = available().iter().find(|suite| name(suite.suite()).as_deref() == Some(&text))?;
    Some((found.suite(), is_tls13(*found)))
}

/// A suite's name in IANA's registry and in Go: without rustls's mark of TLS 1.3.
pub(super) fn name(suite: CipherSuite) -> Option<String> {
    suite.as_str().map(|name| name.replacen("TLS13_", "TLS_", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_go() {
        let names = names();
        for name in [
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ] {
            assert!(names.iter().any(|found| found == name), "{name}\nin {names:?}");
        }
        assert_eq!(names.len(), 9);
        assert_eq!(suite("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"), suite("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"));
        assert_eq!(suite("TLS_RSA_WITH_AES_128_CBC_SHA"), None);
    }

    #[test]
    fn a_list_of_suites_is_one_of_its_versions() {
        let taken = |listed: &[&str]| {
            let listed = listed.iter().map(|name| suite(name).unwrap().0).collect();
            let policy = TlsPolicy { cipher_suites: Some(listed), ..TlsPolicy::default() };
            available()
                .iter()
                .filter(|suite| policy.takes(**suite))
                .filter_map(|suite| name(suite.suite()))
                .collect::<Vec<_>>()
        };
        let of_tls13: Vec<String> = names().into_iter().filter(|name| suite(name).unwrap().1).collect();
        let old = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let expected: Vec<_> = of_tls13.iter().cloned().chain([old.to_owned()]).collect();
        assert_eq!(taken(&[old]), expected);
        assert_eq!(taken(&[old, &of_tls13[0]]), [of_tls13[0].clone(), old.to_owned()]);
        assert_eq!(taken(&[&of_tls13[1]]), [of_tls13[1].clone()]);
        let all = available().iter().filter(|suite| TlsPolicy::default().takes(**suite)).count();
        assert_eq!(all, names().len());
    }
}
