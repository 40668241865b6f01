//! What `load` does about servers that end, and how the command reports what went wrong: by its exit code.

use std::{path::Path, process::Stdio};

use kube_fanout::{
    load::{LoadOptions, Server, load},
    sim::{Refusal, Sim},
};
use rustix::process::Signal;
use tokio::process::Command;

use crate::{
    harness::{
        process::{CLUSTER, kube_fanout, send},
        serving::{answering, closing},
        until, within,
    },
    load::{errors, leftovers, measured, options, resource, workload},
};

#[tokio::test]
async fn informers_of_a_killed_server_go_on_at_the_fallback_without_lists() {
    let sim = Sim::new();
    let (first, second) = (sim.start().await.unwrap(), sim.start().await.unwrap());
    let text = "duration: 60s
workloads:
- {name: watchList, clients: 4, http: 2, connections: 2, informer: {resource: configmaps}}
- {name: list, clients: 2, informer: {resource: configmaps, start: list}}
- {name: writes, rate: 20, churn: {objects: 5}}";
    let mut options = options(first.url(), text);
    options.url.fallbacks = vec![second.address().to_string().parse().unwrap()];
    options.writes = Some(Server { url: Some(second.url()), ..Server::default() });
    let patches = || sim.counts().requests("patch", "configmaps");
    let written = async |count| {
        let written = async || (patches() >= count).then_some(());
        until("objects are written", written).await;
    };
    let kill = async {
        let open = async || (sim.counts().open_watches("configmaps") == 6).then_some(());
        until("the watches are open", open).await;
        written(5).await;
        first.kill().await;
        let again = async || {
            let counts = sim.counts();
            (counts.requests("watch", "configmaps") >= 12 && counts.open_watches("configmaps") == 6).then_some(())
        };
        until("the watches are open again", again).await;
        written(patches() + 5).await;
    };
    // The run ends when it is over.
    let report = within("the end of the run", load(&options, kill)).await.unwrap();
    for (name, clients) in [("watchList", 4), ("list", 2)] {
        let informers = workload(&report, name);
        assert_eq!((informers.lists, informers.relists), (clients, 0), "{informers:?}");
        assert_eq!(informers.back.as_ref().unwrap().count, clients, "{informers:?}");
        assert_eq!((errors(informers), informers.errors[0].count), (vec!["stream"], clients), "{informers:?}");
    }
    assert!(workload(&report, "writes").errors.is_empty());
    let text = load::text(&report);
    assert!(text.contains("lost connections of clients"), "{text}");
}

/// The command in a folder with a profile, as far as it is the same in all tests.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = kube_fanout(&["load"]);
    command.args(arguments).current_dir(folder).env_remove("KUBECONFIG");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn write_profile(folder: &Path, name: &str, rest: &str) {
    let text = format!("apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\n{rest}\n");
    std::fs::write(folder.join(name), text).unwrap();
}

/// The arguments for the good profile.
fn with<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--profile", "good.yaml", "--url", url][..], more].concat()
}

