//! Notices that the API server is silent: it is frozen, or the network drops what is sent, so that connections stay
//! open, or can even be opened, and nothing comes.
//!
//! A request that has waited for a second, in which nothing was received on any connection, raises the suspicion. A
//! task then asks for upstream's version on a new connection. Any answer refutes the suspicion, and so does anything
//! that comes on another connection meanwhile: an API server that is slow is not silent. Otherwise requests are not
//! sent any more, and reads that wait are given up, until something is received. Of several API servers
//! (`upstream.servers`) this is known from their checks; what is said here is about one address.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Request, header};
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tower::ServiceExt;

use super::{RequestBody, SendError, access::Transport, target::Target, via};

/// How long a request waits for its answer, while nothing is received, until upstream is suspected.
const SUSPECTED_AFTER: Duration = Duration::from_secs(1);
/// How often a request that waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The most that this grows to for a request that waits long because its answer takes long, such as that for the log of
/// a pod that writes none.
const SUSPECTED_AFTER_MAX: Duration = Duration::from_secs(60);
/// The time limit of an answer to the check, with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often a silent API server is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// What is asked: every API server answers it from memory, with 401 or 403 at worst.
const PATH: &str = "/version";

/// What is known of the silence of one address. Clones share it. Never silent unless [`Self::keep_checked`] runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Silence(Arc<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    /// When the head or a part of an answer last came, in milliseconds since `began`.
    heard_at: AtomicU64,
    is_silent: AtomicBool,
    suspected: Notify,
}

impl Default for State {
    fn default() -> Self {
        let (heard_at, is_silent, suspected) = Default::default();
        Self { began: Instant::now(), heard_at, is_silent, suspected }
    }
}

impl Silence {
    /// Upstream's answer, of which only the beginning is waited for; or an error at once if upstream is silent, or, if
    /// the request `changes_nothing`, once it is.
    pub(super) async fn unless_silent<T>(
        &self,
        changes_nothing: bool,
        mut answer: Pin<&mut impl Future<Output = Result<T, SendError>>>,
    ) -> Result<T, SendError> {
        if self.is_silent() {
            return Err(SendError::Silent);
        }
        select! {
            biased;
            answer = &mut answer => return answer,
            () = self.noticed() => {}
        }
        // A write may have been carried out: its client is not told otherwise.
        if changes_nothing { Err(SendError::Silent) } else { answer.await }
    }

    /// Something was received from upstream.
    pub(super) fn heard(&self) {
        self.0.heard_at.store(millis(self.0.began.elapsed()), Relaxed);
    }

    fn is_silent(&self) -> bool {
        self.0.is_silent.load(Relaxed)
    }

    fn heard_at(&self) -> Instant {
        self.0.began + Duration::from_millis(self.0.heard_at.load(Relaxed))
    }

    /// Resolves when upstream is silent. Suspects it from time to time.
    async fn noticed(&self) {
        let (mut since, mut patience) = (Instant::now(), SUSPECTED_AFTER);
        loop {
            sleep(LOOK_EVERY).await;
            if self.is_silent() {
                return;
            }
            if self.heard_at().max(since).elapsed() >= patience {
                self.0.suspected.notify_one();
                (since, patience) = (Instant::now() + ANSWER_MAX, SUSPECTED_AFTER_MAX.min(patience * 2));
            }
        }
    }

    /// Checks `target` on connections that `transport` opens, whenever it is suspected, and for as long as it is
    /// silent.
    pub(super) async fn keep_checked(self, target: Target, transport: Transport) {
        loop {
            self.0.suspected.notified().await;
            if self.is_heard(&target, &transport).await {
                continue;
            }
            self.0.is_silent.store(true, Relaxed);
            target.health.requested(&target, Some(&SendError::Silent));
            loop {
                sleep(CHECK_EVERY).await;
                if self.is_heard(&target, &transport).await {
                    break;
                }
            }
            self.0.is_silent.store(false, Relaxed);
            target.health.requested(&target, None);
        }
    }

