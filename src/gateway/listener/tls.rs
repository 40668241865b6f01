//! The TLS certificate of a listener: loaded at the start, reloaded when its files change.

use std::{
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

use crate::listener::client_auth::AnyAuthority;
use base::config::{ListenerTls, PemError, TlsFiles, TlsPem};
use base::telemetry::{self, Chain};

/// Why TLS cannot be used on a listener.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate")]
    Read(#[source] io::Error),
    #[error("cannot use the certificate")]
    Pem(#[source] PemError),
    #[error("no TLS version is enabled")]
    Versions(#[source] rustls::Error),
}

/// The TLS configuration of one listener.
#[derive(Debug)]
pub(super) struct Tls {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    files: TlsFiles,
    seen: TlsPem,
}

/// How often the files are read. Certificates are replaced much less often, and hours before they expire.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

impl Tls {
    pub(super) async fn load(config: &ListenerTls) -> Result<Self, TlsError> {
        let files = &config.files;
        let seen = files.read().await.map_err(TlsError::Read)?;
        let current = Arc::new(Current(RwLock::new(certified(files, &seen)?)));
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| config.policy.takes(*suite));
        let provider = Arc::new(provider);
        let any_authority = Arc::new(AnyAuthority::new(&provider));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(config.policy.versions())
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

    /// Reloads the certificate when its files change. Never returns; runs until the future is dropped.
    pub(super) async fn reload(mut self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            self.reload_once().await;
        }
    }

    /// Files that cannot be used leave the certificate as it is, and are tried again when they have changed.
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
            Err(error) => tracing::warn!(%file, error = %Chain(&error), "certificate not replaced"),
        }
    }
}

/// ALPN protocol id of HTTP/2.
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

fn certified(files: &TlsFiles, pem: &TlsPem) -> Result<Arc<CertifiedKey>, TlsError> {
    files.certified_key(pem).map(Arc::new).map_err(TlsError::Pem)
}

/// The certificate for new handshakes.
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
    use rustls::{
        CipherSuite, ClientConfig, RootCertStore, SupportedProtocolVersion,
        pki_types::{CertificateDer, ServerName},
        version::{TLS12, TLS13},
    };
    use std::{fs, path::Path};
    use tokio_rustls::TlsConnector;

    use base::config::{TlsPolicy, TlsVersion};

    /// Writes a self-signed certificate for `localhost` and returns it.
    pub(in crate::listener) fn write_certificate(folder: &Path) -> (ListenerTls, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { cert_file: folder.join("tls.crt"), key_file: folder.join("tls.key") };
        fs::write(&files.cert_file, made.cert.pem()).unwrap();
        fs::write(&files.key_file, made.signing_key.serialize_pem()).unwrap();
        (ListenerTls { files, policy: TlsPolicy::default(), client_certificates: false }, made.cert.der().clone())
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

    /// The cipher suite of a session with a client that speaks this version only. `None` if the handshake fails.
    async fn negotiated(
        (config, certificate): &(ListenerTls, CertificateDer<'static>),
        version: &'static SupportedProtocolVersion,
    ) -> Option<CipherSuite> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = Tls::load(config).await.unwrap().acceptor();
        let connector = TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, _connected) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        accepted.ok()?.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    #[tokio::test]
    async fn sessions_have_the_versions_and_suites_of_the_policy() {
        use CipherSuite::{
            TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 as OLD, TLS13_CHACHA20_POLY1305_SHA256 as NEW,
        };
        let folder = tempfile::tempdir().unwrap();
        let (config, certificate) = write_certificate(folder.path());
        let with = |min_version, suites: Option<&[CipherSuite]>| {
            let policy = TlsPolicy { min_version, cipher_suites: suites.map(<[_]>::to_vec) };
            (ListenerTls { policy, ..config.clone() }, certificate.clone())
        };
        let all = with(TlsVersion::Tls12, None);
        assert!(negotiated(&all, &TLS12).await.is_some() && negotiated(&all, &TLS13).await.is_some());
        let newest = with(TlsVersion::Tls13, None);
        assert_eq!(negotiated(&newest, &TLS12).await, None);
        assert!(negotiated(&newest, &TLS13).await.is_some());
        let both = with(TlsVersion::Tls12, Some(&[OLD, NEW]));
        assert_eq!((negotiated(&both, &TLS12).await, negotiated(&both, &TLS13).await), (Some(OLD), Some(NEW)));
        let one = with(TlsVersion::Tls12, Some(&[NEW]));
        assert_eq!((negotiated(&one, &TLS12).await, negotiated(&one, &TLS13).await), (None, Some(NEW)));
    }

    #[tokio::test]
    async fn a_missing_file_and_an_invalid_one_are_different_errors() {
        let folder = tempfile::tempdir().unwrap();
        let (config, _) = write_certificate(folder.path());
        fs::write(&config.files.key_file, "x").unwrap();
        assert!(matches!(Tls::load(&config).await.unwrap_err(), TlsError::Pem(PemError::Key { .. })));
        fs::remove_file(&config.files.key_file).unwrap();
        assert!(matches!(Tls::load(&config).await.unwrap_err(), TlsError::Read(_)));
    }
}