#[tokio::test]
async fn the_exit_code_says_what_kind_of_failure_it_was() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    // A server that may be one of a production cluster.
    let production = Sim::new();
    production.upgrade("v1.36.0", &resource("pods"), |_| {}).unwrap();
    let strange = production.start().await.unwrap();
    let (url, strange) = (server.url(), strange.url());
    let nowhere = "http://127.0.0.1:1";
    write_profile(folder.path(), "good.yaml", "duration: 200ms\nworkloads: [{rate: 20, list: {resource: configmaps}}]");
    write_profile(folder.path(), "bad.yaml", "workloads: [{lists: {}}]");
    write_profile(
        folder.path(),
        "unknown.yaml",
        "duration: 200ms\nworkloads: [{rate: 20, list: {resource: nothings}}]",
    );
    write_profile(folder.path(), "watch.yaml", "duration: 200ms\nworkloads: [{watch: {resource: configmaps}}]");
    write_profile(
        folder.path(),
        "writes.yaml",
        "duration: 200ms\nworkloads: [{rate: 20, list: {resource: configmaps}}, {rate: 20, churn: {objects: 1}}]",
    );
    for (arguments, code, said) in [
        (with(&url, &["--assert", "errors==0"]), 0, ""),
        (with(&url, &["--output", "none/report.json"]), 1, "cannot write the report"),
        (with(&url, &["--nonsense"]), 2, "--nonsense"),
        (with(&url, &["--assert", "latency"]), 2, "has no operator"),
        (with(&url, &["--fallback", "nowhere"]), 2, "HOST:PORT"),
        (with(&url, &["--duration", "9999999999999999999s"]), 2, "from 1ms to 168h"),
        (with(&url, &["--duration", "0s"]), 2, "from 1ms to 168h"),
        (with(&url, &["--seed-objects", "1000000000000"]), 2, "0..=1000000"),
        (vec!["--profile", "good.yaml", "--demo", "1000000000000"], 2, "0..=1000000"),
        (with(&url, &["--assert", "lists:errors==0"]), 2, "there are: list"),
        (with(&url, &["--pid", "a=4000000000"]), 2, "--pid"),
        (with("ftp://127.0.0.1:1", &[]), 2, "is not the address of a server"),
        (with("https://127.0.0.1:1", &["--kubeconfig", "none"]), 2, "none"),
        (with("https://user:secret@127.0.0.1:1", &["--kubeconfig", "none"]), 2, "no access to https://127.0.0.1:1"),
        (with("http://user:secret@127.0.0.1:1", &[]), 2, "the URL of http://127.0.0.1:1/ contains a user"),
        (with("https://user:secret@gate way", &[]), 2, "https://gate way is not the address of a server"),
        (with(&url, &["--fallback", "user:secret@127.0.0.1:1"]), 2, "invalid value '127.0.0.1:1'"),
        (vec!["--profile", "bad.yaml", "--url", &url], 2, "line 3, column 14: workloads[0].lists"),
        (vec!["--profile", "kublets", "--url", &url], 2, "kubelets"),
        (with(&url, &["--assert", "latency.p50<0ms"]), 3, ""),
        (with(&strange, &[]), 4, "--i-know-this-is-a-test-cluster"),
        (with(&url, &["--against", &strange]), 4, "--i-know-this-is-a-test-cluster"),
        (with(&url, &["--write-url", &strange]), 4, "--i-know-this-is-a-test-cluster"),
        (with(&url, &["--fallback", strange.trim_start_matches("http://")]), 4, "--i-know-this-is-a-test-cluster"),
        (with(nowhere, &[]), 5, "does not answer"),
        (vec!["--profile", "unknown.yaml", "--url", &url], 5, "nothing was measured"),
        (with(&url, &["--against", nowhere, "--i-know-this-is-a-test-cluster"]), 5, "nothing was measured"),
        (
            vec!["--profile", "writes.yaml", "--url", nowhere, "--write-url", &url, "--i-know-this-is-a-test-cluster"],
            5,
            "nothing was measured",
        ),
        (
            vec!["--profile", "writes.yaml", "--url", nowhere, "--i-know-this-is-a-test-cluster"],
            5,
            "cannot create the objects of the run: connect",
        ),
        (vec!["--profile", "watch.yaml", "--url", &url, "--assert", "APIResponsiveness"], 2, "gets, lists and writes"),
    ] {
        let output = within("the end of the command", command(folder.path(), &arguments).output()).await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let status = output.status;
        assert!(status.code() == Some(code) && errors.contains(said), "{arguments:?}: {status}, {errors}");
        assert!(!errors.contains("secret"), "{arguments:?}: {errors}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_or_is_no_api_server_is_reported_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    write_profile(folder.path(), "good.yaml", "duration: 200ms\nworkloads: [{rate: 20, list: {resource: configmaps}}]");
    let body = |code| format!(r#"{{"kind":"Status","apiVersion":"v1","message":"not you","code":{code}}}"#);
    for (status, body, words) in [
        (
            "401 Unauthorized",
            body(401),
            "refuses GET /version: status_401: not you; credentials are only sent with TLS",
        ),
        ("403 Forbidden", body(403), "refuses GET /version: status_403: not you; credentials are only sent with TLS"),
        ("503 Service Unavailable", body(503), "refuses GET /version: status_503: not you; the server"),
        ("404 Not Found", "404 page not found".to_owned(), "status_404: 404 page not found; --url is the address of"),
        (
            "400 Bad Request",
            "Client sent an HTTP request to an HTTPS server.".to_owned(),
            "an HTTPS server.; it speaks TLS: use its https:// address",
        ),
        ("200 OK", "<!DOCTYPE html>\n<title>A shop".to_owned(), "does not answer GET /version as an API server does"),
    ] {
        let (address, _serving) = answering(closing(status, &body)).await;
        let url = format!("http://{address}");
        let output = command(folder.path(), &with(&url, &[])).output();
        let output = within("the end of the command", output).await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(5) && said.contains(&url) && said.contains(words), "{words} in {said}");
    }
    let (address, _serving) = answering(closing("400 Bad Request", "")).await;
    let url = format!("https://{address}");
    std::fs::write(folder.path().join("kubeconfig"), CLUSTER.replace("SERVER", &url)).unwrap();
    let output = command(folder.path(), &with(&url, &["--kubeconfig", "kubeconfig"])).output();
    let output = within("the end of the command", output).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(5) && said.contains("use its http:// address"), "{said}");
}

