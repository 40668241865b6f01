//! Profiles of kperf (github.com/Azure/kperf, `api/types/load_traffic.go` of July 2026): version 1, with `specs`, or
//! with the single `spec` from before the replay of time series; also within a group of runners (`runner_group.go`).
//! Settings that this tool does not support are reported as problems with their place. It ignores only what kperf
//! ignores, too, and on which machines its runners are.

mod request;

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use super::{
    HttpVersion, Profile, Transport, WireEncoding, Work, Workload,
    validate::{self, CLIENTS, DURATIONS, RATE},
};
use base::config::{Check, Location, Problem, Problems, Scalar, Unknown};
use request::Request;

/// The longest duration of kperf's profiles, in seconds: a week, as in a profile of this tool.
const SECONDS: std::ops::RangeInclusive<usize> = 1..=7 * 24 * 3600;
const TOTALS: std::ops::RangeInclusive<usize> = 1..=1_000_000_000;
/// The number of requests of a profile without `total` and `duration`: the default of `kperf runner run --total`.
const TOTAL: usize = 1000;
/// The runners of a group: each has at least one client.
const RUNNERS: std::ops::RangeInclusive<usize> = CLIENTS;
const RATES: &str = "requests per second, from 0.001 to 1000000; 0 for no limit";
const GROUP_FIELDS: [&str; 3] = ["count", "loadProfile", "nodeAffinity"];
const DOCUMENT_FIELDS: [&str; 4] = ["version", "description", "specs", "spec"];
const SPEC_FIELDS: [&str; 9] =
    ["rate", "total", "duration", "conns", "client", "contentType", "disableHTTP2", "maxRetries", "requests"];
/// Runners that all have the same profile.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Group {
    count: Option<Scalar>,
    load_profile: Document,
    /// The machines of the runners, by their labels. Not used: all requests come from this program.
    #[serde(rename = "nodeAffinity")]
    _node_affinity: Option<BTreeMap<String, Vec<Scalar>>>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Document {
    version: Option<Scalar>,
    /// Only for readers of the file.
    description: Option<Scalar>,
    specs: Option<Vec<Spec>>,
    spec: Option<Spec>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    rate: Option<Scalar>,
    total: Option<Scalar>,
    duration: Option<Scalar>,
    conns: Option<Scalar>,
    client: Option<Scalar>,
    content_type: Option<Scalar>,
    #[serde(rename = "disableHTTP2")]
    disable_http2: Option<Scalar>,
    max_retries: Option<Scalar>,
    requests: Option<Vec<Request>>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// The forms of kperf's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Profile,
    Group,
}

impl Form {
    /// The form of a text; `None` if it is none of kperf's, which have no `apiVersion`.
    pub(super) fn of(text: &str) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Kind {
            #[serde(flatten)]
            fields: Unknown,
        }
        let kind: Kind = base::config::parse_document(text).ok()?;
        let has = |names: &[&str]| names.iter().any(|name| kind.fields.contains_key(*name));
        if has(&["apiVersion", "kind"]) {
            None
        } else if has(&["loadProfile"]) {
            Some(Self::Group)
        } else {
            has(&["specs", "spec"]).then_some(Self::Profile)
        }
    }
}

/// The first placeholder of a text that is a Go template. Without a value it would be a part of a name or selector.
pub(super) fn placeholder(text: &str) -> Option<Problem> {
    let in_line = |line: &str| line.split('#').next().unwrap_or_default().find("{{");
    let (line, column) = text.lines().enumerate().find_map(|(index, line)| Some((index + 1, in_line(line)? + 1)))?;
    Some(Problem {
        field: String::new(),
        found: "a placeholder of a template was given".to_owned(),
        allowed: "a value in its place: the file that results from the template".to_owned(),
        at: Some(Location { line, column }),
    })
}

pub(super) fn validate(name: &str, document: &Document) -> Result<Profile, Problems> {
    let mut check = Check::default();
    of_document(&mut check, name, "", document, 1).ok_or(Problems(check.problems))
}

