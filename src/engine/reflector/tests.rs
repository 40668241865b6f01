//! Tests the driver against a scripted upstream.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::*;
use crate::encode::BookmarkTemplate;
use crate::store::{Change, HistoryLimits, Reader, Schema, Shape, StoreBudget};
use base::apimachinery::{Encoding, GroupResource, ResourceVersion, selectable_fields};

/// The responses of upstream, in this order, and the requests that it received.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    watches: Arc<Mutex<VecDeque<Result<String, Failure>>>>,
    pub(super) lists: Arc<Mutex<VecDeque<String>>>,
    heads: Arc<Mutex<VecDeque<u64>>>,
    /// The lists that a gateway above gives as states; then it gives none.
    states: Arc<Mutex<VecDeque<Result<String, Failure>>>>,
    /// Where a watch of nothing ends its initial events; `None` if it is refused.
    reached: Option<u64>,
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    /// Whether silence follows the scripted bytes of a watch, instead of the end of the body.
    falls_silent: bool,
    /// The versions that upstream reports, one after the other; then it reports none. An empty one is not reported.
    servers: Arc<Mutex<VecDeque<&'static str>>>,
    /// What gateways tell of the program that wrote the objects of each watch; then nothing.
    writers: Arc<Mutex<VecDeque<&'static str>>>,
    /// After how many questions for it the resource's definition is a different one.
    redefined_after: Option<usize>,
    definitions_asked: Arc<AtomicUsize>,
    /// Whether `cache.bridge` is false.
    never_bridges: bool,
    /// When upstream can be used again.
    recovers: Option<Instant>,
    /// How long the question for the cluster takes.
    cluster_takes: Duration,
}

impl Script {
    pub(super) fn new(heads: &[u64], watches: impl IntoIterator<Item = Result<String, Failure>>) -> Self {
        let script = Self::default();
        script.watches.lock().unwrap().extend(watches);
        script.heads.lock().unwrap().extend(heads);
        script
    }

    fn piece(&self, body: String) -> Piece {
        let written_by = self.writers.lock().unwrap().pop_front();
        Piece { bytes: Some(body.into()), falls_silent: self.falls_silent, written_by }
    }

    fn note(&self, asked: String) {
        self.asked.lock().unwrap().push(asked);
    }
}

fn page(body: String) -> ListPage {
    ListPage { body: body.into(), warnings: Vec::new() }
}

/// One piece, and then the end or silence.
pub(super) struct Piece {
    bytes: Option<Bytes>,
    falls_silent: bool,
    written_by: Option<&'static str>,
}

impl Piece {
    fn ending(body: String) -> Self {
        Self { bytes: Some(body.into()), falls_silent: false, written_by: None }
    }
}

impl ByteStream for Piece {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        match self.bytes.take() {
            Some(bytes) => Some(Ok(bytes)),
            None if self.falls_silent => std::future::pending().await,
            None => None,
        }
    }

    fn written_by(&self) -> Option<&str> {
        self.written_by
    }
}

impl ListWatch for Script {
    type Stream = Piece;

    async fn list(&self, request: ListRequest) -> Result<Piece, Failure> {
        self.note(format!("list {:?} {:?}", request.not_older_than, request.continue_token));
        self.lists.lock().unwrap().pop_front().map(Piece::ending).ok_or(Failure::Unavailable)
    }

    async fn state(&self, _: ResourceVersion) -> Result<Option<(StateForm, Piece)>, Failure> {
        let state = self.states.lock().unwrap().pop_front().transpose()?;
        Ok(state.map(|body| (StateForm::List, Piece { falls_silent: false, ..self.piece(body) })))
    }

    async fn watch_nothing(&self) -> Result<Piece, Failure> {
        self.reached.map(|version| Piece::ending(end(version))).ok_or(Failure::Refused)
    }

