//! No request is authorized as one thing and served as another, and both are what the API server takes it for.
//!
//! The API server's reading is written down here a second time, as plainly as possible and from its rules alone
//! (read-path 4.4, 5.3, 8.3): it shares no parsing with the gateway but that of label selectors.

use http::Method;
use proptest::{collection::vec, prelude::*, sample::select};

use super::Attributes;
use crate::apimachinery::{GetOptions, LabelSelector, ListOptions, RequestInfo, Target, Verb, WatchOptions};

/// What a request is, in words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reading {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// As the API server reads it. `None` for what is no resource, and for what it cannot read at all.
fn upstream_reading(method: &Method, path: &str, query: &str) -> Option<Reading> {
    let path = unescape(path, false)?;
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut take = |least: usize| (parts.len() >= least).then(|| parts.remove(0).to_owned());
    let group = match take(3)?.as_str() {
        "api" => String::new(),
        "apis" => take(3)?,
        _ => return None,
    };
    let version = take(2)?;
    let by_prefix = matches!(parts[0], "watch" | "proxy");
    let mut verb = if by_prefix { parts.remove(0) } else { verb_of(method) };
    let mut namespace = "";
    if *parts.first()? == "namespaces" && parts.len() > 1 {
        namespace = parts[1];
        if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
            parts.drain(..2);
        }
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    let (resource, mut name, subresource) = (part(0), part(1), part(2));
    if name.is_empty() && verb == "get" {
        let parameters = parameters(query);
        let is_false = |value: &str| value == "0" || value.to_lowercase() == "false";
        verb = if first(&parameters, "watch").is_some_and(|value| !is_false(value)) { "watch" } else { "list" };
        name = required_name(&parameters).filter(|name| *name != "." && *name != "..").unwrap_or_default();
        if name.contains(['/', '%']) {
            name.clear();
        }
    }
    if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    let (verb, namespace) = (verb.to_owned(), namespace.to_owned());
    Some(Reading { verb, group, version, resource, subresource, namespace, name })
}

fn verb_of(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The name that the field selector demands, if every option can be decoded.
fn required_name(parameters: &[(String, String)]) -> Option<String> {
    for number in ["limit", "timeoutSeconds"] {
        if let Some(value) = first(parameters, number) {
            value.parse::<i64>().ok()?;
        }
    }
    LabelSelector::parse(first(parameters, "labelSelector").unwrap_or_default()).ok()?;
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for letter in first(parameters, "fieldSelector")?.chars() {
        if letter == ',' && !escaped {
            terms.push(String::new());
        } else {
            terms.last_mut()?.push(letter);
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.sort();
    let mut name = None;
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let operators = term.char_indices().flat_map(|(at, _)| ["!=", "==", "="].map(|operator| (at, operator)));
        let (at, operator) = operators.into_iter().find(|(at, operator)| term[*at..].starts_with(operator))?;
        let value = selector_value(&term[at + operator.len()..])?;
        if operator != "!=" && &term[..at] == "metadata.name" {
            name.get_or_insert(value);
        }
    }
    name
}

fn selector_value(text: &str) -> Option<String> {
    let (mut value, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.push(letters.next().filter(|letter| "\\,=".contains(*letter))?),
            ',' | '=' => return None,
            plain => value.push(plain),
        }
    }
    Some(value)
}

/// Those that can be read; the others are dropped without a word.
fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter_map(|(key, value)| Some((unescape(key, true)?, unescape(value, true)?))).collect()
}

fn first<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn unescape(text: &str, plus: bool) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                let valid = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                rest = &after[2..];
                u8::from_str_radix(digits, 16).ok().filter(|_| valid)?
            }
            b'+' if plus => b' ',
            plain => *plain,
        });
    }
    // Bytes that are no text are looked at by nobody: a stand-in will do.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is authorized.
