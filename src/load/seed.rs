//! The objects of a run: created before it and deleted after it, however it ended.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    channel::Channel,
    churn::{Churn, write},
    endpoint::Endpoint,
    failure::{ErrorKind, Failure},
    objects,
    profile::{ChurnResource, HttpVersion},
    read,
};
use crate::apimachinery::GroupVersionResource;

/// The number of concurrent writers.
const WRITERS: usize = 16;
/// The maximum time for one request.
const ASK_MAX: Duration = Duration::from_secs(30);
/// A new namespace refuses pods until its service account exists, and a server under load refuses some writes.
const TRIES: usize = 8;
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The maximum time for deleting the objects.
const CLEAN_UP_MAX: Duration = Duration::from_secs(300);

/// Creates the run's namespace, and in it the objects of all `churns`. Ends early when `stop` is cancelled.
pub(super) async fn fill(
    endpoint: &Arc<Endpoint>,
    run: &str,
    churns: &[Arc<Churn>],
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let channel = Channel::new(endpoint.clone(), HttpVersion::Http1);
    let namespace = Bytes::from(objects::namespace(run).to_string());
    let body = Some(("application/json", namespace));
    again(|| write(&channel, Method::POST, "/api/v1/namespaces", body.clone())).await?;
    for churn in churns {
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (churn, endpoint, stop) = (churn.clone(), endpoint.clone(), stop.clone());
            writers.spawn(async move {
                let channel = Channel::new(endpoint, HttpVersion::Http1);
                while !stop.is_cancelled() {
                    let Some(index) = churn.next_seed() else { break };
                    again(|| churn.create(&channel, index)).await?;
                }
                Ok::<_, Failure>(())
            });
        }
        // If a writer fails, dropping the set ends the others.
        while let Some(written) = writers.join_next().await {
            written.unwrap_or(Ok(()))?;
        }
    }
    Ok(())
}

/// Deletes all objects of the run by its label; an object that is already gone is not an error.
///
/// # Errors
/// Some objects may be left.
pub(super) async fn clean_up(endpoint: &Arc<Endpoint>, run: &str) -> Result<(), Failure> {
    let deleted = async {
        let channel = Channel::new(endpoint.clone(), HttpVersion::Http1);
        let selector = format!("labelSelector={}%3D{run}", objects::RUN.replace('/', "%2F"));
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        for resource in [ChurnResource::Pods.resource(), ChurnResource::ConfigMaps.resource(), namespaces] {
            let paths = again(|| read::labelled(&channel, &resource, &selector)).await?;
            delete(endpoint, paths.unwrap_or_default()).await?;
        }
        Ok(())
    };
    timeout(CLEAN_UP_MAX, deleted).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

async fn delete(endpoint: &Arc<Endpoint>, paths: Vec<String>) -> Result<(), Failure> {
    let mut writers = JoinSet::new();
    let share = paths.len().div_ceil(WRITERS).max(1);
    for paths in paths.chunks(share).map(<[String]>::to_vec) {
        let channel = Channel::new(endpoint.clone(), HttpVersion::Http1);
        writers.spawn(async move {
            for path in paths {
                again(|| write(&channel, Method::DELETE, &path, None)).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Tries several times. `None` for 404, when an object to delete is already gone, and for 409, when an object to create
/// already exists.
async fn again<T, F>(mut ask: impl FnMut() -> F) -> Result<Option<T>, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut tries = 1;
    loop {
        let answer = timeout(ASK_MAX, ask()).await.unwrap_or_else(|_| Err(Failure::timeout()));
        match answer {
            Err(Failure { kind: ErrorKind::Status(404 | 409), .. }) => return Ok(None),
            Err(failure) if tries == TRIES => return Err(failure),
            Err(_) => sleep(TRY_AGAIN).await,
            Ok(answer) => return Ok(Some(answer)),
        }
        tries += 1;
    }
}