    /// After the end of the script, upstream has compacted the version.
    async fn list_at(&self, version: ResourceVersion, token: Option<&str>) -> Result<Piece, Failure> {
        self.note(format!("list at {version} {token:?}"));
        self.lists.lock().unwrap().pop_front().map(Piece::ending).ok_or(Failure::Expired)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Piece, Failure> {
        self.note(match request.from {
            WatchFrom::State { not_older_than } => format!("state {:?}", not_older_than.map(ResourceVersion::value)),
            WatchFrom::After(version) => format!("after {version}"),
        });
        let next = self.watches.lock().unwrap().pop_front();
        match next {
            Some(watch) => watch.map(|body| self.piece(body)),
            // After the end of the script, the watch is never answered.
            None => std::future::pending().await,
        }
    }

    async fn head(&self) -> Result<ListPage, Failure> {
        let version = self.heads.lock().unwrap().pop_front().unwrap_or(1000);
        Ok(page(format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
        )))
    }

    async fn knows_fields(&self, _: &[&str]) -> Result<bool, Failure> {
        Ok(true)
    }

    async fn server(&self, _: Instant) -> Option<String> {
        self.servers.lock().unwrap().pop_front().filter(|version| !version.is_empty()).map(str::to_owned)
    }

    async fn look_for_another_cluster(&self, _: Instant) {
        sleep(self.cluster_takes).await;
    }

    async fn recovered_since(&self, time: Instant) {
        match self.recovers {
            Some(recovers) if recovers > time => sleep_until(recovers).await,
            _ => std::future::pending().await,
        }
    }

    async fn is_same_resource(&self) -> Result<bool, Failure> {
        let asked = self.definitions_asked.fetch_add(1, Relaxed);
        Ok(self.redefined_after.is_none_or(|fills| asked < fills))
    }
}

/// What happened to the store, in words.
#[derive(Clone, Debug, Default)]
struct Seen {
    events: Arc<Mutex<Vec<String>>>,
    reader: Arc<Mutex<Option<Reader>>>,
}

impl Seen {
    fn note(&self, event: String) {
        self.events.lock().unwrap().push(event);
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    fn objects(&self) -> Vec<(String, u64)> {
        let snapshot = self.reader.lock().unwrap().as_ref().expect("filled").snapshot();
        let objects = snapshot.leaves().flat_map(|leaf| leaf.objects());
        objects.map(|object| (object.key.to_string(), object.version.value())).collect()
    }
}

impl ReflectorEvents for Seen {
    fn health(&mut self, _: Health) {}

    fn filled(&mut self, filled: Filled, _: Health) {
        self.note(format!("filled at {}", filled.reader.progress()));
        *self.reader.lock().unwrap() = Some(filled.reader);
    }

    fn bridged(&mut self, bridged: Bridged, health: Health) {
        let told = |change: &Arc<Change>| format!("{:?} {}", change.kind, change.version);
        let told: Vec<_> = bridged.changes.iter().map(told).collect();
        self.note(format!(
            "bridged from {} to {}: {}, epoch {}",
            bridged.from,
            bridged.to,
            told.join(", "),
            health.epoch
        ));
    }

    fn unbridged(&mut self, why: &Unbridged) {
        self.note(format!("unbridged: {}", why.as_str()));
    }

    fn changed(&mut self, change: &Change) {
        self.note(format!("{:?} {}", change.kind, change.version));
    }

    fn bookmark(&mut self, _: BookmarkTemplate) {}

    fn lost(&mut self, loss: Loss) {
        self.note(format!("lost: {loss:?}"));
    }

