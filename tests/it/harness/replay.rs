//! An upstream that only has the recorded responses of a real API server.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Incoming;
use tokio::{sync::watch, task::JoinSet};

use super::{
    client::USER_AGENT,
    serving::{accepting, listener, serve},
};
use kube_fanout::apimachinery::Encoding;

type Body = BoxBody<Bytes, Infallible>;

/// The namespace and the query with which the gateway finds out whether field labels are supported.
const PROBE_NAMESPACE: &str = "/namespaces/kube-fanout.";
const FIELDS_KNOWN: &str = "resourceVersion=0&fieldSelector=metadata.name%3Dkube-fanout.";

/// The body of the response to a request without a recording.
pub(crate) const NOT_RECORDED: &str = "not recorded\n";

/// The recordings that a gateway reads of one collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collection {
    /// The response to a list of one item.
    pub(crate) head: Bytes,
    /// The stream of a watch-list, up to its end bookmark.
    pub(crate) watch_list: Bytes,
    /// The rest of that stream, which is sent after [`Replay::go_on`] or [`Replay::go_on_in`].
    pub(crate) live: Bytes,
}

/// The server; ends with its test.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    documents: HashMap<String, String>,
    collections: HashMap<(String, Encoding), Collection>,
    forwarded: Mutex<Vec<String>>,
    /// The encodings in which the live events are sent.
    live: watch::Sender<Vec<Encoding>>,
}

impl Replay {
    /// `documents` and `collections` by path.
    pub(crate) async fn start(
        documents: HashMap<String, String>,
        collections: HashMap<(String, Encoding), Collection>,
    ) -> Self {
        let (forwarded, live) = (Mutex::default(), watch::Sender::default());
        let shared = Arc::new(Shared { documents, collections, forwarded, live });
        let (listener, address) = listener().await;
        let answering = shared.clone();
        let serving = accepting(listener, move |stream| {
            let shared = answering.clone();
            serve(stream, move |request| ready(shared.answer(&request)))
        });
        Self { url: format!("http://{address}"), shared, _serving: serving }
    }

    /// Sends the live events of the collections.
    pub(crate) fn go_on(&self) {
        self.go_on_in(Encoding::Json);
        self.go_on_in(Encoding::Protobuf);
    }

    /// Sends the live events of the collections in one encoding only.
    pub(crate) fn go_on_in(&self, encoding: Encoding) {
        self.shared.live.send_modify(|live| live.push(encoding));
    }

    /// Method and target of each request since the last call that came from a client, and not from the gateway itself.
    pub(crate) fn forwarded(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.forwarded.lock().unwrap())
    }
}

impl Shared {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let user_agent = request.headers().get(header::USER_AGENT).map(|agent| agent.to_str().unwrap());
        if user_agent.is_some_and(|agent| agent.starts_with(USER_AGENT)) {
            self.forwarded.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            return answer(StatusCode::NOT_FOUND, full(NOT_RECORDED));
        }
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if let Some(document) = self.documents.get(path) {
            return answer(StatusCode::OK, full(document));
        }
        let accept = request.headers().get(header::ACCEPT).map(|accept| accept.to_str().unwrap());
        let encoding = match accept {
            Some("application/vnd.kubernetes.protobuf") => Encoding::Protobuf,
            _ => Encoding::Json,
        };
        match self.collections.get(&(path.replace(PROBE_NAMESPACE, ""), encoding)) {
            Some(collection) if query.contains("sendInitialEvents=true") => {
                answer(StatusCode::OK, self.watch_list(collection, encoding))
            }
            Some(_) if query.contains("watch=1") => answer(StatusCode::OK, silence()),
            Some(collection) if query == "limit=1" || query.starts_with(FIELDS_KNOWN) => {
                answer(StatusCode::OK, Full::new(collection.head.clone()).boxed())
            }
            _ => answer(StatusCode::NOT_FOUND, full(NOT_RECORDED)),
        }
    }

    fn watch_list(&self, collection: &Collection, encoding: Encoding) -> Body {
        let (first, then, mut live) = (collection.watch_list.clone(), collection.live.clone(), self.live.subscribe());
        let then = stream::once(async move {
            // The sender lives as long as the server.
            drop(live.wait_for(|live| live.contains(&encoding)).await);
            then
        });
        let texts = stream::iter([first]).chain(then).chain(stream::pending());
        BodyExt::boxed(StreamBody::new(texts.map(|text| Ok(Frame::data(text)))))
    }
}

fn answer(status: StatusCode, body: Body) -> Response<Body> {
    Response::builder().status(status).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

fn full(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed()
}

fn silence() -> Body {
    BodyExt::boxed(StreamBody::new(stream::pending()))
}
