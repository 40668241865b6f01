//! `load` measures one cluster: all its servers have to show the same one.

use std::future::pending;

use kube_fanout::{
    load::{LoadError, LoadOptions, Server, load},
    sim::{Refusal, Sim},
};

use crate::{
    harness::{
        process::{finished, kube_fanout},
        serving::listener,
        within,
    },
    load::{measured, options},
};

const LISTS: &str = "duration: 200ms\nworkloads: [{rate: 20, list: {resource: configmaps}}]";

/// The servers of a run with a second server at `url` in each place where there may be one.
fn with_second(first: &str, url: &str) -> [LoadOptions; 3] {
    let second = || Server { url: Some(url.to_owned()), ..Server::default() };
    let options = || options(first.to_owned(), LISTS);
    let mut with_fallback = options();
    with_fallback.url.fallbacks = vec![url.trim_start_matches("http://").parse().unwrap()];
    [
        LoadOptions { against: Some(second()), ..options() },
        LoadOptions { writes: Some(second()), ..options() },
        with_fallback,
    ]
}

#[tokio::test]
async fn servers_of_two_clusters_are_refused() {
    let (one, two) = (Sim::new(), Sim::new());
    let (first, second) = (one.start().await.unwrap(), two.start().await.unwrap());
    let (first, second) = (first.url(), second.url());
    for any_cluster in [false, true] {
        for options in with_second(&first, &second) {
            let options = LoadOptions { any_cluster, ..options };
            let refused = within("the end of the run", load(&options, pending())).await.unwrap_err().to_string();
            let words = [first.as_str(), &second, "different clusters", "kube-system"];
            assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
        }
    }
    assert_eq!((one.counts().requests("list", "configmaps"), two.counts().requests("list", "configmaps")), (0, 0));
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["load", "--profile", "dashboards", "--url", &first, "--against", &second, "--output", "r.json"];
    let output = finished(kube_fanout(&arguments).current_dir(&folder)).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_told_apart_is_measured_with_a_note() {
    let sim = Sim::new();
    let (first, second) = (sim.start().await.unwrap(), sim.start().await.unwrap());
    for options in with_second(&first.url(), &second.url()) {
        let text = load::text(&measured(&options).await);
        assert!(!text.contains("note: "), "both are of one cluster: {text}");
    }
    let namespaces = Some("namespaces".to_owned());
    sim.refuse(Refusal { verb: Some("get"), resource: namespaces, status: 403, ..Refusal::default() });
    for options in with_second(&first.url(), &second.url()) {
        let report = measured(&options).await;
        let (text, page) = (load::text(&report), load::page(&report));
        let words = ["note: ", "kube-system", "status_403", &second.url()];
        assert!(words.iter().all(|words| text.contains(words)), "{text}");
        assert!(page.contains("kube-system"), "{page}");
    }
    // Where JSON is shown instead of the text.
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("short.yaml");
    let text = format!("apiVersion: kube-fanout.io/v1alpha1\nkind: LoadProfile\n{LISTS}");
    std::fs::write(&profile, text).unwrap();
    let mut command = kube_fanout(&["load", "--url", &first.url(), "--against", &second.url(), "--output", "-"]);
    let output = finished(command.arg("--profile").arg(&profile)).await;
    let (report, said) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert!(said.starts_with("note: ") && said.contains("kube-system"), "{said}");
    assert!(report["notes"][0].as_str().is_some_and(|note| said.contains(note)), "{report}");
}

#[tokio::test]
async fn a_fallback_does_not_answer_for_a_server_that_is_down() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    let (listener, down) = listener().await;
    drop(listener);
    let down = format!("http://{down}");
    let mut options = options(down.clone(), LISTS);
    options.url.fallbacks = vec![server.address().to_string().parse().unwrap()];
    let refused = within("the end of the run", load(&options, pending())).await.unwrap_err();
    assert!(matches!(&refused, LoadError::Unreachable(url, _) if *url == down), "{refused}");
    assert_eq!(sim.counts().requests("list", "configmaps"), 0, "no load is put on it");
    // A run on any cluster says what was not checked.
    let report = measured(&LoadOptions { any_cluster: true, ..options }).await;
    assert!(report.notes.iter().any(|note| note.contains(&down) && note.contains("connect")), "{:?}", report.notes);
}

#[tokio::test]
async fn one_server_needs_no_right_to_read_namespaces() {
    let sim = Sim::new();
    let server = sim.start().await.unwrap();
    measured(&options(server.url(), LISTS)).await;
    assert_eq!(sim.counts().requests("get", "namespaces"), 0);
}
