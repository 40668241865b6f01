//! A bearer token in a file, as client-go reads it: without white space at its ends, and again from time to time, since
//! tokens of service accounts are replaced.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use kube_client::config::AuthInfo;
use tokio::time::Instant;

use crate::config::fields::unexpanded;

/// How long a token is used without reading its file again: client-go's minute, less its leeway.
const USE_MAX: Duration = Duration::from_secs(50);

/// The value of the header `Authorization` for a token in a file. Clones share it.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    read: Arc<Mutex<Read>>,
}

struct Read {
    header: HeaderValue,
    at: Instant,
}

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {}{}", path.display(), unexpanded(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: no token, the file is empty", .0.display())]
    Empty(PathBuf),
    #[error("{}: not a token (line break in it)", .0.display())]
    LineBreak(PathBuf),
    #[error("{}: not a token (control character in it)", .0.display())]
    Control(PathBuf),
}

impl TokenFile {
    /// Reads the file. Blocking.
    ///
    /// # Errors
    /// It has no token that a header can carry.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let read = Read { header: header(path)?, at: Instant::now() };
        Ok(Self { path: path.to_owned(), read: Arc::new(Mutex::new(read)) })
    }

    /// Takes the token file out of credentials that use it; kube-client, which does not trim its content, must not read
    /// it. `None` if they have other means, which take precedence, or no file.
    ///
    /// # Errors
    /// The file has no token.
    pub fn taken(identity: &mut AuthInfo) -> Result<Option<Self>, TokenFileError> {
        let is_basic = identity.username.is_some() && identity.password.is_some();
        if is_basic || identity.auth_provider.is_some() || identity.token.is_some() {
            return Ok(None);
        }
        let Some(path) = identity.token_file.take() else { return Ok(None) };
        // It would otherwise run in place of the file.
        identity.exec = None;
        Self::read(Path::new(&path)).map(Some)
    }

    /// The header's value, read again if it is old. A file that is gone or has no token leaves the last one in use, as
    /// in client-go.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.header_at(Instant::now())
    }

    fn header_at(&self, now: Instant) -> HeaderValue {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(read.at) >= USE_MAX {
            if let Ok(header) = header(&self.path) {
                read.header = header;
            }
            read.at = now;
        }
        read.header.clone()
    }
}

fn header(path: &Path) -> Result<HeaderValue, TokenFileError> {
    let content = fs::read_to_string(path).map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
    let token = content.trim();
    if token.is_empty() {
        return Err(TokenFileError::Empty(path.to_owned()));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
        let fault = if token.contains(['\n', '\r']) { TokenFileError::LineBreak } else { TokenFileError::Control };
        fault(path.to_owned())
    })?;
    header.set_sensitive(true);
    Ok(header)
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_around_a_token_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tok");
        let told = |content: &str| {
            fs::write(&path, content).unwrap();
            let error = TokenFile::read(&path).map(|file| file.header()).unwrap_err().to_string();
            error.replace(path.to_str().unwrap(), "tok")
        };
        for empty in ["", " \n"] {
            assert_eq!(told(empty), "tok: no token, the file is empty");
        }
        assert_eq!(told("SECRET\nSECRET\n"), "tok: not a token (line break in it)");
        assert_eq!(told("SECRET\0SECRET"), "tok: not a token (control character in it)");
        for content in ["made", "made\n", " made\r\n\n", "\tmade "] {
            fs::write(&path, content).unwrap();
            assert_eq!(TokenFile::read(&path).unwrap().header(), "Bearer made", "{content:?}");
        }
        assert!(TokenFile::read(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn a_token_is_reread_and_kept_while_the_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tok");
        fs::write(&path, "one\n").unwrap();
        let (file, start) = (TokenFile::read(&path).unwrap(), Instant::now());
        fs::write(&path, "two\n").unwrap();
        assert_eq!(file.header_at(start), "Bearer one");
        assert_eq!(file.header_at(start + USE_MAX), "Bearer two");
        for content in ["", "a\nb"] {
            fs::write(&path, content).unwrap();
            assert_eq!(file.header_at(start + USE_MAX * 3), "Bearer two");
        }
    }
}
