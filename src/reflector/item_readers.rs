//! Items of a list, read on all cores while more of them come.

use std::{mem, sync::Arc};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{Failure, event_stream::causes};
use crate::{
    apimachinery::Encoding,
    store::{Object, Schema},
};

/// Bytes of items that are read at a time, without a pause for others: less than a millisecond's work.
const BATCH_BYTES: usize = 256 << 10;

/// Takes items, gives objects. What waits to be read is no more than the list, which is kept anyway.
#[derive(Debug)]
pub(super) struct ItemReaders {
    schema: Arc<Schema>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// They end with this at the latest.
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

    /// All objects, in no order.
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
        tracing::warn!(error = causes(&error), "an item of upstream's list cannot be kept");
        Failure::Malformed
    })
}
