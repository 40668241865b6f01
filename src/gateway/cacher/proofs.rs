//! Proves that a store is as recent as upstream itself, and as the other stores of its resource
//! (the manual's chapter `consistency`).

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
    try_join,
};

use super::progress_probe::{QuietRange, progress_probe};
use crate::upstream::Crd;
use base::{
    apimachinery::ResourceVersion,
    memo::{Join, SingleFlight},
    telemetry::limit_reached,
};
use engine::{
    reflector::{Evidence, Failure, ListWatch, head_version},
    store::{Advance, Reader},
};

/// The maximum time for upstream to report its head version: more than it needs, less than a client waits.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// The maximum time for the store to apply the changes that the progress probe showed.
const CATCH_UP_MAX: Duration = Duration::from_secs(3);
/// A shared progress probe may have been opened too early to reach the version; a second one is opened after the call.
const SMALL_WATCHES_MAX: usize = 2;
/// The maximum number of gets and lists of one resource that wait for a proof: as many as a gateway has connections by
/// default.
pub const PROOF_WAITERS_MAX: usize = 10_000;
/// How long the store's own watch may take to reach the head version before a progress probe is opened. On a busy
/// resource it takes milliseconds, while a progress probe always takes a second.
const OWN_WATCH_FIRST: Duration = Duration::from_millis(50);

/// How long an answer about the schema counts for versions that were proven before: the server that answers for the
/// resource may change without a new version.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

/// Why the store could not be proven to be recent. The request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("upstream did not return its latest version")]
    NoHead,
    #[error("upstream sent no bookmark at its latest version")]
    NoBookmark,
    #[error("upstream has not reached the requested version either")]
    Ahead,
    #[error("upstream's latest version is older than the cache's")]
    Backwards,
    #[error("the proof timed out")]
    Late,
    #[error("the resource's definition has changed, or could not be read")]
    Redefined,
}

/// A store that is to be proven.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) reader: &'a Reader,
    pub(super) advance: &'a Advance,
    /// When upstream was first asked for the state in the store.
    pub(super) filled_since: Instant,
    /// Whether upstream supports watch-list. Older servers do not report progress to watches on request, so small
    /// watches would take seconds and show nothing (seen on 1.20).
    pub(super) has_watch_list: bool,
    pub(super) schema: &'a SchemaProof,
    /// How long to wait for the store's own watch if progress probes are of no use.
    pub(super) own_watch: Duration,
}

/// What a progress probe showed: a store that has the last change before the range is complete up to the end of the
/// range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proof {
    shown: QuietRange,
    asked_at: Instant,
}

/// The version up to which a store's objects are known to be of the schema that their resource has now.
///
/// When a definition changes, an API server applies the new schema to new requests at once, but ends the watches that
/// were opened under the old one only a second later, or after up to a minute if it still answers a slow request.
/// Meanwhile these watches report objects that were written under the new schema without their new fields, at the right
/// versions (seen on 1.20 and 1.36). A store that follows such a watch has reached a version, but does not hold that
/// version's objects. So the version of the answer has to be proven, and not only the one that a client asks for.
#[derive(Debug)]
pub(super) struct SchemaProof {
    /// `None` for a built-in resource, whose schema changes only with upstream's program.
    proven: Option<Mutex<Proven>>,
    question: SingleFlight<Result<bool, Failure>>,
}

/// Invariant: the definition was read after upstream had reached the version, and was the one that the store was filled
/// under.
#[derive(Clone, Copy, Debug)]
struct Proven {
    up_to: ResourceVersion,
    asked: Instant,
}

/// Proofs for one resource, shared by its stores in all encodings and versions of the API.
#[derive(Debug)]
pub(super) struct Proofs {
    /// One request for the head version serves all callers that were waiting when it was sent.
    head: SingleFlight<Result<ResourceVersion, Failure>>,
    /// Only one progress probe is open at a time; its bookmark serves all callers.
    bookmark: SingleFlight<Option<Proof>>,
    /// Findings for the reflectors of the resource.
    evidence: Evidence,
    /// Bounds the gets and lists that wait for a proof.
    waiters: Semaphore,
}

impl Proofs {
    /// Of a resource with these findings.
    pub(super) fn of(evidence: Evidence) -> Self {
        let (head, bookmark) = (SingleFlight::new(Join::BeforeItIsSent), SingleFlight::new(Join::AnyTime));
        Self { head, bookmark, evidence, waiters: Semaphore::new(PROOF_WAITERS_MAX) }
    }

