//! Parses the items of a list on all cores while further items arrive.

use std::{mem, sync::Arc};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::Failure;
use crate::{
    apimachinery::Encoding,
    store::{Object, Schema},
    telemetry::Chain,
};

/// The number of bytes that are parsed without yielding to other tasks: less than a millisecond of work.
const BATCH_BYTES: usize = 256 << 10;

/// Parses items into objects. The items waiting to be parsed take no more memory than the list, which is kept anyway.
#[derive(Debug)]
pub(super) struct ItemReaders {
    schema: Arc<Schema>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// The running batches. They are aborted when this is dropped.
    batches: JoinSet<Result<Vec<Arc<Object>>, Failure>>,
}

impl ItemReaders {
    pub(super) fn new(schema: Arc<Schema>) -> Self {
        Self { schema, batch: Vec::new(), batch_bytes: 0, batches: JoinSet::new() }
    }

    pub(super) fn take(&mut self, item: Bytes) {
        self.batch_bytes += item.len();
        self.batch.push(item);
        if self.batch_bytes >= BATCH_BYTES {
            self.read_batch();
        }
    }

    fn read_batch(&mut self) {
        let (schema, batch) = (self.schema.clone(), mem::take(&mut self.batch));
        self.batch_bytes = 0;
        self.batches.spawn(async move { batch.into_iter().map(|item| read(item, &schema)).collect() });
    }

    /// All objects, in arbitrary order.
    pub(super) async fn objects(mut self) -> Result<Vec<Arc<Object>>, Failure> {
        self.read_batch();
        let mut objects = Vec::new();
        while let Some(batch) = self.batches.join_next().await {
            objects.extend(batch.map_err(|_| Failure::Malformed)??);
        }
        Ok(objects)
    }
}

fn read(item: Bytes, schema: &Schema) -> Result<Arc<Object>, Failure> {
    let object = match schema.shape.encoding() {
        Encoding::Json => Object::from_item(item, schema),
        Encoding::Protobuf => Object::from_protobuf(item, schema),
    };
    object.map(Arc::new).map_err(|error| {
        tracing::warn!(error = %Chain(&error), "cannot use an item of upstream's list");
        Failure::Malformed
    })
}
