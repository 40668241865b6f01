//! A client certificate in files: presented to upstream, reloaded when the files change.

use std::{
    fmt, io,
    path::{Display, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use kube_client::config::AuthInfo;
use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};
use tokio_util::sync::CancellationToken;

use super::connection_closer::ConnectionCloser;
use base::config::{PemError, TlsFiles, TlsPem};
use base::lifecycle::Tasks;
use base::telemetry::{self, Chain};

/// How often the files are checked: much more often than certificates are replaced, long before they expire.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Why the files of a client certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read the files of the client certificate")]
    Read(#[source] io::Error),
    #[error("the files contain no certificate with its key")]
    Pem(#[source] PemError),
    /// The fields of the kubeconfig's user.
    #[error("the kubeconfig's user has {has} without its counterpart: add {lacks} (or {lacks}-data)")]
    Alone { has: &'static str, lacks: &'static str },
}

/// The certificate that new connections present, and those that have presented it. An API server looks at it with each
/// request: when another one takes its place, they break.
pub(super) struct Presented {
    certificate: RwLock<Arc<CertifiedKey>>,
    connections: ConnectionCloser,
}

/// A certificate that is reloaded from its files.
pub(super) struct ClientCertificate {
    files: TlsFiles,
    presented: Arc<Presented>,
    /// The content of the files when they were last checked.
    seen: Mutex<TlsPem>,
    /// Whether another one in the files is probed before it is used, which is then counted and logged.
    is_probed: bool,
}

impl ClientCertificate {
    /// Reads the files. Blocking: only at the start of the process.
    pub(super) fn load(files: TlsFiles) -> Result<Arc<Self>, CertificateError> {
        Self::read(files, false).map(Arc::new)
    }

    /// The same, of which another one in the files is probed before it is used.
    pub(super) fn load_probed(files: TlsFiles) -> Result<Arc<Self>, CertificateError> {
        Self::read(files, true).map(Arc::new)
    }

    fn read(files: TlsFiles, is_probed: bool) -> Result<Self, CertificateError> {
        let seen = files.read_blocking().map_err(CertificateError::Read)?;
        let certified = files.certified_key(&seen).map(Arc::new).map_err(CertificateError::Pem)?;
        let (presented, seen) = (Presented::new(certified), Mutex::new(seen));
        Ok(Self { files, presented, seen, is_probed })
    }

    /// The certificate of a kubeconfig that names it by files alone; `None` for any other, as inline certificates
    /// cannot change.
    pub(super) fn of(identity: &AuthInfo) -> Result<Option<Arc<Self>>, CertificateError> {
        let of = |file: &Option<String>, has_data: bool| file.is_some() || has_data;
        let has_certificate = of(&identity.client_certificate, identity.client_certificate_data.is_some());
        let has_key = of(&identity.client_key, identity.client_key_data.is_some());
        match (has_certificate, has_key) {
            (true, false) => {
                return Err(CertificateError::Alone { has: "client-certificate", lacks: "client-key" });
            }
            (false, true) => {
                return Err(CertificateError::Alone { has: "client-key", lacks: "client-certificate" });
            }
            (true, true) | (false, false) => {}
        }
        let inline = identity.client_certificate_data.is_some() || identity.client_key_data.is_some();
        let (Some(certificate), Some(key)) = (&identity.client_certificate, &identity.client_key) else {
            return Ok(None);
        };
        // A plugin's certificate takes precedence over the files.
        if inline || identity.exec.is_some() {
            return Ok(None);
        }
        let files = TlsFiles { cert_file: PathBuf::from(certificate), key_file: PathBuf::from(key) };
        Self::load(files).map(Some)
    }

    /// The file of the certificate, for the log.
    pub(super) fn name(&self) -> Display<'_> {
        self.files.cert_file.display()
    }

    /// What the files hold, as far as it can be used.
    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        self.presented.current()
    }

    /// The same, for connections.
    pub(super) fn presented(&self) -> Arc<Presented> {
        self.presented.clone()
    }

    /// Follows the files until the drain begins.
    pub(super) fn follow(self: &Arc<Self>, tasks: &Tasks) {
        let (certificate, draining) = (self.clone(), tasks.token().clone());
        tasks.spawn("client certificate reload", async move {
            tokio::select! {
                () = draining.cancelled() => {}
                () = certificate.reload() => {}
            }
        });
    }

    async fn reload(&self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            self.reload_once().await;
        }
    }

    /// Unusable files leave the certificate unchanged; they are read again when they change.
    pub(super) async fn reload_once(&self) {
        let replaced = match self.files.read().await.map_err(CertificateError::Read) {
            Ok(pem) => self.replace(pem),
            Err(error) => Err(error),
        };
        let file = self.name();
        match replaced {
            Ok(false) => return,
            Ok(true) if self.is_probed => return,
            Ok(true) => tracing::info!(%file, "client certificate replaced"),
            Err(ref error) => tracing::warn!(%file, error = %Chain(error), "client certificate not replaced"),
        }
        telemetry::certificate_reloaded(replaced.is_ok());
    }

    /// Returns whether the files have another certificate than before.
    fn replace(&self, pem: TlsPem) -> Result<bool, CertificateError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if pem == *seen {
            return Ok(false);
        }
        let certified = self.files.certified_key(&pem);
        *seen = pem;
        let certified = certified.map_err(CertificateError::Pem)?;
        // The files were unusable meanwhile, or are written differently.
        if is_same(&certified, &self.current()) {
            return Ok(false);
        }
        self.presented.replace(Arc::new(certified));
        Ok(true)
    }
}