pub(super) fn validate_group(name: &str, group: &Group) -> Result<Profile, Problems> {
    let mut check = Check::default();
    check.unknown("", &group.unknown, &GROUP_FIELDS);
    if group.count.is_none() {
        let allowed = format!("the number of runners, from {} to {}", RUNNERS.start(), RUNNERS.end());
        check.problem("count", "missing", &allowed);
    }
    let runners = check.number("count", group.count.as_ref(), 1, &RUNNERS);
    of_document(&mut check, name, "loadProfile.", &group.load_profile, runners).ok_or(Problems(check.problems))
}

/// `None` if there are problems. `at`: what comes before the names of the fields.
fn of_document(check: &mut Check, name: &str, at: &str, document: &Document, runners: usize) -> Option<Profile> {
    check.unknown(at.trim_end_matches('.'), &document.unknown, &DOCUMENT_FIELDS);
    check.exactly(&format!("{at}version"), document.version.as_ref(), "1");
    let specs = document.specs.as_deref().unwrap_or_default();
    let (field, spec) = match (specs, &document.spec) {
        ([spec, more @ ..], None) => {
            if !more.is_empty() {
                let allowed = "one spec; for more, a file and a run each";
                check.problem(&format!("{at}specs[1]"), "a run has only one spec", allowed);
            }
            ("specs[0]", spec)
        }
        ([], Some(spec)) => ("spec", spec),
        ([], None) => {
            check.problem(&format!("{at}specs"), "missing or empty", "a list of one spec");
            return None;
        }
        (_, Some(_)) => {
            check.problem(&format!("{at}spec"), "given beside specs", "one of the two");
            return None;
        }
    };
    let (duration, workloads) = of_spec(check, &format!("{at}{field}"), spec, runners);
    // kperf has no events to wait for, and the same limit for each request.
    let (settle, timeout) = (validate::SETTLE, validate::TIMEOUT);
    check.problems.is_empty().then(|| Profile { name: name.to_owned(), duration, settle, timeout, workloads })
}

/// The time that a spec takes. As in kperf, a total counts and not a duration beside it.
fn duration(check: &mut Check, field: &str, spec: &Spec, rate: f64) -> Duration {
    let at = |name: &str| format!("{field}.{name}");
    let zero = |given: &Option<Scalar>| given.as_ref().filter(|Scalar(text)| text != "0").cloned();
    let (seconds, total) = (zero(&spec.duration), zero(&spec.total));
    let number = check.number(&at("duration"), seconds.as_ref(), 1, &SECONDS);
    if seconds.is_some() && total.is_none() {
        return Duration::from_secs(number as u64);
    }
    if rate == 0.0 {
        let allowed = "a number of seconds; or total, with a rate above 0";
        match seconds {
            Some(_) => check.problem(&at("total"), "counts instead of duration, and needs a rate", "one of the two"),
            None => check.problem(&at("duration"), "missing", allowed),
        }
        return Duration::ZERO;
    }
    let number = check.number(&at("total"), total.as_ref(), TOTAL, &TOTALS);
    let duration = Duration::from_secs_f64(number as f64 / rate);
    if duration > *DURATIONS.end() {
        check.problem(&at("total"), "at this rate they take longer than a run may", "as many as take at most 168h");
    }
    duration
}

