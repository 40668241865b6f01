//! Certificates and keys in files, which may change while the gateway runs.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rustls::{
    InconsistentKeys, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};

use crate::certificate::{Certificate, Version};
use crate::config::{Redacted, fields::unexpanded};

/// A PEM file with the certificates of authorities that peers are verified against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PemFile(pub PathBuf);

impl From<PathBuf> for PemFile {
    fn from(path: PathBuf) -> Self {
        Self(path)
    }
}

impl AsRef<Path> for PemFile {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// PEM files of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its intermediates.
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// The content of the files.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPem {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

/// Why certificates in PEM cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    #[error("no PEM certificate in {}", file.display())]
    Certificate { file: PathBuf, source: Redacted },
    #[error("no certificate of a certificate authority in {}", file.display())]
    Authority { file: PathBuf, source: rustls::Error },
    #[error("no PEM private key in {}", file.display())]
    Key { file: PathBuf, source: Redacted },
    #[error(
        "the certificate in {} is of X.509 version 1, but TLS needs one of version 3: issue it with an extension, such \
         as basicConstraints=CA:FALSE (openssl x509 -req -extfile)", file.display()
    )]
    Version { file: PathBuf },
    #[error("cannot use the certificate with its key")]
    Pair(#[source] rustls::Error),
    #[error("the key in {} is not that of the certificate in {}", key_file.display(), cert_file.display())]
    Mismatch { key_file: PathBuf, cert_file: PathBuf },
}

impl PemFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read; the error names it.
    pub async fn read(&self) -> io::Result<Vec<u8>> {
        tokio::fs::read(&self.0).await.map_err(|error| named(&self.0, &error))
    }

    /// The authorities in `pem`, the content of the file: at least one, each usable as a trust anchor.
    ///
    /// # Errors
    /// It holds no certificate, or one that is not an authority's.
    pub fn authorities(&self, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let certificates = certificates(&self.0, pem)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|source| PemError::Authority { file: self.0.clone(), source })?;
        }
        Ok(certificates)
    }
}

impl TlsFiles {
    /// Reads both files. If they are replaced meanwhile, they may not match; they do at the next try.
    ///
    /// # Errors
    /// One of the files cannot be read; the error names it.
    pub async fn read(&self) -> io::Result<TlsPem> {
        let read = async |path: &PathBuf| PemFile(path.clone()).read().await;
        Ok(TlsPem { cert: read(&self.cert_file).await?, key: read(&self.key_file).await? })
    }

    /// As [`TlsFiles::read`], but blocking: for the start of the process.
    ///
    /// # Errors
    /// One of the files cannot be read; the error names it.
    pub fn read_blocking(&self) -> io::Result<TlsPem> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| named(path, &error));
        Ok(TlsPem { cert: read(&self.cert_file)?, key: read(&self.key_file)? })
    }

    /// The certificate and key in `pem`, the content of the files.
    ///
    /// # Errors
    /// One of them is missing or invalid, or they do not match.
    pub fn certified_key(&self, pem: &TlsPem) -> Result<CertifiedKey, PemError> {
        let chain = certificates(&self.cert_file, &pem.cert)?;
        if Certificate::parse(&chain[0]).is_ok_and(|read| read.version == Version::V1) {
            return Err(PemError::Version { file: self.cert_file.clone() });
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key)
            .map_err(|error| PemError::Key { file: self.key_file.clone(), source: Redacted::pem(&error) })?;
        CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| {
            if error == rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
                PemError::Mismatch { key_file: self.key_file.clone(), cert_file: self.cert_file.clone() }
            } else {
                PemError::Pair(error)
            }
        })
    }
}

/// At least one certificate.
fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let none = |error: pem::Error| PemError::Certificate { file: file.to_owned(), source: Redacted::pem(&error) };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(none)?;
    if found.is_empty() { Err(none(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}{}", path.display(), unexpanded(path)))
}

impl fmt::Debug for TlsPem {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsPem").field("cert", &self.cert.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (Vec<u8>, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes())
    }

    #[test]
    fn problems_of_certificate_key_and_pair_have_their_own_errors() {
        let files = TlsFiles { cert_file: "/c".into(), key_file: "/k".into() };
        let ((cert, key), (_, other)) = (made(), made());
        let pair = |cert: &[u8], key: &[u8]| files.certified_key(&TlsPem { cert: cert.to_vec(), key: key.to_vec() });
        assert!(pair(&cert, &key).is_ok());
        assert!(matches!(pair(b"", &key).unwrap_err(), PemError::Certificate { .. }));
        assert!(matches!(pair(&cert, b"x").unwrap_err(), PemError::Key { .. }));
        assert_eq!(pair(&cert, &other).unwrap_err().to_string(), "the key in /k is not that of the certificate in /c");
    }

    /// Without the version, which 1 has not, and without extensions. Its signature no longer fits, and is not verified.
    fn first_version(certificate: &[u8]) -> Vec<u8> {
        // Tag, content and rest of the first value.
        fn value(der: &[u8]) -> (u8, &[u8], &[u8]) {
            let (long, short) = (usize::from(der[1] & 0x7f), der[1] < 0x80);
            let length =
                if short { long } else { der[2..2 + long].iter().fold(0, |all, byte| all << 8 | usize::from(*byte)) };
            let start = if short { 2 } else { 2 + long };
            (der[0], &der[start..start + length], &der[start + length..])
        }
        fn sequence(content: &[u8]) -> Vec<u8> {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            let head = if length[0] == 0 { vec![0x30, 0x81, length[1]] } else { [&[0x30, 0x82], &length[..]].concat() };
            [&head, content].concat()
        }
        let (_, certificate, _) = value(certificate);
        let (_, mut fields, signature) = value(certificate);
        let mut kept = Vec::new();
        while !fields.is_empty() {
            let (tag, _, rest) = value(fields);
            if !matches!(tag, 0xa0 | 0xa3) {
                kept.extend_from_slice(&fields[..fields.len() - rest.len()]);
            }
            fields = rest;
        }
        sequence(&[&sequence(&kept), signature].concat())
    }

    #[test]
    fn a_version_1_certificate_is_named_in_the_error() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, first_version(made.cert.der()));
        let cert = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n").into_bytes();
        let files = TlsFiles { cert_file: "/proxy.crt".into(), key_file: "/k".into() };
        let key = made.signing_key.serialize_pem().into_bytes();
        let error = files.certified_key(&TlsPem { cert, key }).unwrap_err().to_string();
        assert!(error.contains("/proxy.crt is of X.509 version 1") && error.contains("of version 3"), "{error}");
    }

    #[test]
    fn authorities_are_certificates_and_at_least_one() {
        let bundle = PemFile("/ca".into());
        let ((one, key), (two, _)) = (made(), made());
        assert_eq!(bundle.authorities(&[one, two].concat()).unwrap().len(), 2);
        assert!(matches!(bundle.authorities(&key).unwrap_err(), PemError::Certificate { .. }));
        let no_der = b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        assert!(matches!(bundle.authorities(no_der).unwrap_err(), PemError::Authority { .. }));
    }
}
