//! The validation rules of a profile.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use super::{
    ChurnResource, ChurnWork, HttpVersion, InformerWork, KIND, ListWork, Profile, ReadVersion, ReconnectWork,
    Selection, SlowReaderWork, SlowRequest, Start, Transport, WatchWork, WireEncoding, Work, Workload,
    raw::{self, Document},
};
use crate::OBJECTS_MAX;
use base::apimachinery::GroupVersionResource;
use base::config::{API_VERSION, Check, Problems, SIZE, Scalar, given, size};

const DURATION: Duration = Duration::from_secs(30);
/// Also the durations of the command line. A longer one might not fit into the clock.
pub(crate) const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 3600);
pub(super) const SETTLE: Duration = Duration::from_secs(5);
const SETTLES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
/// The default timeout of a request: the time limit that an API server has for a list.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);
pub(super) const CLIENTS: RangeInclusive<usize> = 1..=1_000_000;
/// The default number of clients that share a connection: the number of streams that API servers usually allow.
const STREAMS: usize = 100;
pub(super) const RATE: RangeInclusive<f64> = 0.001..=1_000_000.0;
pub(super) const LIMITS: RangeInclusive<usize> = 1..=1_000_000;
const OBJECTS: RangeInclusive<usize> = 1..=OBJECTS_MAX;
const WEIGHTS: RangeInclusive<usize> = 0..=1_000;
const NODES: RangeInclusive<usize> = 0..=100_000;
const BYTES: u64 = 2 << 10;
/// Slightly less than the largest object that etcd accepts.
const BYTES_MAX: u64 = 1 << 20;

/// The range of bytes per second of slow readers. A reader that reads nothing has `stopFor` instead.
const RATES: RangeInclusive<u64> = 1..=1 << 30;
const STOPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);
const EVERY: Duration = Duration::from_secs(10);
const CUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);

const DOCUMENT_FIELDS: [&str; 7] = ["apiVersion", "kind", "description", "duration", "settle", "timeout", "workloads"];
const WORKLOAD_FIELDS: [&str; 14] = [
    "name",
    "clients",
    "connections",
    "rate",
    "http",
    "encoding",
    "gzip",
    "get",
    "list",
    "watch",
    "informer",
    "slowReader",
    "reconnect",
    "churn",
];
const UNIQUE_NAME: &str =
    "a name that no other workload has; a workload without one is named for its work, such as list";
const WORKS: &str = "exactly one of get, list, watch, informer, slowReader, reconnect, churn";
const CHURN_FIELDS: [&str; 7] = ["resource", "objects", "bytes", "updates", "creates", "deletes", "nodes"];
/// A namespace becomes a part of a path.
pub(super) const NAMESPACE: &str = "a name of lower-case letters, digits and -";
const RESOURCE: &str =
    "the plural in lower case, with version and group unless these are v1 of the core group: pods, deployments.v1.apps";

const ENCODINGS: [(&str, WireEncoding); 4] = [
    ("json", WireEncoding::Json),
    ("protobuf", WireEncoding::Protobuf),
    ("metadata", WireEncoding::Metadata),
    ("metadataProtobuf", WireEncoding::MetadataProtobuf),
];
const VERSIONS: [(&str, ReadVersion); 3] =
    [("any", ReadVersion::Any), ("mostRecent", ReadVersion::MostRecent), ("notOlderThan", ReadVersion::NotOlderThan)];
const STARTS: [(&str, Start); 4] =
    [("now", Start::Now), ("any", Start::Any), ("mostRecent", Start::MostRecent), ("watchList", Start::WatchList)];

