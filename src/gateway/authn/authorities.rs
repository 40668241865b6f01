//! A bundle of certificate authorities: loaded from a file, used to verify client certificates, reloaded when the file
//! changes.
//!
//! Invariant: a certificate that verifies here also verifies at the API server, given the same file. Where Go's rules
//! are stricter than webpki's, they are applied on top: an authority must itself be within its validity period, and
//! must be allowed to sign certificates.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rustls::pki_types::{
    CertificateDer, TrustAnchor, UnixTime,
    pem::{self, PemObject},
};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath, anchor_from_trusted_cert,
};

use base::certificate::{Certificate, Version};
use base::config::PemFile;
use base::telemetry::{self, Chain};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("cannot read the certificate authorities")]
    Read(#[source] io::Error),
    #[error("no PEM certificates in {file}")]
    Pem { file: String, source: pem::Error },
    #[error("no certificate in {file} is a certificate authority for client certificates")]
    NoAuthority { file: String },
}

/// Certificate authorities that are reloaded when their file changes.
#[derive(Debug)]
pub(super) struct Authorities {
    file: PemFile,
    current: RwLock<Arc<Vec<Authority>>>,
    /// The file's content when it was last read, usable or not.
    seen: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Authority {
    anchor: TrustAnchor<'static>,
    /// Validity period in seconds since 1970, both ends included.
    valid: std::ops::RangeInclusive<i64>,
}

impl Authorities {
    pub(super) async fn load(file: PemFile) -> Result<Self, AuthoritiesError> {
        let pem = file.read().await.map_err(AuthoritiesError::Read)?;
        let current = RwLock::new(Arc::new(parse(&file, &pem)?));
        Ok(Self { file, current, seen: Mutex::new(pem) })
    }

    /// Verifies that `chain`, leaf first, is a client certificate signed by one of the authorities, directly or through
    /// the chain's intermediates.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), webpki::Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(webpki::Error::BadDer)?;
        let leaf = EndEntityCert::try_from(leaf)?;
        let authorities = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let valid = authorities.iter().filter(|authority| authority.valid.contains(&seconds));
        let anchors: Vec<_> = valid.map(|authority| authority.anchor.clone()).collect();
        let are_signers = |path: &VerifiedPath<'_>| {
            let mut between = path.intermediate_certificates();
            between.all(|certificate| is_signer(&certificate.der())).then_some(()).ok_or(webpki::Error::UnknownIssuer)
        };
        let (algorithms, purpose) = (ALL_VERIFICATION_ALGS, ForClients);
        leaf.verify_for_usage(algorithms, &anchors, intermediates, now, purpose, None, Some(&are_signers))?;
        Ok(())
    }

    /// Reads the file again and returns whether the authorities were replaced. An unusable file leaves them as they
    /// are, and is not parsed again until its content changes.
    pub(super) async fn reload(&self) -> bool {
        let parsed = match self.file.read().await {
            Ok(pem) => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if *seen == pem {
                    return false;
                }
                let parsed = parse(&self.file, &pem);
                *seen = pem;
                parsed
            }
            Err(error) => Err(AuthoritiesError::Read(error)),
        };
        let file = self.file.0.display();
        telemetry::certificate_reloaded(parsed.is_ok());
        match parsed {
            Ok(authorities) => {
                tracing::info!(%file, authorities = authorities.len(), "certificate authorities replaced");
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(authorities);
                true
            }
            Err(error) => {
                tracing::warn!(%file, error = %Chain(&error), "certificate authorities not replaced");
                false
            }
        }
    }
}

/// The authorities in a file. Certificates that are not client certificate authorities are skipped with a warning.
fn parse(file: &PemFile, pem: &[u8]) -> Result<Vec<Authority>, AuthoritiesError> {
    let name = || file.0.display().to_string();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| AuthoritiesError::Pem { file: name(), source })?;
    let authorities: Vec<_> = certificates.iter().filter_map(Authority::from_certificate).collect();
    if authorities.len() < certificates.len() {
        let passed_over = certificates.len() - authorities.len();
        tracing::warn!(
            file = name(),
            passed_over,
            "skipped certificates that are not certificate authorities for clients"
        );
    }
    if authorities.is_empty() {
        return Err(AuthoritiesError::NoAuthority { file: name() });
    }
    Ok(authorities)
}

impl Authority {
    fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let anchor = anchor_from_trusted_cert(certificate).ok()?.to_owned();
        let read = Certificate::parse(certificate).ok()?;
        let for_clients = read.is_for_clients.unwrap_or(true);
        (for_clients && may_sign(&read)).then_some(Self { anchor, valid: read.valid })
    }
}

/// Whether a certificate may sign others.
fn is_signer(certificate: &CertificateDer<'_>) -> bool {
    Certificate::parse(certificate).is_ok_and(|read| may_sign(&read))
}

fn may_sign(certificate: &Certificate) -> bool {
    // X.509 v1 and v2 certificates have no extension to say so.
    let is_authority = certificate.is_authority.unwrap_or(certificate.version != Version::V3);
    is_authority && certificate.signs_certificates.unwrap_or(true)
}

/// Accepts what Go accepts as a client certificate: no extended key usage, `clientAuth` or `anyExtendedKeyUsage`.
struct ForClients;

