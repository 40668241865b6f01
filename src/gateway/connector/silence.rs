//! Notices that the API server is silent: it is frozen, or the network drops what is sent, so that connections stay
//! open, or can even be opened, and nothing comes.
//!
//! A request that has waited for a second, in which no byte came on any connection, raises the suspicion. A task then
//! asks for upstream's version on a new connection. If two seconds later there is neither an answer nor a byte on
//! another connection, upstream is silent: requests are not sent any more, and reads that wait are given up, until
//! something is received, or the next check ends with an error, which the next request then has, too. A slow API server
//! is not silent as long as it sends anything; to complete a TLS handshake is enough. Credentials have no part in this:
//! a check has none, and what obtains them for a request is not waited for here. Of several API servers
//! (`upstream.servers`) all this is known from their checks; what is said here is about one address.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tower::{Service, ServiceExt};

use super::{BoxError, RequestBody, SendError, access::Transport, target::Target, via};

/// How long a request waits for its answer, while nothing is received, until upstream is suspected.
const SUSPECTED_AFTER: Duration = Duration::from_secs(1);
/// How often a request that waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The most that this grows to for a request that waits long because its answer takes long, such as that for the log of
/// a pod that writes none.
const SUSPECTED_AFTER_MAX: Duration = Duration::from_secs(60);
/// The time limit of the answer to the first check, with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The same for each further check: longer than connecting may take, so that a slow network ends no check too early.
const LATER_ANSWER_MAX: Duration = Duration::from_secs(12);
/// The pause after a check of a silent API server.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// What is asked: every API server answers it from memory, with 401 or 403 at worst.
const PATH: &str = "/version";

/// What is known of the silence of one address. Clones share it. Never silent unless [`Self::keep_checked`] runs.
#[derive(Clone, Debug)]
pub(super) struct Silence(Arc<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    /// When a byte last came, in milliseconds since `began`.
    heard_at: AtomicU64,
    suspected: Notify,
    /// When the check began that showed it; `None` if upstream is not silent.
    silent_since: Mutex<Option<Instant>>,
}

impl Default for Silence {
    fn default() -> Self {
        let (heard_at, suspected, silent_since) = Default::default();
        Self(Arc::new(State { began: Instant::now(), heard_at, suspected, silent_since }))
    }
}

impl Silence {
    /// Something was received from upstream.
    pub(super) fn heard(&self) {
        self.0.heard_at.store(millis(self.0.began.elapsed()), Relaxed);
    }

    fn heard_at(&self) -> Instant {
        self.0.began + Duration::from_millis(self.0.heard_at.load(Relaxed))
    }

    /// The error of a request, if upstream is silent.
    fn error(&self) -> Option<SendError> {
        let since = *self.0.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| SendError::Silent(since.elapsed()))
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Resolves when upstream is silent. Until then suspects it from time to time.
    async fn noticed(&self) -> SendError {
        let (mut since, mut patience) = (Instant::now(), SUSPECTED_AFTER);
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(error) = self.error() {
                return error;
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
            let asked_at = Instant::now();
            let answer = timeout(ANSWER_MAX, check(&target, &transport)).await;
            if answer.is_ok() || self.heard_at() > asked_at {
                continue;
            }
            self.set(Some(asked_at));
            target.health.requested(&target, self.error().as_ref());
            let ended = loop {
                match self.listen(&target, &transport).await {
                    Some(ended) => break ended,
                    None => sleep(CHECK_PAUSE).await,
                }
            };
            self.set(None);
            target.health.requested(&target, ended.as_ref().err());
        }
    }

    /// What ends the silence: something that comes, or an error of the next check; `None` if neither does in its time.
    async fn listen(&self, target: &Target, transport: &Transport) -> Option<Result<(), SendError>> {
        let since = Instant::now();
        let heard = async {
            while self.heard_at() <= since {
                sleep(LOOK_EVERY).await;
            }
        };
        select! {
            answer = timeout(LATER_ANSWER_MAX, check(target, transport)) => match answer {
                Ok(Err(SendError::ConnectTimedOut(_))) | Err(_) => None,
                Ok(answer) => Some(answer),
            },
            () = heard => Some(Ok(())),
        }
    }
}

/// Whether upstream answers, whatever it says.
async fn check(target: &Target, transport: &Transport) -> Result<(), SendError> {
    let mut request = Request::new(RequestBody::Empty);
    *request.uri_mut() = target.join(&http::Uri::from_static(PATH)).map_err(|_| SendError::InvalidTarget)?;
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    via::add(request.headers_mut());
    let answer = transport.clone().oneshot(request).await;
    answer.map(drop).map_err(SendError::from_transport)
}

