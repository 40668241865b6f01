//! Tests what a watch is told, from its first event on.

use super::*;
use crate::{
    encode::{Form, JsonBookmark},
    fanout::{Hub, Interest},
    store::{self, ChangeKind, FIRST_CHANGE, HistoryLimits, Object, Objects, Reader, Schema, Scope, Shape, Writer},
};
use base::{
    apimachinery::{FieldSelector, LabelSelector},
    fairness::ByteBudget,
    lifecycle::Spread,
};

fn room(bytes: u64) -> ClientByteBudget {
    ByteBudget::undivided(bytes).of(None)
}

/// Everything, whole and without bookmarks, for a minute.
fn everything(schema: &Schema, room: ClientByteBudget) -> SessionOptions {
    let predicate = Predicate::new(LabelSelector::default(), &FieldSelector::default(), schema).unwrap();
    let form = EventForm::Objects(Form::Whole(schema.shape.clone()));
    SessionOptions { predicate, form, room, bookmarks: None, timeout: Duration::from_secs(60) }
}

fn subscribe(hub: &Arc<Hub>, options: &SessionOptions, schema: &Schema) -> Subscription {
    hub.subscribe(Interest::of(&Scope::Everything, &options.predicate, schema), FIRST_CHANGE, None)
}

/// A state of that many objects with `data` bytes each.
fn state(objects: usize, data: usize) -> (Arc<Schema>, Reader) {
    let (schema, _writer, reader) = written(objects, data);
    (schema, reader)
}

/// The same, whose objects can be changed.
fn written(objects: usize, data: usize) -> (Arc<Schema>, Writer, Reader) {
    let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
    let objects = (0..objects).map(|number| Arc::new(object(&schema, number, 1, data)));
    let objects = Objects::new(objects.collect()).unwrap();
    let (writer, reader) = store::store(schema.clone(), &objects, ResourceVersion::new(1).unwrap(), limits);
    (schema, writer, reader)
}

fn object(schema: &Schema, number: usize, version: usize, data: usize) -> Object {
    let metadata = format!(r#"{{"name":"m-{number}","resourceVersion":"{version}"}}"#);
    let data = "x".repeat(data);
    let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{{"x":"{data}"}}}}"#);
    Object::from_event(object.into(), schema).unwrap()
}

/// A watch of 200 objects that has sent some of its initial events, while one object changed so often that history
/// is full (their bytes are more than it may hold), and `more` times more often.
fn begun(more: usize, began: Instant) -> (Session, Arc<Hub>) {
    let (schema, mut writer, reader) = written(200, 1000);
    let (hub, options) = (Hub::new(FIRST_CHANGE, Spread::default()), everything(&schema, room(u64::MAX)));
    let options = SessionOptions { timeout: Duration::from_secs(3600), ..options };
    let subscription = subscribe(&hub, &options, &schema);
    let view = View::new(reader, Scope::Everything);
    let start = Start::State(view.newest());
    let mut session = Session::new(view, subscription, options, start, began);
    assert!(matches!(session.step(began), Step::Send(_)));
    for version in 2..=HistoryLimits::COUNT_MIN + more + 1 {
        let object = object(&schema, 0, version, 50_000);
        let change = writer.apply(ChangeKind::Modified, object, Bytes::from_static(b"line\n")).unwrap();
        hub.announce(&change, [None, None]);
    }
    (session, hub)
}

#[test]
fn initial_events_go_on_for_a_minute_and_then_as_long_as_history_reaches_back_to_them() {
    let began = Instant::now();
    let at = |second| began + Duration::from_secs(second);
    let (mut passed, _hub) = begun(1, began);
    assert!(matches!(passed.step(at(59)), Step::Send(_)));
    assert_eq!(passed.step(at(60)), Step::End(EndCause::Lagged));
    let (mut reached, hub) = begun(0, began);
    assert!(matches!(reached.step(at(3000)), Step::Send(_)));
    // The next ones are of another store, whose history knows nothing of this one.
    hub.close(EndCause::Relisted);
    assert_eq!(reached.step(at(3000)), Step::End(EndCause::Relisted));
}

