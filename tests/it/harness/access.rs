//! Reads the gateway's access log for tests: which request was answered from where, and why.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, Once},
};

use tokio::sync::watch;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use super::within;

/// The origin of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Served,
    /// With the name of the reason.
    Forwarded(String),
    Rejected(String),
}

pub(crate) fn forwarded(reason: &str) -> Route {
    Route::Forwarded(reason.to_owned())
}

pub(crate) fn rejected(reason: &str) -> Route {
    Route::Rejected(reason.to_owned())
}

impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => formatter.write_str("served"),
            Self::Forwarded(reason) => write!(formatter, "forwarded({reason})"),
            Self::Rejected(reason) => write!(formatter, "rejected({reason})"),
        }
    }
}

/// The fields of a line that are texts, and those that are logged as such.
pub(crate) type Line = HashMap<&'static str, String>;

/// The routes and lines of finished requests by user agent, which is unique for each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessLog {
    routes: Arc<Mutex<HashMap<String, Route>>>,
    lines: Arc<Mutex<HashMap<String, Line>>>,
    written: watch::Sender<()>,
}

impl AccessLog {
    /// Reads the log of this thread until the guard is dropped: a test's runtime has one thread.
    pub(crate) fn install() -> (Self, DefaultGuard) {
        // A call site that is first reached on a thread without a subscriber is switched off for all threads while
        // there is only one subscriber. With a default for the whole process, every thread has a subscriber.
        static DEFAULT: Once = Once::new();
        DEFAULT.call_once(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
        });
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// How a request was answered, once its response has ended.
    pub(crate) async fn route(&self, user_agent: &str) -> Route {
        let mut written = self.written.subscribe();
        let found = async {
            loop {
                if let Some(route) = self.routes.lock().unwrap().remove(user_agent) {
                    return route;
                }
                written.changed().await.unwrap();
            }
        };
        within("the access log's line", found).await
    }

    /// The line of a request whose route is known.
    pub(crate) fn line(&self, user_agent: &str) -> Line {
        self.lines.lock().unwrap().remove(user_agent).expect("a line of the access log")
    }
}

impl<S: Subscriber> Layer<S> for AccessLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "access" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields(mut fields) = fields;
        let user_agent = fields.get("user_agent").cloned().unwrap_or_default();
        self.lines.lock().unwrap().insert(user_agent.clone(), fields.clone());
        let reason = fields.remove("reason").unwrap_or_default();
        let route = match fields["outcome"].as_str() {
            "served" => Route::Served,
            "forwarded" => Route::Forwarded(reason),
            _ => Route::Rejected(reason),
        };
        self.routes.lock().unwrap().insert(user_agent, route);
        self.written.send_replace(());
    }
}

#[derive(Default)]
struct Fields(Line);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
