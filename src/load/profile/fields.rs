//! The fields of a profile, and the rules for them.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use super::{
    ChurnResource, ChurnWork, HttpVersion, InformerWork, KIND, ListWork, Profile, ReadVersion, ReconnectWork,
    Selection, SlowReaderWork, SlowRequest, Start, Transport, WatchWork, WireEncoding, Work, Workload,
};
use crate::OBJECTS_MAX;
use base::apimachinery::GroupVersionResource;
use base::config::{
    API_VERSION, Document, FLAG, Fields, Findings, Maybe, Number, Parsed, Problems, Refused, Size, Text, Time, Words,
    about,
};

/// Also the durations of the command line. A longer one might not fit into the clock.
pub(crate) const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 3600);
const SETTLES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);
const CLIENTS: RangeInclusive<usize> = 1..=1_000_000;
/// The default number of clients that share a connection: the number of streams that API servers usually allow.
const STREAMS: usize = 100;
const LIMITS: RangeInclusive<usize> = 1..=1_000_000;
const OBJECTS: RangeInclusive<usize> = 1..=OBJECTS_MAX;
const WEIGHTS: RangeInclusive<usize> = 0..=1_000;
const NODES: RangeInclusive<usize> = 0..=100_000;
/// The maximum is slightly less than the largest object that etcd accepts.
const BYTES: RangeInclusive<u64> = 0..=1 << 20;
/// The range of bytes per second of slow readers. A reader that reads nothing has `stopFor` instead.
const RATES: RangeInclusive<u64> = 1..=1 << 30;
const STOPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);
const CUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);

const UNIQUE_NAME: &str =
    "a name that no other workload has; a workload without one is named for its work, such as list";
const WORKS: &str = "exactly one of get, list, watch, informer, slowReader, reconnect, churn";

const RATE: Parsed<f64> = Parsed {
    allowed: "a number per second, of requests, or of watches and informers to open, from 0.001 to 1000000",
    parse: |text| text.parse().ok().filter(|rate| (0.001..=1_000_000.0).contains(rate)).ok_or_else(Refused::default),
    pattern: "",
};
/// A namespace becomes a part of a path.
const NAMESPACE: Parsed<String> = Parsed {
    allowed: "a name of lower-case letters, digits and -",
    parse: |text| if is_namespace(text) { Ok(text.to_owned()) } else { Err(Refused::default()) },
    pattern: "",
};
const RESOURCE: Parsed<GroupVersionResource> = Parsed {
    allowed: "the plural in lower case, with version and group unless these are v1 of the core group: pods, \
              deployments.v1.apps",
    parse: |text| resource(text).ok_or_else(Refused::default),
    pattern: "",
};

const HTTP_VERSIONS: Words<HttpVersion> = Words(&[("1.1", HttpVersion::Http1), ("2", HttpVersion::Http2)]);
const ENCODINGS: Words<WireEncoding> = Words(&[
    ("json", WireEncoding::Json),
    ("protobuf", WireEncoding::Protobuf),
    ("metadata", WireEncoding::Metadata),
    ("metadataProtobuf", WireEncoding::MetadataProtobuf),
]);
const VERSIONS: Words<ReadVersion> = Words(&[
    ("any", ReadVersion::Any),
    ("mostRecent", ReadVersion::MostRecent),
    ("notOlderThan", ReadVersion::NotOlderThan),
]);
const STARTS: Words<Start> = Words(&[
    ("now", Start::Now),
    ("any", Start::Any),
    ("mostRecent", Start::MostRecent),
    ("watchList", Start::WatchList),
]);
const INFORMER_STARTS: Words<bool> = Words(&[("watchList", true), ("list", false)]);
const SLOW_REQUESTS: Words<bool> = Words(&[("watch", false), ("list", true)]);
const CHURN_RESOURCES: Words<ChurnResource> =
    Words(&[("configmaps", ChurnResource::ConfigMaps), ("pods", ChurnResource::Pods)]);

