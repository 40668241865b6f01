//! What is known of upstream's health: whether it can be reached, whether what answers is an API server, and which of
//! the gateway's own requests it refuses. The log has a line when a trouble begins, and one when it ends.

use std::{
    fmt::Display,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use base::telemetry::{Chain, limit_reached};
use http::StatusCode;
use tokio::{sync::watch, time::Instant};

use super::SendError;

/// The minimum time between two warnings, for the case that outcomes alternate.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The maximum length of the text of an error, in characters: what upstream says has no limit of its own.
const TEXT_MAX: usize = 400;

/// The maximum number of paths that are kept.
const PATHS_MAX: usize = 32;
/// A refusal that is not repeated within this time is forgotten: caches repeat theirs after 30 s at the latest.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// What the last requests and probes have shown of one upstream. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Health(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether requests reach it.
    reached: Condition,
    /// Whether an API server answers, as the request for its version has shown.
    answering: Condition,
    refusals: Refusals,
}

/// One thing that is wrong between the gateway and the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// The address of the API server, without credentials.
    pub server: String,
    /// When it began.
    pub since: SystemTime,
    /// The path of the request that is refused; `None` if it is not about one request.
    pub path: Option<String>,
    /// The last error, or upstream's own words. Foreign text, of bounded length.
    pub error: String,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// No connection can be opened.
    Unreachable,
    /// The address leads back to this gateway.
    Loop,
    /// The answers are not those of an API server.
    Foreign,
    /// A connection can be opened, but the API server's version is not said on it.
    Unanswered,
    /// 401: upstream does not accept the gateway's credentials.
    Unauthorized,
    /// 403: the gateway's identity may not do what it tries.
    Forbidden,
}

impl TroubleKind {
    /// All of them, the worst first.
    pub const ALL: [Self; 6] =
        [Self::Unreachable, Self::Loop, Self::Foreign, Self::Unanswered, Self::Unauthorized, Self::Forbidden];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Loop => "loop",
            Self::Foreign => "foreign",
            Self::Unanswered => "unanswered",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
        }
    }

    /// What is wrong and what to check: for the log, and for the check of a configuration.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "the API server cannot be reached; check its address in the kubeconfig, its proxy, the network on the \
                 way, and what the error says"
            }
            Self::Loop => {
                "the API server's address leads back to this gateway; the kubeconfig has to name the API server itself"
            }
            Self::Foreign => "this does not look like an API server; check its address in the kubeconfig",
            Self::Unanswered => {
                "the API server does not answer GET /version with its version; check its address in the kubeconfig, \
                 and whether its /readyz is ok"
            }
            Self::Unauthorized => {
                "the API server does not accept the gateway's own credentials (401); check the user of the kubeconfig, \
                 or the service account: whether its token or certificate has expired"
            }
            Self::Forbidden => {
                "the gateway's identity may not get /version; give it the right, as system:public-info-viewer does"
            }
        }
    }
}

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An API server has said its version.
    Passed,
    /// What is wrong is already known from the request itself: it did not reach upstream, or was refused.
    Noted,
    /// Something answers, or holds the connection open, that is not a working API server.
    Failed { kind: TroubleKind, error: String },
}

impl Health {
    /// Records the outcome of a request to `address`: its error, or `None` if there was an answer.
    pub(super) fn requested(&self, address: &impl Display, error: Option<&SendError>) {
        let reached = &self.0.reached;
        let Some(error) = error else {
            if reached.ends() {
                tracing::info!(%address, "the API server can be reached again");
            }
            return;
        };
        // Other errors do not show whether the request reached upstream.
        let Some(kind) = error.trouble() else { return };
        if !reached.begins(kind, bounded(&Chain(error).to_string())) {
            return;
        }
        if kind == TroubleKind::Unreachable {
            tracing::warn!(%address, error = %Chain(error), "{}", kind.advice());
        } else {
            tracing::warn!(error = %Chain(error), "no server of upstream is usable");
        }
    }