pub(super) fn validate(name: &str, document: &Document) -> Result<Profile, Problems> {
    let mut check = Check::default();
    check.unknown("", &document.unknown, &DOCUMENT_FIELDS);
    check.exactly("apiVersion", document.api_version.as_ref(), API_VERSION);
    check.exactly("kind", document.kind.as_ref(), KIND);
    check.text("description", document.description.as_ref());
    let profile = Profile {
        name: name.to_owned(),
        duration: check.duration("duration", document.duration.as_ref(), DURATION, &DURATIONS),
        settle: check.duration("settle", document.settle.as_ref(), SETTLE, &SETTLES),
        timeout: check.duration("timeout", document.timeout.as_ref(), TIMEOUT, &TIMEOUTS),
        workloads: workloads(&mut check, document.workloads.as_deref().unwrap_or_default()),
    };
    if check.problems.is_empty() { Ok(profile) } else { Err(Problems(check.problems)) }
}

fn workloads(check: &mut Check, raw: &[raw::Workload]) -> Vec<Workload> {
    if raw.is_empty() {
        check.problem("workloads", "missing or empty", "a list of one or more workloads");
    }
    let mut names = HashSet::new();
    let mut workloads = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let field = format!("workloads[{index}]");
        let found = workload(check, &field, raw);
        if !found.as_ref().is_none_or(|workload| names.insert(workload.name.clone())) {
            check.problem(&format!("{field}.name"), "a workload above has the same name", UNIQUE_NAME);
        }
        workloads.extend(found);
    }
    workloads
}

fn workload(check: &mut Check, field: &str, raw: &raw::Workload) -> Option<Workload> {
    check.unknown(field, &raw.unknown, &WORKLOAD_FIELDS);
    let at = |name: &str| format!("{field}.{name}");
    let encoding = check.word(&at("encoding"), raw.encoding.as_ref(), WireEncoding::Json, &ENCODINGS);
    let http = [("1.1", HttpVersion::Http1), ("2", HttpVersion::Http2)];
    let transport = Transport {
        http: check.word(&at("http"), raw.http.as_ref(), HttpVersion::Http1, &http),
        encoding,
        gzip: check.word(&at("gzip"), raw.gzip.as_ref(), false, &[("true", true), ("false", false)]),
    };
    let clients = check.number(&at("clients"), raw.clients.as_ref(), 1, &CLIENTS);
    let connections = match transport.http {
        HttpVersion::Http1 => {
            if raw.connections.is_some() {
                let allowed = "only with http: \"2\"";
                check.problem(&at("connections"), "in HTTP/1.1 each client has a connection of its own", allowed);
            }
            clients
        }
        HttpVersion::Http2 => {
            let usual = clients.div_ceil(STREAMS);
            check.number(&at("connections"), raw.connections.as_ref(), usual, &(1..=clients))
        }
    };
    let rate = rate(check, &at("rate"), raw.rate.as_ref());
    let work = work(check, field, raw, transport)?;
    let name = check.text(&at("name"), raw.name.as_ref()).unwrap_or_else(|| work.name().to_owned());
    Some(Workload { name, clients, connections, rate, transport, work })
}

fn rate(check: &mut Check, field: &str, raw: Option<&Scalar>) -> Option<f64> {
    let allowed = "a number per second, of requests, or of watches and informers to open, from 0.001 to 1000000";
    let parse = |text: &str| text.parse().ok().filter(|rate| RATE.contains(rate)).map(Some);
    check.parsed(field, raw, None, allowed, parse)
}

fn work(check: &mut Check, field: &str, raw: &raw::Workload, transport: Transport) -> Option<Work> {
    let reads: [(&str, &Option<raw::Read>, ReadRules); 6] = [
        ("get", &raw.get, get),
        ("list", &raw.list, list),
        ("watch", &raw.watch, watch),
        ("informer", &raw.informer, informer),
        ("slowReader", &raw.slow_reader, slow_reader),
        ("reconnect", &raw.reconnect, reconnect),
    ];
    let mut given = reads.into_iter().filter_map(|(name, raw, rules)| Some((name, raw.as_ref()?, rules)));
    match (given.next(), given.next(), &raw.churn) {
        (Some((name, raw, rules)), None, None) => rules(check, &format!("{field}.{name}"), raw),
        (None, None, Some(raw)) => {
            if transport.encoding != WireEncoding::Json {
                check.problem(
                    &format!("{field}.encoding"),
                    "given for churn, which writes JSON only",
                    "json, or no such field",
                );
            }
            Some(Work::Churn(churn(check, &format!("{field}.churn"), raw)))
        }
        (None, None, None) => {
            check.problem(field, "no work was given, or a work without fields", WORKS);
            None
        }
        _ => {
            check.problem(field, "more than one work was given", WORKS);
            None
        }
    }
}