const CLIENT_AUTH: KeyPurposeId<'_> = KeyPurposeId::new(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]);
const ANY_PURPOSE: KeyPurposeId<'_> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0x00]);

impl ExtendedKeyUsageValidator for ForClients {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == CLIENT_AUTH || purpose == ANY_PURPOSE {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        if present.is_empty() {
            return Ok(());
        }
        let required = KeyUsage::client_auth();
        Err(webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
    use tempfile::TempDir;

    use base::test_certificates::{Issued, authority, intermediate, leaf, now};

    async fn bundle(folder: &TempDir, members: &[&Issued]) -> Result<Authorities, AuthoritiesError> {
        let file = PemFile(folder.path().join("ca.crt"));
        fs::write(&file.0, members.iter().map(|member| member.pem()).collect::<String>()).unwrap();
        Authorities::load(file).await
    }

    async fn vouches(members: &[&Issued], chain: &[&Issued]) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let chain: Vec<_> = chain.iter().map(|issued| issued.der()).collect();
        bundle(&folder, members).await.unwrap().verify(&chain, now()).is_ok()
    }

    #[tokio::test]
    async fn an_authority_verifies_client_certificates_it_signed() {
        let (ca, other) = (authority("ca"), authority("ca"));
        assert!(vouches(&[&ca], &[&leaf(&ca, |_| {})]).await);
        assert!(vouches(&[&other, &ca], &[&leaf(&ca, |_| {})]).await);
        assert!(!vouches(&[&other], &[&leaf(&ca, |_| {})]).await);
        assert!(!vouches(&[&ca], &[]).await);
        for (purposes, expected) in [
            (vec![], true),
            (vec![ExtendedKeyUsagePurpose::ClientAuth], true),
            (vec![ExtendedKeyUsagePurpose::Any], true),
            (vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth], true),
            (vec![ExtendedKeyUsagePurpose::ServerAuth], false),
        ] {
            let leaf = leaf(&ca, |params| params.extended_key_usages = purposes.clone());
            assert_eq!(vouches(&[&ca], &[&leaf]).await, expected, "{purposes:?}");
        }
    }

    #[tokio::test]
    async fn certificates_are_rejected_outside_their_validity() {
        let ca = authority("ca");
        let expired = leaf(&ca, |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
        let future = leaf(&ca, |params| params.not_before = rcgen::date_time_ymd(4000, 1, 1));
        assert!(!vouches(&[&ca], &[&expired]).await);
        assert!(!vouches(&[&ca], &[&future]).await);
        let old = Issued::authority("old", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
        assert!(!vouches(&[&old], &[&leaf(&old, |_| {})]).await);
    }

    #[tokio::test]
    async fn intermediates_must_be_sent_and_be_allowed_to_sign() {
        let ca = authority("ca");
        let between = intermediate(&ca, "between", |_| {});
        let leaf_below = leaf(&between, |_| {});
        assert!(vouches(&[&ca], &[&leaf_below, &between]).await);
        assert!(vouches(&[&between], &[&leaf_below]).await);
        assert!(!vouches(&[&ca], &[&leaf_below]).await);
        let no_signer =
            intermediate(&ca, "between", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
        assert!(!vouches(&[&ca], &[&leaf(&no_signer, |_| {}), &no_signer]).await);
        let no_authority = leaf(&ca, |_| {});
        assert!(!vouches(&[&ca], &[&leaf(&no_authority, |_| {}), &no_authority]).await);
        let for_servers = intermediate(&ca, "between", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        assert!(!vouches(&[&ca], &[&leaf(&for_servers, |_| {}), &for_servers]).await);
    }

    #[tokio::test]
    async fn a_bundle_without_an_authority_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let ca = authority("ca");
        let no_authority = leaf(&ca, |_| {});
        let error = bundle(&folder, &[&no_authority]).await.unwrap_err();
        assert!(matches!(error, AuthoritiesError::NoAuthority { .. }), "{error:?}");
        assert!(!vouches(&[&no_authority, &authority("b")], &[&leaf(&no_authority, |_| {})]).await);
        let for_servers =
            Issued::authority("ca", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        let error = bundle(&folder, &[&for_servers]).await.unwrap_err();
        assert!(matches!(error, AuthoritiesError::NoAuthority { .. }), "{error:?}");
        let error = Authorities::load(PemFile(folder.path().join("missing"))).await.unwrap_err();
        assert!(matches!(error, AuthoritiesError::Read(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_changed_file_is_used_if_it_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (authority("first"), authority("second"));
        let authorities = bundle(&folder, &[&first]).await.unwrap();
        let believes = |ca: &Issued| authorities.verify(&[leaf(ca, |_| {}).der()], now()).is_ok();
        assert!(!authorities.reload().await);
        for unusable in ["", "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"] {
            fs::write(&authorities.file.0, unusable).unwrap();
            assert!(!authorities.reload().await);
            assert!(believes(&first));
        }
        fs::write(&authorities.file.0, second.pem()).unwrap();
        assert!(authorities.reload().await);
        assert!(believes(&second) && !believes(&first));
        fs::remove_file(&authorities.file.0).unwrap();
        assert!(!authorities.reload().await);
        assert!(believes(&second));
    }
}
