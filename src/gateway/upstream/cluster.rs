//! Which cluster upstream belongs to, asked once for all tasks that need it at the same time, and what follows if it is
//! another one than before (the manual's chapter `consistency`, "A replaced cluster").

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{FetchError, Upstream, introduction::ClusterName};
use base::telemetry::Chain;

/// The namespace whose uid identifies a cluster: it exists in every cluster, and cannot be deleted.
const PATH: &str = "/api/v1/namespaces/kube-system";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Time limit of an answer. Callers go on without it.
const ANSWER_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Cluster {
    known: Mutex<Known>,
    /// What the last answer that told of it has shown, for readers that do not ask upstream.
    name: RwLock<Option<ClusterName>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The uid in the last answer that had one.
    uid: Option<Box<str>>,
    /// When the last question was sent, and its answer.
    asked: Option<(Instant, Option<Box<str>>)>,
}

impl Cluster {
    pub(super) fn name(&self) -> Option<ClusterName> {
        self.name.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is(&self, name: ClusterName) {
        *self.name.write().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }
}

impl Upstream {
    /// The uid of the namespace `kube-system`, requested no earlier than `since`; `None` if upstream does not tell it.
    /// If there is one address, and the uid is another one than before, the cluster was replaced.
    pub async fn cluster(&self, since: Instant) -> Option<Box<str>> {
        let came = Instant::now();
        let mut known = self.shared.cluster.known.lock().await;
        if let Some((at, uid)) = &known.asked
            && *at >= if uid.is_some() { since } else { came }
        {
            return uid.clone();
        }
        let at = Instant::now();
        let (uid, error) = match timeout(ANSWER_MAX, self.cluster_uid()).await {
            Ok(Ok(Some(uid))) => (Some(uid), String::new()),
            Ok(Ok(None)) => (None, "there is none".to_owned()),
            Ok(Err(error)) => (None, Chain(&error).to_string()),
            Err(_) => (None, format!("no answer within {ANSWER_MAX:?}")),
        };
        // Logged once, as long as nothing changes.
        if uid.is_none() && known.asked.as_ref().is_none_or(|(_, uid)| uid.is_some()) {
            tracing::warn!(
                error,
                "the uid of the namespace kube-system is not known: until it can be read (which needs the right to get \
                 it), a replaced cluster may go unnoticed, and peers are neither asked nor answered"
            );
        }
        known.asked = Some((at, uid.clone()));
        if let Some(now) = &uid {
            self.shared.cluster.is(ClusterName::of_uid(now));
            let before = known.uid.replace(now.clone()).filter(|before| before != now);
            // Several servers are told apart and judged by their checks.
            if let (Some(before), None) = (before, self.shared.connector.servers()) {
                tracing::warn!(%before, %now, "the cluster was replaced; all caches are given up");
                self.replaced();
            }
        }
        uid
    }

    /// Finds out whether the cluster behind the only address was replaced, by a question no earlier than `since`.
    pub(super) async fn look_for_another_cluster(&self, since: Instant) {
        if self.shared.connector.servers().is_none() {
            self.cluster(since).await;
        }
    }

    /// Records that the cluster was replaced: no answer to an earlier request is used any more.
    fn replaced(&self) {
        self.shared.connector.break_all();
        // At the end: what was requested on a connection that is broken now, is from before.
        self.shared.storage.replaced();
    }

    async fn cluster_uid(&self) -> Result<Option<Box<str>>, FetchError> {
        #[derive(Deserialize)]
        struct Document {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: Box<str>,
        }
        let Some(document) = self.fetch(PATH, METADATA).await? else { return Ok(None) };
        let Document { metadata } = serde_json::from_slice(&document)
            .map_err(|source| FetchError::Malformed { path: PATH.to_owned(), source })?;
        Ok(Some(metadata.uid))
    }
}