    /// Records the outcome of a probe of `address`.
    pub(super) fn probed(&self, address: &impl Display, probe: Probe) {
        let answering = &self.0.answering;
        match probe {
            Probe::Passed => {
                tracing::debug!(%address, "the API server answers");
                if answering.ends() {
                    tracing::info!(%address, "an API server answers now");
                }
            }
            Probe::Noted => {
                answering.ends();
            }
            Probe::Failed { kind, error } => {
                let error = bounded(&error);
                if answering.begins(kind, error.clone()) {
                    tracing::warn!(%address, error, "{}", kind.advice());
                }
            }
        }
    }

    /// Records that the request for `path` to `address` was refused, with the message of the answer. The log has one
    /// line if credentials are not accepted, whatever was requested.
    pub(super) fn refused(&self, address: &impl Display, path: &str, status: StatusCode, message: &str) {
        let (path, message) = (bounded(path), bounded(message));
        if self.0.refusals.keep(path, status, &message) {
            tracing::warn!(%address, error = message, "{}", TroubleKind::Unauthorized.advice());
        }
    }

    /// Records that the request for `path` to `address` was not refused.
    pub(super) fn allowed(&self, address: &impl Display, path: &str) {
        // Most of the time there is nothing to look for.
        let refusals = &self.0.refusals;
        if refusals.any.load(Relaxed) && refusals.forget(path) {
            tracing::info!(%address, "the API server accepts the gateway's own credentials again");
        }
    }

    /// Whether the last request did not reach it.
    pub(super) fn is_unreachable(&self) -> bool {
        self.0.reached.is_there()
    }

    /// Whether a request did not reach it after `time`, and it may have been started since.
    pub(super) fn was_unreachable_since(&self, time: Instant) -> bool {
        self.is_unreachable() || self.0.reached.lock().over_at.is_some_and(|at| at > time)
    }

    /// Whether it does not accept the gateway's credentials.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.0.refusals.is_unauthorized()
    }

    /// Whether the last requests did not reach it or were refused because of the gateway's credentials, or the last
    /// probe failed.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.is_unreachable() || self.is_unauthorized() || self.0.answering.is_there()
    }

    /// What is wrong now with upstream at the address `server`, the worst first.
    pub(super) fn troubles(&self, server: &str) -> Vec<Trouble> {
        let Shared { reached, answering, refusals } = &*self.0;
        let trouble = |kind, since, path, error| Trouble { kind, server: server.to_owned(), since, path, error };
        let conditions = reached.current().into_iter().chain(answering.current());
        let conditions = conditions.map(|Current { kind, since, error }| trouble(kind, since, None, error));
        let refused = refusals.current().into_iter().map(|Refusal { path, status, since, message, .. }| {
            let is_unauthorized = status == StatusCode::UNAUTHORIZED;
            let kind = if is_unauthorized { TroubleKind::Unauthorized } else { TroubleKind::Forbidden };
            trouble(kind, since, Some(path), message)
        });
        conditions.chain(refused).collect()
    }
}

/// One trouble, or its absence: its kind, its start, its last error, and whether it was logged.
#[derive(Debug, Default)]
struct Condition {
    /// Read without the lock: requests that succeed must not contend for it.
    is_there: AtomicBool,
    known: Mutex<KnownCondition>,
}

#[derive(Debug, Default)]
struct KnownCondition {
    now: Option<Current>,
    /// When the last one was over.
    over_at: Option<Instant>,
    notice: Notice,
}

/// The trouble that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Current {
    kind: TroubleKind,
    /// When it was first found to be of this kind.
    since: SystemTime,
    /// The error of the last time, with its causes.
    error: String,
}

impl Condition {
    /// Records that the trouble is there. Returns whether to log it.
    fn begins(&self, kind: TroubleKind, error: String) -> bool {
        let mut known = self.lock();
        let same = known.now.as_ref().filter(|now| now.kind == kind);
        let since = same.map_or_else(SystemTime::now, |now| now.since);
        known.now = Some(Current { kind, since, error });
        self.is_there.store(true, Relaxed);
        known.notice.begins()
    }

    /// Records that there is none. Returns whether to log the end of one.
    fn ends(&self) -> bool {
        if !self.is_there() {
            return false;
        }
        let mut known = self.lock();
        (known.now, known.over_at) = (None, Some(Instant::now()));
        self.is_there.store(false, Relaxed);
        known.notice.ends()
    }

