//! Generated paths and queries, and the cases that they have to reach.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::authz::NotCovered;
use base::apimachinery::Verb;
use engine::store::Scope;

fn any_method() -> impl Strategy<Value = Method> {
    prop_oneof![8 => Just(Method::GET), 1 => select(vec![Method::HEAD, Method::POST, Method::DELETE, Method::OPTIONS])]
}

fn any_path() -> impl Strategy<Value = String> {
    let prefixes = ["/api/v1", "/apis/apps/v1", "/api", "/apis", "", "/API/v1", "/apis/", "//api/v1", "/api/v1/watch"];
    let words = [
        "pods",
        "namespaces",
        "watch",
        "proxy",
        "status",
        "finalize",
        "a",
        "a.b",
        "Pods",
        "nodes",
        "x:y",
        "%61",
        "pods%2Fx",
        "a%2fb",
        "%2e%2e",
        ".",
        "..",
        "",
        "a%20b",
        "é",
        "a;b",
        "%00",
        "%",
        "%25",
        "a%3Fb",
        "*",
        "~",
        "apis",
    ];
    let word = prop_oneof![4 => select(words[..12].to_vec()), 1 => select(words.to_vec())];
    let path = (select(prefixes.to_vec()), vec(word.prop_map(str::to_owned), 0..6), any::<bool>());
    let path = path.prop_map(|(prefix, words, slash)| {
        let words: String = words.iter().flat_map(|word| ["/", word]).collect();
        format!("{prefix}{words}{}", if slash { "/" } else { "" })
    });
    prop_oneof![9 => path, 1 => "\\PC{0,20}"]
}

