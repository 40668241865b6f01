//! The columns of a resource's Tables: those of a custom resource follow from upstream's current definition, those of a
//! built-in one from upstream's release.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::upstream::{Crd, ResourceListWatch};
use base::{
    apimachinery::GroupVersionResource,
    memo::{Join, SingleFlight},
    telemetry::Chain,
};
use engine::encode::table::{Columns, Release, Unprintable, has_printer};

/// How long a Table waits for upstream's column definitions before it is forwarded.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// How long no Table is tried after one that could not be printed, since the work would be in vain.
const UNPRINTABLE_FOR: Duration = Duration::from_secs(10);
/// How long no watch of Tables is tried after one that ended at an object that could not be printed: kubectl does not
/// begin again, and the next such object would end all watches of that time.
const UNPRINTABLE_WATCH_FOR: Duration = Duration::from_secs(3600);

/// The columns as upstream once wrote them, and the question whether their definition has changed since.
///
/// Invariant: the columns are those of the definition, or of the server's release, under which the store was filled:
/// the instance ends when upstream runs another release.
#[derive(Debug)]
pub(super) struct TableColumns {
    origin: Origin,
    /// For the Tables of lists and objects.
    unprintable: Unprinted,
    /// For those of watches.
    unprintable_watch: Unprinted,
    /// `None` if upstream's columns are not those that can be printed here.
    recorded: OnceLock<Option<Arc<Columns>>>,
    question: SingleFlight<Option<Arc<Columns>>>,
}

/// The last time that an object could not be printed.
#[derive(Debug, Default)]
struct Unprinted(Mutex<Option<Instant>>);

impl Unprinted {
    fn record(&self) {
        *self.last() = Some(Instant::now());
    }

    fn is_within(&self, time: Duration) -> bool {
        self.last().is_some_and(|last| last.elapsed() < time)
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a resource's columns come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A definition whose columns are all understood.
    Definition,
    /// The server's code. Its rules are implemented here for some releases.
    Code,
    /// A definition that is not understood, or the code of a release that was not compared.
    Unknown,
}

impl TableColumns {
    pub(super) fn new(definition: Option<&Crd>, resource: &GroupVersionResource) -> Self {
        let origin = match definition {
            Some(crd) if Columns::are_understood(crd.printer_columns(&resource.version)) => Origin::Definition,
            None if has_printer(resource) => Origin::Code,
            _ => Origin::Unknown,
        };
        let question = SingleFlight::new(Join::BeforeItIsSent);
        let (unprintable, unprintable_watch) = (Unprinted::default(), Unprinted::default());
        Self { origin, unprintable, unprintable_watch, recorded: OnceLock::new(), question }
    }

    /// Whether such Tables can be printed behind an upstream without watch-list, too.
    pub(super) fn are_of_any_age(&self) -> bool {
        self.origin == Origin::Code
    }

    /// Whether a Table is worth trying.
    pub(super) fn are_printable(&self) -> bool {
        let is_known = self.origin != Origin::Unknown && self.recorded.get().is_none_or(Option::is_some);
        is_known && !self.unprintable.is_within(UNPRINTABLE_FOR)
    }

    /// Whether a watch of Tables is worth trying, if a Table is.
    pub(super) fn are_printable_in_watches(&self) -> bool {
        !self.unprintable_watch.is_within(UNPRINTABLE_WATCH_FOR)
    }

    /// Records that an object could not be printed.
    pub(super) fn gave_up(&self) {
        self.unprintable.record();
    }

    /// Records that a watch ended at an object that could not be printed.
    pub(super) fn gave_up_watch(&self) {
        self.unprintable_watch.record();
    }

    /// The columns, if upstream confirms after this call that the definition is still the same. One question serves all
    /// concurrent callers. It reads the definition's metadata, and the first time also a Table without rows; for a
    /// built-in resource it is only asked the first time.
    pub(super) async fn current(
        &self,
        upstream: &ResourceListWatch,
        resource: &GroupVersionResource,
    ) -> Result<Arc<Columns>, Unprintable> {
        let question = async || match self.origin {
            Origin::Definition => self.of_definition(upstream, resource).await,
            Origin::Code => self.of_code(upstream, resource).await,
            Origin::Unknown => None,
        };
        // Upstream's code does not change while the instance lasts.
        if self.origin == Origin::Code
            && let Some(columns) = self.recorded.get()
        {
            return columns.clone().ok_or(Unprintable);
        }
        timeout(TOLD_WITHIN, self.question.ask(question))
            .await
            .unwrap_or_else(|_| {
                tracing::debug!(limit = ?TOLD_WITHIN, "upstream did not return the columns of a Table in time");
                None
            })
            .ok_or(Unprintable)
    }

    async fn of_definition(
        &self,
        upstream: &ResourceListWatch,
        resource: &GroupVersionResource,
    ) -> Option<Arc<Columns>> {
        let definition = upstream.definition()?;
        let columns = match self.recorded.get() {
            Some(columns) => columns.clone()?,
            None => {
                let table = upstream.empty_table().await.ok()?;
                // Upstream may have another definition by now, or may be about to learn of this one.
                Arc::new(Columns::record(&table, definition.printer_columns(&resource.version))?)
            }
        };
        let is_same = upstream.has_same_definition().await.unwrap_or_else(|error| {
            tracing::debug!(error = %Chain(&error), "cannot read the metadata of a CustomResourceDefinition");
            false
        });
        is_same.then(|| self.recorded.get_or_init(|| Some(columns)).clone())?
    }

    async fn of_code(&self, upstream: &ResourceListWatch, resource: &GroupVersionResource) -> Option<Arc<Columns>> {
        if let Some(columns) = self.recorded.get() {
            return columns.clone();
        }
        let version = upstream.code_version().await?;
        let columns = match Release::of(&version) {
            Some(release) => {
                let table = upstream.empty_table().await.ok()?;
                Columns::record_built_in(&table, resource, release).map(Arc::new)
            }
            None => None,
        };
        if columns.is_none() {
            tracing::info!(%resource, version, "Tables are forwarded: upstream's columns are not known");
        }
        self.recorded.get_or_init(|| columns).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn watches_are_not_tried_for_longer_than_tables() {
        let columns = TableColumns::new(None, &GroupVersionResource::new("", "v1", "pods"));
        let tried = || (columns.are_printable(), columns.are_printable_in_watches());
        assert_eq!(tried(), (true, true));
        columns.gave_up_watch();
        assert_eq!(tried(), (true, false));
        columns.gave_up();
        assert_eq!(tried(), (false, false));
        advance(UNPRINTABLE_FOR).await;
        assert_eq!(tried(), (true, false));
        advance(UNPRINTABLE_WATCH_FOR).await;
        assert_eq!(tried(), (true, true));
    }
}