    /// The findings, for the reflectors of the resource's stores.
    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Like [`Self::prove`], but waits no longer than `limit`. For gets and lists, whose number is bounded.
    pub(super) async fn prove_within(
        &self,
        limit: Duration,
        upstream: &impl ListWatch,
        store: &Candidate<'_>,
    ) -> Result<(), Unproven> {
        let Ok(_place) = self.waiters.try_acquire() else {
            limit_reached("proof_waiters");
            return Err(Unproven::Late);
        };
        timeout(limit, self.prove(upstream, store)).await.unwrap_or(Err(Unproven::Late))
    }

    /// Returns when the store holds everything that upstream had acknowledged before the call.
    pub(super) async fn prove(&self, upstream: &impl ListWatch, store: &Candidate<'_>) -> Result<(), Unproven> {
        let head = self.head(upstream, store).await?;
        self.prove_up_to(head, upstream, store).await
    }

    /// Returns when the store holds everything up to `version`, which a client knows from elsewhere.
    ///
    /// The version is only used if upstream has reached it. Otherwise the request is left to upstream, which waits and
    /// words the refusal.
    pub(super) async fn prove_reached(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        store: &Candidate<'_>,
    ) -> Result<(), Unproven> {
        if !store.has_watch_list {
            return Err(Unproven::NoBookmark);
        }
        if self.head(upstream, store).await? < version {
            return Err(Unproven::Ahead);
        }
        self.prove_up_to(version, upstream, store).await
    }

    /// Waits for the store's own watch or a small one, whichever reaches `head` first.
    async fn prove_up_to(
        &self,
        head: ResourceVersion,
        upstream: &impl ListWatch,
        store: &Candidate<'_>,
    ) -> Result<(), Unproven> {
        let reached = async {
            tokio::select! {
                biased;
                () = store.reader.reached(head) => {}
                () = self.probes_progress(head, upstream, store) => {}
            }
            Ok(())
        };
        try_join!(self.prove_schema(head, upstream, store), reached)?;
        // A store that was filled before a rollback is not proven by anything that was seen in the meantime.
        if self.evidence.has_rolled_back_since(store.filled_since) {
            return Err(Unproven::Backwards);
        }
        if store.reader.progress() >= head { Ok(()) } else { Err(Unproven::NoBookmark) }
    }

    /// Returns when the store's objects up to `version` are known to be of the resource's current schema. Upstream must
    /// have reached `version`.
    pub(super) async fn prove_schema(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        store: &Candidate<'_>,
    ) -> Result<(), Unproven> {
        match self.is_current(version, upstream, store, HEAD_MAX).await {
            Some(true) => Ok(()),
            Some(false) | None => Err(Unproven::Redefined),
        }
    }

    /// Whether the store's objects up to `version` are of the schema that the resource has now; `None` if upstream does
    /// not answer in time. If they are not, the resource's stores are given up.
    pub(super) async fn is_current(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        store: &Candidate<'_>,
        wait: Duration,
    ) -> Option<bool> {
        let is_current = store.schema.holds_up_to(version, upstream, wait).await.ok();
        if is_current == Some(false) {
            self.evidence.replaced();
        }
        is_current
    }

    /// Returns when further progress probes would not help.
    async fn probes_progress(&self, head: ResourceVersion, upstream: &impl ListWatch, store: &Candidate<'_>) {
        if !store.has_watch_list {
            return sleep(store.own_watch).await;
        }
        sleep(OWN_WATCH_FIRST).await;
        for _ in 0..SMALL_WATCHES_MAX {
            if store.reader.progress() >= head {
                return;
            }
            self.catch_up(upstream, store).await;
        }
    }

    /// Upstream's head version. It cannot be lower than the store's progress before the request: the store only has
    /// what upstream had acknowledged, and the head version is read from upstream's storage.
    async fn head(&self, upstream: &impl ListWatch, store: &Candidate<'_>) -> Result<ResourceVersion, Unproven> {
        if self.evidence.has_rolled_back_since(store.filled_since) {
            return Err(Unproven::Backwards);
        }
        let held = store.reader.progress();
        let asked = self.head.ask(|| async {
            let page = timeout(HEAD_MAX, upstream.head()).await.unwrap_or(Err(Failure::Silent))?;
            head_version(&page)
        });
        let head = asked.await.map_err(|_| Unproven::NoHead)?;
        if head < held {
            // The rollback is recorded once: a store that was filled in the meantime is not wrong because one response
            // came late.
            if !self.evidence.has_rolled_back_since(store.filled_since) {
                self.evidence.rolled_back();
            }
            return Err(Unproven::Backwards);
        }
        Ok(head)
    }