/// `runners` that all do what the spec says.
fn of_spec(check: &mut Check, field: &str, spec: &Spec, runners: usize) -> (Duration, Vec<Workload>) {
    let at = |name: &str| format!("{field}.{name}");
    check.unknown(field, &spec.unknown, &SPEC_FIELDS);
    let parse = |text: &str| text.parse().ok().filter(|rate| *rate == 0.0 || RATE.contains(rate));
    let rate: f64 = check.parsed(&at("rate"), spec.rate.as_ref(), 0.0, RATES, parse);
    let duration = duration(check, field, spec, rate);
    let retries = [("0", ())];
    check.word(&at("maxRetries"), spec.max_retries.as_ref(), (), &retries);
    let encodings = [("json", WireEncoding::Json), ("protobuf", WireEncoding::Protobuf)];
    let encoding = check.word(&at("contentType"), spec.content_type.as_ref(), WireEncoding::Json, &encodings);
    let http = [("false", HttpVersion::Http2), ("true", HttpVersion::Http1)];
    let http = check.word(&at("disableHTTP2"), spec.disable_http2.as_ref(), HttpVersion::Http2, &http);
    let conns = check.number(&at("conns"), spec.conns.as_ref(), 1, &CLIENTS);
    let clients = check.number(&at("client"), spec.client.as_ref(), conns, &CLIENTS);
    let (rate, conns, clients) = (rate * runners as f64, conns * runners, clients * runners);
    if rate > *RATE.end() || clients > *CLIENTS.end() {
        let found = "the runners have more than 1000000 clients, or requests per second, together";
        check.problem("count", found, "fewer runners, or less for each of them");
    }
    // client-go asks for gzip unless told otherwise.
    let transport = Transport { http, encoding, gzip: true };
    let requests = request::of_spec(check, &at("requests"), spec.requests.as_deref().unwrap_or_default());
    if rate == 0.0 && requests.len() > 1 {
        check.problem(
            &at("rate"),
            "without a rate, the shares of several requests would depend on their latencies",
            RATES,
        );
    }
    let all: usize = requests.iter().map(|(shares, ..)| shares).sum();
    let part = |of: usize, shares: usize| (of * shares).div_ceil(all.max(1)).max(1);
    let workload = |(shares, name, work): (usize, String, Work)| {
        let clients = part(clients, shares);
        let connections = if http == HttpVersion::Http2 { part(conns, shares).min(clients) } else { clients };
        let rate = (rate > 0.0).then(|| rate * shares as f64 / all as f64);
        Workload { name, clients, connections, rate, transport, work }
    };
    (duration, requests.into_iter().map(workload).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ListWork, Pages, ReadVersion};

    const PROFILE: &str = "version: 1
description: what a dashboard does
specs:
- rate: 24
  total: 240
  conns: 6
  client: 12
  contentType: json
  disableHTTP2: false
  maxRetries: 0
  requests:
  - shares: 800
    staleList: {version: v1, resource: pods, fieldSelector: spec.nodeName=a}
  - shares: 200
    quorumList: {group: apps, version: v1, resource: deployments, namespace: a, limit: 500, selector: app=b}
  - shares: 100
    watchList: {version: v1, resource: configmaps, namespace: a}
  - shares: 100
    quorumGet: {group: core, version: v1, resource: nodes, name: node-1}
";

    #[test]
    fn rates_and_clients_follow_the_shares() {
        let profile = Profile::parse("kperf", PROFILE).unwrap();
        assert_eq!(profile.duration, Duration::from_secs(10));
        let all: Vec<_> = profile
            .workloads
            .iter()
            .map(|of| (of.name.as_str(), of.rate, of.clients, of.connections, of.transport.http))
            .collect();
        let http = HttpVersion::Http2;
        let expected = [
            ("staleList-0", Some(16.0), 8, 4, http),
            ("quorumList-1", Some(4.0), 2, 1, http),
            ("watchList-2", Some(2.0), 1, 1, http),
            ("quorumGet-3", Some(2.0), 1, 1, http),
        ];
        assert_eq!(all, expected);
        let Work::List(ListWork { selection, version, limit, pages }) = &profile.workloads[1].work else { panic!() };
        assert_eq!(selection.resource.collection_path(), "/apis/apps/v1/deployments");
        assert_eq!((selection.namespace.as_deref(), selection.labels.as_deref()), (Some("a"), Some("app=b")));
        assert_eq!((*version, *limit, *pages), (ReadVersion::MostRecent, Some(500), Pages::First));
        let Work::Get { name, version, .. } = &profile.workloads[3].work else { panic!() };
        assert_eq!((name.as_deref(), *version), (Some("node-1"), ReadVersion::MostRecent));
    }

    #[test]
    fn the_single_spec_of_older_versions_is_supported() {
        let text = "version: 1\nspec: {duration: 5, conns: 1, client: 2, contentType: protobuf, disableHTTP2: true, \
                    requests: [{shares: 1, staleList: {version: v1, resource: pods}}]}";
        let profile = Profile::parse("kperf", text).unwrap();
        let [workload] = &profile.workloads[..] else { panic!("{profile:?}") };
        assert_eq!((workload.rate, workload.clients, workload.connections), (None, 2, 2));
        assert_eq!(workload.transport.encoding, WireEncoding::Protobuf);
    }

    #[test]
    fn the_selector_of_a_list_has_two_spellings() {
        let of = |fields: &str| {
            let text = format!(
                "version: 1\nspec: {{duration: 5, conns: 1, client: 1, \
                 requests: [{{shares: 1, {fields}}}]}}"
            );
            Profile::parse("kperf", &text)
        };
        for fields in [
            "staleList: {version: v1, resource: pods, seletor: app=b}",
            "quorumList: {version: v1, resource: pods, seletor: app=b}",
            "quorumList: {version: v1, resource: pods, selector: app=b, seletor: ''}",
            "watchList: {version: v1, resource: pods, selector: app=b}",
        ] {
            let profile = of(fields).unwrap();
            let Work::List(ListWork { selection, .. }) = &profile.workloads[0].work else { panic!("{profile:?}") };
            assert_eq!(selection.labels.as_deref(), Some("app=b"), "{fields}");
        }
        for (fields, expected) in [
            (
                "staleList: {version: v1, resource: pods, selector: a=b, seletor: c=d}",
                "staleList.seletor: given beside selector, of which it is an older spelling; allowed: one of the two",
            ),
            // kperf has never had it here, and would list everything.
            ("watchList: {version: v1, resource: pods, seletor: a=b}", "watchList.seletor: no such field; allowed: "),
        ] {
            let problems = of(fields).unwrap_err().to_string();
            assert!(problems.contains(expected), "{expected}\nis not in\n{problems}");
        }
    }

    #[test]
    fn unsupported_fields_are_reported_with_their_place() {
        let text = "version: 2
specs:
- rate: 0
  duration: 10
  conns: 1
  client: 1
  contentType: cbor
  maxRetries: 3
  burst: 5
  requests:
  - {shares: 1, staleList: {version: v1, resource: pods, limit: 5}}
  - {shares: 1, patch: {version: v1, resource: pods, name: a}}
  - {shares: 1, quorumGet: {version: v1, resource: pods, limit: 1}}
  - {shares: 1}
  - {shares: 1, staleList: {resource: Pods, version: v1}}
  - {shares: 1, staleGet: {version: v1, resource: pods, namespace: a/b, name: c?d}}
- {rate: 1}
";
        let problems = Profile::parse("kperf", text).unwrap_err().to_string();
        let expected = [
            "line 1, column 1: version: \"2\" was given; allowed: 1",
            "line 7, column 3: specs[0].contentType: \"cbor\" was given; allowed: json, protobuf",
            "line 8, column 3: specs[0].maxRetries: \"3\" was given; allowed: 0",
            "line 9, column 3: specs[0].burst: no such field; allowed: rate, total,",
            "line 11, column 58: specs[0].requests[0].staleList.limit: given for a stale list",
            "line 12, column 17: specs[0].requests[1].patch: no such field; allowed: shares, staleList,",
            "line 13, column 17: specs[0].requests[2].quorumGet.name: missing",
            "line 13, column 58: specs[0].requests[2].quorumGet.limit: no such field; allowed: group,",
            "line 14, column 5: specs[0].requests[3]: no kind of request, or more than one; allowed: one of staleList,",
            "line 15, column 29: specs[0].requests[4].staleList.resource: \"Pods.v1\" was given; allowed: a plural",
            "line 16, column 57: specs[0].requests[5].staleGet.namespace: \"a/b\" was given; allowed: a name of",
            "line 16, column 73: specs[0].requests[5].staleGet.name: \"c?d\" was given; allowed: the name of",
            "line 17, column 3: specs[1]: a run has only one spec; allowed: one spec",
        ];
        for expected in expected {
            assert!(problems.contains(expected), "{expected}\nis not in\n{problems}");
        }
        let endless = Profile::parse("kperf", "version: 1\nspec: {total: 5}").unwrap_err().to_string();
        let expected = "line 2, column 1: spec.duration: missing; allowed: a number of seconds; or total, with a rate";
        assert!(endless.starts_with(expected), "{endless}");
        let text = "version: 1\nspec: {rate: 0.001, total: 1000000000, \
                    requests: [{shares: 1, staleList: {version: v1, resource: pods}}]}";
        let long = Profile::parse("kperf", text).unwrap_err().to_string();
        assert!(long.contains("line 2, column 21: spec.total: at this rate they take longer than a run may"), "{long}");
    }

    /// What two runners of a group do, each as often as it says.
    const GROUP: &str = "# Controllers of two machines.
count: 2
nodeAffinity:
  example.com/pool: [load, spare]
loadProfile:
  version: 1
  description: configuration of jobs  # {{ not a placeholder }}
  specs:
  - rate: 8
    total: 240
    duration: 5
    conns: 3
    client: 6
    contentType: json
    requests:
    - staleList: {group: batch, version: v1, resource: jobs, namespace: builds}
      shares: 30
    - quorumGet: {version: v1, resource: configmaps, namespace: builds, name: settings}
      shares: 10
";

    #[test]
    fn the_runners_of_a_group_are_that_many_times_the_load_for_the_same_time() {
        let profile = Profile::parse("kperf", GROUP).unwrap();
        assert_eq!(profile.duration, Duration::from_secs(30), "the total counts, as in kperf");
        let all = |profile: &Profile| -> Vec<_> {
            let all = profile.workloads.iter();
            all.map(|of| (of.name.clone(), of.rate, of.clients, of.connections)).collect()
        };
        let expected = [("staleList-0".to_owned(), Some(12.0), 9, 5), ("quorumGet-1".to_owned(), Some(4.0), 3, 2)];
        assert_eq!(all(&profile), expected);
        let one = Profile::parse("kperf", &GROUP.replace("count: 2", "count: 1")).unwrap();
        let expected = [("staleList-0".to_owned(), Some(6.0), 5, 3), ("quorumGet-1".to_owned(), Some(2.0), 2, 1)];
        assert_eq!((all(&one).as_slice(), one.duration), (&expected[..], profile.duration));
        let by_default = GROUP.replace("    total: 240\n    duration: 5\n", "");
        let by_default = Profile::parse("kperf", &by_default).unwrap();
        assert_eq!(by_default.duration, Duration::from_secs(125), "1000 requests of each runner, as in kperf");
    }

    #[test]
    fn what_a_group_cannot_have_is_reported_with_its_place() {
        let problems = |given: &str, instead: &str| {
            assert!(GROUP.contains(given), "{given}");
            Profile::parse("kperf", &GROUP.replace(given, instead)).unwrap_err().to_string()
        };
        let cases = [
            ("count: 2", "", "count: missing; allowed: the number of runners, from 1 to 1000000"),
            ("count: 2", "count: 0", "line 2, column 1: count: \"0\" was given; allowed: a number from 1 to 1000000"),
            ("count: 2", "count: 200000", "line 2, column 1: count: the runners have more than 1000000 clients, or "),
            (
                "count: 2",
                "count: 2\nserviceAccount: a",
                "line 3, column 1: serviceAccount: no such field; allowed: count",
            ),
            ("[load, spare]", "load", "line 4, column 3: nodeAffinity.example.com/pool: this is not a list"),
            ("version: 1", "version: 2", "line 6, column 3: loadProfile.version: \"2\" was given; allowed: 1"),
            ("description", "title", "line 7, column 3: loadProfile.title: no such field; allowed: version, "),
            ("rate: 8", "rate: 0", "line 10, column 5: loadProfile.specs[0].total: counts instead of duration, and "),
            ("total: 240", "total: x", "line 10, column 5: loadProfile.specs[0].total: \"x\" was given; allowed: "),
            ("duration: 5", "duration: x", "line 11, column 5: loadProfile.specs[0].duration: \"x\" was given; "),
            ("staleList", "put", "line 16, column 7: loadProfile.specs[0].requests[0].put: no such field; allowed: "),
            ("  specs:", "  phases:", "line 5, column 1: loadProfile.specs: missing or empty; allowed: a list"),
            ("count: 2", "count: {{ .count }}", "line 2, column 8: a placeholder of a template was given; allowed: "),
            ("builds, name", "'{{ .space }}', name", "line 18, column 66: a placeholder of a template was given; "),
        ];
        for (given, instead, expected) in cases {
            let problems = problems(given, instead);
            assert!(problems.lines().any(|line| line.starts_with(expected)), "{expected}\nis not in\n{problems}");
        }
    }
}
