//! What is measured, to the millisecond: time passes only while all tasks wait, so that a busy machine adds nothing.

use std::{cell::OnceCell, convert::Infallible, future::pending};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;

use tokio::sync::Semaphore;

use super::{
    client::{Client, Requests},
    *,
};
use crate::{
    connection::handshake,
    endpoint::{Endpoint, RequestSpec},
    informer::Informers,
    objects,
    profile::{InformerWork, Transport, WireEncoding},
    read::Reads,
    schedule::Schedule,
    times::Times,
    watch::{self, First},
};

const PLANTED: Duration = Duration::from_millis(50);
/// The step of a timer, in milliseconds, by which it may be late.
const STEP: f64 = 1.0;
/// The precision of a histogram.
const DIGITS: f64 = 0.001;
const COUNT: u64 = 10;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Nanoseconds since some day, by the clock of timers.
fn now() -> u64 {
    thread_local!(static STARTED: OnceCell<Instant> = const { OnceCell::new() });
    const THAT_DAY: u64 = 1_763_811_471_000_000_000;
    let passed = STARTED.with(|started| started.get_or_init(Instant::now).elapsed());
    THAT_DAY + u64::try_from(passed.as_nanos()).unwrap()
}

/// A channel to a server in this process, which answers every request so.
async fn channel<F>(answer: impl Fn() -> F + Clone + Send + 'static) -> (Channel, JoinSet<()>)
where
    F: Future<Output = Body> + Send + 'static,
{
    let (here, there) = tokio::io::duplex(64 << 10);
    let mut server = JoinSet::new();
    server.spawn(async move {
        let service = service_fn(move |_: Request<Incoming>| {
            let body = answer();
            async move { Ok::<_, Infallible>(Response::new(body.await)) }
        });
        http1::Builder::new().serve_connection(TokioIo::new(there), service).await.unwrap();
    });
    let endpoint = Endpoint::new("url", &kube_client::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let connection = handshake(here, HttpVersion::Http1).await.unwrap();
    (Channel::over(Arc::new(endpoint), connection), server)
}

fn assert_planted(times: &Times) {
    let (least, most, planted) = (times.percentile(0.0), times.max(), PLANTED.as_secs_f64() * 1e3);
    assert_eq!(times.count(), COUNT);
    assert!(least >= planted * (1.0 - DIGITS) && most <= planted * (1.0 + DIGITS) + STEP, "{least} to {most}");
}

#[tokio::test(start_paused = true)]
async fn a_planted_delay_of_answers_is_the_latency() {
    let held = || async {
        sleep(PLANTED).await;
        Full::new(Bytes::from_static(b"{}")).boxed_unsync()
    };
    let (channel, _server) = channel(held).await;
    let (recorder, begin) = (Arc::new(Recorder::default()), Instant::now());
    recorder.begin();
    let (until, rate) = (begin + Duration::from_secs(1), Some(COUNT as f64));
    let schedule = Schedule::new(begin..until, rate, Duration::from_secs(1), CancellationToken::new());
    let transport = Transport { http: HttpVersion::Http1, encoding: WireEncoding::Json, gzip: false };
    let client = Client {
        number: 0,
        channel: Arc::new(channel),
        requests: Requests::Reads(Arc::new(Reads::Get(vec!["/api/v1/pods/a".to_owned()])), transport),
        schedule: Arc::new(schedule),
        recorder: recorder.clone(),
        timeout: Duration::from_secs(10),
        is_on_schedule: true,
    };
    client.run().await;
    let recorded = recorder.lock();
    assert_planted(&recorded.latency);
    assert_planted(&recorded.first_byte);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_a_list_arrives_is_missed() {
    let recorder = Arc::new(Recorder::with_timestamps(now));
    recorder.begin();
    let began = now();
    // The rest of the list comes later, and the watch after it brings nothing.
    let list = || async {
        let pieces = ["{\"metadata\":{\"resourceVersion\":\"5\"},", "\"items\":[]}"];
        let pieces = stream::unfold(0, move |number| async move {
            sleep(PLANTED).await;
            Some((Ok(Frame::data(Bytes::from(*pieces.get(number)?))), number + 1))
        });
        BodyExt::boxed_unsync(StreamBody::new(pieces))
    };
    let (channel, _server) = channel(list).await;
    let resource = base::apimachinery::GroupVersionResource::new("", "v1", "pods");
    let selection = Selection { resource, namespace: None, labels: None, fields: None };
    let informers = Informers {
        work: InformerWork { selection, watch_list: false, limit: None },
        transport: Transport { http: HttpVersion::Http1, encoding: WireEncoding::Json, gzip: false },
        timeout: Duration::from_secs(10),
        recorder: recorder.clone(),
        rate: None,
        standing: Arc::new(Semaphore::new(0)),
    };
    let keeping = Arc::new(informers).keep(Arc::new(channel), 0, None);
    timeout(PLANTED * 4, keeping).await.unwrap_err();
    let planted = u64::try_from(PLANTED.as_nanos()).unwrap();
    recorder.give_up(&Due::new(vec![vec![began, began + 2 * planted]], &[]));
    let failures = &recorder.lock().failures.0;
    assert_eq!(failures[&crate::failure::ErrorKind::Undelivered].0, 1, "the first is in the list: {failures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_planted_delay_of_events_is_the_event_delay() {
    let recorder = Recorder::with_timestamps(now);
    recorder.begin();
    // Each object is written just before its event is held back.
    let events = || async {
        let events = stream::unfold(0, |written| async move {
            if written == COUNT {
                return pending().await;
            }
            let object = objects::change("", now());
            sleep(PLANTED).await;
            let line = format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
            Some((Ok(Frame::data(Bytes::from(line))), written + 1))
        });
        BodyExt::boxed_unsync(StreamBody::new(events))
    };
    let (channel, _server) = channel(events).await;
    let standing = Semaphore::new(0);
    let answer = channel.open(&RequestSpec::get("/api/v1/pods?watch=true")).await.unwrap();
    let mut progress = watch::Progress::new(First(&standing), recorder.client(0));
    let reading = watch::read(&recorder, answer, &mut progress);
    // All have come, and the watch stays open.
    timeout(PLANTED * 2 * u32::try_from(COUNT).unwrap(), reading).await.unwrap_err();
    assert_planted(&recorder.lock().delay);
}
