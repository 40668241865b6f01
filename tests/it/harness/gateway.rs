//! A gateway in this process, in front of any upstream.

use std::time::Duration;

use kube_fanout::{
    RunError, Sockets,
    config::{Config, Overrides},
    lifecycle::Drained,
    listener, run,
    telemetry::{self, Chain},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinSet,
};
use tracing::subscriber::DefaultGuard;

use super::{Answer, Client, Route, access::AccessLog, skip, until, within};

/// The maximum duration of a drain.
const DRAIN: Duration = Duration::from_secs(5);

/// Longer than the gateway remembers that a resource could not be cached, or is unknown.
const LOOK_ANEW: Duration = Duration::from_secs(11);

/// A running gateway; ends with its test.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) client: Client,
    admin: String,
    stop: oneshot::Sender<()>,
    running: JoinSet<Result<Drained, RunError>>,
    _log: DefaultGuard,
}

impl Gateway {
    /// Starts with the defaults of a configuration file.
    pub(crate) async fn start(upstream: &str) -> Self {
        Self::start_with(upstream, |_| {}).await
    }

    pub(crate) async fn start_with(upstream: &str, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_in_front_of(kube_client::Config::new(upstream.parse().unwrap()), change).await
    }

    /// Starts in front of an upstream that requires credentials.
    pub(crate) async fn start_in_front_of(upstream: kube_client::Config, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = defaults();
        change(&mut config);
        let bound = listener::bind(&config.listeners[0]).await.unwrap();
        let admin = listener::bind(&config.admin.listener()).await.unwrap();
        let admin_address = admin.address().to_string();
        let (log, _log) = AccessLog::install();
        let client = Client::new(format!("http://{}", bound.address()), log);
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let sockets =
                Sockets { upstream: None, listeners: vec![bound], admin: Some((admin, telemetry::install().unwrap())) };
            let shutdown = async { stopped.await.unwrap_or_default() };
            run(&config, &upstream, sockets, shutdown).await
        });
        Self { client, admin: admin_address, stop, running, _log }
    }

    /// The readiness on the admin port: status and text.
    pub(crate) async fn readyz(&self) -> (u16, String) {
        self.of_admin("/readyz").await
    }

    /// The same with all its lines.
    pub(crate) async fn verbose_readyz(&self) -> (u16, String) {
        self.of_admin("/readyz?verbose").await
    }

    pub(crate) async fn status_json(&self) -> String {
        self.of_admin("/status.json").await.1
    }

    async fn of_admin(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap(), text)
    }

    /// Requests a collection until it is answered from memory.
    pub(crate) async fn warm(&self, collection: &str) {
        let path = format!("{collection}?resourceVersion=0&limit=1");
        let look = async || (self.client.get(&path).await.route == Route::Served).then_some(());
        until("the cache is filled", look).await;
    }

    /// Like [`Self::warm`], for a collection that the gateway may have to look up again: skips time between the
    /// requests.
    pub(crate) async fn warm_skipping(&self, collection: &str) {
        let path = format!("{collection}?resourceVersion=0&limit=1");
        let look = async || {
            skip(LOOK_ANEW).await;
            (self.client.get(&path).await.route == Route::Served).then_some(())
        };
        until("the cache is filled", look).await;
    }

    /// Waits until memory has reached a version of a collection.
    pub(crate) async fn reach(&self, collection: &str, version: u64) {
        let path = format!("{collection}?resourceVersion={version}&limit=1&resourceVersionMatch=NotOlderThan");
        let look = async || (self.client.get(&path).await.route == Route::Served).then_some(());
        until("the version in memory", look).await;
    }

    /// Repeats the request until it is forwarded for this reason.
    pub(crate) async fn until_forwarded(&self, path: &str, reason: &str) -> Answer {
        let look = async || {
            let answer = self.client.get(path).await;
            (answer.route == Route::Forwarded(reason.to_owned())).then_some(answer)
        };
        until(reason, look).await
    }

    /// Why it could not start, with all causes.
    pub(crate) async fn failed(&mut self) -> String {
        let ended = within("the end", self.running.join_next()).await.unwrap().unwrap();
        Chain(&ended.unwrap_err()).to_string()
    }

    /// Begins the drain without waiting for it.
    pub(crate) fn stop(self) -> Stopping {
        let Self { stop, running, _log, .. } = self;
        stop.send(()).unwrap();
        Stopping { running, _log }
    }
}

/// A gateway that drains.
#[derive(Debug)]
pub(crate) struct Stopping {
    running: JoinSet<Result<Drained, RunError>>,
    _log: DefaultGuard,
}

impl Stopping {
    pub(crate) async fn drained(&mut self) -> Drained {
        within("the drain", self.running.join_next()).await.unwrap().unwrap().unwrap()
    }
}

/// The configuration of a gateway without a configuration file, on a free port, with an access log line for each
/// request.
fn defaults() -> Config {
    let (listen, admin_listen) = (Some("127.0.0.1:0".to_owned()), Some("127.0.0.1:0".to_owned()));
    let mut config = Config::defaults(&Overrides { listen, admin_listen, ..Overrides::default() }).unwrap();
    config.drain.timeout = DRAIN;
    config.logging.access = telemetry::AccessLines::All;
    // Everything is compressed at once, and inflated by each reader.
    if std::env::var_os("KUBE_FANOUT_COLD").is_some() {
        config.cache.compress_after = Some(Duration::ZERO);
    }
    config
}
