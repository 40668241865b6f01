//! The rules of `delegated` mode, and of names and lists.

use std::time::Duration;

use http::HeaderName;

use crate::config::{
    API_VERSION, AuthenticationConfig, AuthorizationConfig, ClientsConfig, Config, DelegatedConfig, FrontProxyConfig,
    IdentityConfig, KIND, Overrides, PemFile, Problems, ProxyHeaders, RequestHeaderConfig, TlsFiles, UpstreamConfig,
};

fn parse(text: &str, overrides: &Overrides) -> Result<Config, Problems> {
    Config::parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}"), overrides)
}

fn problems(text: &str) -> Vec<String> {
    let problems = parse(text, &Overrides::default()).unwrap_err();
    problems.to_string().lines().map(str::to_owned).collect()
}

fn kubeconfig(path: &str) -> Option<UpstreamConfig> {
    Some(UpstreamConfig { kubeconfig: Some(path.into()), context: None })
}

#[test]
fn every_field_of_delegated_clients_arrives() {
    let text = "
listeners: [{address: '0.0.0.0:443', tls: {certFile: /c, keyFile: /k}}, {address: 'unix:/run/s'}]
clients:
  mode: delegated
  authentication:
    clientCAFile: /ca
    requestHeader: {caFile: /front, allowedNames: [a, b]}
    kubeconfig: /tokens
    tokenReview: {audiences: [x], successTTL: 20s, failureTTL: 1s}
    anonymous: true
  authorization: {kubeconfig: /access, allowedTTL: 1m, deniedTTL: 0, watchInterval: 1h}
  identity: {frontProxy: {certFile: /pc, keyFile: /pk}}
  awayTTL: 10m
";
    let config = parse(text, &Overrides::default()).unwrap();
    let request_header = RequestHeaderConfig {
        ca: PemFile("/front".into()),
        allowed_names: vec!["a".to_owned(), "b".to_owned()],
        headers: ProxyHeaders::default(),
    };
    let authentication = AuthenticationConfig {
        client_ca: Some(PemFile("/ca".into())),
        request_header: Some(request_header),
        reviews: kubeconfig("/tokens"),
        audiences: vec!["x".to_owned()],
        success_ttl: Duration::from_secs(20),
        failure_ttl: Duration::from_secs(1),
        anonymous: true,
    };
    let authorization = AuthorizationConfig {
        reviews: kubeconfig("/access"),
        allowed_ttl: Duration::from_secs(60),
        denied_ttl: Duration::ZERO,
        watch_interval: Duration::from_secs(3600),
    };
    let files = TlsFiles { cert_file: "/pc".into(), key_file: "/pk".into() };
    let identity = Some(IdentityConfig::FrontProxy(FrontProxyConfig { files, headers: ProxyHeaders::default() }));
    let away_ttl = Duration::from_secs(600);
    let delegated = DelegatedConfig { authentication, authorization, identity, away_ttl };
    assert_eq!(config.clients, ClientsConfig::Delegated(Box::new(delegated)));
    assert!(config.listeners[0].tls.as_ref().is_some_and(|tls| tls.client_certificates));
}

#[test]
fn tokens_alone_need_nothing_else() {
    let config = parse("clients: {mode: delegated}", &Overrides::default()).unwrap();
    let ClientsConfig::Delegated(delegated) = &config.clients else { panic!("{config:?}") };
    assert_eq!(delegated.authentication.reviews, None);
    assert!(!delegated.authentication.anonymous);
    assert_eq!(delegated.authentication.failure_ttl, Duration::ZERO);
    assert_eq!(delegated.identity, None);
    let tls = "listeners: [{address: '0.0.0.0:443', tls: {certFile: /c, keyFile: /k}}]\nclients: {mode: delegated}";
    let config = parse(tls, &Overrides::default()).unwrap();
    assert!(!config.listeners[0].tls.as_ref().unwrap().client_certificates);
}

