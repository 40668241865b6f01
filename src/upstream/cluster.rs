//! Which cluster upstream belongs to.

use serde::Deserialize;

use super::{FetchError, Upstream};

/// The namespace whose uid identifies a cluster: it exists in every cluster, and cannot be deleted.
const PATH: &str = "/api/v1/namespaces/kube-system";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

impl Upstream {
    /// The uid of the namespace `kube-system`; `None` if there is none.
    ///
    /// # Errors
    /// Upstream's response is not as expected.
    pub async fn cluster_uid(&self) -> Result<Option<Box<str>>, FetchError> {
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