    fn is_there(&self) -> bool {
        self.is_there.load(Relaxed)
    }

    /// `None` while there is none.
    fn current(&self) -> Option<Current> {
        if self.is_there() { self.lock().now.clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, KnownCondition> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a trouble was logged.
#[derive(Debug, Default)]
struct Notice {
    /// Whether the last line was the warning.
    is_told: bool,
    warned_at: Option<Instant>,
}

impl Notice {
    /// Records that the trouble is there. Returns whether to log it.
    fn begins(&mut self) -> bool {
        if self.is_told || self.warned_at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return false;
        }
        (self.warned_at, self.is_told) = (Some(Instant::now()), true);
        true
    }

    /// Records that it is over. Returns whether to log that.
    fn ends(&mut self) -> bool {
        mem::take(&mut self.is_told)
    }
}

/// The beginning of a text, on one line.
pub(super) fn bounded(text: &str) -> String {
    let line = |letter: char| if letter.is_control() { ' ' } else { letter };
    match text.char_indices().nth(TEXT_MAX) {
        None => text.chars().map(line).collect(),
        Some((end, _)) => text[..end].chars().map(line).chain(['…']).collect(),
    }
}

/// Which of the gateway's own requests upstream refuses: 401 and 403.
#[derive(Debug, Default)]
struct Refusals {
    /// Whether `known` has refusals; read without its lock.
    any: AtomicBool,
    known: Mutex<KnownRefusals>,
}

#[derive(Debug, Default)]
struct KnownRefusals {
    refusals: Vec<Refusal>,
    /// Whether the log has a warning about the credentials.
    notice: Notice,
}

/// A request of the gateway that upstream refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    /// Without its query.
    path: String,
    status: StatusCode,
    since: SystemTime,
    /// The message of the last answer; empty if it had none.
    message: String,
    last: Instant,
}

impl Refusals {
    /// The refusals that count now: of credentials first, then by time.
    fn current(&self) -> Vec<Refusal> {
        let mut known = self.lock();
        known.refusals.retain(|refusal| refusal.last.elapsed() < KEPT_FOR);
        let mut refusals = known.refusals.clone();
        refusals.sort_by_key(|refusal| (refusal.status, refusal.since));
        refusals
    }

    /// Whether credentials are not accepted.
    fn is_unauthorized(&self) -> bool {
        self.any.load(Relaxed) && self.lock().has_unauthorized()
    }

    /// Whether to log it.
    fn keep(&self, path: String, status: StatusCode, message: &str) -> bool {
        let now = Instant::now();
        let mut known = self.lock();
        known.refusals.retain(|refusal| refusal.last.elapsed() < KEPT_FOR);
        let found = known.refusals.iter_mut().find(|refusal| refusal.path == path && refusal.status == status);
        if let Some(refusal) = found {
            (refusal.last, refusal.message) = (now, message.to_owned());
        } else {
            known.refusals.retain(|refusal| refusal.path != path);
            if known.refusals.len() >= PATHS_MAX {
                limit_reached("upstream_refusals");
            } else {
                let (since, message) = (SystemTime::now(), message.to_owned());
                known.refusals.push(Refusal { path, status, since, message, last: now });
            }
        }
        self.any.store(true, Relaxed);
        status == StatusCode::UNAUTHORIZED && known.notice.begins()
    }

    /// Whether to log it.
    fn forget(&self, path: &str) -> bool {
        let path = bounded(path);
        let mut known = self.lock();
        // Credentials are accepted for all requests or for none.
        known.refusals.retain(|refusal| refusal.path != path && refusal.status != StatusCode::UNAUTHORIZED);
        self.any.store(!known.refusals.is_empty(), Relaxed);
        known.notice.ends()
    }

