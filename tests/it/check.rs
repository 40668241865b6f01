//! `kube-fanout check --online`: a configuration is checked with an API server.

use std::{path::Path, process::Stdio};

use kube_fanout::sim::Sim;
use tokio::net::TcpListener;

use crate::harness::{
    process::{CLUSTER, Process, finished, in_front_of, kube_fanout},
    serving::{answering, closing, relaying},
    within,
};

/// The exit code and all lines of a check.
async fn all_of_check(config: &Path, options: &[&str]) -> (Option<i32>, String) {
    let output = finished(kube_fanout(&["check", "--config"]).arg(config).args(options)).await;
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The same without the note of what this machine's memory comes to.
async fn checked(config: &Path, options: &[&str]) -> (Option<i32>, String) {
    let (code, text) = all_of_check(config, options).await;
    let lines = text.lines().filter(|line| !line.contains("cache.bytes: "));
    (code, lines.map(|line| format!("{line}\n")).collect())
}

/// The same for a configuration with these fields in front of a server. Its `upstream` is in line 4.
async fn checked_online(url: &str, fields: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let [kubeconfig, config] = ["kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", url)).unwrap();
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n{fields}\nupstream: {{kubeconfig: \"{}\"}}\n",
        kubeconfig.display()
    );
    std::fs::write(&config, text).unwrap();
    checked(&config, &["--online"]).await
}

#[tokio::test]
async fn names_of_resources_are_checked_offline_and_online() {
    let fields = "cache: {prewarm: [pods, pod, widgets.example.com, pdos], exclude: [secret, deployments]}";
    let gateway = Process::start(fields).await;
    let (config, _) = &gateway.config;
    let (code, text) = checked(config, &[]).await;
    assert_eq!((code, text.lines().count()), (Some(0), 5), "{text}");
    for words in
        ["cache.prewarm[1]: \"pod\": the core group", "secrets may be meant", "pods may be meant", "no problems"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(text.matches(": note: line ").count(), 4, "all but the last line: {text}");
    let (code, text) = checked(config, &["--online"]).await;
    assert_eq!((code, text.lines().count()), (Some(2), 5), "{text}");
    for (words, meant) in [
        ("line 6, column 25: cache.prewarm[1]: \"pod\": the API server has no such resource", "; pods may be meant"),
        ("cache.prewarm[2]: \"widgets.example.com\": the API server has no such API group", "API group"),
        ("cache.prewarm[3]: \"pdos\": the API server has no such resource", "; pods may be meant"),
        ("cache.exclude[0]: \"secret\": the API server has no such resource", "; secrets may be meant"),
        ("cache.exclude[1]: \"deployments\": the API server has no such", "; deployments.apps may be meant"),
    ] {
        assert!(text.lines().any(|line| line.contains(words) && line.ends_with(meant)), "{words}, {meant} in {text}");
    }
    assert!(!text.contains("note:"), "the server says more: {text}");
}

#[tokio::test]
async fn what_caches_may_take_on_this_machine_is_noted() {
    let gateway = Process::start("").await;
    let (code, text) = all_of_check(&gateway.config.0, &[]).await;
    assert_eq!((code, text.lines().count()), (Some(0), 2), "{text}");
    // Depends on where the tests run.
    let has_limit = text.contains("for caches, of a memory limit of");
    assert!(has_limit || text.contains("not set, and there is no memory limit here"), "{text}");
}

#[tokio::test]
async fn limits_without_effect_are_noted() {
    let server = Sim::new().start().await.unwrap();
    let (code, text) = checked_online(&server.url(), "limits: {watchesPerClient: 5}").await;
    assert_eq!((code, text.lines().count()), (Some(0), 2), "{text}");
    assert!(text.contains("note: line 3, column 10: limits.watchesPerClient: has no effect in mode trusted"), "{text}");
}

#[tokio::test]
async fn problems_do_not_hide_notes() {
    let fields = "limits: {watchesPerClient: 5}";
    // A problem that the server shows, and one of the machine.
    for (url, fields) in [
        ("http://127.0.0.1:1", fields.to_owned()),
        ("http://127.0.0.1:2", format!("{fields}\naudit: {{path: /none/audit.log}}")),
    ] {
        let (code, text) = checked_online(url, &fields).await;
        assert_eq!((code, text.lines().count()), (Some(2), 2), "{text}");
        let (note, problem) = text.split_once('\n').unwrap();
        assert!(note.contains(": note: line 3, column 10: limits.watchesPerClient: has no effect"), "{text}");
        assert!(problem.contains("cannot be reached") || problem.contains("audit.path: /none: "), "{text}");
        assert!(!text.contains("no problems"), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    for (path, words) in [
        ("/none.yaml", "cannot read /none.yaml\n"),
        ("~/none.yaml", "cannot read ~/none.yaml (~ is only replaced by a shell"),
    ] {
        let (code, text) = checked(Path::new(path), &[]).await;
        assert!(code == Some(2) && text.contains(words) && text.contains("No such file"), "{text}");
    }
}

#[tokio::test]
async fn a_server_other_than_an_api_server_is_reported_instead_of_resources() {
    let go_tls = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n".to_vec();
    let cases = [
        (closing("200 OK", "<!DOCTYPE html><title>A shop"), "<!DOCTYPE html><title>A shop"),
        (closing("404 Not Found", "404 page not found"), "404 Not Found"),
        (closing("302 Found", ""), "302 Found"),
        (closing("403 Forbidden", "<html>"), "403 Forbidden"),
        (go_tls, "begins with https://"),
    ];
    for (answer, words) in cases {
        let (address, _serving) = answering(answer).await;
        // Whether or not resources are named.
        for fields in ["cache: {prewarm: [pods, deployments.apps]}", ""] {
            let (code, text) = checked_online(&format!("http://{address}"), fields).await;
            assert_eq!((code, text.lines().count()), (Some(2), 1), "{text}");
            let told =
                format!("upstream.kubeconfig: http://{address}: this does not look like an API server; check its");
            assert!(text.contains("config.yaml: line 4, column 12: ") && text.contains(&told), "{text}");
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}

#[tokio::test]
async fn an_unusable_server_is_reported_with_what_to_check() {
    let body = r#"{"kind":"Status","apiVersion":"v1","message":"Unauthorized","code":401}"#;
    let (unauthorized, _serving) = answering(closing("401 Unauthorized", body)).await;
    let (unwell, _serving) = answering(closing("502 Bad Gateway", "<html>")).await;
    let (plain, _serving) = answering(closing("400 Bad Request", "")).await;
    let cases = [
        ("http://127.0.0.1:1".to_owned(), "cannot be reached; check its address", "refused"),
        (format!("http://{unauthorized}"), "does not accept the gateway's own credentials (401)", "Unauthorized"),
        (
            format!("http://{unwell}"),
            "does not answer GET /version with its version; check its address",
            "502 Bad Gateway",
        ),
        (format!("https://{plain}"), "cannot be reached; check its address", "does not answer in TLS"),
    ];
    for (url, advice, error) in cases {
        let (code, text) = checked_online(&url, "cache: {prewarm: [pods]}").await;
        assert_eq!((code, text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(&url) && text.contains(advice) && text.contains(error), "{text}");
    }
}

#[tokio::test]
async fn a_gateway_in_front_of_itself_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (_child, admin, _folder) = in_front_of(&address).await;
    let _relaying = relaying(listener, admin.with_file_name("client.sock"));
    let (code, text) = checked_online(&address, "").await;
    assert_eq!((code, text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains(&address) && text.contains("leads back to this gateway"), "{text}");
}

#[tokio::test]
async fn the_servers_of_reviews_are_asked_too_and_a_refused_version_is_no_problem() {
    let server = Sim::new().start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let reviews = folder.path().join("reviews");
    std::fs::write(&reviews, CLUSTER.replace("SERVER", "http://127.0.0.1:1")).unwrap();
    let reviews = reviews.display();
    let fields = format!(
        "clients: {{mode: delegated, authentication: {{kubeconfig: \"{reviews}\"}}, authorization: {{kubeconfig: \
         \"{reviews}\"}}}}"
    );
    let (code, text) = checked_online(&server.url(), &fields).await;
    assert_eq!((code, text.lines().count()), (Some(2), 2), "{text}");
    for section in ["authentication", "authorization"] {
        let told = format!("clients.{section}.kubeconfig: http://127.0.0.1:1: the API server cannot be reached");
        assert!(text.contains(&told), "{told} in {text}");
    }
    let body = r#"{"kind":"Status","apiVersion":"v1","message":"User \"a\" cannot get path \"/version\"","code":403}"#;
    let (address, _serving) = answering(closing("403 Forbidden", body)).await;
    let (code, text) = checked_online(&format!("http://{address}"), "").await;
    assert_eq!((code, text.lines().count()), (Some(0), 2), "{text}");
    assert!(text.contains("may not get /version") && text.contains("no problems"), "{text}");
}

#[tokio::test]
async fn a_configuration_is_read_once_so_that_it_may_come_through_a_pipe() {
    let server = Sim::new().start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", &server.url())).unwrap();
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n\
         cache: {{prewarm: [pdos]}}\nupstream: {{kubeconfig: \"{}\"}}\n",
        kubeconfig.display()
    );
    let mut command = kube_fanout(&["check", "--online", "--config", "/dev/stdin"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, text.as_bytes()).await.unwrap();
    drop(input);
    let output = within("the check", child.wait_with_output()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("/dev/stdin: line 3, column 19: cache.prewarm[0]: \"pdos\": the API server has"),
        "{text}"
    );
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
}

#[tokio::test]
async fn misuse_exits_with_2() {
    for (args, expected) in [
        (&["load", "--profile", "kubelets", "--assert", "nonsense"][..], 2),
        (&["check", "--no-such-option"], 2),
        (&["demo", "--rate=-1"], 2),
        (&["demo", "--rate", "nan"], 2),
        (&["run", "--config", "/none"], 2),
        (&["check", "--config", "/none"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let output = finished(&mut kube_fanout(args)).await;
        assert_eq!(output.status.code(), Some(expected), "{args:?}");
        assert_eq!(output.stderr.is_empty(), expected == 0, "{args:?}");
    }
}
