//! TLS of sockets that the gateway listens on: `listeners[].tls`, `admin.tls`.

use rustls::CipherSuite;

use crate::config::check::{Check, given};
use crate::config::raw::{self, Scalar};
use crate::config::{ListenerTls, TlsFiles, TlsPolicy, TlsVersion, tls_policy};

impl Check {
    pub(super) fn listener_tls(
        &mut self,
        field: &str,
        raw: &raw::ListenerTls,
        client_certificates: bool,
    ) -> ListenerTls {
        self.unknown(field, &raw.unknown, &["certFile", "keyFile", "minVersion", "cipherSuites"]);
        let files = TlsFiles {
            cert_file: self.path(&format!("{field}.certFile"), raw.cert_file.as_ref()),
            key_file: self.path(&format!("{field}.keyFile"), raw.key_file.as_ref()),
        };
        let version = format!("{field}.minVersion");
        let min_version = self.word(&version, raw.min_version.as_ref(), TlsVersion::Tls12, &TlsVersion::WORDS);
        let suites = raw.cipher_suites.as_deref();
        let cipher_suites = suites.map(|raw| self.cipher_suites(&format!("{field}.cipherSuites"), raw, min_version));
        ListenerTls { files, policy: TlsPolicy { min_version, cipher_suites }, client_certificates }
    }

    fn cipher_suites(&mut self, field: &str, raw: &[Scalar], min_version: TlsVersion) -> Vec<CipherSuite> {
        let allowed = || tls_policy::names().join(", ");
        if raw.is_empty() {
            self.problem(
                field,
                "the list is empty",
                &format!("one or more of {}; without the field, all of them", allowed()),
            );
        }
        let mut suites = Vec::new();
        for (index, Scalar(text)) in raw.iter().enumerate() {
            let field = format!("{field}[{index}]");
            match (tls_policy::suite(text), min_version) {
                (Some((_, false)), TlsVersion::Tls13) => {
                    let found = format!("\"{text}\" is a suite of TLS 1.2, but minVersion is VersionTLS13");
                    self.problem(&field, &found, "suites of TLS 1.3, or minVersion: VersionTLS12");
                }
                (Some((suite, _)), _) => suites.push(suite),
                (None, _) => self.problem(&field, &given(text), &allowed()),
            }
        }
        suites
    }
}