    fn lock(&self) -> MutexGuard<'_, KnownRefusals> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownRefusals {
    fn has_unauthorized(&self) -> bool {
        self.refusals.iter().any(|refusal| refusal.status == StatusCode::UNAUTHORIZED)
    }
}

/// Tells tasks that wait before they try again that upstream can be used again. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Recovery(Arc<watch::Sender<Option<Instant>>>);

impl Recovery {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Upstream could not be used, and now it can.
    pub(super) fn tell(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Resolves when that has happened after `time`. Not at `time`: who tries again at once and fails would do so for
    /// as long as the clock stands still.
    pub(super) async fn since(&self, time: Instant) {
        let mut told = self.0.subscribe();
        // The sender lives as long as `self` does, so waiting cannot fail.
        drop(told.wait_for(|told| told.is_some_and(|at| at > time)).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_shows_that_it_can_be_reached() {
        let health = Health::default();
        health.0.reached.begins(TroubleKind::Unreachable, "refused".to_owned());
        assert!(health.is_unreachable());
        health.requested(&"", None);
        assert_eq!(health.troubles(""), []);
    }

    const KIND: TroubleKind = TroubleKind::Unreachable;

    #[tokio::test(start_paused = true)]
    async fn warnings_have_a_time_between_them() {
        let trouble = Condition::default();
        let flaps = |times: usize| {
            let flap = |_: &usize| {
                let warned = trouble.begins(KIND, "refused".to_owned());
                trouble.ends();
                warned
            };
            (0..times).filter(flap).count()
        };
        assert_eq!(flaps(100), 1);
        tokio::time::advance(WARN_EVERY).await;
        assert_eq!(flaps(100), 1);
        assert!(!trouble.begins(KIND, "refused".to_owned()));
    }

    #[test]
    fn trouble_keeps_its_start_and_its_last_error() {
        let trouble = Condition::default();
        assert_eq!(trouble.current(), None);
        assert!(trouble.begins(TroubleKind::Foreign, "one".to_owned()));
        let first = trouble.current().unwrap();
        assert!(!trouble.begins(TroubleKind::Foreign, "two".to_owned()));
        assert_eq!(trouble.current(), Some(Current { error: "two".to_owned(), ..first }));
        assert!(!trouble.begins(TroubleKind::Unanswered, "three".to_owned()));
        assert_eq!(trouble.current().unwrap().kind, TroubleKind::Unanswered);
        assert!(trouble.ends());
        assert_eq!(trouble.current(), None);
        assert!(!trouble.ends());
    }

    #[test]
    fn texts_are_one_line_of_bounded_length() {
        assert_eq!(bounded("a\nb\u{1b}[2Jé"), "a b [2Jé");
        assert_eq!(bounded(&"é".repeat(TEXT_MAX)), "é".repeat(TEXT_MAX));
        assert_eq!(bounded(&"é".repeat(TEXT_MAX * 9)), format!("{}…", "é".repeat(TEXT_MAX)));
    }

    const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
    const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;

    fn paths(refusals: &Refusals) -> Vec<(String, u16)> {
        refusals.current().into_iter().map(|refusal| (refusal.path, refusal.status.as_u16())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_kept_until_its_path_is_allowed_or_it_expires() {
        let refusals = Refusals::default();
        refusals.keep("/a".to_owned(), FORBIDDEN, "");
        refusals.keep("/b".to_owned(), FORBIDDEN, "");
        refusals.forget("/c");
        assert_eq!(paths(&refusals), [("/a".to_owned(), 403), ("/b".to_owned(), 403)]);
        refusals.forget("/a");
        assert_eq!(paths(&refusals), [("/b".to_owned(), 403)]);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(paths(&refusals), []);
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_credentials_are_reported_once_until_any_request_is_accepted() {
        let refusals = Refusals::default();
        assert!(!refusals.keep("/a".to_owned(), FORBIDDEN, ""));
        assert!(refusals.keep("/a".to_owned(), UNAUTHORIZED, ""));
        tokio::time::advance(WARN_EVERY).await;
        assert!(!refusals.keep("/b".to_owned(), UNAUTHORIZED, ""));
        assert!(refusals.is_unauthorized());
        assert!(refusals.forget("/version"));
        assert!(!refusals.is_unauthorized() && paths(&refusals).is_empty());
        assert!(!refusals.forget("/version"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_paths_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..PATHS_MAX * 3 {
            refusals.keep(format!("/{number}"), FORBIDDEN, "");
        }
        assert_eq!(refusals.current().len(), PATHS_MAX);
    }
}
