//! Issues certificates for servers on loopback and for their clients.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

use crate::config::TlsFiles;

/// A certificate authority with a key of its own.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate of the authority, and its key.
pub(crate) struct Issued {
    pub(crate) certificate: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// For a client by that common name.
    pub(crate) fn client(&self, name: &str) -> Issued {
        self.issue(CertificateParams::default(), name, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// TLS of `localhost`, which verifies clients that show a certificate.
    pub(crate) fn server(&self) -> ServerConfig {
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let issued = self.issue(params, "server", ExtendedKeyUsagePurpose::ServerAuth);
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.key.serialize_der()));
        let tls = ServerConfig::builder().with_client_cert_verifier(clients);
        tls.with_single_cert(vec![issued.certificate.der().clone()], key).unwrap()
    }

    fn issue(&self, mut params: CertificateParams, name: &str, usage: ExtendedKeyUsagePurpose) -> Issued {
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate().unwrap();
        Issued { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }
}

impl Issued {
    /// The certificate and its key in two files of a folder, which are overwritten.
    pub(crate) fn write(&self, folder: &Path) -> TlsFiles {
        let files = TlsFiles { cert_file: folder.join("client.crt"), key_file: folder.join("client.key") };
        fs::write(&files.cert_file, self.certificate.pem()).unwrap();
        fs::write(&files.key_file, self.key.serialize_pem()).unwrap();
        files
    }
}