/// The validation rules of one kind of work.
type ReadRules = fn(&mut Check, &str, &raw::Read) -> Option<Work>;

fn get(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let Selection { resource, namespace, .. } = read(check, field, raw, &["resource", "namespace", "version"])?;
    Some(Work::Get { resource, namespace, version: version(check, field, raw) })
}

fn list(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let fields = ["resource", "namespace", "version", "limit", "labelSelector", "fieldSelector"];
    let selection = read(check, field, raw, &fields)?;
    let limit = limit(check, field, raw);
    Some(Work::List(ListWork { selection, version: version(check, field, raw), limit }))
}

fn limit(check: &mut Check, field: &str, raw: &raw::Read) -> Option<usize> {
    let limit = raw.limit.as_ref()?;
    let field = format!("{field}.limit");
    Some(check.number(&field, Some(limit), *LIMITS.start(), &LIMITS))
}

fn watch(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let fields = ["resource", "namespace", "start", "labelSelector", "fieldSelector"];
    let selection = read(check, field, raw, &fields)?;
    Some(Work::Watch(WatchWork { selection, start: start(check, field, raw) }))
}

fn informer(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let fields = ["resource", "namespace", "start", "limit", "labelSelector", "fieldSelector"];
    Some(Work::Informer(informer_work(check, field, raw, &fields)?))
}

fn informer_work(check: &mut Check, field: &str, raw: &raw::Read, fields: &[&str]) -> Option<InformerWork> {
    let selection = read(check, field, raw, fields)?;
    let starts = [("watchList", true), ("list", false)];
    let watch_list = check.word(&format!("{field}.start"), raw.start.as_ref(), true, &starts);
    let limit = limit(check, field, raw);
    Some(InformerWork { selection, watch_list, limit })
}

fn slow_reader(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let at = |name: &str| format!("{field}.{name}");
    let is_list = check.word(&at("request"), raw.request.as_ref(), false, &[("watch", false), ("list", true)]);
    let from = if is_list { "version" } else { "start" };
    let fields =
        ["resource", "namespace", "request", from, "bytesPerSecond", "stopFor", "labelSelector", "fieldSelector"];
    let selection = read(check, field, raw, &fields)?;
    let request = if is_list {
        SlowRequest::List(version(check, field, raw))
    } else {
        SlowRequest::Watch(start(check, field, raw))
    };
    let stop_for = check.duration(&at("stopFor"), raw.stop_for.as_ref(), Duration::ZERO, &STOPS);
    let rate = |text: &str| size(text).filter(|rate| RATES.contains(rate)).map(Some);
    let allowed = format!("{SIZE}, up to 1Gi");
    let bytes_per_second = check.parsed(&at("bytesPerSecond"), raw.bytes_per_second.as_ref(), None, &allowed, rate);
    if raw.bytes_per_second.is_none() && raw.stop_for.is_none() {
        check.problem(field, "neither bytesPerSecond nor stopFor was given", "one of them, or both");
    }
    Some(Work::SlowReader(SlowReaderWork { selection, request, stop_for, bytes_per_second }))
}

fn reconnect(check: &mut Check, field: &str, raw: &raw::Read) -> Option<Work> {
    let fields = ["resource", "namespace", "start", "limit", "every", "spread", "labelSelector", "fieldSelector"];
    let informer = informer_work(check, field, raw, &fields)?;
    let every = check.duration(&format!("{field}.every"), raw.every.as_ref(), EVERY, &CUTS);
    let spread =
        check.duration(&format!("{field}.spread"), raw.spread.as_ref(), Duration::ZERO, &(Duration::ZERO..=every));
    Some(Work::Reconnect(ReconnectWork { informer, every, spread }))
}

