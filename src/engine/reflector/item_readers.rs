//! Parses the items of a list on all cores while further items arrive.

use std::{error::Error, mem, sync::Arc};

use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};

use super::{Failure, FillSource};
use crate::store::{Claim, Object, Objects, ReadError, Schema};
use base::{apimachinery::Encoding, telemetry::Chain};

/// The number of bytes that are parsed without yielding to other tasks: less than a millisecond of work.
const BATCH_BYTES: usize = 256 << 10;

/// The objects of a batch, or why one of its items cannot be used.
type Batch = Result<Vec<Arc<Object>>, ReadError>;

/// Parses items into objects. The items waiting to be parsed take no more memory than the list, which is kept anyway.
#[derive(Debug)]
pub(super) struct ItemReaders {
    schema: Arc<Schema>,
    /// Who sends the items, for the log.
    source: FillSource,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// The running batches. They are aborted when this is dropped.
    batches: JoinSet<Batch>,
    /// Those of the batches that have ended.
    objects: Vec<Arc<Object>>,
    claim: Claim,
    /// The items, and the bytes of them, that are not claimed.
    unclaimed: (usize, usize),
}

impl ItemReaders {
    pub(super) fn new(schema: Arc<Schema>, source: FillSource) -> Self {
        let (batch, batches, objects, unclaimed) = Default::default();
        let claim = schema.budget().claim();
        Self { schema, source, batch, batch_bytes: 0, batches, objects, claim, unclaimed }
    }

    pub(super) fn take(&mut self, item: Bytes) {
        self.batch_bytes += item.len();
        self.unclaimed = (self.unclaimed.0 + 1, self.unclaimed.1 + item.len());
        self.batch.push(item);
        if self.batch_bytes >= BATCH_BYTES {
            self.read_batch();
        }
    }

    /// Waits for room for the items. Fails if there is none, or if an item that was parsed by now cannot be used. The
    /// list must not be read further then.
    pub(super) async fn check(&mut self) -> Result<(), Failure> {
        let (items, bytes) = mem::take(&mut self.unclaimed);
        self.claim.add(items, bytes).await?;
        while let Some(batch) = self.batches.try_join_next() {
            self.add(batch)?;
        }
        Ok(())
    }

    fn read_batch(&mut self) {
        let (schema, batch) = (self.schema.clone(), mem::take(&mut self.batch));
        self.batch_bytes = 0;
        self.batches.spawn(async move { batch.into_iter().map(|item| read(item, &schema)).collect() });
    }

    /// All objects.
    pub(super) async fn objects(mut self) -> Result<Objects, Failure> {
        self.read_batch();
        self.check().await?;
        while let Some(batch) = self.batches.join_next().await {
            self.add(batch)?;
        }
        let objects = Objects::new(mem::take(&mut self.objects)).map_err(|error| self.refuse(&error))?;
        Ok(objects.with_claim(self.claim))
    }

    fn add(&mut self, batch: Result<Batch, JoinError>) -> Result<(), Failure> {
        let batch = batch.map_err(|_| Failure::Malformed)?;
        self.objects.extend(batch.map_err(|error| self.refuse(&error))?);
        Ok(())
    }

    /// Logs why the list cannot be used: once, since the caller reads it no further.
    fn refuse(&self, error: &(dyn Error + 'static)) -> Failure {
        let error = Chain(error);
        match self.source {
            FillSource::Upstream | FillSource::Above => tracing::warn!(%error, "cannot use upstream's list"),
            FillSource::Peer => tracing::warn!(%error, "cannot use a peer's list"),
            // What is kept is no list.
            FillSource::Kept => {}
        }
        Failure::Malformed
    }
}

fn read(item: Bytes, schema: &Schema) -> Result<Arc<Object>, ReadError> {
    let object = match schema.shape.encoding() {
        Encoding::Json => Object::from_item(item, schema),
        Encoding::Protobuf => Object::from_protobuf(item, schema),
    };
    object.map(Arc::new)
}
