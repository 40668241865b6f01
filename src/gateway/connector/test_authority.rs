//! An authority for servers on loopback and for their clients.

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose};
use rustls::{
    RootCertStore, ServerConfig, crypto::aws_lc_rs, pki_types::CertificateDer, server::WebPkiClientVerifier,
    sign::CertifiedKey,
};

use base::test_certificates::{Issued, authority, leaf};

/// A certificate authority with its own key.
pub(crate) struct Authority(Issued);

impl Authority {
    pub(crate) fn new() -> Self {
        Self(authority("authority"))
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.der()
    }

    /// For a client by that common name.
    pub(crate) fn client(&self, name: &str) -> Issued {
        leaf(&self.0, |params| params.distinguished_name.push(DnType::CommonName, name))
    }

    /// TLS of `localhost`, which verifies clients that show a certificate.
    pub(crate) fn server(&self) -> ServerConfig {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "server");
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let issued = Issued::signed_by(&self.0, params);
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
        let tls = ServerConfig::builder().with_client_cert_verifier(clients);
        tls.with_single_cert(vec![issued.der()], issued.key_der()).unwrap()
    }
}

/// A client's certificate with its key.
pub(crate) fn certified(name: &str) -> Arc<CertifiedKey> {
    let issued = Authority::new().client(name);
    let certified = CertifiedKey::from_der(vec![issued.der()], issued.key_der(), &aws_lc_rs::default_provider());
    Arc::new(certified.unwrap())
}