/// The initial events of objects of 100,000 bytes, with room for two of them.
#[test]
fn initial_events_wait_for_room_and_then_continue() {
    let (schema, reader) = state(4, 100_000);
    let (room, hub) = (room(250_000), Hub::new(FIRST_CHANGE, Spread::default()));
    let began = Instant::now();
    let open = || {
        let options = SessionOptions { timeout: Duration::from_secs(3600), ..everything(&schema, room.clone()) };
        let subscription = subscribe(&hub, &options, &schema);
        let view = View::new(reader.clone(), Scope::Everything);
        let start = Start::State(view.newest());
        Session::new(view, subscription, options, start, began)
    };
    let (mut reads, mut waits) = (open(), open());
    let sent = |step| match step {
        Step::Send(piece) => piece,
        step @ (Step::Work | Step::Wait(_) | Step::End(_)) => panic!("{step:?}"),
    };
    let held = [sent(reads.step(began)), sent(reads.step(began))];
    let Step::Wait(retry_at) = waits.step(began) else { panic!("there is no room") };
    assert!(retry_at > began);
    assert_eq!(waits.step(began), Step::Wait(retry_at), "it does not retry before that time");
    let mut told: Vec<u8> = held.concat();
    drop(held);
    drop(sent(waits.step(retry_at)));
    told.extend_from_slice(&sent(reads.step(began)));
    told.extend_from_slice(&sent(reads.step(began)));
    assert!(matches!(reads.step(began), Step::Wait(_)), "that was all");
    let told = String::from_utf8(told).unwrap();
    let names = (0..4).map(|number| told.find(&format!("\"m-{number}\"")).unwrap());
    assert!(names.is_sorted() && told.matches("ADDED").count() == 4);
    let _unread = [sent(open().step(began)), sent(open().step(began))];
    let mut now = retry_at;
    let end = loop {
        match waits.step(now) {
            Step::Wait(until) => now = until,
            end @ (Step::Send(_) | Step::Work | Step::End(_)) => break end,
        }
    };
    assert_eq!(end, Step::End(EndCause::NoRoom));
    assert!(now >= retry_at + Duration::from_secs(300) && now < retry_at + Duration::from_secs(302));
}

#[test]
fn initial_events_of_a_lost_state_end_the_watch() {
    let (schema, reader) = state(200, 1000);
    for (cause, is_told) in [(EndCause::Lost, false), (EndCause::Relisted, true)] {
        let hub = Hub::new(FIRST_CHANGE, Spread::default());
        let options = everything(&schema, room(u64::MAX));
        let subscription = subscribe(&hub, &options, &schema);
        let view = View::new(reader.clone(), Scope::Everything);
        let now = Instant::now();
        let start = Start::State(view.newest());
        let mut session = Session::new(view, subscription, options, start, now);
        assert!(matches!(session.step(now), Step::Send(_)));
        let first = session.events_sent();
        assert!(first > 1 && first < 200, "{first}");
        hub.close(cause);
        let mut rest = 0;
        let end = loop {
            match session.step(now) {
                Step::Send(_) => rest += session.events_sent(),
                end @ (Step::Work | Step::Wait(_) | Step::End(_)) => break end,
            }
        };
        assert_eq!((end, rest), (Step::End(cause), if is_told { 200 - first } else { 0 }));
    }
}

/// A watch of that many objects, none of which has a label, by 64 requirements that begin with `each`.
fn costly(objects: usize, each: &str, now: Instant) -> (Arc<Schema>, Writer, Arc<Hub>, Session) {
    let (schema, writer, reader) = written(objects, 10);
    let labels = (0..64).map(|number| format!("{each}{number}")).collect::<Vec<_>>().join(",");
    let labels = LabelSelector::parse(&labels).unwrap();
    let predicate = Predicate::new(labels, &FieldSelector::default(), &schema).unwrap();
    let hub = Hub::new(FIRST_CHANGE, Spread::default());
    let options = SessionOptions { predicate, ..everything(&schema, room(u64::MAX)) };
    let subscription = subscribe(&hub, &options, &schema);
    let view = View::new(reader, Scope::Everything);
    let start = Start::State(view.newest());
    let session = Session::new(view, subscription, options, start, now);
    (schema, writer, hub, session)
}

