//! The columns of a custom resource's Tables, by the definition that upstream has now.

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

/// How long a Table waits for upstream's column definitions before it is forwarded.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// How long no Table is tried after one that could not be printed, since the work would be in vain.
const UNPRINTABLE_FOR: Duration = Duration::from_secs(10);

/// The columns as upstream once wrote them, and the question whether their definition has changed since.
///
/// Invariant: the columns are those of the definition that the store was filled under.
#[derive(Debug)]
pub(super) struct TableColumns {
    /// Whether all columns of the definition are supported.
    are_understood: bool,
    /// The last time that an object could not be printed.
    unprintable: Mutex<Option<Instant>>,
    recorded: OnceLock<Arc<Columns>>,
    question: SingleFlight<Option<Arc<Columns>>>,
}

impl TableColumns {
    /// `version` is the API version in which the objects are written.
    pub(super) fn new(definition: Option<&Crd>, version: &str) -> Self {
        let are_understood = definition.is_some_and(|crd| Columns::are_understood(crd.printer_columns(version)));
        let (unprintable, question) = (Mutex::default(), SingleFlight::new(Join::BeforeItIsSent));
        Self { are_understood, unprintable, recorded: OnceLock::new(), question }
    }

    /// Whether a Table is worth trying.
    pub(super) fn are_printable(&self) -> bool {
        self.are_understood && self.unprintable().is_none_or(|last| last.elapsed() >= UNPRINTABLE_FOR)
    }

    /// Records that an object could not be printed.
    pub(super) fn gave_up(&self) {
        *self.unprintable() = Some(Instant::now());
    }

    fn unprintable(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unprintable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The columns, if upstream confirms after the call that the definition is unchanged. One question serves all
    /// callers that wait when it is sent. It costs upstream the definition's metadata, and the first time a Table
    /// without rows.
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
                    // Upstream may already have another definition, or may not know this one yet.
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
