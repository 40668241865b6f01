//! Which columns the Tables of a custom resource have, by the definition that upstream has now.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::single_flight::{Join, SingleFlight};
use crate::{
    encode::table::{Columns, Unprintable},
    telemetry::Chain,
    upstream::{Crd, ResourceListWatch},
};

/// How long a Table waits for what upstream says of its columns, before it is forwarded.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// How long no Table is tried after one that could not be printed: what it takes to answer from memory would be in vain.
const UNPRINTABLE_FOR: Duration = Duration::from_secs(10);

/// The columns as upstream told them once, and what asks whether the definition that they came from has changed since.
///
/// Invariant: the columns are those of the definition that the store was filled under.
#[derive(Debug)]
pub(super) struct TableColumns {
    /// Whether the definition's columns are all understood.
    are_understood: bool,
    /// When some object could not be printed last.
    unprintable: Mutex<Option<Instant>>,
    recorded: OnceLock<Arc<Columns>>,
    question: SingleFlight<Option<Arc<Columns>>>,
}

impl TableColumns {
    /// `version` is that of the API in which the objects are written.
    pub(super) fn new(definition: Option<&Crd>, version: &str) -> Self {
        let are_understood = definition.is_some_and(|crd| Columns::are_understood(crd.printer_columns(version)));
        let (unprintable, question) = (Mutex::default(), SingleFlight::new(Join::BeforeItIsSent));
        Self { are_understood, unprintable, recorded: OnceLock::new(), question }
    }

    /// Whether a Table is worth trying.
    pub(super) fn are_printable(&self) -> bool {
        self.are_understood && self.unprintable().is_none_or(|last| last.elapsed() >= UNPRINTABLE_FOR)
    }

    /// An object could not be printed.
    pub(super) fn gave_up(&self) {
        *self.unprintable() = Some(Instant::now());
    }

    fn unprintable(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unprintable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The columns, if upstream says after this was called that the definition is still the same. One question serves all who ask
    /// meanwhile: it costs upstream the definition's metadata, and the first time a Table without rows.
    pub(super) async fn current(
        &self,
        upstream: &ResourceListWatch,
        version: &str,
    ) -> Result<Arc<Columns>, Unprintable> {
        let definition = upstream.definition().filter(|_| self.are_understood).ok_or(Unprintable)?;
        let question = async || {
            let columns = match self.recorded.get() {
                Some(columns) => columns.clone(),
                None => {
                    let table = upstream.empty_table().await.ok()?;
                    // Upstream may have another definition by now, or may be about to learn of this one.
                    Arc::new(Columns::record(&table, definition.printer_columns(version))?)
                }
            };
            let is_same = upstream.has_same_definition().await.unwrap_or_else(|error| {
                tracing::debug!(error = %Chain(&error), "cannot read the metadata of a definition");
                false
            });
            is_same.then(|| self.recorded.get_or_init(|| columns).clone())
        };
        let told = timeout(TOLD_WITHIN, self.question.ask(question)).await;
        told.unwrap_or_else(|_| {
            tracing::debug!(limit = ?TOLD_WITHIN, "upstream does not tell the columns of a Table in time");
            None
        })
        .ok_or(Unprintable)
    }
}