/// Neither a state nor a history without matching objects is looked through at once.
#[test]
fn a_watch_that_finds_nothing_gives_way_to_other_tasks() {
    let now = Instant::now();
    let (schema, mut writer, hub, mut session) = costly(3000, "k", now);
    let at_once = session.predicate.objects_at_once();
    let mut units = || {
        let mut units = 0;
        loop {
            match session.step(now) {
                Step::Work => units += 1,
                step @ (Step::Send(_) | Step::Wait(_) | Step::End(_)) => {
                    return (units, matches!(step, Step::Wait(_)));
                }
            }
        }
    };
    assert_eq!(units(), (3000_usize.div_ceil(at_once), true));
    for version in 2..1002 {
        let object = object(&schema, 0, version, 10);
        let change = writer.apply(ChangeKind::Modified, object, Bytes::from_static(b"line\n")).unwrap();
        hub.announce(&change, [None, None]);
    }
    assert_eq!(units(), (1000 / 64, true));
}

/// Events that are small, and costly to find.
#[test]
fn initial_events_that_take_much_work_give_way_to_other_tasks() {
    let now = Instant::now();
    let (_schema, _writer, _hub, mut session) = costly(1000, "!k", now);
    let at_once = session.predicate.objects_at_once() as u64;
    let (mut sent, mut may_send) = (0, true);
    loop {
        match session.step(now) {
            Step::Send(_) => {
                assert!(may_send, "two units without a pause");
                (sent, may_send) = (sent + session.events_sent(), session.events_sent() < at_once);
            }
            Step::Work => may_send = true,
            Step::Wait(_) | Step::End(_) => break,
        }
    }
    assert_eq!(sent, 1000);
}

#[test]
fn in_a_drain_watches_end_in_turn_and_get_events_until_then() {
    let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
    let version = ResourceVersion::new(1).unwrap();
    let (mut writer, reader) = store::store(schema.clone(), &Objects::default(), version, limits);
    let spread = Spread::default();
    let hub = Hub::new(FIRST_CHANGE, spread.clone());
    let start = Instant::now();
    let mut sessions: Vec<_> = (0..3)
        .map(|_| {
            let options = everything(&schema, room(u64::MAX));
            let subscription = subscribe(&hub, &options, &schema);
            let view = View::new(reader.clone(), Scope::Everything);
            Session::new(view, subscription, options, Start::After(version), start)
        })
        .collect();
    for session in &mut sessions {
        assert!(matches!(session.step(start), Step::Wait(_)));
    }
    spread.begin(Duration::from_secs(1));
    hub.wake_all();
    let now = Instant::now();
    assert_eq!(sessions[0].step(now), Step::End(EndCause::Drained));
    let turns = [1, 2].map(|session: usize| match sessions[session].step(start) {
        Step::Wait(turn) => turn,
        step @ (Step::Send(_) | Step::Work | Step::End(_)) => panic!("{step:?}"),
    });
    assert!(turns[0] < turns[1] && turns[1] < now + Duration::from_secs(1));
    let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","resourceVersion":"2"}}"#;
    let object = Object::from_event(object.into(), &schema).unwrap();
    let change = writer.apply(ChangeKind::Added, object, Bytes::from_static(b"line\n")).unwrap();
    hub.announce(&change, [None, None]);
    assert!(matches!(sessions[1].step(start), Step::Send(_)), "it gets events until its turn");
    assert_eq!(sessions[1].step(turns[0]), Step::End(EndCause::Drained));
}

/// The pieces that a watcher gets when it finds several changes at once, whose objects have `data` bytes each.
fn pieces(data: &[usize], room_bytes: u64) -> Vec<String> {
    let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
    let version = |number| ResourceVersion::new(number).unwrap();
    let (mut writer, reader) = store::store(schema.clone(), &Objects::default(), version(1), limits);
    let hub = Hub::new(FIRST_CHANGE, Spread::default());
    let options = everything(&schema, room(room_bytes));
    let subscription = subscribe(&hub, &options, &schema);
    let view = View::new(reader, Scope::Everything);
    let now = Instant::now();
    let mut session = Session::new(view, subscription, options, Start::After(version(1)), now);
    for (number, length) in (2..).zip(data) {
        let metadata = format!(r#"{{"name":"m-{number}","resourceVersion":"{number}"}}"#);
        let data = format!(r#"{{"x":"{}"}}"#, "x".repeat(*length));
        let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{data}}}"#);
        let line = Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
        let object = Object::from_event(object.into(), &schema).unwrap();
        let change = writer.apply(ChangeKind::Added, object, line).unwrap();
        hub.announce(&change, [None, None]);
    }
    let piece = |step| match step {
        Step::Send(piece) => Some(String::from_utf8(piece.to_vec()).unwrap()),
        Step::Work | Step::Wait(_) | Step::End(_) => None,
    };
    iter::from_fn(|| piece(session.step(now))).collect()
}

