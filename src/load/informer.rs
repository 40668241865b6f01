//! Informers: clients that follow a collection as client-go's reflector does, but keep no objects.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{
    channel::{Channel, OpenResponse},
    cut::Cuts,
    endpoint::RequestSpec,
    failure::{ErrorKind, Failure},
    list::{List, ListMeta},
    paths,
    profile::{InformerWork, Transport},
    recorder::Recorder,
    schedule::stagger,
    watch::{First, Progress, read},
};

/// The delays after failures, as in client-go's reflector: doubled each time up to the longest, and then extended by a
/// random part of up to as much again. After some time without a failure, the first delay is used again.
const BACK_OFF_FIRST: Duration = Duration::from_millis(800);
const BACK_OFF_LONGEST: Duration = Duration::from_secs(30);
const BACK_OFF_RESET: Duration = Duration::from_secs(120);
/// The default number of objects on a page of client-go.
const PAGE: usize = 500;
/// How often a request is repeated that the server refuses with `Retry-After`, as in client-go (`rest.Request`). Only
/// then the reflector notices the refusal.
const RETRIES: usize = 10;
/// A watch that ends sooner counts as failed for the back-off.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// The minimum of the `timeoutSeconds` of a watch; the maximum is twice as much, as in client-go.
const TIMEOUT_SECONDS: u64 = 300;

/// The informers of one workload in one turn.
#[derive(Debug)]
pub(super) struct Informers {
    pub(super) work: InformerWork,
    pub(super) transport: Transport,
    /// The maximum time to the head of a response, and for a whole list.
    pub(super) timeout: Duration,
    pub(super) recorder: Arc<Recorder>,
    /// Informers that are started per second; `None`: all at once.
    pub(super) rate: Option<f64>,
    /// Receives one permit for each informer that has all objects and a watch for the first time, or has failed.
    pub(super) standing: Arc<Semaphore>,
}

/// The head of an answer.
struct Opened {
    answer: OpenResponse,
    /// From when the last attempt was sent.
    latency: Duration,
    /// Whether the server has refused earlier attempts.
    is_repeated: bool,
}

/// Why an informer no longer follows its collection.
enum Ended {
    Itself(Result<(), Failure>),
    /// The tool has cut its connection. Contains the number of the cut.
    Cut(u64),
}

/// The state of an informer.
#[derive(Debug, Default)]
struct Known {
    /// The version up to which it knows everything. Empty if there is none yet, or if the server rejected it.
    version: String,
    /// Whether it has all objects of that version, so that a watch can start there.
    has_state: bool,
    /// Whether the server has refused the version.
    was_refused: bool,
    /// Whether it had all objects before, so that another list counts as a relist, which the server could have avoided.
    had_state: bool,
    /// Whether its next list counts already: since it lost its state.
    is_counted: bool,
    /// Whether it lists, because the profile says so or the server has refused a watch-list.
    lists: bool,
}

impl Informers {
    /// Keeps the informer of one client running until it is dropped.
    pub(super) async fn keep(self: Arc<Self>, channel: Arc<Channel>, client: usize, mut cuts: Option<Cuts>) {
        let mut progress = Progress::new(First(&self.standing), self.recorder.client(client));
        stagger(self.rate, client).await;
        let selectors = paths::selectors(&self.work.selection, client);
        let mut known = Known { lists: !self.work.watch_list, ..Known::default() };
        let mut back_off = BackOff::default();
        loop {
            let asked = Instant::now();
            let ended = tokio::select! {
                ended = self.follow(&channel, &selectors, &mut known, &mut progress) => Ended::Itself(ended),
                number = next(&mut cuts) => Ended::Cut(number),
            };
            // The version is valid no matter how the watch ended.
            if let Some(version) = progress.take_version() {
                (known.version, known.has_state, known.had_state) = (version, true, true);
            }
            let waits = match ended {
                Ended::Itself(Ok(())) => {
                    self.recorder.lock().ended += 1;
                    if known.has_state {
                        progress.reopens();
                    }
                    asked.elapsed() < SHORT_WATCH
                }
                Ended::Itself(Err(failure)) => {
                    let had_state = known.has_state;
                    if known.failed(failure.kind).is_continue() {
                        continue;
                    }
                    let is_broken = failure.kind == ErrorKind::Stream && known.has_state;
                    self.misses(failure.kind, had_state, &mut known, &progress);
                    self.recorder.failed(failure, asked.elapsed());
                    progress.stands();
                    !is_broken || asked.elapsed() < SHORT_WATCH
                }
                Ended::Cut(number) => {
                    channel.cut(number).await;
                    // A client that was away already had no connection.
                    let is_cut = progress.lost();
                    self.recorder.lock().cuts += u64::from(is_cut);
                    asked.elapsed() < SHORT_WATCH
                }
            };
            // client-go opens a watch again at once unless it was very short, whether it ended cleanly or broke.
            if waits {
                sleep(back_off.next()).await;
                cuts.iter_mut().for_each(Cuts::skip);
            }
        }
    }