/// Whether a request can be given up, or sent again, after it was sent. An upgrade is a GET, too, but may start
/// something, such as the command of an exec.
pub(super) fn changes_nothing(method: &Method, headers: &http::HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(header::UPGRADE)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sends nothing while upstream is silent, and gives up waiting for answers to requests that change nothing when it is.
#[derive(Clone, Debug)]
pub(super) struct UnlessSilent<S> {
    inner: S,
    silence: Silence,
    requests: Requests,
}

/// What is sent on a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requests {
    /// Those of clients.
    Any,
    /// The gateway's own, which are reads and reviews: they change nothing.
    Own,
}

impl<S> UnlessSilent<S> {
    pub(super) fn new(inner: S, silence: Silence, requests: Requests) -> Self {
        Self { inner, silence, requests }
    }
}

impl<S, B> Service<Request<RequestBody>> for UnlessSilent<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        if let Some(error) = self.silence.error() {
            return Box::pin(async { Err(error.into()) });
        }
        let changes_nothing = self.requests == Requests::Own || changes_nothing(request.method(), request.headers());
        let (answer, silence) = (self.inner.call(request), self.silence.clone());
        Box::pin(async move {
            let mut answer = pin!(answer);
            let error = select! {
                biased;
                answer = &mut answer => return answer,
                error = silence.noticed() => error,
            };
            // A write may have been carried out: its client is not told otherwise.
            if changes_nothing { Err(error.into()) } else { answer.await }
        })
    }
}
#[cfg(test)]
mod tests {
    use std::pin::pin;

    use http::Response;
    use tokio::sync::watch;

    use super::*;
    use crate::connector::{
        AsGateway, OwnRequests,
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
        clients: AsGateway,
        answers: watch::Sender<Answers>,
        tasks: Tasks,
        _server: TestServer,
    }

    impl World {
        async fn start() -> Self {
            let (answers, seen) = watch::channel(Answers::All);
            let mut server = TestServer::start(move |request| {
                let is_check = request.uri().path() == PATH;
                assert_eq!(request.headers().contains_key(header::AUTHORIZATION), !is_check);
                let mut seen = seen.clone();
                async move {
                    let is_slow = request.uri().path() == "/slow";
                    let answers = |now: &Answers| *now == Answers::All || *now == Answers::Others && !is_slow;
                    seen.wait_for(answers).await.unwrap();
                    Response::new(full("x"))
                }
            })
            .await;
            server.config.auth_info.token = Some("token".to_owned().into());
            let (connector, tasks) = (server.connector(), Tasks::new());
            connector.notice_silence(&tasks);
            let (own, clients) = (connector.own_requests(), connector.as_gateway());
            let world = Self { own, clients, answers, tasks, _server: server };
            world.send("GET", "/warm").await.unwrap();
            world
        }

        /// As a client's request.
        async fn send(&self, method: &str, path: &str) -> Result<u16, SendError> {
            let request = Request::builder().method(method).uri(path).body(RequestBody::Empty).unwrap();
            let answer = self.clients.outbound(request).unwrap().send().await;
            answer.map(|answer| answer.status().as_u16())
        }

        async fn review(&self) -> Result<u16, SendError> {
            let request = Request::post("/review").body(RequestBody::Empty).unwrap();
            self.own.send(request).await.map(|answer| answer.status().as_u16())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_noticed_once_and_asked_again() {
        let world = World::start().await;
        world.answers.send_replace(Answers::None);
        let began = Instant::now();
        let mut write = pin!(world.send("POST", "/written"));
        let (read, review) = select! {
            _ = &mut write => panic!("a write that may have been carried out has no outcome yet"),
            given_up = async { tokio::join!(world.send("GET", "/read"), world.review()) } => given_up,
        };
        assert!(matches!((read, review), (Err(SendError::Silent(_)), Err(SendError::Silent(_)))));
        assert!(began.elapsed() <= SUSPECTED_AFTER + ANSWER_MAX + LOOK_EVERY, "{:?}", began.elapsed());
        // The next ones do not wait, and nothing is sent.
        let at = Instant::now();
        for method in ["GET", "POST"] {
            assert!(matches!(world.send(method, "/next").await, Err(SendError::Silent(_))), "{method}");
        }
        assert_eq!(at.elapsed(), Duration::ZERO);
        world.answers.send_replace(Answers::All);
        assert_eq!(write.await.unwrap(), 200);
        sleep(CHECK_PAUSE + ANSWER_MAX).await;
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
