//! The objects of a run: created before it and deleted after it, however it ended.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    channel::Channel,
    churn::{Churn, write},
    endpoint::Endpoint,
    failure::{ErrorKind, Failure},
    objects,
    profile::{ChurnResource, HttpVersion},
    read,
};
use base::apimachinery::GroupVersionResource;

/// The number of concurrent writers.
const WRITERS: usize = 16;
/// The maximum time for one request.
const ASK_MAX: Duration = Duration::from_secs(30);
/// A new namespace refuses pods until its service account exists, and a server under load refuses some writes.
const TRIES: usize = 8;
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The maximum time for deleting the objects of each kind, and how much longer it is for each object.
const CLEAN_UP_MAX: Duration = Duration::from_secs(300);
const CLEAN_UP_EACH: Duration = Duration::from_millis(2);
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
/// The number of objects that are listed, and then deleted, at a time.
const PAGE: usize = 5_000;

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
    again(&[CONFLICT], || write(&channel, Method::POST, "/api/v1/namespaces", body.clone())).await?;
    for churn in churns {
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (churn, endpoint, stop) = (churn.clone(), endpoint.clone(), stop.clone());
            writers.spawn(async move {
                let channel = Channel::new(endpoint, HttpVersion::Http1);
                while !stop.is_cancelled() {
                    let Some(index) = churn.next_seed() else { break };
                    again(&[CONFLICT], || churn.create(&channel, index)).await?;
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

/// Deletes all objects of the run by its label; an object that is already gone is not an error. `objects`: about how
/// many there are.
///
/// # Errors
/// Some objects may be left.
pub(super) async fn clean_up(endpoint: &Arc<Endpoint>, run: &str, objects: usize) -> Result<(), Failure> {
    let selector = format!("labelSelector={}%3D{run}", objects::RUN.replace('/', "%2F"));
    let limit = CLEAN_UP_MAX + CLEAN_UP_EACH * u32::try_from(objects).unwrap_or(u32::MAX);
    let writers: Vec<_> = (0..WRITERS).map(|_| Arc::new(Channel::new(endpoint.clone(), HttpVersion::Http1))).collect();
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    let mut cleaned = Ok(());
    // The namespace also if an object of it is left: a controller of namespaces then deletes that.
    for resource in [ChurnResource::Pods.resource(), ChurnResource::ConfigMaps.resource(), namespaces] {
        let deleted = timeout(limit, delete_all(&writers, &resource, &selector)).await;
        let deleted = deleted.unwrap_or_else(|_| Err(Failure::timeout()));
        let is_gone = deleted.as_ref().is_err_and(|failure| failure.kind == ErrorKind::Connect);
        cleaned = cleaned.and(deleted);
        if is_gone {
            break;
        }
    }
    cleaned
}

/// Deletes page by page: the names of a million objects cannot be listed within the time of one request.
async fn delete_all(writers: &[Arc<Channel>], resource: &GroupVersionResource, selector: &str) -> Result<(), Failure> {
    let Some(first) = writers.first() else { return Ok(()) };
    let mut last = Vec::new();
    // A namespace is listed until all that is in it is gone, and refuses to be deleted meanwhile.
    let is_slow = &*resource.resource == "namespaces";
    let accepted: &'static [u16] = if is_slow { &[NOT_FOUND, CONFLICT] } else { &[NOT_FOUND] };
    loop {
        let page = again(&[], || read::labelled(first, resource, selector, PAGE)).await?.unwrap_or_default();
        if page.is_empty() || page == last && is_slow {
            return Ok(());
        }
        if page == last {
            let message = format!("{} objects are still listed after their deletion", page.len());
            return Err(Failure::of(ErrorKind::Timeout, message));
        }
        delete(writers, &page, accepted).await?;
        last = page;
    }
}

async fn delete(channels: &[Arc<Channel>], paths: &[String], accepted: &'static [u16]) -> Result<(), Failure> {
    let mut writers = JoinSet::new();
    let share = paths.len().div_ceil(WRITERS).max(1);
    for (paths, channel) in paths.chunks(share).map(<[String]>::to_vec).zip(channels.iter().cloned()) {
        writers.spawn(async move {
            for path in paths {
                again(accepted, || write(&channel, Method::DELETE, &path, None)).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Tries several times. `None` for an accepted status: an object to delete is already gone, or one to create exists.
async fn again<T, F>(accepted: &[u16], mut ask: impl FnMut() -> F) -> Result<Option<T>, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut tries = 1;
    loop {
        let answer = timeout(ASK_MAX, ask()).await.unwrap_or_else(|_| Err(Failure::timeout()));
        match answer {
            Err(Failure { kind: ErrorKind::Status(code), .. }) if accepted.contains(&code) => return Ok(None),
            Err(failure) if tries == TRIES => return Err(failure),
            Err(_) => sleep(TRY_AGAIN).await,
            Ok(answer) => return Ok(Some(answer)),
        }
        tries += 1;
    }
}
