//! Authorities and certificates for unit tests, generated on demand.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};

use crate::config::TlsFiles;

/// A certificate, and its key for signing others.
#[expect(missing_debug_implementations, reason = "keys have none")]
pub struct Issued {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Issued {
    /// A self-signed certificate.
    pub fn authority(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate that `signer` has issued.
    pub fn signed_by(signer: &Self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &signer.issuer).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.issuer.key().serialize_der()))
    }

    /// The certificate and its key in two files of a folder, which are overwritten.
    pub fn write(&self, folder: &Path) -> TlsFiles {
        let files = TlsFiles { cert_file: folder.join("client.crt"), key_file: folder.join("client.key") };
        fs::write(&files.cert_file, self.pem()).unwrap();
        fs::write(&files.key_file, self.key_pem()).unwrap();
        files
    }
}

pub fn authority(name: &str) -> Issued {
    Issued::authority(name, |_| {})
}

pub fn intermediate(signer: &Issued, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    Issued::signed_by(signer, params)
}

/// A client certificate; it has no name unless `change` sets one.
pub fn leaf(signer: &Issued, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let mut params = unnamed();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    Issued::signed_by(signer, params)
}

/// A client certificate with a common name and an organization.
pub fn client(signer: &Issued, name: &str, organization: &str) -> Issued {
    leaf(signer, |params| {
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
    })
}

pub fn now() -> UnixTime {
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
