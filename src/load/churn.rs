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

use crate::{
    channel::Channel,
    endpoint::RequestSpec,
    failure::Failure,
    objects, paths,
    profile::{ChurnResource, ChurnWork},
    read::Counted,
    recorder::now,
};
use base::apimachinery::GroupVersionResource;

const JSON: &str = "application/json";
/// The maximum number of writes whose events are waited for at the end of a turn.
const WRITTEN_MAX: usize = 1 << 20;
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
    /// The times of the turn's writes that the server has acknowledged, and whose events a watch of their object cannot
    /// miss, and the number of the object: the newest [`WRITTEN_MAX`].
    written: Mutex<VecDeque<(u64, usize)>>,
}

enum Write {
    Update,
    Create,
    Delete,
}

impl Churn {
    pub(super) fn new(work: &ChurnWork, run: &str, number: usize) -> Self {
        let (work, run) = (work.clone(), run.to_owned());
        let (next, prefix) = (AtomicUsize::new(0), format!("load-{number}"));
        Self { prefix, next, work, run, temporary: Mutex::default(), written: Mutex::default() }
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
                let index = usize::try_from(number).unwrap_or_default() % self.work.objects;
                let (name, sent) = (self.name(index), now());
                let body = Bytes::from(objects::change(&self.run, sent).to_string());
                let counted = write(channel, Method::PATCH, &self.path(&name), Some((MERGE_PATCH, body))).await?;
                self.acknowledged(sent, index);
                Ok(counted)
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
        let sent = now();
        let object = objects::object(&self.work, &self.run, &self.name(index), index, sent);
        let body = Some((JSON, Bytes::from(object.to_string())));
        let counted = write(channel, Method::POST, &self.collection(), body).await?;
        // A watch that is opened again does not show an object that was deleted meanwhile.
        if self.work.deletes == 0 {
            self.acknowledged(sent, index);
        }
        Ok(counted)
    }

    pub(super) fn resource(&self) -> GroupVersionResource {
        self.work.resource.resource()
    }

    /// Forgets the writes of the turns before.
    pub(super) fn begin(&self) {
        self.written().clear();
    }

    /// The times of the writes of this turn whose events every watch of their object has to receive, and the number of
    /// the object.
    pub(super) fn writes(&self) -> Vec<(u64, usize)> {
        self.written().iter().copied().collect()
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn namespace(&self) -> String {
        objects::namespace_name(&self.run)
    }

    pub(super) fn writes_pods(&self) -> bool {
        self.work.resource == ChurnResource::Pods
    }

    /// The number of nodes that have its pods.
    pub(super) fn nodes(&self) -> usize {
        self.work.nodes
    }

    /// The number of the node to which an object is bound; `None` if it is bound to none.
    pub(super) fn node_of(&self, index: usize) -> Option<usize> {
        index.checked_rem(self.nodes()).filter(|_| self.writes_pods())
    }

    /// The number of the object with that name; `None` if it never writes such an object.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        objects::number(name.strip_prefix(&self.prefix)?.strip_prefix('-')?)
    }

    fn acknowledged(&self, sent: u64, index: usize) {
        let mut written = self.written();
        if written.len() == WRITTEN_MAX {
            written.pop_front();
        }
        written.push_back((sent, index));
    }

    fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.prefix)
    }

    fn path(&self, name: &str) -> String {
        paths::object(&self.resource(), Some(&self.namespace()), name)
    }

    fn collection(&self) -> String {
        paths::collection(&self.resource(), Some(&self.namespace()))
    }

    fn written(&self) -> MutexGuard<'_, VecDeque<(u64, usize)>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
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
