//! Authorities and certificates for unit tests, generated on demand.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};

use crate::{config::TlsFiles, listener::ClientCertificate};

/// A certificate, and its key for signing others.
pub(crate) struct Issued {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Issued {
    /// A self-signed certificate.
    pub(crate) fn authority(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate that `signer` has issued.
    pub(crate) fn signed_by(signer: &Self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &signer.issuer).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(crate) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.issuer.key().serialize_der()))
    }

    /// The certificate and its key in two files of a folder, which are overwritten.
    pub(crate) fn write(&self, folder: &Path) -> TlsFiles {
        let files = TlsFiles { cert_file: folder.join("client.crt"), key_file: folder.join("client.key") };
        fs::write(&files.cert_file, self.pem()).unwrap();
        fs::write(&files.key_file, self.key_pem()).unwrap();
        files
    }

    /// The connection's view of a client that presents this certificate.
    pub(crate) fn shown(&self) -> ClientCertificate {
        let fingerprint = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.der());
        ClientCertificate { chain: vec![self.der()], fingerprint: fingerprint.as_ref().try_into().unwrap() }
    }
}

pub(crate) fn authority(name: &str) -> Issued {
    Issued::authority(name, |_| {})
}

pub(crate) fn intermediate(signer: &Issued, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    Issued::signed_by(signer, params)
}

/// A client certificate; it has no name unless `change` sets one.
pub(crate) fn leaf(signer: &Issued, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let mut params = unnamed();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    Issued::signed_by(signer, params)
}

/// A client certificate with a common name and an organization.
pub(crate) fn client(signer: &Issued, name: &str, organization: &str) -> Issued {
    leaf(signer, |params| {
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
    })
}

pub(crate) fn now() -> UnixTime {
    UnixTime::now()
}

fn unnamed() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

fn named(name: &str) -> CertificateParams {
    let mut params = unnamed();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
