//! The requests of kperf's profiles.

use serde::Deserialize;

use crate::profile::{
    ListWork, Pages, ReadVersion, Selection, Work,
    validate::{self, LIMITS},
};
use base::apimachinery::GroupVersionResource;
use base::config::{Check, Scalar, Unknown, given};

const SHARES: std::ops::RangeInclusive<usize> = 0..=1_000_000;
const REQUESTS: &str = "one of staleList, quorumList, watchList, staleGet, quorumGet beside shares";
const NAME: &str = "the name of an object";
const LIST_FIELDS: [&str; 8] =
    ["group", "version", "resource", "namespace", "limit", "selector", "seletor", "fieldSelector"];
const WATCH_LIST_FIELDS: [&str; 6] = ["group", "version", "resource", "namespace", "selector", "fieldSelector"];
const GET_FIELDS: [&str; 5] = ["group", "version", "resource", "namespace", "name"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Request {
    shares: Option<Scalar>,
    stale_list: Option<Target>,
    quorum_list: Option<Target>,
    watch_list: Option<Target>,
    stale_get: Option<Target>,
    quorum_get: Option<Target>,
    /// `put`, `patch`, `postDel` and `getPodLog` as well.
    #[serde(flatten)]
    unknown: Unknown,
}

/// The fields of all kinds of requests; the validation checks which kind has which fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Target {
    group: Option<Scalar>,
    version: Option<Scalar>,
    resource: Option<Scalar>,
    namespace: Option<Scalar>,
    name: Option<Scalar>,
    limit: Option<Scalar>,
    selector: Option<Scalar>,
    /// The spelling of `selector` in lists, and the only one, until December 2025.
    seletor: Option<Scalar>,
    field_selector: Option<Scalar>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// The shares, the name and the work of each request that has any shares.
pub(super) fn of_spec(check: &mut Check, field: &str, requests: &[Request]) -> Vec<(usize, String, Work)> {
    let mut found = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let field = format!("{field}[{index}]");
        check.unknown(
            &field,
            &request.unknown,
            &["shares", "staleList", "quorumList", "watchList", "staleGet", "quorumGet"],
        );
        let shares = check.number(&format!("{field}.shares"), request.shares.as_ref(), 0, &SHARES);
        let kinds: [(&str, &Option<Target>, Rules); 5] = [
            ("staleList", &request.stale_list, |check, field, target| list(check, field, target, ReadVersion::Any)),
            ("quorumList", &request.quorum_list, |check, field, target| {
                list(check, field, target, ReadVersion::MostRecent)
            }),
            ("watchList", &request.watch_list, watch_list),
            ("staleGet", &request.stale_get, |check, field, target| get(check, field, target, ReadVersion::Any)),
            ("quorumGet", &request.quorum_get, |check, field, target| {
                get(check, field, target, ReadVersion::MostRecent)
            }),
        ];
        let given: Vec<_> =
            kinds.into_iter().filter_map(|(name, target, rules)| Some((name, target.as_ref()?, rules))).collect();
        match &given[..] {
            [(name, target, rules)] => {
                let work = rules(check, &format!("{field}.{name}"), target);
                // kperf sends no requests without shares.
                found.extend(work.filter(|_| shares > 0).map(|work| (shares, format!("{name}-{index}"), work)));
            }
            [] if !request.unknown.is_empty() => {}
            _ => check.problem(&field, "no kind of request, or more than one", REQUESTS),
        }
    }
    if found.is_empty() && check.problems.is_empty() {
        check.problem(field, "no request has shares above 0", "shares of 1 or more for at least one request");
    }
    found
}

type Rules = fn(&mut Check, &str, &Target) -> Option<Work>;

fn list(check: &mut Check, field: &str, target: &Target, version: ReadVersion) -> Option<Work> {
    let selection = selection(check, field, target, &LIST_FIELDS)?;
    let limit = target.limit.as_ref().filter(|Scalar(text)| text != "0");
    if version == ReadVersion::Any && limit.is_some() {
        check.problem(
            &format!("{field}.limit"),
            "given for a stale list, which API servers do not split into pages",
            "a limit in quorumList only",
        );
    }
    let limit = limit.map(|limit| check.number(&format!("{field}.limit"), Some(limit), *LIMITS.start(), &LIMITS));
    Some(Work::List(ListWork { selection, version, limit, pages: Pages::First }))
}

fn watch_list(check: &mut Check, field: &str, target: &Target) -> Option<Work> {
    let selection = selection(check, field, target, &WATCH_LIST_FIELDS)?;
    Some(Work::List(ListWork { selection, version: ReadVersion::MostRecent, limit: None, pages: Pages::WatchList }))
}

fn get(check: &mut Check, field: &str, target: &Target, version: ReadVersion) -> Option<Work> {
    let Selection { resource, namespace, .. } = selection(check, field, target, &GET_FIELDS)?;
    let name = check.text(&format!("{field}.name"), target.name.as_ref());
    match &name {
        None => check.problem(&format!("{field}.name"), "missing", NAME),
        Some(name) if !name.bytes().all(is_in_path) => {
            check.problem(&format!("{field}.name"), &given(name), NAME);
        }
        Some(_) => {}
    }
    Some(Work::Get { resource, namespace, name, version })
}

/// Whether a byte of a name stands for itself in a path.
fn is_in_path(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'?' | b'#')
}

fn selection(check: &mut Check, field: &str, target: &Target, allowed: &[&str]) -> Option<Selection> {
    check.unknown(field, &target.unknown, allowed);
    let some = [
        ("name", &target.name),
        ("limit", &target.limit),
        ("selector", &target.selector),
        ("seletor", &target.seletor),
        ("fieldSelector", &target.field_selector),
    ];
    for (name, _) in some.iter().filter(|(name, value)| value.is_some() && !allowed.contains(name)) {
        check.problem(&format!("{field}.{name}"), "no such field", &allowed.join(", "));
    }
    // kperf allows empty texts, which mean the same as none.
    let text = |raw: &Option<Scalar>| raw.as_ref().map(|Scalar(text)| text.clone()).filter(|text| !text.is_empty());
    let (namespace, fields) = (text(&target.namespace), text(&target.field_selector));
    let labels = match (text(&target.selector), text(&target.seletor)) {
        (Some(_), Some(_)) => {
            let found = "given beside selector, of which it is an older spelling";
            check.problem(&format!("{field}.seletor"), found, "one of the two");
            None
        }
        (selector, seletor) => selector.or(seletor),
    };
    if let Some(name) = namespace.as_ref().filter(|name| !validate::is_namespace(name)) {
        check.problem(&format!("{field}.namespace"), &given(name), validate::NAMESPACE);
    }
    let group = text(&target.group).filter(|group| group != "core").unwrap_or_default();
    let (Some(version), Some(resource)) = (text(&target.version), text(&target.resource)) else {
        check.problem(field, "version or resource is missing", "both, and group unless it is the core group");
        return None;
    };
    let name = if group.is_empty() { format!("{resource}.{version}") } else { format!("{resource}.{version}.{group}") };
    let Some(resource) = validate::resource(&name) else {
        check.problem(&format!("{field}.resource"), &given(&name), "a plural like pods, a version like v1");
        return None;
    };
    let resource: GroupVersionResource = resource;
    Some(Selection { resource, namespace, labels, fields })
}