#[test]
fn without_room_for_a_copy_events_are_not_joined() {
    assert_eq!(pieces(&[10; 80], 0).len(), 80);
    assert_eq!(pieces(&[10; 80], 0).concat(), pieces(&[10; 80], u64::MAX).concat());
}

#[test]
fn events_that_are_ready_together_are_joined_in_order() {
    for (data, expected) in
        [(&[10][..], &[1][..]), (&[10; 80], &[64, 16]), (&[9_000, 9_000, 10, 10, 9_000, 20_000, 10], &[1, 3, 1, 1, 1])]
    {
        let pieces = pieces(data, u64::MAX);
        let events: Vec<_> = pieces.iter().map(|piece| piece.matches("\"type\":\"ADDED\"").count()).collect();
        assert_eq!(events, expected, "{data:?}");
        let all = pieces.concat();
        let names = (2..data.len() + 2).map(|number| all.find(&format!("\"m-{number}\"")).unwrap());
        assert!(names.is_sorted());
        assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
    }
}

/// A watch of a gateway from version 1 of a store of two objects, which was bridged to these objects at version 9.
/// Its watchers have not been told of that.
fn below_a_bridge(after: &[(usize, usize)], accepts: bool) -> (Session, Arc<Hub>) {
    let version = |number| ResourceVersion::new(number).unwrap();
    let (schema, mut writer, reader) = written(2, 10);
    let hub = Hub::new(FIRST_CHANGE, Spread::default());
    let object_at = |(number, version): &(usize, usize)| Arc::new(object(&schema, *number, *version, 10));
    let template = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1"}}"#;
    let template = BookmarkTemplate::Json(JsonBookmark::record(template).unwrap().0);
    let bookmarks = Bookmarks { template: Template::Known(Arc::new(template)), initial_events_end: false };
    let options = SessionOptions { bookmarks: Some(bookmarks), ..everything(&schema, room(u64::MAX)) };
    let subscription = subscribe(&hub, &options, &schema);
    let view = View::new(reader, Scope::Everything);
    let mut session = Session::new(view.clone(), subscription, options, Start::After(version(1)), Instant::now());
    if !accepts {
        session = session.ending_at_bridge_behind(None);
    }
    let changes = writer.bridge(&Objects::new(after.iter().map(object_at).collect()).unwrap(), version(9)).unwrap();
    if accepts {
        changes.iter().for_each(|change| hub.announce(change, [None, None]));
        session = session.ending_at_bridge_behind(view.gap_end_behind(version(1)));
    }
    (session, hub)
}

#[test]
fn a_bridge_for_a_gateway_is_between_two_bookmarks_of_its_end() {
    // Also if upstream is not followed, so that no other bookmark is sent.
    for is_followed in [true, false] {
        let (mut session, hub) = below_a_bridge(&[(0, 1), (2, 5)], true);
        hub.set_followed(is_followed);
        let now = Instant::now();
        let sent = iter::from_fn(|| match session.step(now) {
            Step::Send(piece) => Some(String::from_utf8(piece.to_vec()).unwrap()),
            Step::Work | Step::Wait(_) | Step::End(_) => None,
        });
        let sent = sent.collect::<String>();
        let [begin, gone, come, end] = sent.lines().collect::<Vec<_>>()[..] else { panic!("{sent}") };
        let version = |line: &str, version: u64| line.contains(&format!(r#""resourceVersion":"{version}""#));
        let is_end = |line: &str| line.contains("BOOKMARK") && version(line, 9);
        assert!(is_end(begin) && begin.contains("initial-events-end"), "{begin}");
        assert!(gone.contains("DELETED") && gone.contains("m-1") && version(gone, 1), "{gone}");
        assert!(come.contains("ADDED") && come.contains("m-2") && version(come, 5), "{come}");
        assert!(is_end(end) && !end.contains("initial-events-end"), "{end}");
    }
}

#[test]
fn no_bookmark_leads_a_gateway_past_a_bridge_that_its_watch_does_not_know_yet() {
    let (mut session, _hub) = below_a_bridge(&[(0, 1), (1, 1)], false);
    session.owe_bookmark();
    assert_eq!(session.step(Instant::now()), Step::End(EndCause::Relisted));
}
