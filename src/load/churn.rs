//! Writes: updates, creations and deletions of objects that the run itself created.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::Method;
use tokio::time::Instant;

use super::{
    channel::Channel, endpoint::RequestSpec, failure::Failure, objects, paths, profile::ChurnWork, read::Counted,
    recorder::now,
};

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The writes of one workload, and the objects that they change.
#[derive(Debug)]
pub(super) struct Churn {
    work: ChurnWork,
    run: String,
    /// The prefix of the objects' names.
    prefix: String,
    /// The number of the next object to create.
    next: AtomicUsize,
    /// The names of objects that exist besides those that are updated, the oldest first. Deletions take the first.
    temporary: Mutex<VecDeque<String>>,
}

enum Write {
    Update,
    Create,
    Delete,
}

impl Churn {
    pub(super) fn new(work: &ChurnWork, run: &str, number: usize) -> Self {
        let (work, run) = (work.clone(), run.to_owned());
        Self { prefix: format!("load-{number}"), next: AtomicUsize::new(0), work, run, temporary: Mutex::default() }
    }

    /// The next object to create before the run; `None` if all exist.
    pub(super) fn next_seed(&self) -> Option<usize> {
        let next = self.next.fetch_update(Relaxed, Relaxed, |next| (next < self.work.objects).then_some(next + 1));
        next.ok()
    }

    /// How many objects have been created, or are being created.
    pub(super) fn created(&self) -> usize {
        self.next.load(Relaxed)
    }

    /// Sends write number `number`.
    pub(super) async fn send(&self, channel: &Channel, number: u64) -> Result<Counted, Failure> {
        match self.kind(number) {
            Write::Update => {
                let name = self.name(usize::try_from(number).unwrap_or_default() % self.work.objects);
                let body = Bytes::from(objects::change(now()).to_string());
                write(channel, Method::PATCH, &self.path(&name), Some((MERGE_PATCH, body))).await
            }
            Write::Create => {
                let index = self.next.fetch_add(1, Relaxed);
                let counted = self.create(channel, index).await?;
                self.temporary().push_back(self.name(index));
                Ok(counted)
            }
            Write::Delete => {
                let name = self.temporary().pop_front();
                match name {
                    Some(name) => write(channel, Method::DELETE, &self.path(&name), None).await,
                    // The creation failed, or has not finished.
                    None => Box::pin(self.send(channel, 0)).await,
                }
            }
        }
    }

    /// Updates first, then creations, then deletions, repeatedly.
    fn kind(&self, number: u64) -> Write {
        let ChurnWork { updates, creates, deletes, .. } = self.work;
        let place = usize::try_from(number).unwrap_or_default() % (updates + creates + deletes);
        if place < updates {
            Write::Update
        } else if place < updates + creates {
            Write::Create
        } else {
            Write::Delete
        }
    }

    /// Creates object `index`.
    pub(super) async fn create(&self, channel: &Channel, index: usize) -> Result<Counted, Failure> {
        let object = objects::object(&self.work, &self.run, &self.name(index), index, now());
        write(channel, Method::POST, &self.collection(), Some((JSON, Bytes::from(object.to_string())))).await
    }

    fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.prefix)
    }

    fn path(&self, name: &str) -> String {
        paths::object(&self.work.resource.resource(), Some(&objects::namespace_name(&self.run)), name)
    }

    fn collection(&self) -> String {
        paths::collection(&self.work.resource.resource(), Some(&objects::namespace_name(&self.run)))
    }

    fn temporary(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn write(
    channel: &Channel,
    method: Method,
    path: &str,
    body: Option<(&'static str, Bytes)>,
) -> Result<Counted, Failure> {
    let answer = channel.whole(&RequestSpec { method, body, ..RequestSpec::get(path) }).await?;
    Ok(Counted { first_byte: Instant::now(), bytes: answer.len() as u64 })
}