fn authorized(attributes: &Attributes) -> Reading {
    let word = |word: &Option<Box<str>>| word.as_deref().unwrap_or_default().to_owned();
    Reading {
        verb: attributes.verb.as_str().to_owned(),
        group: attributes.resource.group.to_string(),
        version: attributes.resource.version.to_string(),
        resource: attributes.resource.resource.to_string(),
        subresource: word(&attributes.subresource),
        namespace: word(&attributes.namespace),
        name: word(&attributes.name),
    }
}

/// What is read from memory: the namespace, and the name, if only one object is.
fn served(info: &RequestInfo, query: &str) -> Option<(Option<String>, Option<String>)> {
    let Target::Resource(request) = &info.target else { return None };
    let query = Some(query);
    let selected = match info.verb {
        Verb::Get => GetOptions::parse(query).ok().map(|_| None),
        Verb::List => ListOptions::parse(query).ok().map(|options| Some(options.fields)),
        Verb::Watch => WatchOptions::parse(query, request.watch_path).ok().map(|options| Some(options.fields)),
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection | Verb::Other => None,
    }?;
    let selected = selected.and_then(|fields| fields.exact("metadata.name").map(str::to_owned));
    Some((request.namespace.clone(), request.name.clone().or(selected)))
}

fn check(method: &Method, path: &str, query: &str) {
    let info = RequestInfo::parse(method, path, Some(query));
    let Target::Resource(request) = &info.target else { return };
    let Some((namespace, name)) = served(&info, query) else { return };
    let attributes = authorized(&Attributes::of(info.verb, request, Some(query)));
    assert_eq!(Some(&attributes), upstream_reading(method, path, query).as_ref(), "{method} {path}?{query}");

    // Whoever may do what is authorized may read all that is served.
    let itself = attributes.resource == "namespaces" && namespace.is_none() && request.name.is_some();
    let within = if itself { name.clone() } else { namespace };
    assert_eq!(attributes.namespace, within.unwrap_or_default(), "{method} {path}?{query}");
    if !attributes.name.is_empty() {
        assert_eq!(Some(&attributes.name), name.as_ref(), "{method} {path}?{query}");
    }
    assert_eq!(attributes.subresource, request.subresource.clone().unwrap_or_default());
}

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
        check(&method, &path, &query);
    }

    #[test]
    fn what_two_could_read_differently_is_served_to_nobody(
        path in select(vec!["/api/v1/namespaces/a/pods/x", "/apis/apps/v1/deployments", "/api/v1/watch/nodes/n"]),
        at in 0..8_usize,
        odd in select(vec!["//", "%2F", "%2f/", "/./", "/../", "/%2e/", "/%2E%2e/", "/%2E./", "/%00/", "/%25/", "/;/", "/\u{e9}/", "/%", "/a b/"]),
    ) {
        let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).collect();
        let at = slashes[at % slashes.len()];
        let path = format!("{}{odd}{}", &path[..at], &path[at + 1..]);
        let info = RequestInfo::parse(&Method::GET, &path, None);
        prop_assert!(!matches!(info.target, Target::Resource(_)), "{}", path);
    }
}

#[test]
fn the_cases_reach_what_they_are_about() {
    for (path, query, name) in [
        ("/api/v1/namespaces/a/pods/", "watch=1&fieldSelector=a=b,metadata.name%3Dx&limit=5", "x"),
        ("/api/v1/namespaces/a/pods", "fieldSelector=metadata.name=a%5C,b", "a,b"),
        ("/api/v1/namespaces/a", "", "a"),
    ] {
        check(&Method::GET, path, query);
        let reading = upstream_reading(&Method::GET, path, query).unwrap();
        assert_eq!((reading.namespace.as_str(), reading.name.as_str()), ("a", name), "{path}?{query}");
    }
    assert!(served(&RequestInfo::parse(&Method::GET, "/api/v1/pods", None), "watch=0").is_some());
    // Another case is another word, to everybody.
    let info = RequestInfo::parse(&Method::GET, "/api/v1/Pods", None);
    let Target::Resource(request) = &info.target else { panic!("{info:?}") };
    assert_eq!(&*Attributes::of(info.verb, request, None).resource.resource, "Pods");
}
