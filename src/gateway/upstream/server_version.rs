//! The API server's version, requested once for all tasks that need it at the same time.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::Upstream;

pub(super) const PATH: &str = "/version";
/// Time limit of an answer. Callers go on without it.
const ANSWER_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct ServerVersion {
    asked: Mutex<Option<Asked>>,
    /// That of the last answer that had one, for readers that do not ask upstream.
    last: RwLock<Option<String>>,
}

/// The last answer.
#[derive(Debug)]
struct Asked {
    at: Instant,
    version: Option<String>,
    /// The request failed: tasks that were waiting for it get no version, later ones ask again.
    failed: bool,
}

/// The fields that decide how objects are written. Servers of one control plane may differ in others, such as the
/// platform.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    git_version: String,
    #[serde(default)]
    git_commit: String,
    /// A newer server may emulate an older version (KEP-4330).
    #[serde(default)]
    emulation_major: String,
    #[serde(default)]
    emulation_minor: String,
}

impl ServerVersion {
    /// The version that upstream last reported, as [`parse`] reads it; `None` if it has not answered yet.
    pub(super) fn last(&self) -> Option<String> {
        self.last.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Upstream {
    /// The version that upstream reports, asked for no earlier than `since`; `None` if it reports none. When a break
    /// ends the watches of all resources, they share one request.
    pub(super) async fn server_version(&self, since: Instant) -> Option<String> {
        let came = Instant::now();
        let mut last = self.shared.server_version.asked.lock().await;
        if let Some(last) = &*last
            && last.at >= if last.failed { came } else { since }
        {
            return last.version.clone();
        }
        let at = Instant::now();
        let fetched = timeout(ANSWER_MAX, self.fetch(PATH, "application/json")).await;
        let (version, failed) = match fetched {
            Ok(Ok(document)) => (document.and_then(|document| parse(&document)), false),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read upstream's version");
                (None, true)
            }
            Err(_) => (None, true),
        };
        if let Some(version) = &version {
            self.note_version(version);
        }
        *last = Some(Asked { at, version: version.clone(), failed });
        version
    }

    /// The `gitVersion` of upstream's own code as of now; `None` if it reports none, or emulates another version.
    pub(super) async fn code_version(&self) -> Option<String> {
        let version = self.server_version(Instant::now()).await?;
        let mut parts = version.split(' ');
        let (git_version, _commit, emulated) = (parts.next()?, parts.next()?, parts.next()?);
        let is_own = emulated == "." || git_version.starts_with(&format!("v{emulated}."));
        is_own.then(|| git_version.to_owned())
    }

    /// Keeps a version that [`parse`] has read.
    pub(super) fn note_version(&self, version: &str) {
        *self.shared.server_version.last.write().unwrap_or_else(PoisonError::into_inner) = Some(version.to_owned());
    }

    /// The version that upstream last reported (`v1.36.0`); `None` if it has not answered yet.
    pub fn last_version(&self) -> Option<String> {
        self.shared.server_version.last().map(|version| version.split(' ').next().unwrap_or_default().to_owned())
    }
}

/// What a document says of the version; `None` if it is not that of an API server.
pub(super) fn parse(document: &[u8]) -> Option<String> {
    let Document { git_version, git_commit, emulation_major, emulation_minor } =
        serde_json::from_slice(document).ok()?;
    Some(format!("{git_version} {git_commit} {emulation_major}.{emulation_minor}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use futures_util::future::join_all;
    use http::{Request, Response};
    use hyper::body::Incoming;

    use super::*;
    use crate::connector::test_server::{TestServer, full};

    #[tokio::test]
    async fn one_version_request_serves_all_watches_that_broke_before_it() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let server =
            TestServer::start(move |_: Request<Incoming>| {
                let number = counted.fetch_add(1, SeqCst);
                async move {
                    Response::new(full(format!(r#"{{"gitVersion":"v1.{number}.0","platform":"linux/{number}"}}"#)))
                }
            })
            .await;
        let upstream = server.upstream();
        let broke = Instant::now();
        let all = join_all((0..50).map(|_| upstream.server_version(broke))).await;
        assert!(all.iter().all(|version| version.as_deref() == Some("v1.0.0  .")), "{all:?}");
        assert_eq!(asked.load(SeqCst), 1);
        assert_eq!(upstream.server_version(Instant::now()).await.as_deref(), Some("v1.1.0  ."));
    }

    #[tokio::test]
    async fn a_failure_is_not_remembered() {
        let asked = Arc::new(AtomicU32::new(0));
        let server = TestServer::start(move |_: Request<Incoming>| {
            let is_first = asked.fetch_add(1, SeqCst) == 0;
            let answer = Response::builder().status(if is_first { 503 } else { 200 });
            async move { answer.body(full(r#"{"gitVersion":"v1.2.0"}"#.to_owned())).unwrap() }
        })
        .await;
        let (upstream, broke) = (server.upstream(), Instant::now());
        assert_eq!(upstream.server_version(broke).await, None);
        assert_eq!(upstream.server_version(broke).await.as_deref(), Some("v1.2.0  ."));
    }

    #[tokio::test]
    async fn a_server_that_emulates_another_version_has_none_of_its_own() {
        for (document, expected) in [
            (r#"{"gitVersion":"v1.20.2"}"#, Some("v1.20.2")),
            (r#"{"gitVersion":"v1.36.2","gitCommit":"a","emulationMajor":"1","emulationMinor":"36"}"#, Some("v1.36.2")),
            (r#"{"gitVersion":"v1.36.2","gitCommit":"a","emulationMajor":"1","emulationMinor":"3"}"#, None),
            (r#"{"gitVersion":"v1.36.2","gitCommit":"a","emulationMajor":"1","emulationMinor":"35"}"#, None),
            ("{}", None),
        ] {
            let server =
                TestServer::start(move |_: Request<Incoming>| async move { Response::new(full(document.to_owned())) })
                    .await;
            assert_eq!(server.upstream().code_version().await.as_deref(), expected, "{document}");
        }
    }

    #[test]
    fn an_unreadable_version_is_none() {
        for document in ["", "{}", "404 page not found", "[]"] {
            assert_eq!(parse(document.as_bytes()), None, "{document}");
        }
    }
}
