//! A certificate and its key in files.

use std::{fmt, io, path::PathBuf};

/// PEM files of one server certificate. They may change while the gateway runs.
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

impl TlsFiles {
    /// Reads both files. They may be of two generations if they are replaced meanwhile: then they do not fit, and fit
    /// at the next try.
    ///
    /// # Errors
    /// One of the files cannot be read; the error names it.
    pub async fn read(&self) -> io::Result<TlsPem> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path)
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        Ok(TlsPem { cert: read(&self.cert_file).await?, key: read(&self.key_file).await? })
    }
}

impl fmt::Debug for TlsPem {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsPem").field("cert", &self.cert.len()).finish_non_exhaustive()
    }
}
