//! The certificate of a listener: loaded at the start, replaced when its files change.

use std::{
    error::Error,
    io,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use crate::config::{ListenerTls, PemError, TlsFiles, TlsPem};
use crate::listener::client_auth::AnyAuthority;
use crate::telemetry;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate")]
    Read(#[source] io::Error),
    #[error("cannot use the certificate")]
    Pem(#[source] PemError),
    #[error("no TLS version is left")]
    Versions(#[source] rustls::Error),
}

/// TLS of one listener.
#[derive(Debug)]
pub(super) struct Tls {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    files: TlsFiles,
    seen: TlsPem,
}

/// How often the files are looked at: much more often than certificates are replaced, hours before they expire.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

impl Tls {
    pub(super) async fn load(config: &ListenerTls) -> Result<Self, TlsError> {
        let files = &config.files;
        let seen = files.read().await.map_err(TlsError::Read)?;
        let current = Arc::new(Current(RwLock::new(certified(files, &seen)?)));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let any_authority = Arc::new(AnyAuthority::new(&provider));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?;
        let builder = if config.client_certificates {
            builder.with_client_cert_verifier(any_authority)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_cert_resolver(current.clone());
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), current, files: files.clone(), seen })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Follows the files. Runs until it is dropped.
    pub(super) async fn reload(mut self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            self.reload_once().await;
        }
    }

    /// Files that cannot be used leave the certificate as it was; they are looked at again when they have changed.
    async fn reload_once(&mut self) {
        let read = self.files.read().await.map_err(TlsError::Read);
        let replaced = match read {
            Ok(pem) if pem == self.seen => return,
            Ok(pem) => {
                let certified = certified(&self.files, &pem);
                self.seen = pem;
                certified.map(|certified| self.current.replace(certified))
            }
            Err(error) => Err(error),
        };
        let file = self.files.cert_file.display();
        telemetry::certificate_reloaded(replaced.is_ok());
        match replaced {
            Ok(()) => tracing::info!(%file, "certificate replaced"),
            Err(error) => tracing::warn!(%file, error = &error as &dyn Error, "certificate not replaced"),
        }
    }
}

/// ALPN's name of HTTP/2.
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

fn certified(files: &TlsFiles, pem: &TlsPem) -> Result<Arc<CertifiedKey>, TlsError> {
    files.certified_key(pem).map(Arc::new).map_err(TlsError::Pem)
}

/// The certificate that handshakes get from now on.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl Current {
    fn replace(&self, certified: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use std::{fs, path::Path};

    /// Writes a certificate for `localhost` of its own authority; returns it.
    pub(in crate::listener) fn write_certificate(folder: &Path) -> (ListenerTls, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { cert_file: folder.join("tls.crt"), key_file: folder.join("tls.key") };
        fs::write(&files.cert_file, made.cert.pem()).unwrap();
        fs::write(&files.key_file, made.signing_key.serialize_pem()).unwrap();
        (ListenerTls { files, client_certificates: false }, made.cert.der().clone())
    }

    fn shown(tls: &Tls) -> CertificateDer<'static> {
        tls.current.0.read().unwrap().cert[0].clone()
    }

    #[tokio::test]
    async fn a_certificate_is_replaced_when_both_files_fit() {
        let folder = tempfile::tempdir().unwrap();
        let (config, first) = write_certificate(folder.path());
        let mut tls = Tls::load(&config).await.unwrap();
        let files = config.files;
        assert_eq!(shown(&tls), first);
        let old_key = fs::read(&files.key_file).unwrap();
        let (_, second) = write_certificate(folder.path());
        let new_key = fs::read(&files.key_file).unwrap();
        fs::write(&files.key_file, old_key).unwrap();
        tls.reload_once().await;
        assert_eq!(shown(&tls), first);
        fs::write(&files.key_file, new_key).unwrap();
        tls.reload_once().await;
        assert_eq!(shown(&tls), second);
        fs::remove_file(&files.cert_file).unwrap();
        tls.reload_once().await;
        assert_eq!(shown(&tls), second);
    }

    #[tokio::test]
    async fn a_missing_file_is_told_apart_from_a_wrong_one() {
        let folder = tempfile::tempdir().unwrap();
        let (config, _) = write_certificate(folder.path());
        fs::write(&config.files.key_file, "x").unwrap();
        assert!(matches!(Tls::load(&config).await.unwrap_err(), TlsError::Pem(PemError::Key { .. })));
        fs::remove_file(&config.files.key_file).unwrap();
        assert!(matches!(Tls::load(&config).await.unwrap_err(), TlsError::Read(_)));
    }
}
