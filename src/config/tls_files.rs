//! Certificates and keys in files, which may change while the gateway runs.

use std::{fmt, io, path::PathBuf};

/// A file with certificates in PEM: the authorities that somebody is verified against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile(pub PathBuf);

/// PEM files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its intermediates.
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// What the files held.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPem {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

impl PemFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read; the error names it.
    pub async fn read(&self) -> io::Result<Vec<u8>> {
        tokio::fs::read(&self.0)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.0.display())))
    }
}

impl TlsFiles {
    /// Reads both files. They may be of two generations if they are replaced meanwhile: then they do not fit, and fit
    /// at the next try.
    ///
    /// # Errors
    /// One of the files cannot be read; the error names it.
    pub async fn read(&self) -> io::Result<TlsPem> {
        let read = async |path: &PathBuf| PemFile(path.clone()).read().await;
        Ok(TlsPem { cert: read(&self.cert_file).await?, key: read(&self.key_file).await? })
    }
}

impl fmt::Debug for TlsPem {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsPem").field("cert", &self.cert.len()).finish_non_exhaustive()
    }
}