    /// Records what an informer waits for after a failure, from now on and not only once its back-off is over.
    fn misses(&self, kind: ErrorKind, had_state: bool, known: &mut Known, progress: &Progress<'_>) {
        if had_state && !known.has_state {
            progress.wants_objects_again();
            self.recorder.listed(true);
            known.is_counted = true;
        } else if known.has_state && matches!(kind, ErrorKind::Event(_)) {
            progress.reopens();
        } else if known.has_state {
            progress.lost();
        }
    }

    /// Lists if there is no state from which a watch can start, then watches until the watch ends.
    async fn follow(
        &self,
        channel: &Channel,
        selectors: &str,
        known: &mut Known,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        if !known.has_state {
            progress.wants_objects();
            if !std::mem::take(&mut known.is_counted) {
                self.recorder.listed(known.had_state);
            }
            if known.lists {
                let list = timeout(self.timeout, self.list(channel, selectors, known)).await;
                let (version, came) = list.unwrap_or_else(|_| Err(Failure::timeout()))?;
                known.version = version;
                (known.has_state, known.had_state, known.was_refused) = (true, true, false);
                progress.skips_events(came);
                if let Some(time) = progress.synced() {
                    self.recorder.lock().sync.add(time);
                }
            }
        }
        if known.has_state {
            progress.reopens();
        }
        let seconds = fastrand::u64(TIMEOUT_SECONDS..2 * TIMEOUT_SECONDS);
        let start = paths::informer_watch(&known.version, !known.has_state);
        let path = self.path(&[&start, &format!("timeoutSeconds={seconds}"), selectors]);
        let Transport { encoding, gzip, .. } = self.transport;
        let ask = RequestSpec { accept: encoding.accept(false), gzip, ..RequestSpec::get(&path) };
        let Opened { answer, latency, is_repeated } = self.open(channel, &ask).await?;
        self.recorder.answered(latency, latency, 0);
        if is_repeated && known.has_state {
            progress.lost();
        }
        progress.opened(!known.has_state);
        progress.follow(!known.has_state);
        if known.has_state {
            progress.stands();
            if let Some(time) = progress.back() {
                self.recorder.lock().back.add(time);
            }
        }
        read(&self.recorder, answer, progress).await
    }

    /// Sends a request until the server does not ask for a repetition.
    async fn open(&self, channel: &Channel, ask: &RequestSpec<'_>) -> Result<Opened, Failure> {
        let mut tries = 0;
        loop {
            let opening = Instant::now();
            let answer = timeout(self.timeout, channel.open(ask)).await.unwrap_or_else(|_| Err(Failure::timeout()));
            match answer {
                Ok(answer) => {
                    return Ok(Opened { answer, latency: opening.elapsed(), is_repeated: tries > 0 });
                }
                Err(failure) => match failure.retry_after.filter(|_| tries < RETRIES) {
                    None => return Err(failure),
                    Some(pause) => {
                        self.recorder.failed(failure, opening.elapsed());
                        sleep(pause).await;
                        tries += 1;
                    }
                },
            }
        }
    }

    /// Lists the collection, page by page if it has a limit. Returns its version, and the time at which the first
    /// answer began: what is written after that is not in the list.
    async fn list(&self, channel: &Channel, selectors: &str, known: &Known) -> Result<(String, u64), Failure> {
        let from = known.list();
        let limit = self.limit(&from).map(|limit| format!("limit={limit}")).unwrap_or_default();
        let (mut list, came) = self.page(channel, &self.path(&[&from, &limit, selectors])).await?;
        while let Some(next_page) = list.next_page() {
            (list, _) = self.page(channel, &self.path(&[&limit, &next_page, selectors])).await?;
        }
        Ok((list.resource_version, came))
    }

    /// Objects per page. `from` is the query of the version: client-go asks for pages of the most recent objects.
    fn limit(&self, from: &str) -> Option<usize> {
        let pages = from.is_empty() && !self.transport.encoding.is_protobuf();
        self.work.limit.or(pages.then_some(PAGE))
    }

