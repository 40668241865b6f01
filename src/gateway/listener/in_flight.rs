//! Limits how many requests and answers one address has in flight.
//!
//! An answer takes memory as long as its client does not read it: a stream, a task, what is noted about the request,
//! and the bytes, some 4 KB of an answer that only refuses. A client that announces a window of 0 gets each of the
//! 1,000 streams of each of its connections to hold that, whoever it is. So a request takes a place from its arrival
//! until the last byte of its answer has left the gateway. An answer that lasts as long as the client likes has a place
//! up to its head; then it has other limits. What is noted shares bytes of the request's head, so a request with a
//! large head takes several places.
//!
//! Beyond the limit, requests are refused without a body, which no window can hold back. A client that does not read
//! its socket at all keeps even these heads waiting, on as many streams as a connection may have, until it fails to
//! answer a ping.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;

use base::fairness::{ClientKey, Share, Shares};

/// The bytes of a request's head for which one place suffices: more than most requests have.
const HEAD_OF_ONE_PLACE: usize = 8 << 10;

/// The metrics' name of the limit.
const LIMIT: &str = "answers_per_address";

/// The places of all addresses. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    each: Shares,
    over_unix: Shares,
}

/// One address, which its connections share.
#[derive(Debug)]
pub(super) struct Address {
    places: Shares,
    key: ClientKey,
}

/// The places of one request, given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct AnswerPlace(#[expect(dead_code, reason = "held for its drop")] Arc<Share>);

/// Bytes that hold a place until they are gone.
struct Held {
    bytes: Bytes,
    _place: AnswerPlace,
}

impl Addresses {
    /// Each address may have `most` requests in flight, and all Unix sockets together `most_over_unix`.
    pub(super) fn new(most: usize, most_over_unix: usize) -> Self {
        let [each, over_unix] = [most, most_over_unix].map(|most| Shares::new(most, LIMIT));
        Self { each, over_unix }
    }

    /// Changes the limits for requests from now on.
    pub(super) fn set(&self, most: usize, most_over_unix: usize) {
        self.each.set(most);
        self.over_unix.set(most_over_unix);
    }

    /// The address of a new connection; `None` is that of all Unix sockets.
    pub(super) fn of(&self, peer: Option<SocketAddr>) -> Arc<Address> {
        let places = if peer.is_some() { &self.each } else { &self.over_unix };
        Arc::new(Address { places: places.clone(), key: ClientKey::address(peer.map(|peer| peer.ip())) })
    }
}

impl Address {
    /// An address of its own, without a limit.
    pub(super) fn unlimited() -> Arc<Self> {
        Addresses::new(usize::MAX, usize::MAX).of(None)
    }

    /// The places of one more request; `None` if the address has too many. The only request of an address is never
    /// refused, however large its head is.
    pub(super) fn take(&self, head_bytes: usize) -> Option<AnswerPlace> {
        let places = 1 + head_bytes / HEAD_OF_ONE_PLACE;
        self.places.take_places(self.key, places).map(|share| AnswerPlace(Arc::new(share)))
    }
}