fn start(check: &mut Check, field: &str, raw: &raw::Read) -> Start {
    check.word(&format!("{field}.start"), raw.start.as_ref(), Start::Now, &STARTS)
}

fn version(check: &mut Check, field: &str, raw: &raw::Read) -> ReadVersion {
    check.word(&format!("{field}.version"), raw.version.as_ref(), ReadVersion::Any, &VERSIONS)
}

/// Validates the fields that several kinds of work have. A field that is not in `allowed` belongs to another kind.
fn read(check: &mut Check, field: &str, raw: &raw::Read, allowed: &[&str]) -> Option<Selection> {
    check.unknown(field, &raw.unknown, allowed);
    let given_fields = [
        ("version", &raw.version),
        ("start", &raw.start),
        ("limit", &raw.limit),
        ("labelSelector", &raw.label_selector),
        ("fieldSelector", &raw.field_selector),
        ("request", &raw.request),
        ("bytesPerSecond", &raw.bytes_per_second),
        ("stopFor", &raw.stop_for),
        ("every", &raw.every),
        ("spread", &raw.spread),
    ];
    for (name, _) in given_fields.iter().filter(|(name, value)| value.is_some() && !allowed.contains(name)) {
        check.problem(&format!("{field}.{name}"), "no such field", &allowed.join(", "));
    }
    let at = |name: &str| format!("{field}.{name}");
    let parse = |text: &str| is_namespace(text).then(|| Some(text.to_owned()));
    let namespace = check.parsed(&at("namespace"), raw.namespace.as_ref(), None, NAMESPACE, parse);
    let labels = check.text(&at("labelSelector"), raw.label_selector.as_ref());
    let fields = check.text(&at("fieldSelector"), raw.field_selector.as_ref());
    let Some(Scalar(text)) = &raw.resource else {
        check.problem(&at("resource"), "missing", RESOURCE);
        return None;
    };
    let Some(resource) = resource(text) else {
        check.problem(&at("resource"), &given(text), RESOURCE);
        return None;
    };
    Some(Selection { resource, namespace, labels, fields })
}

pub(super) fn is_namespace(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Parses a resource, for example `pods`, `pods.v1` or `deployments.v1.apps`.
pub(super) fn resource(text: &str) -> Option<GroupVersionResource> {
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

fn churn(check: &mut Check, field: &str, raw: &raw::Churn) -> ChurnWork {
    check.unknown(field, &raw.unknown, &CHURN_FIELDS);
    let at = |name: &str| format!("{field}.{name}");
    let resources = [("configmaps", ChurnResource::ConfigMaps), ("pods", ChurnResource::Pods)];
    let bytes = |text: &str| size(text).filter(|bytes| *bytes <= BYTES_MAX);
    let allowed = format!("{SIZE}, up to 1Mi");
    let churn = ChurnWork {
        resource: check.word(&at("resource"), raw.resource.as_ref(), ChurnResource::ConfigMaps, &resources),
        objects: check.number(&at("objects"), raw.objects.as_ref(), 100, &OBJECTS),
        bytes: usize::try_from(check.parsed(&at("bytes"), raw.bytes.as_ref(), BYTES, &allowed, bytes))
            .unwrap_or_default(),
        updates: check.number(&at("updates"), raw.updates.as_ref(), 1, &WEIGHTS),
        creates: check.number(&at("creates"), raw.creates.as_ref(), 0, &WEIGHTS),
        deletes: check.number(&at("deletes"), raw.deletes.as_ref(), 0, &WEIGHTS),
        nodes: check.number(&at("nodes"), raw.nodes.as_ref(), 0, &NODES),
    };
    if churn.updates + churn.creates + churn.deletes == 0 {
        check.problem(field, "updates, creates and deletes are all 0", "one of them above 0");
    }
    if churn.deletes > churn.creates {
        check.problem(&at("deletes"), "more than creates", "at most as many as creates");
    }
    churn
}

#[cfg(test)]
mod tests {
    use super::*;

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