/// The profile in a text.
pub(super) fn parse(name: &str, text: &str) -> Result<Profile, Problems> {
    let document = Document::parse(text)?;
    let mut profile = Profile {
        name: name.to_owned(),
        duration: Duration::from_secs(30),
        settle: Duration::from_secs(5),
        // The time limit that an API server has for a list.
        timeout: Duration::from_secs(60),
        workloads: Vec::new(),
    };
    let findings = Findings::read(&document, |fields| {
        fields.constant("apiVersion", API_VERSION);
        fields.constant("kind", KIND);
        fields.value("description", about("for readers of the file"), &mut None, &Maybe(Text));
        fields.value("duration", about(""), &mut profile.duration, &Time(DURATIONS));
        fields.value("settle", about(""), &mut profile.settle, &Time(SETTLES));
        fields.value("timeout", about(""), &mut profile.timeout, &Time(TIMEOUTS));
        let mut found = Vec::new();
        fields.sections("workloads", &mut found, |workload: &mut Option<Workload>, fields| {
            *workload = self::workload(fields);
        });
        if found.is_empty() {
            fields.problem("workloads", "missing or empty", "a list of one or more workloads");
        }
        let mut names = HashSet::new();
        for (index, workload) in found.iter().enumerate() {
            if workload.as_ref().is_some_and(|workload| !names.insert(&workload.name)) {
                let place = format!("workloads[{index}].name");
                fields.problem(&place, "a workload above has the same name", UNIQUE_NAME);
            }
        }
        profile.workloads = found.into_iter().flatten().collect();
    });
    findings.result(profile)
}

fn workload(fields: &mut Fields<'_>) -> Option<Workload> {
    let (mut name, mut clients, mut rate) = (None, 1, None);
    fields.value("name", about(""), &mut name, &Maybe(Text));
    fields.value("clients", about(""), &mut clients, &Number(CLIENTS));
    let mut transport = Transport { http: HttpVersion::Http1, encoding: WireEncoding::Json, gzip: false };
    fields.any("connections");
    fields.value("rate", about(""), &mut rate, &Maybe(RATE));
    fields.value("http", about(""), &mut transport.http, &HTTP_VERSIONS);
    fields.value("encoding", about(""), &mut transport.encoding, &ENCODINGS);
    fields.value("gzip", about(""), &mut transport.gzip, &FLAG);
    let connections = connections(transport.http, clients, fields);
    let work = work(transport, fields)?;
    let name = name.unwrap_or_else(|| work.name().to_owned());
    Some(Workload { name, clients, connections, rate, transport, work })
}

fn connections(http: HttpVersion, clients: usize, fields: &mut Fields<'_>) -> usize {
    let mut connections = clients.div_ceil(STREAMS);
    match http {
        HttpVersion::Http1 => {
            if fields.is_given("connections") {
                let allowed = "only with http: \"2\"";
                fields.problem("connections", "in HTTP/1.1 each client has a connection of its own", allowed);
            }
            clients
        }
        HttpVersion::Http2 => {
            fields.value("connections", about(""), &mut connections, &Number(1..=clients));
            connections
        }
    }
}

fn work(transport: Transport, fields: &mut Fields<'_>) -> Option<Work> {
    let kinds: [(&str, Declare, Make); 6] = [
        ("get", get, Read::get),
        ("list", list, Read::list),
        ("watch", watch, Read::watch),
        ("informer", informer, |read| read.informer().map(Work::Informer)),
        ("slowReader", slow_reader, Read::slow_reader),
        ("reconnect", reconnect, Read::reconnect),
    ];
    let mut works = Vec::new();
    for (name, declare, make) in kinds {
        let mut read = None;
        fields.optional(name, &mut read, declare);
        works.extend(read.map(make));
    }
    let mut churn = None;
    fields.optional("churn", &mut churn, ChurnWork::fields);
    if churn.is_some() && works.is_empty() && transport.encoding != WireEncoding::Json {
        fields.problem("encoding", "given for churn, which writes JSON only", "json, or no such field");
    }
    works.extend(churn.map(|churn| Some(Work::Churn(churn))));
    match works.len() {
        1 => works.pop().flatten(),
        0 => {
            fields.problem("", "no work was given, or a work without fields", WORKS);
            None
        }
        _ => {
            fields.problem("", "more than one work was given", WORKS);
            None
        }
    }
}