#[test]
fn secrets_stay_out_of_memory_unless_asked_for() {
    let excluded = |text: &str| {
        let exclude = parse(text, &Overrides::default()).unwrap().cache.exclude;
        exclude.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(excluded(""), ["events", "events.events.k8s.io"]);
    assert_eq!(excluded("clients: {mode: delegated}"), ["events", "events.events.k8s.io", "secrets"]);
    assert_eq!(excluded("clients: {mode: delegated}\ncache: {exclude: []}"), [""; 0]);
    assert_eq!(excluded("clients: {mode: delegated}\ncache: {exclude: [events]}"), ["events"]);
    let found = problems("clients: {mode: delegated}\ncache: {prewarm: [pods, secrets]}");
    assert!(found[0].starts_with("cache.prewarm[1]: \"secrets\" is excluded by default; allowed: "), "{found:#?}");
}

#[test]
fn the_namespaces_of_a_resource_to_prewarm_are_counted_together() {
    let item = |resource: &str, names: &str| format!("{{resource: {resource}, namespaces: [{names}]}}");
    let with = |items: &[String]| format!("cache: {{scopesPerResource: 2, prewarm: [{}]}}", items.join(", "));
    let fits = with(&[item("pods", "a, b"), item("services", "c, d"), item("pods", "b")]);
    assert!(parse(&fits, &Overrides::default()).is_ok());
    let found = problems(&with(&[item("pods", "a, b"), item("services", "c, d"), item("pods", "c")]));
    let told = "cache.prewarm[2].namespaces: 3 namespaces of pods are more than cache.scopesPerResource; allowed: ";
    assert!(found.len() == 1 && found[0].starts_with(told), "{found:#?}");
}

#[test]
fn unsafe_set_ups_are_refused() {
    let certificates = "authentication: {clientCAFile: /ca}";
    let front = "authentication: {requestHeader: {caFile: /ca}}";
    for (text, expected) in [
        ("listeners: [{address: '0.0.0.0:80'}]\nclients: {mode: delegated}".to_owned(), "listeners[0].tls: missing"),
        (
            "listeners: [{address: '0.0.0.0:80', tls: {certFile: /c, keyFile: /k}}]".to_owned(),
            "listeners[0].address: \"0.0.0.0:80\" was given; allowed: a loopback address",
        ),
        (format!("clients: {{mode: delegated, {certificates}}}"), "clients.identity: missing"),
        (format!("clients: {{mode: delegated, {front}}}"), "clients.identity: missing"),
        (
            format!("clients: {{mode: delegated, {certificates}, identity: {{}}}}"),
            "clients.identity: neither was given",
        ),
        (
            format!(
                "clients: {{mode: delegated, {certificates}, \
                 identity: {{impersonation: {{}}, frontProxy: {{certFile: /c, keyFile: /k}}}}}}"
            ),
            "clients.identity: both were given",
        ),
        ("clients: {mode: delegated, identity: {impersonation: {}}}".to_owned(), "clients.identity: not needed"),
        ("clients: {mode: delegated, acceptHosts: [x]}".to_owned(), "clients.acceptHosts: not allowed with"),
        (
            "clients: {mode: delegated, acceptOrigins: ['http://x']}".to_owned(),
            "clients.acceptOrigins: not allowed with",
        ),
        (format!("clients: {{{certificates}}}"), "clients.authentication: not allowed with clients.mode: trusted"),
        (
            "clients: {mode: delegated, authentication: {requestHeader: {}}, identity: {impersonation: {}}}".to_owned(),
            "clients.authentication.requestHeader.caFile: missing",
        ),
        (
            "clients: {mode: delegated, authentication: {tokenReview: {successTTL: 1h}}}".to_owned(),
            "clients.authentication.tokenReview.successTTL: \"1h\" was given; allowed: a duration",
        ),
        (
            "clients: {mode: delegated, authentication: {tokenReview: {audiences: [a, a, '']}}}".to_owned(),
            "clients.authentication.tokenReview.audiences[1]: \"a\" was given: it is there already; allowed: ",
        ),
        (
            "clients: {mode: delegated, authentication: {anonymous: 1}}".to_owned(),
            "clients.authentication.anonymous: \"1\" was given; allowed: true, false",
        ),
        (
            "clients: {mode: delegated, authentication: {kubeconfig: ''}}".to_owned(),
            "clients.authentication.kubeconfig: \"\" was given",
        ),
        (
            "clients: {mode: delegated, authorization: {watchInterval: 1s, cache: 1}}".to_owned(),
            "clients.authorization.watchInterval: \"1s\" was given; allowed: a duration",
        ),
        (
            "clients: {mode: delegated, authorization: {cache: 1}}".to_owned(),
            "clients.authorization.cache: no such field; allowed: kubeconfig, allowedTTL",
        ),
    ] {
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.starts_with(expected)), "{text}\n{expected}\nin {found:#?}");
    }
}

