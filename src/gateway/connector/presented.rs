//! A client certificate that the program chooses.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

/// The certificate that new connections present. Open connections keep the one that they have presented.
pub(super) struct Presented(RwLock<Arc<CertifiedKey>>);

impl Presented {
    pub(super) fn new(certificate: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(certificate)))
    }

    pub(super) fn set(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether both show the same: files may be written again, and a previous certificate restored.
pub(super) fn is_same(one: &CertifiedKey, other: &CertifiedKey) -> bool {
    one.cert == other.cert && one.key.public_key() == other.key.public_key()
}

impl ResolvesClientCert for Presented {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for Presented {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Presented").finish_non_exhaustive()
    }
}