/// The fields of one kind of work that reads.
type Declare = fn(&mut Read, &mut Fields<'_>);
/// The work, unless it has no resource.
type Make = fn(Read) -> Option<Work>;

/// The fields of all kinds of work that read; each kind declares its own.
struct Read {
    resource: Option<GroupVersionResource>,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    version: ReadVersion,
    start: Start,
    watch_list: bool,
    limit: Option<usize>,
    is_list: bool,
    bytes_per_second: Option<u64>,
    stop_for: Duration,
    every: Duration,
    spread: Duration,
}

impl Default for Read {
    fn default() -> Self {
        Self {
            resource: None,
            namespace: None,
            labels: None,
            fields: None,
            version: ReadVersion::Any,
            start: Start::Now,
            watch_list: true,
            limit: None,
            is_list: false,
            bytes_per_second: None,
            stop_for: Duration::ZERO,
            every: Duration::from_secs(10),
            spread: Duration::ZERO,
        }
    }
}

fn get(read: &mut Read, fields: &mut Fields<'_>) {
    fields.required("resource", about(""), &mut read.resource, &Maybe(RESOURCE));
    fields.value("namespace", about(""), &mut read.namespace, &Maybe(NAMESPACE));
    fields.value("version", about(""), &mut read.version, &VERSIONS);
}

fn list(read: &mut Read, fields: &mut Fields<'_>) {
    get(read, fields);
    fields.value("limit", about(""), &mut read.limit, &Maybe(Number(LIMITS)));
    selectors(read, fields);
}

fn watch(read: &mut Read, fields: &mut Fields<'_>) {
    collection(read, fields);
    fields.value("start", about(""), &mut read.start, &STARTS);
    selectors(read, fields);
}

fn informer(read: &mut Read, fields: &mut Fields<'_>) {
    collection(read, fields);
    fields.value("start", about(""), &mut read.watch_list, &INFORMER_STARTS);
    fields.value("limit", about(""), &mut read.limit, &Maybe(Number(LIMITS)));
    selectors(read, fields);
}

fn reconnect(read: &mut Read, fields: &mut Fields<'_>) {
    informer(read, fields);
    fields.value("every", about(""), &mut read.every, &Time(CUTS));
    fields.value("spread", about(""), &mut read.spread, &Time(Duration::ZERO..=read.every));
}

fn slow_reader(read: &mut Read, fields: &mut Fields<'_>) {
    collection(read, fields);
    fields.value("request", about(""), &mut read.is_list, &SLOW_REQUESTS);
    if read.is_list {
        fields.value("version", about(""), &mut read.version, &VERSIONS);
    } else {
        fields.value("start", about(""), &mut read.start, &STARTS);
    }
    fields.value("bytesPerSecond", about(""), &mut read.bytes_per_second, &Maybe(Size(RATES)));
    fields.value("stopFor", about(""), &mut read.stop_for, &Time(STOPS));
    if !fields.is_given("bytesPerSecond") && !fields.is_given("stopFor") {
        fields.problem("", "neither bytesPerSecond nor stopFor was given", "one of them, or both");
    }
    selectors(read, fields);
}

fn collection(read: &mut Read, fields: &mut Fields<'_>) {
    fields.required("resource", about(""), &mut read.resource, &Maybe(RESOURCE));
    fields.value("namespace", about(""), &mut read.namespace, &Maybe(NAMESPACE));
}

fn selectors(read: &mut Read, fields: &mut Fields<'_>) {
    fields.value("labelSelector", about(""), &mut read.labels, &Maybe(Text));
    fields.value("fieldSelector", about(""), &mut read.fields, &Maybe(Text));
}

impl Read {
    fn selection(&self) -> Option<Selection> {
        let (namespace, labels, fields) = (self.namespace.clone(), self.labels.clone(), self.fields.clone());
        Some(Selection { resource: self.resource.clone()?, namespace, labels, fields })
    }

    fn get(self) -> Option<Work> {
        let Self { resource, namespace, version, .. } = self;
        Some(Work::Get { resource: resource?, namespace, version })
    }

    fn list(self) -> Option<Work> {
        Some(Work::List(ListWork { selection: self.selection()?, version: self.version, limit: self.limit }))
    }

    fn watch(self) -> Option<Work> {
        Some(Work::Watch(WatchWork { selection: self.selection()?, start: self.start }))
    }

    fn informer(self) -> Option<InformerWork> {
        Some(InformerWork { selection: self.selection()?, watch_list: self.watch_list, limit: self.limit })
    }

    fn reconnect(self) -> Option<Work> {
        let (every, spread) = (self.every, self.spread);
        Some(Work::Reconnect(ReconnectWork { informer: self.informer()?, every, spread }))
    }

    fn slow_reader(self) -> Option<Work> {
        let request = if self.is_list { SlowRequest::List(self.version) } else { SlowRequest::Watch(self.start) };
        let (stop_for, bytes_per_second) = (self.stop_for, self.bytes_per_second);
        Some(Work::SlowReader(SlowReaderWork { selection: self.selection()?, request, stop_for, bytes_per_second }))
    }
}

impl ChurnWork {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.value("resource", about(""), &mut self.resource, &CHURN_RESOURCES);
        fields.value("objects", about(""), &mut self.objects, &Number(OBJECTS));
        fields.value("bytes", about(""), &mut self.bytes, &Size(BYTES));
        fields.value("updates", about(""), &mut self.updates, &Number(WEIGHTS));
        fields.value("creates", about(""), &mut self.creates, &Number(WEIGHTS));
        fields.value("deletes", about(""), &mut self.deletes, &Number(WEIGHTS));
        fields.value("nodes", about(""), &mut self.nodes, &Number(NODES));
        if self.updates + self.creates + self.deletes == 0 {
            fields.problem("", "updates, creates and deletes are all 0", "one of them above 0");
        }
        if self.deletes > self.creates {
            fields.problem("deletes", "more than creates", "at most as many as creates");
        }
    }
}