    /// Whether anything is received while upstream's version is asked for. That nothing can be connected to is known
    /// by another error.
    async fn is_heard(&self, target: &Target, transport: &Transport) -> bool {
        let asked_at = Instant::now();
        let Some(request) = question(target) else { return true };
        let is_answered = timeout(ANSWER_MAX, transport.clone().oneshot(request)).await.is_ok();
        is_answered || self.heard_at() > asked_at
    }
}

fn question(target: &Target) -> Option<Request<RequestBody>> {
    let mut request = Request::new(RequestBody::Empty);
    *request.uri_mut() = target.join(&http::Uri::from_static(PATH)).ok()?;
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    via::add(request.headers_mut());
    Some(request)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use http::Response;
    use tokio::sync::watch;

    use super::*;
    use crate::connector::{
        OwnRequests,
        test_server::{TestServer, full},
    };
    use base::lifecycle::Tasks;

    /// Which requests the server answers.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Answers {
        All,
        /// All but the one for `/slow`.
        Others,
        None,
    }

    struct World {
        own: OwnRequests,
        answers: watch::Sender<Answers>,
        tasks: Tasks,
        _server: TestServer,
    }

    impl World {
        async fn start() -> Self {
            let (answers, seen) = watch::channel(Answers::All);
            let server = TestServer::start(move |request| {
                let mut seen = seen.clone();
                async move {
                    let is_slow = request.uri().path() == "/slow";
                    let answers = |now: &Answers| *now == Answers::All || *now == Answers::Others && !is_slow;
                    seen.wait_for(answers).await.unwrap();
                    Response::new(full("x"))
                }
            })
            .await;
            let (connector, tasks) = (server.connector(), Tasks::new());
            connector.notice_silence(&tasks);
            let world = Self { own: connector.own_requests(), answers, tasks, _server: server };
            world.send("GET", "/warm").await.unwrap();
            world
        }

        async fn send(&self, method: &str, path: &str) -> Result<u16, SendError> {
            let request = Request::builder().method(method).uri(path).body(RequestBody::Empty).unwrap();
            self.own.send(request).await.map(|answer| answer.status().as_u16())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_noticed_once_and_asked_again() {
        let world = World::start().await;
        world.answers.send_replace(Answers::None);
        let began = Instant::now();
        let mut write = pin!(world.send("POST", "/written"));
        let read = select! {
            _ = &mut write => panic!("a write that may have been carried out has no outcome yet"),
            read = world.send("GET", "/read") => read,
        };
        assert!(matches!(read, Err(SendError::Silent)));
        assert!(began.elapsed() <= SUSPECTED_AFTER + ANSWER_MAX + LOOK_EVERY, "{:?}", began.elapsed());
        // The next ones do not wait, and nothing is sent.
        let at = Instant::now();
        for method in ["GET", "POST"] {
            assert!(matches!(world.send(method, "/next").await, Err(SendError::Silent)), "{method}");
        }
        assert_eq!(at.elapsed(), Duration::ZERO);
        world.answers.send_replace(Answers::All);
        assert_eq!(write.await.unwrap(), 200);
        sleep(CHECK_EVERY + ANSWER_MAX).await;
        assert_eq!(world.send("GET", "/read").await.unwrap(), 200);
        world.tasks.drain(Duration::ZERO).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_waited_for() {
        let world = World::start().await;
        world.answers.send_replace(Answers::Others);
        let mut slow = pin!(world.send("GET", "/slow"));
        select! {
            _ = &mut slow => panic!("not answered yet"),
            () = sleep(SUSPECTED_AFTER_MAX * 5) => {}
        }
        assert_eq!(world.send("GET", "/other").await.unwrap(), 200);
        world.answers.send_replace(Answers::All);
        assert_eq!(slow.await.unwrap(), 200);
    }
}