fn any_query() -> impl Strategy<Value = String> {
    let keys = ["watch", "fieldSelector", "labelSelector", "limit", "timeoutSeconds", "resourceVersion", "Watch", "x"];
    let values = [
        "1",
        "0",
        "true",
        "False",
        "",
        "no",
        "metadata.name=a",
        "metadata.name%3Da",
        "metadata.name==b,",
        "a=b,metadata.name=c",
        "metadata.name=z,metadata.name=a",
        "metadata.name!=a",
        "metadata.name=..",
        "metadata.name=a%2Fb",
        "metadata.name=",
        "metadata.name%3D%3D%3Da",
        "metadata.name=a%5C,b",
        "metadata.name=%25",
        "Metadata.Name=a",
        "metadata.name in (a)",
        "metadata.namespace=q",
        "app=web",
        "app in (a,b)",
        "!!",
        "=",
        "%zz",
        "a;b",
        "+5",
        "%2B5",
        "abc",
        "5.0",
        "%ff",
    ];
    let pair = (select(keys.to_vec()), select(values.to_vec())).prop_map(|(key, value)| format!("{key}={value}"));
    let pairs = vec(prop_oneof![8 => pair, 1 => "\\PC{0,9}".prop_map(|text| text.replace('&', ""))], 0..4);
    pairs.prop_map(|pairs| pairs.join("&"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_authorized_is_what_is_served(method in any_method(), path in any_path(), query in any_query()) {
        check_both(&method, &path, &query);
    }

    #[test]
    fn ambiguous_paths_are_not_served(
        path in select(vec!["/api/v1/namespaces/a/pods/x", "/apis/apps/v1/deployments", "/api/v1/watch/nodes/n"]),
        at in 0..8_usize,
        odd in select(vec![
            "//", "%2F", "%2f/", "/./", "/../", "/%2e/", "/%2E%2e/", "/%2E./", "/%00/", "/%25/", "/;/", "/\u{e9}/",
            "/%", "/a b/",
        ]),
    ) {
        let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).collect();
        let at = slashes[at % slashes.len()];
        let path = format!("{}{odd}{}", &path[..at], &path[at + 1..]);
        let info = RequestInfo::parse(&Method::GET, &path, None);
        prop_assert!(!matches!(info.target, Target::Resource(_)), "{}", path);
    }
}

#[test]
fn known_cases_read_the_expected_objects() {
    let (cluster, namespaced) = (reader(false), reader(true));
    for (path, query, in_namespaces, expected) in [
        ("/api/v1/namespaces/a/pods/", "watch=1&fieldSelector=a=b,metadata.name%3Db&limit=5", true, &["a/b"][..]),
        ("/api/v1/namespaces/a/pods", "fieldSelector=metadata.name=a%5C,b", true, &["a/a,b"]),
        ("/api/v1/namespaces/a/pods/c", "", true, &["a/c"]),
        ("/api/v1/namespaces/a", "", false, &["a"]),
        ("/api/v1/watch/namespaces/a", "", false, &["a"]),
        ("/api/v1/nodes", "fieldSelector=metadata.name=b", false, &["b"]),
        ("/api/v1/watch/nodes/b", "", false, &["b"]),
        // Without a namespace, a name from a selector matches an object in each namespace.
        (
            "/api/v1/secrets",
            "watch=1&fieldSelector=metadata.name=q",
            true,
            &["a,b/q", "a.b/q", "a/q", "b/q", "c/q", "namespaces/q", "pods/q", "q/q", "status/q"],
        ),
        // A name from a path matches none: the API server has no such path.
        ("/api/v1/watch/secrets/a", "", true, &[]),
        ("/api/v1/secrets/a", "", true, &[]),
        ("/api/v1/watch/secrets/a", "fieldSelector=metadata.name=a", true, &[]),
        ("/api/v1/namespaces/a/nodes/b", "", false, &[]),
        ("/api/v1/namespaces/a/nodes", "", false, &[]),
        ("/api/v1/watch/namespaces/a/nodes/b", "", false, &[]),
        ("/api/v1/namespaces/a/namespaces/a", "", false, &[]),
        ("/api/v1/namespaces/a/pods/c/status", "", true, &[]),
    ] {
        let reader = if in_namespaces { &namespaced } else { &cluster };
        let mut keys = check(&Method::GET, path, query, reader, in_namespaces);
        keys.sort();
        keys.dedup();
        let keys: Vec<_> = keys.iter().map(ObjectKey::as_str).collect();
        assert_eq!(keys, expected, "{path}?{query}");
    }
    let in_all = 81;
    for path in ["/api/v1/secrets", "/api/v1/watch/secrets"] {
        assert!(check(&Method::GET, path, "watch=0", &namespaced, true).len() >= in_all, "{path}");
    }
    // Resource names are case-sensitive.
    let info = RequestInfo::parse(&Method::GET, "/api/v1/Pods", None);
    let Target::Resource(request) = &info.target else { panic!("{info:?}") };
    assert_eq!(&*Attributes::of(info.verb, request, None).resource.resource, "Pods");
}

#[test]
fn a_permit_covers_only_what_it_was_issued_for() {
    let attributes = |url| {
        let info = RequestInfo::parse(&Method::GET, url, None);
        let Target::Resource(request) = &info.target else { panic!("{info:?}") };
        (Attributes::of(info.verb, request, None), request.resource.clone())
    };
    let (pod, pods) = attributes("/api/v1/namespaces/a/pods/x");
    let (_, secrets) = attributes("/api/v1/namespaces/a/secrets/x");
    let permit = Authorizer::trusted().authorize_gateway(pod).unwrap();
    assert_eq!(permit.scope(Verb::Get, &pods, true), Ok(Scope::Object(ObjectKey::new(Some("a"), "x"))));
    for (verb, resource) in [(Verb::List, &pods), (Verb::Watch, &pods), (Verb::Get, &secrets)] {
        assert_eq!(permit.scope(verb, resource, true), Err(NotCovered));
    }
    assert_eq!(permit.scope(Verb::Get, &pods, false), Err(NotCovered));
    let (status, pods) = attributes("/api/v1/namespaces/a/pods/x/status");
    let permit = Authorizer::trusted().authorize_gateway(status).unwrap();
    assert_eq!(permit.scope(Verb::Get, &pods, true), Err(NotCovered));
}