    fn restarting(&mut self, _: Option<Failure>) {}
}

/// Runs until the end of the script. Time is paused, so it skips every wait.
async fn run(script: Script) -> (Seen, Vec<String>) {
    run_for(script, Duration::from_secs(120)).await
}

async fn run_for(script: Script, time: Duration) -> (Seen, Vec<String>) {
    let (seen, asked, ended) = reflect(script, time).await;
    assert!(!ended, "it goes on for ever");
    (seen, asked)
}

/// Runs until the resource is gone.
async fn finished(script: Script) -> (Seen, Vec<String>) {
    let (seen, asked, ended) = reflect(script, Duration::from_secs(120)).await;
    assert!(ended, "it is gone");
    (seen, asked)
}

async fn reflect(script: Script, time: Duration) -> (Seen, Vec<String>, bool) {
    let (seen, asked) = (Seen::default(), script.asked.clone());
    let pods = GroupResource { group: "".into(), resource: "pods".into() };
    let limits = HistoryLimits { age: Duration::from_secs(60), bytes: 1 << 20 };
    let fields = selectable_fields(&pods, true);
    let collection =
        Collection { resource: pods, kind: "Pod".to_owned(), namespaced: true, fields, encoding: Encoding::Json };
    let settings = Settings { history: limits, bridges: !script.never_bridges, budget: StoreBudget::default() };
    let reflector = Reflector::new(script, seen.clone(), collection, settings, Evidence::default());
    let ended = tokio::time::timeout(time, reflector.run()).await.is_ok();
    let asked = asked.lock().unwrap().clone();
    (seen, asked, ended)
}

fn pod(name: &str, version: u64) -> String {
    format!(r#""metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{version}"}}}}"#)
}

pub(super) fn event(kind: &str, name: &str, version: u64) -> String {
    let pod = pod(name, version);
    format!(r#"{{"type":"{kind}","object":{{"kind":"Pod","apiVersion":"v1",{pod}}}"#) + "\n"
}

fn end(version: u64) -> String {
    let annotations = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
    let metadata = format!(r#""metadata":{{"resourceVersion":"{version}",{annotations}}}"#);
    format!(r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1",{metadata}}}}}"#) + "\n"
}

pub(super) fn bookmark(version: u64) -> String {
    let metadata = format!(r#""metadata":{{"resourceVersion":"{version}"}}"#);
    format!(r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1",{metadata}}}}}"#) + "\n"
}

/// A page of a list at that version.
pub(super) fn list(version: u64, token: &str, items: &[(&str, u64)]) -> String {
    let metadata = format!(r#""metadata":{{"resourceVersion":"{version}","continue":"{token}"}}"#);
    let items: Vec<_> = items.iter().map(|(name, version)| format!("{{{}", pod(name, *version))).collect();
    format!(r#"{{"kind":"PodList","apiVersion":"v1",{metadata},"items":[{}]}}"#, items.join(","))
}

/// The requests that follow when watches become silent after `watch`, without those that open them.
async fn asked_after_silence(watch: String) -> Vec<String> {
    let falls_silent = Script { falls_silent: true, ..Script::new(&[9], [Ok(watch)]) };
    run_for(falls_silent, Duration::from_secs(5 * 60)).await.1.split_off(1)
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_bookmarks_stay_away_is_opened_anew() {
    assert_eq!(asked_after_silence([end(9), bookmark(10)].concat()).await, ["after 10"]);
    assert!(asked_after_silence(end(9)).await.is_empty(), "this upstream may have none");
}

/// A fill from a gateway above: that gateway may be filled again, or another one may answer, between both requests.
#[tokio::test(start_paused = true)]
async fn a_state_of_another_program_than_its_watch_is_not_used() {
    const STATE: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},
        "items":[{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5"}}]}"#;
    let asked = async |state: Result<&str, Failure>, writers: &[&'static str], servers: &[&'static str]| {
        let is_followed = state == Ok(STATE);
        let watches = [String::new(), end(12)].into_iter().skip(usize::from(!is_followed)).map(Ok);
        let falls_silent = Script::new(&[9], watches);
        let script = Script { falls_silent: true, reached: Some(9), ..falls_silent };
        script.states.lock().unwrap().push_back(state.map(|body| body.replace("\n        ", "")));
        script.writers.lock().unwrap().extend(writers);
        script.servers.lock().unwrap().extend(servers);
        run(script).await.1
    };
    for (writers, servers, is_used) in [
        (&["a", "a"][..], &["a"][..], true),
        (&["a", "b"], &["a"], false),
        (&["a"], &["a", "a"], false),
        // An API server has answered both.
        (&[], &["a", "a"], true),
        (&[], &["a", "b"], false),
        (&[], &["a"], false),
    ] {
        let expected: &[&str] = if is_used { &["after 9"] } else { &["after 9", "state None"] };
        assert_eq!(asked(Ok(STATE), writers, servers).await, expected, "{writers:?} {servers:?}");
    }
    // What it cannot give is asked for as before.
    for failure in [Failure::TooLarge, Failure::Refused, Failure::Unavailable] {
        assert_eq!(asked(Err(failure), &[], &["a"]).await, ["state None"], "{failure:?}");
    }
    assert_eq!(asked(Ok("{"), &[], &["a", "a"]).await, ["state None"]);
    assert_eq!(asked(Ok(&STATE.replace("\"9\"", "\"8\"")), &[], &["a", "a"]).await, ["state None"]);
}

/// How many fills are tried within 35 s if each fails, and upstream can be used again after that time.
async fn fills_tried(recovers_after: Option<Duration>) -> usize {
    let script = Script::new(&[], (0..9).map(|_| Err(Failure::Unavailable)));
    let recovers = recovers_after.map(|after| Instant::now() + after);
    run_for(Script { recovers, ..script }, Duration::from_secs(35)).await.1.len()
}

#[tokio::test(start_paused = true)]
async fn a_delay_ends_when_upstream_can_be_used_again() {
    // The sixth after at most 31 s of delays, and the seventh not before 37 s.
    assert_eq!(fills_tried(None).await, 6);
    // The eighth after a second, and not after 26: an upstream that has just started may refuse the first requests.
    assert_eq!(fills_tried(Some(Duration::from_millis(33_500))).await, 8);
}

#[tokio::test(start_paused = true)]
async fn silence_after_the_first_initial_events_is_no_refusal_of_watch_list() {
    let script = Script::new(&[9, 9, 9], [Ok(event("ADDED", "a", 3)), Ok([event("ADDED", "a", 3), end(9)].concat())]);
    let (seen, asked) = run(Script { falls_silent: true, ..script }).await;
    assert_eq!(
        (&asked[..], &*seen.events()[0]),
        (&["state None", "list None None", "state None"].map(str::to_owned)[..], "filled at 9")
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_beside_a_watch_list_that_does_not_end_fills_the_store() {
    for told in [String::new(), event("ADDED", "a", 3)] {
        let script = Script { falls_silent: true, ..Script::new(&[9], [Ok(told)]) };
        script.lists.lock().unwrap().push_back(list(9, "", &[("a", 3)]));
        let (seen, asked) = run_for(script, Duration::from_secs(6)).await;
        assert_eq!(asked, ["state None", "list None None", "after 9"]);
        assert_eq!((seen.objects(), &*seen.events()[0]), (vec![("ns/a".to_owned(), 3)], "filled at 9"));
    }
}

#[tokio::test]
async fn a_watch_list_that_is_too_large_is_given_up() {
    let objects = [event("ADDED", "a", 3), event("MODIFIED", "a", 4)].concat();
    let schema = Schema::new(Shape::typed("Pod", "v1"), Vec::new());
    for (most, expected) in [(objects.len(), Ok(9)), (objects.len() - 1, Err(Failure::Unavailable))] {
        let body = format!("{objects}{}", end(9));
        let events = EventStream::new(Piece::ending(body), Encoding::Json);
        let read = watch_list::initial_state(events, &schema, most, &watch::Sender::new(())).await;
        assert_eq!(read.map(|state| state.version.value()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn changes_before_the_end_of_the_initial_events_are_part_of_the_state() {
    let first = [event("ADDED", "a", 3), event("ADDED", "b", 4)].concat();
    let later = [event("MODIFIED", "a", 6), event("DELETED", "b", 7), end(7)].concat();
    let (seen, _) = run(Script::new(&[7], [Ok(first + &later)])).await;
    assert_eq!((seen.objects(), &*seen.events()[0]), (vec![("ns/a".to_owned(), 6)], "filled at 7"));
}

#[tokio::test(start_paused = true)]
async fn an_old_upstream_is_listed_page_by_page_then_watched() {
    let list = |token: &str, name: &str| list(5, token, &[(name, 3)]);
    let script = Script::new(&[5, 5, 8], [Err(Failure::Refused), Ok(event("ADDED", "c", 8))]);
    script.lists.lock().unwrap().extend([list("more", "a"), list("", "b")]);
    let (seen, asked) = run(script).await;
    assert_eq!(asked, ["state None", "list None None", "list None Some(\"more\")", "after 5", "after 8"]);
    assert_eq!(seen.objects(), [("ns/a".to_owned(), 3), ("ns/b".to_owned(), 3), ("ns/c".to_owned(), 8)]);
}

/// An upstream that forgets its history after version 9, and has another state at version 12.
fn forgetful() -> Script {
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#.to_owned() + "\n";
    let again = [event("ADDED", "b", 12), end(12), event("MODIFIED", "b", 13)].concat();
    Script::new(&[9, 12], [Ok([event("ADDED", "a", 3), end(9), expired].concat()), Ok(again)])
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_bridged_and_time_does_not_go_back() {
    let (seen, asked) = run(forgetful()).await;
    assert_eq!(asked[..2], ["state None", "state Some(9)"]);
    let told = ["filled at 9", "bridged from 9 to 12: Gone 9, Added 12, epoch 1", "Modified 13"];
    assert_eq!(seen.events()[..3], told);
    assert_eq!(seen.objects(), [("ns/b".to_owned(), 13)]);
}

/// A gateway that has bridged from version 9 to 12 when its watch is resumed, and then sends `told`.
fn bridging(told: &[String]) -> Script {
    let first = [event("ADDED", "a", 3), event("ADDED", "b", 4), end(9)].concat();
    Script::new(&[9, 9], [Ok(first), Ok(end(12) + &told.concat()), Ok(end(20))])
}

#[tokio::test(start_paused = true)]
async fn a_bridge_of_a_gateway_above_is_one_of_the_store() {
    let gap = [event("DELETED", "a", 9), event("ADDED", "c", 11), event("MODIFIED", "b", 12)];
    let bridged = "bridged from 9 to 12: Gone 9, Added 11, Modified 12, epoch 1";
    for behind in [bookmark(12), event("MODIFIED", "c", 13)] {
        let (seen, asked) = run(bridging(&[&gap[..], &[behind, event("MODIFIED", "b", 14)]].concat())).await;
        assert_eq!(asked[..2], ["state None", "after 9"]);
        assert_eq!(seen.events()[..2], ["filled at 9", bridged]);
        assert_eq!(seen.objects()[..1], [("ns/b".to_owned(), 14)]);
        assert_eq!(asked[2], "after 14");
    }
    // The changes up to the gap may be those of a watch that was behind.
    let late = [bookmark(8), event("MODIFIED", "a", 10), event("DELETED", "a", 11), bookmark(12)];
    let (seen, _) = run(bridging(&late)).await;
    assert_eq!(seen.events()[..2], ["filled at 9", "bridged from 9 to 12: Gone 9, epoch 1"]);
}

#[tokio::test(start_paused = true)]
async fn half_a_bridge_of_a_gateway_above_is_none() {
    let half = [event("DELETED", "a", 9), event("ADDED", "c", 11)];
    let (seen, asked) = run(bridging(&half)).await;
    assert_eq!(asked[..3], ["state None", "after 9", "after 9"]);
    assert_eq!(seen.events()[..1], ["filled at 9"]);
    assert!(!seen.events()[1..].iter().any(|told| told.contains("Added 11")), "{:?}", seen.events());
}

#[tokio::test(start_paused = true)]
async fn without_bridges_a_store_is_filled_again_behind_one_of_a_gateway_above() {
    let gap = [event("DELETED", "a", 9), bookmark(12)];
    let (seen, asked) = run(Script { never_bridges: true, ..bridging(&gap) }).await;
    assert_eq!(asked[..3], ["state None", "after 9", "state Some(9)"]);
    assert_eq!(seen.events()[..4], ["filled at 9", "unbridged: off", "unbridged: off", "filled at 20"]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_expire_together_are_all_deleted() {
    let gone = [event("DELETED", "a", 10), event("DELETED", "c", 10), event("MODIFIED", "b", 13)].concat();
    let first = [event("ADDED", "a", 3), event("ADDED", "b", 4), event("ADDED", "c", 4), end(9), gone].concat();
    let (seen, _) = run(Script::new(&[9, 13], [Ok(first)])).await;
    assert_eq!(seen.events()[..4], ["filled at 9", "Deleted 10", "Deleted 10", "Modified 13"]);
    assert_eq!(seen.objects(), [("ns/b".to_owned(), 13)]);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_bridged_is_filled_anew() {
    let servers = |servers: &[&'static str]| Arc::new(Mutex::new(servers.iter().copied().collect()));
    let other = Script { servers: servers(&["v1", "v2"]), ..forgetful() };
    let mute = Script { servers: servers(&["v1"]), ..forgetful() };
    let off = Script { never_bridges: true, ..forgetful() };
    for (script, why) in [(other, "server"), (mute, "server"), (off, "off")] {
        let (seen, asked) = run(script).await;
        assert_eq!(asked[..2], ["state None", "state Some(9)"]);
        let told = ["filled at 9".to_owned(), format!("unbridged: {why}"), "filled at 12".to_owned()];
        assert_eq!(seen.events()[..3], told);
        assert_eq!(seen.objects(), [("ns/b".to_owned(), 13)]);
    }
}

/// One API server broke off, and another one answers: the request for the version failed while none did.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_answers_again_is_asked_for_its_version_again() {
    // When a watch is resumed, and during a fill.
    for servers in [["v1", "", "v2"], ["", "v1", "v2"]] {
        let watches = [Ok([event("ADDED", "a", 3), end(9)].concat()), Ok(end(12))];
        let script =
            Script { servers: Arc::new(Mutex::new(VecDeque::from(servers))), ..Script::new(&[9, 9, 12], watches) };
        let (_, asked) = run(script).await;
        assert_eq!(asked[..2], ["state None", "state Some(9)"], "{servers:?}");
    }
}

/// A gateway above fills its cache again some time after `/version` has told of another program.
#[tokio::test(start_paused = true)]
async fn a_state_is_of_the_program_that_a_gateway_tells() {
    let state = || [event("ADDED", "a", 3), end(9)].concat();
    let told = |words: &[&'static str]| Arc::new(Mutex::new(words.iter().copied().collect()));
    for (writers, expected) in [
        // The gateway has filled it again at the same version, and has ended the watch.
        (&["v1", "v2"][..], ["state None", "state Some(9)", "after 9"]),
        // The one at which the watch goes on has not filled it again yet.
        (&["v2", "v1", "v1", "v1"], ["state None", "after 9", "state Some(9)"]),
        (&["v2"], ["state None", "after 9", "after 9"]),
    ] {
        let watches = if expected[1] == "after 9" {
            [Ok(state()), Ok(bookmark(9)), Ok(state())]
        } else {
            [Ok(state()), Ok(state()), Ok(bookmark(9))]
        };
        let script = Script { servers: told(&["v2"; 9]), writers: told(writers), ..Script::new(&[9; 9], watches) };
        let (_, asked) = run(script).await;
        assert_eq!(asked[..3], expected, "{writers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_definition_makes_it_another_resource() {
    // During the first fill, and during the next one.
    for (fills, told) in [(0, &["lost: Replaced"][..]), (1, &["filled at 9", "lost: Replaced"])] {
        let (seen, _) = finished(Script { redefined_after: Some(fills), ..forgetful() }).await;
        assert_eq!(seen.events(), told);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_goes_back_in_version_discards_the_store() {
    let backwards = [event("ADDED", "a", 3), end(9), event("MODIFIED", "a", 8)].concat();
    let (seen, asked) = run(Script::new(&[9, 20], [Ok(backwards), Ok(end(20))])).await;
    assert_eq!(asked[..2], ["state None", "state None"], "the old version counts for nothing");
    assert_eq!(seen.events()[..3], ["filled at 9", "lost: Inconsistent", "filled at 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_upstream_discards_the_store() {
    let (seen, _) = run(Script::new(&[90, 20, 20], [Ok(end(90)), Ok(end(20))])).await;
    assert_eq!(seen.events()[..3], ["filled at 90", "lost: Backwards", "filled at 20"]);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_restored_between_two_questions_discards_the_store() {
    let script = Script::new(&[90, 90, 20, 20], [Ok(end(90)), Ok(end(20))]);
    let (seen, _) = run(Script { cluster_takes: Duration::from_secs(1), ..script }).await;
    assert_eq!(seen.events()[..3], ["filled at 90", "lost: Backwards", "filled at 20"]);
}