#[test]
fn plain_http_from_the_command_line_is_local() {
    let overrides = Overrides { listen: Some("0.0.0.0:80".to_owned()), ..Overrides::default() };
    let problems = parse("clients: {mode: delegated}", &overrides).unwrap_err().to_string();
    assert!(problems.starts_with("--listen: ") && problems.contains("plain HTTP"), "{problems}");
}

#[test]
fn an_address_has_its_share_of_the_connections() {
    let shares = |text: &str| {
        let limits = parse(text, &Overrides::default()).unwrap().limits;
        (limits.connections, limits.connections_per_address)
    };
    assert_eq!(shares(""), (10_000, 10_000));
    assert_eq!(shares("clients: {mode: delegated}"), (10_000, 1_000));
    assert_eq!(shares("clients: {mode: delegated}\nlimits: {connections: 5}"), (5, 5));
    let found = problems("limits: {connections: 5, connectionsPerAddress: 6}");
    assert_eq!(found, ["limits.connectionsPerAddress: \"6\" was given; allowed: a number from 1 to 5"]);
}

#[test]
fn front_proxies_headers_have_names_of_their_own() {
    let config = |inbound: &str, outbound: &str| {
        let yaml = format!(
            "clients: {{mode: delegated, authentication: {{requestHeader: {{caFile: /ca, {inbound}}}}}, \
             identity: {{frontProxy: {{certFile: /c, keyFile: /k, {outbound}}}}}}}"
        );
        parse(&yaml, &Overrides::default())
    };
    let inbound = "usernameHeaders: [X-A, X-B], uidHeaders: [], groupHeaders: [X-G], extraHeaderPrefixes: [X-Extra-]";
    let outbound = "usernameHeader: X-U, uidHeader: X-I, groupHeader: X-G, extraHeaderPrefix: X-More-";
    let ClientsConfig::Delegated(delegated) = config(inbound, outbound).unwrap().clients else { panic!() };
    let names = |names: &[&'static str]| names.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>();
    let prefixes = |prefix: &str| vec![prefix.to_owned()];
    let expected = ProxyHeaders {
        user: names(&["x-a", "x-b"]),
        uid: names(&[]),
        group: names(&["x-g"]),
        extra_prefixes: prefixes("x-extra-"),
    };
    assert_eq!(delegated.authentication.request_header.unwrap().headers, expected);
    let Some(IdentityConfig::FrontProxy(FrontProxyConfig { headers, .. })) = delegated.identity else { panic!() };
    let expected = ProxyHeaders {
        user: names(&["x-u"]),
        uid: names(&["x-i"]),
        group: names(&["x-g"]),
        extra_prefixes: prefixes("x-more-"),
    };
    assert_eq!(headers, expected);
    for (inbound, outbound, field) in [
        ("usernameHeaders: []", "", "requestHeader.usernameHeaders"),
        ("usernameHeaders: [Authorization]", "", "requestHeader.usernameHeaders[0]"),
        ("groupHeaders: [X-G, Impersonate-Group]", "", "requestHeader.groupHeaders[1]"),
        ("extraHeaderPrefixes: [x]", "", "requestHeader.extraHeaderPrefixes[0]"),
        ("extraHeaderPrefixes: [content-]", "", "requestHeader.extraHeaderPrefixes[0]"),
        ("", "usernameHeader: 'a b'", "frontProxy.usernameHeader"),
        ("", "extraHeaderPrefix: Impersonate-Extra-", "frontProxy.extraHeaderPrefix"),
    ] {
        let Problems(problems) = config(inbound, outbound).unwrap_err();
        assert!(problems.iter().any(|problem| problem.field.ends_with(field)), "{field}: {problems:?}");
    }
}

#[test]
fn a_resource_has_one_notation_and_the_others_are_told_it() {
    for (given, meant) in [
        ("core/v1/pods", "; write pods;"),
        ("Secrets", "; write secrets;"),
        ("Pods", "; write pods;"),
        ("Pod", "; write pods;"),
        ("Deployment", "; write deployments.apps;"),
        ("Ingress", "; write ingresses.networking.k8s.io;"),
        ("Widgets.example.com", "; write widgets.example.com;"),
        ("v1/pods", "; write pods;"),
        ("/api/v1/pods", "; write pods;"),
        ("apps/v1/deployments", "; write deployments.apps;"),
        ("/apis/apps/v1/deployments", "; write deployments.apps;"),
        ("pods/log", " was given;"),
        ("a/b/c/d", " was given;"),
    ] {
        let [found] = &problems(&format!("cache: {{exclude: ['{given}']}}"))[..] else { panic!("{given}") };
        let start = format!("cache.exclude[0]: \"{given}\" was given");
        assert!(found.starts_with(&start) && found.contains(meant), "{found}");
        assert!(found.ends_with(
            "allowed: a plural name, with its API group unless that is the core group: pods, deployments.apps"
        ));
    }
}

#[test]
fn a_home_directory_is_not_looked_up() {
    let text = "
listeners: [{address: '127.0.0.1:1', tls: {certFile: ~/c, keyFile: ~me/k}}]
upstream: {kubeconfig: ~/.kube/config}
audit: {path: '~/audit'}
cache: {peers: {addresses: ['https://p'], caFile: ~/ca}}
";
    let found = problems(text);
    let fields = [
        "listeners[0].tls.certFile",
        "listeners[0].tls.keyFile",
        "upstream.kubeconfig",
        "cache.peers.caFile",
        "audit.path",
    ];
    for (found, field) in found.iter().zip(fields) {
        assert!(
            found.starts_with(&format!("{field}: \"~")) && found.contains("without ~, which only a shell"),
            "{found}"
        );
    }
    assert_eq!(found.len(), fields.len(), "{found:?}");
}

#[test]
fn a_password_in_a_url_is_not_shown() {
    let text = "
listeners: [{address: 'https://user:secret@127.0.0.1:1'}]
upstream: {servers: ['https://user:secret@10.0.0.1:6443', 'user:secret@10.0.0.2:6443']}
clients: {acceptOrigins: ['https://user:secret@shop.example']}
cache: {exclude: ['pods@v1'], peers: {addresses: ['ftp://user:secret@p']}}
tracing: {endpoint: 'http://user:secret@collector:4317'}
";
    let found = problems(text);
    assert!(found.len() >= 7 && found.iter().all(|found| !found.contains("secret")), "{found:?}");
    assert!(
        found.iter().any(|found| found.contains("\"https://10.0.0.1:6443\" was given: it has a scheme")),
        "{found:?}"
    );
    assert!(found.iter().any(|found| found.contains("\"pods@v1\" was given")), "{found:?}");
}

#[test]
fn a_field_without_a_value_is_not_given() {
    let [found] =
        &problems("clients: {mode: delegated, authentication: {clientCAFile: /c}, identity: {impersonation: }}")[..]
    else {
        panic!("one problem")
    };
    assert!(found.contains("neither was given") && found.ends_with("impersonation: {}"), "{found}");
}

#[test]
fn a_second_document_is_named() {
    let text = "reads: {}\n---\nreads: {}\n";
    let found = problems(text);
    assert_eq!(found, ["line 4, column 1: a second YAML document begins here; a file has one"]);
}

#[test]
fn lists_of_servers_have_each_server_once() {
    let of = |servers: &str| parse(&format!("upstream: {{servers: {servers}}}"), &Overrides::default());
    let config = of("['10.0.0.1:6443', '[::1]:6443', 'api.example:443']").unwrap();
    let shown = "[10.0.0.1:6443, [::1]:6443, api.example:443]";
    assert!(config.effective().contains(&("upstream.servers".to_owned(), shown.to_owned())));
    assert_eq!(Config::defaults(&Overrides::default()).unwrap().servers, []);
    let many: Vec<_> = (1..=17).map(|port| format!("'a:{port}'")).collect();
    for (servers, problem) in [
        ("[]", "upstream.servers: the list is empty; allowed: at least 1, or remove this field"),
        (
            "['a:1', 'https://b:2/']",
            "upstream.servers[1]: \"https://b:2/\" was given: it has a scheme; that of the kubeconfig is used; \
             allowed: HOST:PORT of an API server of the same cluster, such as 10.0.0.1:6443",
        ),
        ("['A:1', 'a:1']", "upstream.servers[1]: \"a:1\" was given: it is there already; allowed: each one once"),
        (&format!("[{}]", many.join(",")), "upstream.servers: 17 were given; allowed: at most 16"),
    ] {
        assert_eq!(of(servers).unwrap_err().to_string(), problem, "{servers}");
    }
}