#[tokio::test]
async fn a_refused_cluster_has_an_exit_code_of_its_own_and_leaves_no_empty_files() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    // It does not say any more that it is embedded.
    sim.upgrade("v1.36.0", &resource("pods"), |_| {}).unwrap();
    write_profile(folder.path(), "short.yaml", "duration: 1s\nworkloads: [{list: {resource: configmaps}}]");
    std::fs::write(folder.path().join("old.html"), "an older report").unwrap();
    // A file cannot be written, then all of them can.
    for (page, code) in [("nowhere/page.html", 1), ("old.html", 4)] {
        let mut arguments = vec!["--profile", "short.yaml"];
        let url = server.url();
        arguments.extend(["--url", &url, "--output", "new.json", "--html", page]);
        let output = command(folder.path(), &arguments).output().await.unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!folder.path().join("new.json").exists(), "{page}");
        assert_eq!(std::fs::read_to_string(folder.path().join("old.html")).unwrap(), "an older report");
    }
}

#[tokio::test]
async fn an_interrupted_command_reports_and_has_an_exit_code_of_its_own() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    write_profile(folder.path(), "long.yaml", "duration: 1h\nworkloads: [{rate: 50, list: {resource: configmaps}}]");
    for signal in [Signal::INT, Signal::TERM] {
        let before = sim.counts().requests("list", "configmaps");
        // An assertion on a part of a run says nothing.
        let arguments =
            ["--profile", "long.yaml", "--url", &server.url(), "--assert", "latency.p50<0ms"].map(str::to_owned);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let child = command(folder.path(), &arguments).spawn().unwrap();
        let listed = async || (sim.counts().requests("list", "configmaps") > before + 5).then_some(());
        until("it lists", listed).await;
        send(&child, signal);
        let output = within("the end of the command", child.wait_with_output()).await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(130), "{text}");
        assert!(text.contains("interrupted: what follows is of the time before"), "{text}");
        assert!(text.contains("not judged  latency.p50<0ms") && !text.contains("FAILED"), "{text}");
    }
}

const WRITES: &str = "duration: 1h\nworkloads: [{rate: 50, churn: {objects: 3}}]";

#[tokio::test]
async fn a_second_signal_ends_a_command_that_cannot_delete_its_objects() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    write_profile(folder.path(), "writes.yaml", WRITES);
    sim.hold_requests("delete", "configmaps");
    let child = command(folder.path(), &["--profile", "writes.yaml", "--url", &server.url()]).spawn().unwrap();
    for (verb, doing) in [("patch", "it writes"), ("delete", "it deletes")] {
        let seen = async || (sim.counts().requests(verb, "configmaps") > 0).then_some(());
        until(doing, seen).await;
        send(&child, Signal::INT);
    }
    let output = within("the end of the command", child.wait_with_output()).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(130) && said.contains("interrupted again"), "{said}");
    assert!(said.contains("a namespace with the label app.kubernetes.io/managed-by=kube-fanout-load"), "{said}");
}

#[tokio::test]
async fn objects_that_may_be_left_are_a_failure_and_the_namespace_is_deleted() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let server = sim.start().await.unwrap();
    write_profile(folder.path(), "writes.yaml", &WRITES.replace("1h", "200ms"));
    let refusal = Refusal { verb: Some("delete"), resource: Some("configmaps".to_owned()), status: 403, times: None };
    sim.refuse(refusal);
    let output = command(folder.path(), &["--profile", "writes.yaml", "--url", &server.url()]).output();
    let output = within("the end of the command", output).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("objects may be left; kubectl delete"), "{said}");
    assert_eq!(leftovers(&sim), [""; 0], "a namespace is deleted with what is in it");
}

#[tokio::test]
async fn an_answer_that_is_no_deletion_leaves_objects() {
    for (verb, status, said) in [("list", 404, "status_404"), ("delete", 404, "still listed after their deletion")] {
        let sim = Sim::new();
        let server = sim.start().await.unwrap();
        sim.refuse(Refusal { verb: Some(verb), resource: Some("configmaps".to_owned()), status, times: None });
        let report = measured(&options(server.url(), &WRITES.replace("1h", "200ms"))).await;
        let left = report.left.unwrap_or_default();
        assert!(left.starts_with("objects may be left; kubectl delete") && left.contains(said), "{verb}: {left:?}");
    }
}

#[tokio::test]
async fn objects_are_deleted_through_another_server_if_the_one_that_wrote_them_is_gone() {
    for has_write_url in [false, true] {
        let sim = Sim::new();
        let (first, second) = (sim.start().await.unwrap(), sim.start().await.unwrap());
        let server = |url| Some(Server { url: Some(url), ..Server::default() });
        let options = if has_write_url {
            LoadOptions { writes: server(first.url()), ..options(second.url(), WRITES) }
        } else {
            LoadOptions { against: server(second.url()), ..options(first.url(), WRITES) }
        };
        let kill = async {
            let written = async || (sim.counts().requests("patch", "configmaps") > 5).then_some(());
            until("objects are written", written).await;
            first.kill().await;
        };
        let report = within("the end of the run", load(&options, kill)).await.unwrap();
        assert_eq!((report.left.as_deref(), leftovers(&sim)), (None, vec![]), "--write-url: {has_write_url}");
    }
}