impl Presented {
    pub(super) fn new(certificate: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self { certificate: RwLock::new(certificate), connections: ConnectionCloser::default() })
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        self.certificate.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For a connection that is opened now: cancelled when there is another certificate.
    pub(super) fn token(&self) -> CancellationToken {
        self.connections.token()
    }

    /// A connection that is just being opened may present either, and breaks unless it began after this.
    pub(super) fn replace(&self, certificate: Arc<CertifiedKey>) {
        *self.certificate.write().unwrap_or_else(PoisonError::into_inner) = certificate;
        self.connections.trip();
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

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientCertificate").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use rustls::pki_types::CertificateDer;

    use crate::connector::test_authority::Authority;

    fn shown(certificate: &ClientCertificate) -> CertificateDer<'static> {
        certificate.current().cert[0].clone()
    }

    #[tokio::test]
    async fn connections_break_only_for_another_certificate_of_which_both_files_fit() {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let (first, second) = (authority.client("first"), authority.client("second"));
        let files = first.write(folder.path());
        let certificate = ClientCertificate::load(files.clone()).unwrap();
        let open = certificate.presented().token();
        let half = &first.pem()[..first.pem().len() / 2];
        for content in [half.to_owned(), first.pem(), first.pem() + "\n", half.to_owned(), first.pem(), second.pem()] {
            fs::write(&files.cert_file, content).unwrap();
            certificate.reload_once().await;
            assert!(!open.is_cancelled() && shown(&certificate) == first.der());
        }
        fs::write(&files.key_file, second.key_pem()).unwrap();
        certificate.reload_once().await;
        assert!(open.is_cancelled() && shown(&certificate) == second.der());
        fs::remove_file(&files.key_file).unwrap();
        certificate.reload_once().await;
        assert_eq!(shown(&certificate), second.der());
    }

    #[test]
    fn files_without_a_certificate_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let files = Authority::new().client("first").write(folder.path());
        fs::write(&files.key_file, "x").unwrap();
        assert!(matches!(ClientCertificate::load(files.clone()), Err(CertificateError::Pem(_))));
        fs::remove_file(&files.cert_file).unwrap();
        assert!(matches!(ClientCertificate::load(files), Err(CertificateError::Read(_))));
    }

    #[test]
    fn only_a_certificate_that_is_in_files_alone_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        // Both in one file, as kubelets have them.
        let issued = Authority::new().client("kubelet");
        let file = folder.path().join("both.pem");
        fs::write(&file, issued.pem() + &issued.key_pem()).unwrap();
        let mut identity = AuthInfo::default();
        assert!(ClientCertificate::of(&identity).unwrap().is_none());
        identity.client_certificate = Some(file.display().to_string());
        identity.client_key = identity.client_certificate.clone();
        assert!(ClientCertificate::of(&identity).unwrap().is_some());
        identity.client_key_data = Some(String::new().into());
        assert!(ClientCertificate::of(&identity).unwrap().is_none());
    }
}
