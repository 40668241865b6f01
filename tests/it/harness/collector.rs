//! A collector of traces that accepts OTLP over gRPC, and can misbehave on purpose.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::{
    serving::{accepting, listener},
    until,
};

/// How the collector treats calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Accepts,
    /// With this gRPC status.
    Refuses(u32),
    /// It is read, and never answered.
    Silent,
    /// The answer has no end.
    Endless,
    /// Bytes that are not HTTP/2.
    Garbage,
    /// The connection is closed at once.
    Closes,
}

/// A running collector; ends with its test.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: Arc<Received>,
    _connections: JoinSet<()>,
}

#[derive(Debug)]
struct Received {
    manner: Mutex<Manner>,
    spans: Mutex<Vec<Span>>,
    resource: Mutex<Option<Resource>>,
    calls: Mutex<usize>,
}

impl Collector {
    pub(crate) async fn start(manner: Manner) -> Self {
        let (listener, address) = listener().await;
        let received = Arc::new(Received {
            manner: Mutex::new(manner),
            spans: Mutex::default(),
            resource: Mutex::default(),
            calls: Mutex::default(),
        });
        let accepted = received.clone();
        let connections = accepting(listener, move |stream| {
            *accepted.calls.lock().unwrap() += 1;
            serve(stream, accepted.clone())
        });
        Self { address, received, _connections: connections }
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.received.manner.lock().unwrap() = manner;
    }

    /// Connections that were opened.
    pub(crate) fn calls(&self) -> usize {
        *self.received.calls.lock().unwrap()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.spans.lock().unwrap().clone()
    }

    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        texts(&self.received.resource.lock().unwrap().clone().unwrap_or_default().attributes)
    }

    /// The spans of the request that had this user agent: its own, and those of its stages in their order.
    pub(crate) async fn trace(&self, user_agent: &str) -> (Span, Vec<Span>) {
        let found = async || {
            let spans = self.spans();
            let request = spans
                .iter()
                .find(|span| attributes(span).get("user_agent.original").is_some_and(|agent| agent == user_agent))?;
            let of_request = |span: &&Span| span.parent_span_id == request.span_id && span.trace_id == request.trace_id;
            Some((request.clone(), spans.iter().filter(of_request).cloned().collect()))
        };
        until("the request's spans", found).await
    }
}

/// A span's attributes, as text.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    texts(&span.attributes)
}

fn texts(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
}

async fn serve(mut stream: TcpStream, received: Arc<Received>) {
    let manner = *received.manner.lock().unwrap();
    match manner {
        Manner::Closes => return,
        Manner::Garbage => {
            // The client may have gone.
            stream.write_all(&[b'x'; 4096]).await.unwrap_or_default();
            stream.read_to_end(&mut Vec::new()).await.unwrap_or_default();
            return;
        }
        Manner::Accepts | Manner::Refuses(_) | Manner::Silent | Manner::Endless => {}
    }
    let service = service_fn(move |request| {
        let received = received.clone();
        async move { Ok::<_, Infallible>(answer(&received, manner, request).await) }
    });
    let http = http2::Builder::new(TokioExecutor::new());
    // An error is ignored, since the client notices it.
    http.serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
}

async fn answer(
    received: &Received,
    manner: Manner,
    request: Request<Incoming>,
) -> Response<BoxBody<Bytes, Infallible>> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(
        (&request.headers()["content-type"], &request.headers()["te"]),
        (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
    );
    let Ok(body) = request.into_body().collect().await else { return Response::default() };
    let body = body.to_bytes();
    let (prefix, message) = body.split_at(5);
    assert_eq!((prefix[0], prefix[1..].to_vec()), (0, u32::try_from(message.len()).unwrap().to_be_bytes().to_vec()));
    let message = ExportTraceServiceRequest::decode(message).unwrap();
    let (status, frames) = match manner {
        Manner::Silent => std::future::pending().await,
        Manner::Endless => {
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[0; 1024]))));
            return grpc(StreamBody::new(frames).boxed());
        }
        Manner::Refuses(code) => (code, Vec::new()),
        Manner::Accepts | Manner::Garbage | Manner::Closes => {
            for resource in message.resource_spans {
                *received.resource.lock().unwrap() = resource.resource;
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                received.spans.lock().unwrap().extend(spans);
            }
            // An empty ExportTraceServiceResponse.
            (0, vec![Ok(Frame::data(Bytes::from_static(&[0; 5])))])
        }
    };
    let name = HeaderName::from_static("grpc-status");
    let trailers = HeaderMap::from_iter([(name, HeaderValue::from(status))]);
    let frames = frames.into_iter().chain([Ok(Frame::trailers(trailers))]);
    grpc(StreamBody::new(stream::iter(Vec::from_iter(frames))).boxed())
}

fn grpc(body: BoxBody<Bytes, Infallible>) -> Response<BoxBody<Bytes, Infallible>> {
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}