    /// Reads a list, or one page of it. Returns also the time at which the answer began.
    async fn page(&self, channel: &Channel, path: &str) -> Result<(ListMeta, u64), Failure> {
        let Transport { encoding, gzip, .. } = self.transport;
        let ask = RequestSpec { accept: encoding.accept(true), gzip, ..RequestSpec::get(path) };
        let Opened { mut answer, .. } = self.open(channel, &ask).await?;
        let (mut list, came) = (List::of(&answer), self.recorder.now());
        while let Some(frame) = answer.response.body_mut().frame().await {
            let frame = frame.map_err(|error| Failure::stream(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            self.recorder.lock().bytes += data.len() as u64;
            list.push(data)?;
        }
        channel.done(answer).await;
        Ok((list.metadata()?, came))
    }

    fn path(&self, query: &[&str]) -> String {
        let selection = &self.work.selection;
        paths::with_query(&paths::collection(&selection.resource, selection.namespace.as_deref()), query)
    }
}

async fn next(cuts: &mut Option<Cuts>) -> u64 {
    match cuts {
        Some(cuts) => cuts.next().await,
        None => std::future::pending().await,
    }
}

impl Known {
    /// The query of a list, by client-go's rules: at first of any version, later not older than the known version, and
    /// of the most recent state if the server has just refused the known version.
    fn list(&self) -> String {
        if self.version.is_empty() && self.was_refused { String::new() } else { paths::informer_list(&self.version) }
    }

    /// Applies client-go's rules for a failure. Returns whether the informer continues at once or waits first.
    fn failed(&mut self, kind: ErrorKind) -> ControlFlow<()> {
        match kind {
            // The next watch starts at the version of the last one.
            ErrorKind::Connect | ErrorKind::Stream | ErrorKind::Status(429) | ErrorKind::Event(429 | 500) => {}
            // Servers before Kubernetes 1.32 refuse watch-lists.
            ErrorKind::Status(400 | 422) if !self.lists && !self.has_state => {
                self.lists = true;
                return ControlFlow::Continue(());
            }
            ErrorKind::Handshake
            | ErrorKind::Timeout
            | ErrorKind::Status(_)
            | ErrorKind::Event(_)
            | ErrorKind::Unsent
            | ErrorKind::Unsynced
            | ErrorKind::Away
            | ErrorKind::Undelivered => {
                let had_state = std::mem::take(&mut self.has_state);
                // The next list asks for at least the known version, unless the server has just refused that version.
                if !had_state && matches!(kind, ErrorKind::Event(410) | ErrorKind::Status(410 | 504)) {
                    self.version.clear();
                    self.was_refused = true;
                }
            }
        }
        ControlFlow::Break(())
    }
}

/// The delays of a client after failures.
#[derive(Debug, Default)]
struct BackOff {
    /// The last delay and when it started.
    last: Option<(Duration, Instant)>,
}

impl BackOff {
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        let wait = match self.last {
            Some((wait, at)) if now.duration_since(at) < BACK_OFF_RESET => (wait * 2).min(BACK_OFF_LONGEST),
            _ => BACK_OFF_FIRST,
        };
        self.last = Some((wait, now));
        wait.mul_f64(1.0 + fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(version: &str, has_state: bool) -> Known {
        Known { version: version.to_owned(), has_state, had_state: has_state, ..Known::default() }
    }

    #[test]
    fn a_broken_watch_continues_and_an_expired_one_requests_all_objects() {
        for (kind, has_state, expected) in [
            (ErrorKind::Connect, true, ("5", true)),
            (ErrorKind::Stream, true, ("5", true)),
            (ErrorKind::Status(429), true, ("5", true)),
            (ErrorKind::Status(429), false, ("5", false)),
            (ErrorKind::Event(410), true, ("5", false)),
            (ErrorKind::Status(410), true, ("5", false)),
            (ErrorKind::Status(410), false, ("", false)),
            (ErrorKind::Status(504), false, ("", false)),
            (ErrorKind::Status(503), true, ("5", false)),
            (ErrorKind::Timeout, false, ("5", false)),
        ] {
            let mut known = known("5", has_state);
            assert!(known.failed(kind).is_break(), "{kind}");
            assert_eq!(
                (known.version.as_str(), known.has_state, known.lists),
                (expected.0, expected.1, false),
                "{kind}"
            );
        }
    }

    #[test]
    fn after_a_refused_version_the_list_is_most_recent() {
        assert_eq!(known("", false).list(), "resourceVersion=0");
        assert_eq!(known("5", false).list(), "resourceVersion=5");
        let mut refused = known("5", false);
        assert!(refused.failed(ErrorKind::Status(504)).is_break());
        assert_eq!(refused.list(), "");
    }

    #[test]
    fn a_server_without_watch_list_gets_lists() {
        let mut without = known("", false);
        assert!(without.failed(ErrorKind::Status(422)).is_continue() && without.lists);
        assert!(without.failed(ErrorKind::Status(422)).is_break());
        assert!(known("5", true).failed(ErrorKind::Status(422)).is_break());
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_and_begin_anew_after_a_while_without_failures() {
        let mut back_off = BackOff::default();
        for least in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let (wait, least) = (back_off.next(), Duration::from_millis(least));
            assert!(wait >= least && wait <= 2 * least, "{wait:?} {least:?}");
        }
        tokio::time::advance(BACK_OFF_RESET).await;
        assert!(back_off.next() < 2 * BACK_OFF_FIRST);
    }
}