impl Default for ChurnWork {
    fn default() -> Self {
        let (objects, bytes) = (100, 2 << 10);
        Self { resource: ChurnResource::ConfigMaps, objects, bytes, updates: 1, creates: 0, deletes: 0, nodes: 0 }
    }
}

fn is_namespace(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Parses a resource, for example `pods`, `pods.v1` or `deployments.v1.apps`.
fn resource(text: &str) -> Option<GroupVersionResource> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
    };
    let Some((plural, rest)) = text.split_once('.') else {
        return is_word(text).then(|| GroupVersionResource::new("", "v1", text));
    };
    let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
    let is_version =
        version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    let is_resource = is_version && is_word(plural) && is_word(version) && (group.is_empty() || is_word(group));
    is_resource.then(|| GroupVersionResource::new(group, version, plural))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::API_VERSION;

    fn problems(text: &str) -> Vec<String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}");
        let problems = Profile::parse("test", &text).unwrap_err();
        problems.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_problem_has_its_place_and_what_is_allowed() {
        let found = problems(
            "duration: 10
colour: red
workloads:
- {clients: 0, list: {resource: Pods, version: newest}}
- {http: 3, encoding: xml, gzip: maybe, rate: fast, watch: {resource: pods, start: then}}
- {name: w, watch: {resource: pods, version: any}}
- list: {resource: pods, limit: 0}
  connections: 2
- {}
- {list: {resource: pods}, get: {resource: pods}}
- churn: {bytes: 2Mi, updates: 0, resource: secrets}
- {name: one, get: {resource: deployments.apps}}
- {name: two, get: {resource: pods}}
- {name: two, list: {resource: pods, limit: 5}, encoding: protobuf}
- {slowReader: {resource: pods, request: list, start: any}}
- {name: z, slowReader: {resource: pods, bytesPerSecond: 0, every: 1s}}
- {reconnect: {resource: pods, every: 2s, spread: 3s}}
- {name: place, list: {resource: pods, namespace: a/b}}
",
        );
        let expected = [
            "line 3, column 1: duration: \"10\" was given; allowed: a duration like",
            "line 4, column 1: colour: no such field; allowed: apiVersion, kind, description, duration, settle, \
             timeout, workloads",
            "line 6, column 4: workloads[0].clients: \"0\" was given; allowed: a number from 1 to 1000000",
            "line 6, column 23: workloads[0].list.resource: \"Pods\" was given; allowed: the plural in lower case",
            "line 6, column 39: workloads[0].list.version: \"newest\" was given; allowed: any, mostRecent,",
            "line 7, column 4: workloads[1].http: \"3\" was given; allowed: 1.1, 2",
            "line 7, column 13: workloads[1].encoding: \"xml\" was given; allowed: json, protobuf, metadata, \
             metadataProtobuf",
            "line 7, column 28: workloads[1].gzip: \"maybe\" was given; allowed: true, false",
            "line 7, column 41: workloads[1].rate: \"fast\" was given; allowed: a number per second, of requests",
            "line 7, column 77: workloads[1].watch.start: \"then\" was given; allowed: now, any, mostRecent, watchList",
            "line 8, column 37: workloads[2].watch.version: no such field; allowed: resource, namespace, start,",
            "line 9, column 26: workloads[3].list.limit: \"0\" was given; allowed: a number from 1",
            "line 10, column 3: workloads[3].connections: in HTTP/1.1 each client has a connection of its own; \
             allowed: only with http: \"2\"",
            "line 11, column 3: workloads[4]: no work was given, or a work without fields; allowed: exactly one of \
             get, list, watch, informer, slowReader, reconnect, churn",
            "line 12, column 3: workloads[5]: more than one work was given; allowed: exactly one of",
            "line 13, column 3: workloads[6].churn: updates, creates and deletes are all 0; allowed: one of them \
             above 0",
            "line 13, column 11: workloads[6].churn.bytes: \"2Mi\" was given; allowed: a size in bytes like",
            "line 13, column 35: workloads[6].churn.resource: \"secrets\" was given; allowed: configmaps, pods",
            "line 14, column 21: workloads[7].get.resource: \"deployments.apps\" was given; allowed: ",
            "line 16, column 4: workloads[9].name: a workload above has the same name; allowed: \
             a name that no other workload has",
            "line 17, column 4: workloads[10].slowReader: neither bytesPerSecond nor stopFor was given; \
             allowed: one of them",
            "line 17, column 48: workloads[10].slowReader.start: no such field; allowed: resource, namespace, \
             request, version,",
            "line 18, column 42: workloads[11].slowReader.bytesPerSecond: \"0\" was given; allowed: \
             a size in bytes like",
            "line 18, column 61: workloads[11].slowReader.every: no such field; allowed: resource,",
            "line 19, column 43: workloads[12].reconnect.spread: \"3s\" was given; allowed: ",
            "line 20, column 40: workloads[13].list.namespace: \"a/b\" was given; allowed: a name of",
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{expected}\nbut {found}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn yaml_and_json_give_the_same_profile() {
        let yaml = "apiVersion: kube-fanout.io/v1alpha1
kind: LoadProfile
duration: 5s
workloads:
- {name: nodes, clients: 250, http: 2, encoding: metadata,
   watch: {resource: pods, start: watchList, fieldSelector: 'spec.nodeName=n-{client}'}}
- {rate: 2.5, clients: 3, gzip: true,
   list: {resource: deployments.v1.apps, namespace: a, version: notOlderThan, limit: 500}}
- {churn: {resource: pods, bytes: 8Ki, nodes: 250, creates: 2, deletes: 1}}
";
        let profile = Profile::parse("p", yaml).unwrap();
        assert_eq!(profile.duration, Duration::from_secs(5));
        let [watch, list, churn] = &profile.workloads[..] else { panic!("{profile:?}") };
        assert_eq!((watch.name.as_str(), watch.clients, watch.connections), ("nodes", 250, 3));
        assert_eq!(
            watch.transport.encoding.accept(false),
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        );
        assert_eq!((list.name.as_str(), list.rate, list.connections), ("list", Some(2.5), 3));
        let Work::List(work) = &list.work else { panic!("{list:?}") };
        assert_eq!(work.selection.resource.collection_path(), "/apis/apps/v1/deployments");
        let Work::Churn(work) = &churn.work else { panic!("{churn:?}") };
        assert_eq!((work.bytes, work.updates, work.creates), (8 << 10, 1, 2));
        let json = r#"{"apiVersion": "kube-fanout.io/v1alpha1", "kind": "LoadProfile", "duration": "5s", "workloads": [
            {"name": "nodes", "clients": 250, "http": "2", "encoding": "metadata",
             "watch": {"resource": "pods", "start": "watchList", "fieldSelector": "spec.nodeName=n-{client}"}}]}"#;
        assert_eq!(Profile::parse("p", json).unwrap().workloads[..], profile.workloads[..1]);
    }

    #[test]
    fn parsing_does_not_panic() {
        for text in ["", "[", "x", "- a", "a: b: c", "{}", "\0", "workloads: [x]", "workloads: [{watch: []}]"] {
            assert!(Profile::parse("test", text).is_err(), "{text}");
        }
    }
}
