//! Client certificates at the TLS layer: requested, and checked for possession of the key, but not verified.
//!
//! A certificate from an unknown authority does not fail the handshake: like the API server, the gateway answers such a
//! client as unauthenticated. [`crate::authn`] decides for each request whether to trust the certificate, so that a
//! resumed session, which keeps its certificate, gains nothing by it.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use crate::listener::ClientCertificate;

/// Accepts any certificate whose key the client holds.
#[derive(Debug)]
pub(super) struct AnyAuthority {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyAuthority {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyAuthority {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The client certificate of a session; `None` if the client sent none. DER certificates are self-delimiting, so that
/// no two chains have the same bytes.
pub(super) fn client_certificate(chain: Option<&[CertificateDer<'static>]>) -> Option<Arc<ClientCertificate>> {
    let chain = chain.filter(|chain| !chain.is_empty())?;
    let mut digest = Context::new(&SHA256);
    for certificate in chain {
        digest.update(certificate);
    }
    let fingerprint = digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
    Some(Arc::new(ClientCertificate { chain: chain.to_vec(), fingerprint }))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::{io, path::Path};

    use rustls::{
        ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion,
        client::{ResolvesClientCert, Resumption},
        crypto::aws_lc_rs,
        pki_types::ServerName,
        sign::CertifiedKey,
        version::{TLS12, TLS13},
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::TlsConnector;

    use crate::listener::tls::{Tls, tests::write_certificate};
    use base::config::{ListenerTls, TlsFiles};

    /// Presents the given certificate, if any.
    #[derive(Debug)]
    struct Shows(Option<Arc<CertifiedKey>>);

    impl ResolvesClientCert for Shows {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            self.0.clone()
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    /// A server that requests client certificates, and the roots for its own.
    struct Server {
        tls: Tls,
        roots: RootCertStore,
    }

    impl Server {
        async fn new(folder: &Path) -> Self {
            let (config, certificate) = write_certificate(folder);
            let tls = Tls::load(&ListenerTls { client_certificates: true, ..config }).await.unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(certificate).unwrap();
            Self { tls, roots }
        }

        fn client(&self, version: &'static SupportedProtocolVersion, shows: Option<CertifiedKey>) -> Arc<ClientConfig> {
            let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(self.roots.clone())
                .with_client_cert_resolver(Arc::new(Shows(shows.map(Arc::new))));
            config.resumption = Resumption::in_memory_sessions(8);
            Arc::new(config)
        }

        /// The client certificate that the gateway sees, and the kind of handshake.
        async fn accept(
            &self,
            client: &Arc<ClientConfig>,
        ) -> io::Result<(Option<Arc<ClientCertificate>>, HandshakeKind)> {
            let (near, far) = duplex(1 << 16);
            let name = ServerName::try_from("localhost").unwrap();
            let connector = TlsConnector::from(client.clone());
            let accept = async {
                let mut stream = self.tls.acceptor().accept(far).await?;
                let session = stream.get_ref().1;
                let seen = (client_certificate(session.peer_certificates()), session.handshake_kind().unwrap());
                // Session tickets are sent with the first bytes.
                stream.write_all(b"x").await?;
                Ok(seen)
            };
            let connect = async {
                let mut stream = connector.connect(name, near).await?;
                stream.read_u8().await
            };
            let (seen, _) = tokio::join!(accept, connect);
            seen
        }
    }

    fn made(folder: &Path) -> CertifiedKey {
        let (config, _) = write_certificate(folder);
        let TlsFiles { cert_file, key_file } = &config.files;
        let [cert, key] = [cert_file, key_file].map(|file| std::fs::read(file).unwrap());
        config.files.certified_key(&base::config::TlsPem { cert, key }).unwrap()
    }

    fn of(certified: &CertifiedKey) -> Option<Arc<ClientCertificate>> {
        client_certificate(Some(&certified.cert))
    }

    #[tokio::test]
    async fn certificates_of_any_authority_are_accepted_and_none_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(folder.path()).await;
        let own = made(folder.path());
        for version in [&TLS12, &TLS13] {
            let client = server.client(version, Some(own.clone()));
            assert_eq!(server.accept(&client).await.unwrap(), (of(&own), HandshakeKind::Full));
            let client = server.client(version, None);
            assert_eq!(server.accept(&client).await.unwrap(), (None, HandshakeKind::Full));
        }
    }

    #[tokio::test]
    async fn a_certificate_without_its_key_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(folder.path()).await;
        let (own, other) = (made(folder.path()), made(folder.path()));
        let forged = CertifiedKey::new(other.cert.clone(), own.key.clone());
        for version in [&TLS12, &TLS13] {
            assert!(server.accept(&server.client(version, Some(forged.clone()))).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_resumed_session_keeps_its_own_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(folder.path()).await;
        let (one, two) = (made(folder.path()), made(folder.path()));
        for version in [&TLS12, &TLS13] {
            let clients = [Some(&one), Some(&two), None].map(|shows| (shows, server.client(version, shows.cloned())));
            for kind in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
                for (shows, client) in &clients {
                    assert_eq!(server.accept(client).await.unwrap(), (shows.and_then(of), kind), "{version:?}");
                }
            }
        }
    }

    #[test]
    fn the_fingerprint_is_of_the_whole_chain() {
        let [one, two] = [&[48, 0][..], &[48, 1, 0]].map(|der| CertificateDer::from(der.to_vec()));
        let fingerprint = |chain: &[CertificateDer<'static>]| client_certificate(Some(chain)).map(|of| of.fingerprint);
        assert_ne!(fingerprint(&[one.clone(), two.clone()]), fingerprint(std::slice::from_ref(&one)));
        assert_ne!(fingerprint(&[one.clone(), two.clone()]), fingerprint(&[two, one]));
        assert_eq!(fingerprint(&[]), None);
    }
}