    /// Applies the result of a progress probe to the store.
    async fn catch_up(&self, upstream: &impl ListWatch, store: &Candidate<'_>) {
        let Some(proof) = self.bookmark.ask(|| proof(upstream, store.reader)).await else { return };
        // A watch from before a rollback says nothing about a store that was filled after it.
        if self.evidence.has_rolled_back_since(proof.asked_at) {
            return;
        }
        match timeout(CATCH_UP_MAX, store.reader.reached(proof.shown.behind)).await {
            Ok(()) => store.advance.to(proof.shown.up_to),
            Err(_) => self.evidence.lacks(proof.shown.behind, proof.asked_at),
        }
    }
}

/// The result of a progress probe from the store's version.
async fn proof(upstream: &impl ListWatch, reader: &Reader) -> Option<Proof> {
    let asked_at = Instant::now();
    let (last_change, start) = reader.last_change_and_progress();
    let shown = progress_probe(upstream, reader.schema(), start, last_change).await;
    shown.ok().flatten().map(|shown| Proof { shown, asked_at })
}

impl SchemaProof {
    /// Of a store that was filled up to `version` before the definition was compared; a built-in resource has none.
    pub(super) fn new(definition: Option<&Crd>, version: ResourceVersion) -> Self {
        let proven = definition.map(|_| Mutex::new(Proven { up_to: version, asked: Instant::now() }));
        Self { proven, question: SingleFlight::new(Join::BeforeItIsSent) }
    }

    /// Whether the objects up to `version`, which upstream has reached, are of the current schema. One question serves
    /// all callers that were waiting when it was sent.
    ///
    /// # Errors
    /// Upstream has not answered within `wait`, and the version was not proven before.
    pub(super) async fn holds_up_to(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let Some(proven) = &self.proven else { return Ok(true) };
        let Proven { up_to, asked } = *lock(proven);
        if version <= up_to && asked.elapsed() < TRUSTED_FOR {
            return Ok(true);
        }
        let asked = Instant::now();
        match timeout(wait, self.question.ask(|| upstream.is_same_resource())).await {
            Ok(Ok(true)) => {
                let mut proven = lock(proven);
                *proven = Proven { up_to: version.max(proven.up_to), asked: asked.max(proven.asked) };
                Ok(true)
            }
            Ok(Ok(false)) => Ok(false),
            // As before, then: it is not known to have changed.
            Ok(Err(_)) | Err(_) if version <= up_to => Ok(true),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Silent),
        }
    }
}

fn lock(proven: &Mutex<Proven>) -> MutexGuard<'_, Proven> {
    proven.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use bytes::Bytes;

    use super::*;
    use engine::{
        reflector::{ByteStream, ListPage, ListRequest, StorageEvidence, WatchRequest},
        store::{HistoryLimits, Objects, Schema, Shape, Writer, store},
    };

    /// Reports its head version, but does not answer watches.
    struct Mute {
        head: u64,
    }

    /// A stream of nothing.
    struct Silent;

    impl ByteStream for Silent {
        async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
            None
        }
    }

    impl ListWatch for Mute {
        type Stream = Silent;

        async fn list(&self, _: ListRequest) -> Result<Silent, Failure> {
            Err(Failure::Unavailable)
        }

        async fn watch(&self, _: WatchRequest) -> Result<Silent, Failure> {
            pending().await
        }

        async fn head(&self) -> Result<ListPage, Failure> {
            let head = self.head;
            let body = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{head}"}},"items":[]}}"#
            );
            Ok(ListPage { body: body.into(), warnings: Vec::new() })
        }

        async fn knows_fields(&self, _: &[&str]) -> Result<bool, Failure> {
            Ok(true)
        }

        async fn server(&self, _: Instant) -> Option<String> {
            None
        }

        async fn is_same_resource(&self) -> Result<bool, Failure> {
            Ok(true)
        }
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    fn empty_store(at: u64) -> (Writer, Reader) {
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        store(Arc::new(Schema::new(Shape::Custom, Vec::new())), &Objects::default(), version(at), limits)
    }

    #[tokio::test(start_paused = true)]
    async fn a_proof_ends_when_the_stores_own_watch_reaches_the_head() {
        const TOLD_AFTER: Duration = Duration::from_millis(200);
        let (mut writer, reader) = empty_store(5);
        let advance = writer.advance_handle();
        let proofs = Proofs::of(Evidence::of(StorageEvidence::default()));
        let (began, upstream) = (Instant::now(), Mute { head: 7 });
        let store = Candidate {
            reader: &reader,
            advance: &advance,
            filled_since: began,
            has_watch_list: true,
            schema: &SchemaProof::new(None, version(5)),
            own_watch: Duration::ZERO,
        };
        let own_watch = async {
            sleep(TOLD_AFTER).await;
            writer.advance(version(7));
        };
        let (proven, ()) = tokio::join!(proofs.prove(&upstream, &store), own_watch);
        assert_eq!((proven, began.elapsed()), (Ok(()), TOLD_AFTER));
    }
}
