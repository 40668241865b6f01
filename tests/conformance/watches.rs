//! Many different watches, open on both sides while the same changes happen: the streams must be equal in every
//! representation.

use anyhow::{Result, bail};
use futures_util::future;
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::{
    Side,
    client::{Ask, Endpoint, version_of},
    compare::{first_difference, masked_ages, without_columns},
    events::{Event, Events},
    gateway::unique_agent,
    objects,
    report::Tally,
    wire,
};

/// The durations of the streams in seconds; they are read until they end. If the server's own streams end before the
/// last change was written, on a very busy machine, the comparison is meaningless and repeated with the next duration.
const SECONDS: [u64; 3] = [20, 40, 80];

/// A collection in which changes are made.
pub(crate) struct Subject<'a> {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    /// `{v}` is a version before the changes, `{P}` protobuf, `{M}` metadata alone. `=` must come from memory.
    pub(crate) watches: &'a [&'a str],
    pub(crate) has_protobuf: bool,
}

/// The media types for the placeholders in the rows.
const FORMS: [(&str, &str); 8] = [
    ("{P}", wire::CONTENT),
    ("{M}", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ("{M1}", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
    ("{PM}", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ("{T}", "application/json;as=Table;g=meta.k8s.io;v=v1"),
    ("{T1}", "application/json;as=Table;g=meta.k8s.io;v=v1beta1"),
    ("{K}", KUBECTL),
    ("{PM1}", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
];

const KUBECTL: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

const COMMON: &str = "
    = {c}?resourceVersion=0
    = {c}?resourceVersion={v}
    = {c}?resourceVersion={v}&allowWatchBookmarks=true
    = {p}?resourceVersion={v}
    = {p}?resourceVersion=0
    = {c}?resourceVersion={v}&labelSelector=app=web
    = {c}?resourceVersion={v}&labelSelector=app!=web
    = {c}?resourceVersion=0&labelSelector=app+in+(web,db),!canary
    = {p}?resourceVersion={v}&labelSelector=app
    = {p}?resourceVersion={v}&fieldSelector=metadata.name=live-1
    = {c}?resourceVersion={v}&fieldSelector=metadata.name=live-2
    = {c}?resourceVersion={v}&fieldSelector=metadata.namespace=conf-b
    = {c}?resourceVersion={v}&fieldSelector=metadata.name!=live-1&labelSelector=app=db
    ~ {c}?
    ~ {p}?labelSelector=app=web
    = {c}?resourceVersion={v} | {M}
    = {c}?resourceVersion=0 | {M1}
    = {p}?resourceVersion={v}&labelSelector=app=web | {M}
    = {c}?resourceVersion={v}&labelSelector=app!=web&allowWatchBookmarks=true | {M1}
    = {c}?resourceVersion={v}&fieldSelector=metadata.name=live-2 | {M}
    ~ {c}?resourceVersion={v}&allowWatchBookmarks=true | {M1}, {P}
";

/// For resources that upstream has in protobuf.
const PROTOBUF: &str = "
    = {c}?resourceVersion={v} | {P}
    = {c}?resourceVersion=0 | {P}
    = {p}?resourceVersion={v}&allowWatchBookmarks=true | {P}
    = {c}?resourceVersion={v}&labelSelector=app=web | {P}, application/json
    = {p}?resourceVersion=0&labelSelector=app+in+(web,db),!canary | {P}
    = {c}?resourceVersion={v}&fieldSelector=metadata.namespace=conf-b | {P}
";

/// Metadata in protobuf, whatever it is made from.
const PARTIAL_PROTOBUF: &str = "
    = {c}?resourceVersion={v} | {PM}
    = {c}?resourceVersion=0 | {PM1}
    = {p}?resourceVersion={v}&labelSelector=app=web&allowWatchBookmarks=true | {PM}
    = {c}?resourceVersion={v}&labelSelector=app!=web | {PM1}
    = {c}?resourceVersion={v}&fieldSelector=metadata.name!=live-1 | {PM}
";

/// Metadata as current servers write it, but not servers without watch-list.
const CUSTOM_OF_OLD_SERVERS: &str = "
    ~ {c}?resourceVersion={v} | {PM}
    ~ {p}?resourceVersion={v}&labelSelector=app=web | {PM1}
";

const PODS: &str = "
    = {c}?resourceVersion={v}&fieldSelector=spec.nodeName=node-1
    = {c}?resourceVersion=0&fieldSelector=spec.nodeName=
    = {c}?resourceVersion={v}&fieldSelector=status.phase=Running
    = {p}?resourceVersion={v}&fieldSelector=status.phase!=Running&labelSelector=app=web
    = {c}?resourceVersion={v}&fieldSelector=spec.nodeName=node-1 | {P}
    = {p}?resourceVersion={v}&fieldSelector=status.phase!=Running&labelSelector=app=web | {P}
    = {c}?resourceVersion={v}&fieldSelector=status.phase=Running | {M}
    = {c}?resourceVersion={v}&fieldSelector=status.phase=Running | {PM}
";

/// What servers with watch-list understand.
const CURRENT: &str = "
    = {c}?
    = {c}?allowWatchBookmarks=true
    = {c}?resourceVersion=0&allowWatchBookmarks=true
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
    = {p}?resourceVersion={v}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=app=web
    = {c}?resourceVersion={v}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan
    = {c}? | {M}
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan | {M}
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan | {PM}
    = {p}?resourceVersion={v}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=app=web | {PM1}
    = {c}?resourceVersion={v} | {P}, application/json
";

/// Tables that are printed from memory.
const TABLES: &str = "
    = {c}?resourceVersion={v} | {K}
    = {c}?resourceVersion=0 | {T}
    = {p}?resourceVersion={v}&labelSelector=app=web | {T1}
    = {c}?resourceVersion={v}&labelSelector=app!=web&includeObject=None | {T}
    = {p}?resourceVersion={v}&includeObject=Object | {K}
    = {c}?resourceVersion={v}&fieldSelector=metadata.name=live-2 | {K}
";

/// The same with bookmarks.
const CURRENT_TABLES: &str = "
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan | {T}
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&includeObject=None | {T1}
    = {p}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&includeObject=Object | {T}
    = {p}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=app=none | {T}
";

/// The same of what has protobuf.
const CURRENT_PROTOBUF: &str = "
    = {c}? | {P}
    = {c}?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan | {P}
    = {p}?resourceVersion={v}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=app=web | {P}
";

/// Fields that a definition makes selectable.
const SELECTABLE: &str = "
    = {c}?resourceVersion={v}&fieldSelector=spec.color=red
    = {c}?resourceVersion=0&fieldSelector=spec.color!=red
    = {p}?resourceVersion={v}&fieldSelector=spec.size=3
    = {c}?resourceVersion=0&fieldSelector=spec.color!=red | {M1}
    = {c}?resourceVersion={v}&fieldSelector=spec.color=red | {PM}
";

/// Custom resources on a server with watch-list.
const CURRENT_CUSTOM: [&str; 5] = [PARTIAL_PROTOBUF, CURRENT, SELECTABLE, TABLES, CURRENT_TABLES];

pub(crate) async fn builtin(side: &Side) -> Result<Tally> {
    let (group, has_watch_list) = ("/api/v1", side.server.has_watch_list);
    let (mut watches, mut of_widgets) = (vec![PROTOBUF, PARTIAL_PROTOBUF, TABLES], vec![CUSTOM_OF_OLD_SERVERS]);
    if has_watch_list {
        watches.extend([CURRENT, CURRENT_PROTOBUF, CURRENT_TABLES]);
        of_widgets = CURRENT_CUSTOM.to_vec();
    }
    let of_pods = [&*watches, &[PODS]].concat();
    let pods = Subject { group, plural: "pods", watches: &of_pods, has_protobuf: true };
    let config_maps = Subject { group, plural: "configmaps", watches: &watches, has_protobuf: true };
    let widgets = Subject { watches: &of_widgets, ..WIDGETS };
    let followed = [&pods, &config_maps, &widgets].map(|followed| subject(side, followed, !has_watch_list));
    let mut tally = Tally::default();
    for subject in future::try_join_all(followed).await? {
        tally.merge(subject);
    }
    Ok(tally)
}

pub(crate) async fn custom(side: &Side) -> Result<Tally> {
    subject(side, &Subject { watches: &CURRENT_CUSTOM, ..WIDGETS }, false).await
}

const WIDGETS: Subject<'static> =
    Subject { group: "/apis/conf.example.com/v1", plural: "widgets", watches: &[], has_protobuf: false };

/// The initial events of a watch of the most recent state contain everything that was acknowledged before, while others
/// write.
pub(crate) async fn most_recent(side: &Side) -> Result<Tally> {
    let (zones, part) = ("/apis/conf.example.com/v1/zones", "/apis/conf.example.com/v1/namespaces/conf/widgets");
    side.gateway.warm("/apis/conf.example.com/v1/widgets").await?;
    let direct = &side.server.endpoint;
    let round = async |number: usize| {
        let agent = unique_agent("recent");
        let name = format!("recent-{number}");
        let object = json!({"apiVersion": "conf.example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        let created = version_of(&direct.create(part, &object).await?);
        let ask =
            Ask::get(format!("{part}?watch=1&allowWatchBookmarks=true&timeoutSeconds=30")).header("user-agent", &agent);
        let (mut events, mut found) = (Events::open(&side.gateway.endpoint, &ask).await?, 0);
        // A write to another collection: the head version moves on, but this collection does not.
        direct.patch(&format!("{zones}/z-0"), &json!({"metadata": {"annotations": {"n": name}}})).await?;
        while let Some(event) = events.next().await? {
            if event.object["metadata"]["name"] == name {
                found = event.version;
            }
            if event.kind == "BOOKMARK" {
                break;
            }
        }
        drop(events);
        anyhow::Ok((name, created, found, agent))
    };
    let mut tally = Tally::default();
    for (name, created, found, agent) in future::try_join_all((0..20).map(round)).await? {
        tally.equal(&format!("version of {name} before the end of initial events"), &created, &found);
        let outcome = side.gateway.outcome(&agent).await?;
        tally.holds("the watch comes from memory", outcome.by == "served", || format!("{outcome:?}"));
        tally.answered(&outcome);
        direct.delete(&format!("{part}/{name}")).await?;
    }
    Ok(tally)
}

pub(crate) async fn subject(side: &Side, subject: &Subject<'_>, any_order: bool) -> Result<Tally> {
    for seconds in SECONDS {
        if let Some(tally) = attempt(side, subject, any_order, seconds).await? {
            return Ok(tally);
        }
    }
    bail!("the server's watches of {} never outlast the changes", subject.plural)
}

/// `None` if one of the server's own watches ended before the changes did, or long before its time.
async fn attempt(side: &Side, subject: &Subject<'_>, any_order: bool, seconds: u64) -> Result<Option<Tally>> {
    let Subject { group, plural, watches, has_protobuf } = *subject;
    let (all, part) = (format!("{group}/{plural}"), format!("{group}/namespaces/conf/{plural}"));
    side.gateway.warm(&all).await?;
    let direct = &side.server.endpoint;
    // Requested even if there is no protobuf, so that the gateway knows that.
    let protobuf = if has_protobuf { wire::CONTENT.to_owned() } else { format!("{}, application/json", wire::CONTENT) };
    side.gateway.warm_as(&all, &protobuf).await?;
    // The server's current version: from there on the gateway has history in every encoding.
    let version = version_of(&direct.json(&format!("{all}?limit=1")).await?);
    let fill = |row: &str| {
        let row = row.replace("{c}", &all).replace("{p}", &part).replace("{v}", &version.to_string());
        let (path, accept) = row.split_once(" | ").unwrap_or((&row, "application/json"));
        let accept = FORMS.iter().fold(accept.to_owned(), |accept, (word, form)| accept.replace(word, form));
        format!("{path}&timeoutSeconds={seconds} | {accept}")
    };
    let rows = [COMMON].into_iter().chain(watches.iter().copied()).flat_map(str::lines);
    let rows: Vec<_> = rows.map(str::trim).filter(|row| !row.is_empty()).map(fill).collect();
    let opened = future::try_join_all(rows.iter().map(|row| Pair::open(side, row))).await?;

    let started = Instant::now();
    let changed = async { anyhow::Ok((changes(direct, group, plural).await?, Instant::now())) };
    let reading = future::try_join_all(opened.into_iter().map(Pair::rest));
    let (streams, (middle, last_change)) = future::try_join(reading, changed).await?;
    // A server of custom resources ends all watches when a definition's status changes, before it has sent pending
    // events.
    let long_enough = started + Duration::from_secs(seconds) / 2;
    if let Some(cut) = streams.iter().find(|stream| stream.direct_ended <= last_change.max(long_enough)) {
        let [lasted, needed] = [cut.direct_ended, last_change].map(|moment| moment - started);
        eprintln!("!!! THE SERVER ENDED {} after {lasted:?}, the changes took {needed:?}: once more", cut.row);
        return Ok(None);
    }
    let mut tally = Tally::default();
    for stream in &streams {
        stream.compare(side, &mut tally, version, any_order).await?;
    }
    // Past changes are replayed from history.
    side.gateway.reached(&all, middle).await?;
    let replay = |from: u64| format!("= {all}?resourceVersion={from}&timeoutSeconds=1");
    let mut replays = vec![replay(version), replay(middle)];
    if has_protobuf {
        side.gateway.reached_as(&all, middle, wire::CONTENT).await?;
        replays.push(format!("{} | {}", replay(middle), wire::CONTENT));
    }
    for row in replays {
        let replay = Pair::open(side, &row).await?.rest().await?;
        replay.compare(side, &mut tally, 0, false).await?;
    }
    Ok(Some(tally))
}

/// The same watch on both sides.
struct Pair<'a> {
    row: &'a str,
    agent: String,
    direct: Events,
    gateway: Events,
}

struct Streams<'a> {
    row: &'a str,
    agent: String,
    direct: Vec<Event>,
    direct_ended: Instant,
    gateway: Vec<Event>,
}

impl<'a> Pair<'a> {
    async fn open(side: &Side, row: &'a str) -> Result<Self> {
        let agent = unique_agent("watch");
        let (path, accept) = row.split_once(" | ").unwrap_or((row, "application/json"));
        let path = path.trim_start_matches(['=', '~', ' ']);
        let ask = Ask::get(format!("{path}&watch=1")).header("user-agent", &agent).header("accept", accept);
        let (direct, gateway) =
            future::try_join(Events::open(&side.server.endpoint, &ask), Events::open(&side.gateway.endpoint, &ask))
                .await?;
        Ok(Self { row, agent, direct, gateway })
    }

    async fn rest(self) -> Result<Streams<'a>> {
        let direct = async { anyhow::Ok((self.direct.rest().await?, Instant::now())) };
        let ((direct, direct_ended), gateway) = future::try_join(direct, self.gateway.rest()).await?;
        Ok(Streams { row: self.row, agent: self.agent, direct, direct_ended, gateway })
    }
}

impl Streams<'_> {
    /// Objects up to `initial` are the state before the changes; they are sorted if their order is undefined.
    async fn compare(&self, side: &Side, tally: &mut Tally, initial: u64, any_order: bool) -> Result<()> {
        let outcome = side.gateway.outcome(&self.agent).await?;
        tally.answered(&outcome);
        let text = |events: &[Event]| {
            let kept = events.iter().filter(|event| !event.is_timed());
            let (mut first, later): (Vec<_>, Vec<_>) = kept.partition(|event| any_order && event.version <= initial);
            first.sort_by_key(|event| event.key());
            let is_table = self.row.contains("as=Table");
            let line = |event: &&Event| match &*event.kind {
                "BOOKMARK" => "BOOKMARK".to_owned(),
                _ if is_table => {
                    let mut line = masked_ages(&event.line);
                    if any_order {
                        without_columns(&mut line);
                    }
                    line
                }
                _ => event.line.clone(),
            };
            first.iter().chain(&later).map(line).collect::<Vec<_>>().join("\n")
        };
        let (expected, actual) = (text(&self.direct), text(&self.gateway));
        let found = (expected != actual).then(|| first_difference(&expected, &actual));
        tally.compared(&format!("watch {}", self.row), found);
        let is_rising =
            self.gateway.iter().filter(|event| event.version > initial).is_sorted_by_key(|event| event.version);
        tally.holds(&format!("versions of {} rise", self.row), is_rising, || format!("{:?}", self.gateway));
        let is_as_expected = self.row.starts_with('~') || outcome.by == "served";
        tally.holds(&format!("watch {} comes from memory", self.row), is_as_expected, || format!("{outcome:?}"));
        Ok(())
    }
}

/// Creates, updates, moves in and out of selectors, deletes, creates again. Returns a version in the middle of the
/// changes.
async fn changes(api: &Endpoint, group: &str, plural: &str) -> Result<u64> {
    let collection = |number: usize| {
        let namespace = objects::NAMESPACES[number % 2];
        format!("{group}/namespaces/{namespace}/{plural}")
    };
    let mut middle = 0;
    for number in 0..6 {
        api.create(&collection(number), &live(plural, number)).await?;
    }
    for round in 0..6 {
        for number in 0..6 {
            let object = format!("{}/live-{number}", collection(number));
            let app = ["web", "db", "web", "other"][(round + number) % 4];
            let canary = (round % 2 == 0).then_some("yes");
            let mut labels = json!({"metadata": {"labels": {"app": app, "canary": canary}}});
            if plural == "widgets" {
                let color = ["red", "blue"][(round + number) % 2];
                labels["spec"] = json!({"color": color, "size": round});
            }
            api.patch(&object, &labels).await?;
            if plural == "pods" && round % 2 == 0 {
                let phase = ["Running", "Failed"][(round / 2 + number) % 2];
                api.patch(&format!("{object}/status"), &json!({"status": {"phase": phase}})).await?;
            }
            if (round, number) == (3, 2) {
                middle = version_of(&api.delete(&object).await?).max(middle);
                middle = middle.max(version_of(&api.create(&collection(number), &live(plural, number)).await?));
            }
        }
    }
    for number in 0..6 {
        api.delete(&format!("{}/live-{number}", collection(number))).await?;
    }
    Ok(middle)
}

fn live(plural: &str, number: usize) -> serde_json::Value {
    labelled(plural, number, "live", if number < 3 { "web" } else { "db" })
}

/// An object whose name is `prefix` and the number.
pub(crate) fn labelled(plural: &str, number: usize, prefix: &str, app: &str) -> serde_json::Value {
    let mut object = match plural {
        "pods" => objects::pod(number),
        "configmaps" => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "<b>"}}),
        _ => json!({"apiVersion": "conf.example.com/v1", "kind": "Widget", "spec": {"color": "red", "size": 1}}),
    };
    object["metadata"] = json!({"name": format!("{prefix}-{number}"), "labels": {"app": app}});
    object
}