impl AnswerPlace {
    /// The same bytes, which hold the place as long as any of them waits for the client.
    pub(super) fn holding(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _place: self.clone() })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending, time::Duration};

    use futures_util::stream;
    use http::{Request, Response, StatusCode, header};
    use http_body::Frame;
    use http_body_util::{BodyExt, Empty, StreamBody};
    use hyper::{
        body::Incoming,
        client::conn::http2::{Builder, SendRequest},
    };
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::{
        io::{DuplexStream, copy_bidirectional, duplex},
        task::JoinSet,
        time::{Instant, timeout},
    };

    use super::*;
    use crate::listener::{
        Connection, ConnectionContext, Handler, LongRunning, Protocol, activity::Activity, serve_connection,
    };
    use base::lifecycle::Tasks;

    fn peer(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 1))
    }

    #[test]
    fn each_address_has_its_places_and_no_more() {
        let addresses = Addresses::new(2, 3);
        let [one, same, other] = ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|text| addresses.of(peer(text)));
        let (first, second) = (one.take(0).unwrap(), same.take(0).unwrap());
        assert!(one.take(0).is_none() && same.take(0).is_none());
        assert!(other.take(0).is_some());
        let unix = addresses.of(None);
        let places: Vec<_> = std::iter::from_fn(|| unix.take(0)).collect();
        assert_eq!(places.len(), 3);
        let bytes = first.holding(Bytes::from_static(b"answer"));
        drop(first);
        assert!(one.take(0).is_none(), "held by the bytes");
        assert_eq!(bytes, &b"answer"[..]);
        drop(bytes);
        let third = one.take(0).unwrap();
        addresses.set(1, 1);
        drop((second, third));
        let place = one.take(0).unwrap();
        assert!(one.take(0).is_none());
        // An answer on its way outlives the connections.
        drop((one, same, other, unix, places));
        let one = addresses.of(peer("192.0.2.1"));
        assert_eq!(one.places.held(one.key), 1);
        drop(place);
        assert_eq!(one.places.held(one.key), 0);
    }

    /// Answers `/watch` as long as the client likes, `/wait` never, and everything else with a word.
    #[derive(Clone)]
    struct Word;

    type Frames = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

    impl Handler for Word {
        type Body = StreamBody<Frames>;

        async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
            let word = Ok(Frame::data(Bytes::from_static(b"word")));
            let frames: Frames = match request.uri().path() {
                "/wait" => pending().await,
                "/watch" => Box::pin(stream::pending()),
                _ => Box::pin(stream::iter([word])),
            };
            let mut response = Response::new(StreamBody::new(frames));
            if request.uri().path() == "/watch" {
                response.extensions_mut().insert(LongRunning { unread_max: None });
            }
            response
        }
    }

    /// The client's end of a connection that buffers `room` bytes.
    fn open(address: &Arc<Address>, tasks: &Tasks, room: usize) -> DuplexStream {
        let (client, server) = duplex(room);
        let draining = tasks.token().child_token();
        let connection = Connection { number: 0, peer: None, tls: false, client_certificate: None, draining };
        let activity = Arc::new(Activity::new(Instant::now(), address.clone()));
        let shared = ConnectionContext { activity, answer_timeout: Duration::from_secs(60), max_age: None };
        let spawner = tasks.clone();
        tasks.spawn("connection", async move {
            serve_connection(Box::new(server), Protocol::Http2, connection, Word, shared, &spawner).await;
        });
        client
    }

    /// A connection whose client accepts that many bytes of each answer, and the wire, which breaks when it is dropped.
    async fn connect(address: &Arc<Address>, tasks: &Tasks, window: u32) -> (SendRequest<Empty<Bytes>>, JoinSet<()>) {
        let mut far = open(address, tasks, 1 << 20);
        let (client, mut near) = duplex(1 << 20);
        let mut wire = JoinSet::new();
        wire.spawn(async move { drop(copy_bidirectional(&mut near, &mut far).await) });
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let (sender, driver) = builder.handshake(TokioIo::new(client)).await.unwrap();
        tasks.spawn("client", async move { driver.await.unwrap_or_default() });
        (sender, wire)
    }

    async fn get(sender: &SendRequest<Empty<Bytes>>, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("http://h{path}")).body(Empty::new()).unwrap();
        sender.clone().send_request(request).await.unwrap()
    }

    /// An address with four places.
    fn four() -> Arc<Address> {
        Addresses::new(4, 4).of(None)
    }

    async fn until_free(address: &Arc<Address>, places: usize) {
        let free = async {
            while address.places.held(address.key) != 4 - places {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), free).await.expect("places are given back");
    }

    #[tokio::test]
    async fn answers_that_are_not_read_use_up_the_places_of_their_address() {
        // With a window of one byte, all of the answer is handed to the stream, and its task ends.
        for window in [0, 1] {
            let (tasks, address) = (Tasks::new(), four());
            let (first, first_wire) = connect(&address, &tasks, window).await;
            let (second, _wire) = connect(&address, &tasks, window).await;
            let mut unread = Vec::new();
            for sender in [&first, &second, &first, &second] {
                unread.push(get(sender, "/").await);
            }
            assert!(unread.iter().all(|answer| answer.status() == StatusCode::OK));
            for sender in [&first, &second] {
                let (head, body) = get(sender, "/").await.into_parts();
                assert_eq!(
                    (head.status, &head.headers[header::RETRY_AFTER]),
                    (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
                );
                assert!(body.collect().await.unwrap().to_bytes().is_empty());
            }
            // A stream that the client resets gives its place back, and so does a connection that breaks.
            drop(unread.swap_remove(1));
            until_free(&address, 1).await;
            unread.push(get(&second, "/").await);
            assert_eq!(get(&second, "/").await.status(), StatusCode::TOO_MANY_REQUESTS);
            drop(first_wire);
            until_free(&address, 2).await;
            assert_eq!(get(&second, "/").await.status(), StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn a_request_with_a_large_head_takes_several_places() {
        let (tasks, address) = (Tasks::new(), four());
        let (sender, _wire) = connect(&address, &tasks, 0).await;
        let ask = async |value: usize| {
            let request = Request::get("http://h/").header("x", "y".repeat(value)).body(Empty::new()).unwrap();
            sender.clone().send_request(request).await.unwrap()
        };
        let large = ask(2 * HEAD_OF_ONE_PLACE).await;
        assert_eq!(large.status(), StatusCode::OK);
        assert_eq!(ask(HEAD_OF_ONE_PLACE).await.status(), StatusCode::TOO_MANY_REQUESTS);
        let small = ask(1).await;
        assert_eq!(small.status(), StatusCode::OK);
        drop((large, small));
        until_free(&address, 4).await;
        let alone = ask(20 * HEAD_OF_ONE_PLACE).await;
        assert_eq!(alone.status(), StatusCode::OK);
        assert_eq!(ask(1).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[tokio::test]
    async fn answers_that_are_read_give_their_places_back() {
        let (tasks, address) = (Tasks::new(), four());
        let (sender, _wire) = connect(&address, &tasks, 1 << 16).await;
        for _ in 0..20 {
            let answer = get(&sender, "/").await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), &b"word"[..]);
        }
        until_free(&address, 4).await;
    }

    #[tokio::test]
    async fn requests_count_before_they_are_answered_and_watches_no_longer_than_that() {
        let (tasks, address) = (Tasks::new(), four());
        let (sender, _wire) = connect(&address, &tasks, 0).await;
        let mut watches = Vec::new();
        for _ in 0..10 {
            let watch = get(&sender, "/watch").await;
            assert_eq!(watch.status(), StatusCode::OK);
            watches.push(watch);
        }
        until_free(&address, 4).await;
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            let sender = sender.clone();
            waiting.spawn(async move { get(&sender, "/wait").await });
        }
        until_free(&address, 0).await;
        assert_eq!(get(&sender, "/watch").await.status(), StatusCode::TOO_MANY_REQUESTS);
        drop(waiting);
        until_free(&address, 4).await;
        assert_eq!(get(&sender, "/watch").await.status(), StatusCode::OK);
    }
}
