//! kubectl, old and new: the same commands print the same output, directly and through the gateway.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdout, Command},
};

use crate::{Side, client::Endpoint, compare::first_difference, gateway::PATIENCE, report::Tally, servers::POLL};

/// Longer than kubectl takes to print a change that it has seen.
const REWRITE: Duration = Duration::from_secs(2);

/// Arguments and input. Each command runs after the previous one.
const COMMANDS: &[(&str, &str)] = &[
    ("create namespace kube", ""),
    ("apply -n kube -f -", CONFIG_MAP),
    ("apply -n kube -f -", CHANGED),
    ("apply -n kube --server-side --field-manager=other --force-conflicts -f -", CONFIG_MAP),
    ("get configmaps -n kube one -o yaml", ""),
    ("get configmaps -n kube one -o json", ""),
    ("get pods -A", ""),
    ("get pods -A -o wide --sort-by=.metadata.name", ""),
    ("get pods -A --chunk-size=2", ""),
    ("get pods -n conf -l app=web -o name", ""),
    ("get pods -A --field-selector spec.nodeName=node-1 -o name", ""),
    ("get pods,services,configmaps -n conf", ""),
    ("get nodes --show-labels", ""),
    ("get deployments -n conf -o jsonpath={.items[*].metadata.name}", ""),
    ("describe pod -n conf pod-00", ""),
    ("describe node node-0", ""),
    ("describe configmap -n conf cm-00", ""),
    ("patch configmap -n kube one -p {\"data\":{\"b\":\"2\"}}", ""),
    ("patch configmap -n kube one --type=json -p [{\"op\":\"remove\",\"path\":\"/data/b\"}]", ""),
    ("label configmap -n kube one a=b", ""),
    ("annotate configmap -n kube one a=b", ""),
    ("edit configmap -n kube one", ""),
    ("get configmap -n kube one -o jsonpath={.data}", ""),
    ("scale deployment -n conf deploy-0 --replicas=0", ""),
    ("wait --for=condition=Never -n conf pod/pod-00 --timeout=1s", ""),
    ("wait --for=delete -n kube configmap/nothing --timeout=1s", ""),
    ("delete configmap -n kube one --wait", ""),
    ("get configmap -n kube one", ""),
    ("get nothing", ""),
    ("get widgets -A", ""),
    ("get widgets.v1beta1.conf.example.com -A -o name", ""),
    ("api-resources", ""),
    ("api-versions", ""),
    ("explain pods.spec.nodeName", ""),
    ("explain widgets", ""),
    ("version", ""),
    ("auth can-i create pods", ""),
    ("get --raw /api/v1/namespaces/conf/configmaps/cm-00", ""),
    ("delete namespace kube --wait=false", ""),
];

const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"owned"}}"#;
const CHANGED: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","labels":{"x":"y"}},"data":{"a":"2","c":"3"}}"#;
/// Runs with the kubectl of one of the servers.
pub(crate) async fn run(side: &Side, kubectl: &Path) -> Result<Tally> {
    let mut tally = compare(side, kubectl).await?;
    tally.merge(watch(side, kubectl).await?);
    Ok(tally)
}

async fn compare(side: &Side, kubectl: &Path) -> Result<Tally> {
    let mut outputs = Vec::new();
    for kubeconfig in [&side.server.kubeconfig, &side.gateway.kubeconfig] {
        let mut printed = Vec::new();
        for (command, input) in COMMANDS {
            printed.push(output(kubectl, kubeconfig, command, input).await.context(*command)?);
        }
        outputs.push(printed);
        removed(&side.server.endpoint, "/api/v1/namespaces/kube").await?;
    }
    let mut tally = Tally::default();
    for ((command, _), (direct, gateway)) in COMMANDS.iter().zip(outputs[0].iter().zip(&outputs[1])) {
        let (expected, actual) = (masked(direct), masked(gateway));
        tally.compared(
            &format!("kubectl {command}"),
            (expected != actual).then(|| first_difference(&expected, &actual)),
        );
    }
    Ok(tally)
}

/// Removes the namespace's finalizer, since there is no controller manager to do it.
async fn removed(api: &Endpoint, namespace: &str) -> Result<()> {
    let mut object = api.json(namespace).await?;
    object["spec"]["finalizers"] = serde_json::json!([]);
    api.write(http::Method::PUT, &format!("{namespace}/finalize"), &object).await.ok();
    let started = tokio::time::Instant::now();
    while api.get(namespace).await?.status != 404 {
        anyhow::ensure!(started.elapsed() < PATIENCE, "{namespace} stays");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// `get -w` prints each change of an object.
async fn watch(side: &Side, kubectl: &Path) -> Result<Tally> {
    let (path, watched) = ("/api/v1/namespaces/conf/configmaps", "/api/v1/namespaces/conf/configmaps/watched");
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}});
    let mut printed = Vec::new();
    for kubeconfig in [&side.server.kubeconfig, &side.gateway.kubeconfig] {
        let mut child =
            command(kubectl, kubeconfig, "get configmaps -n conf watched -w -o jsonpath={.data.n},").spawn()?;
        let mut output = child.stdout.take().context("no output")?;
        side.server.endpoint.create(path, &object).await.ok();
        let mut text = String::new();
        for number in 0..5 {
            // The next change waits until this one is printed, so that none is left out.
            let end = format!("{number},");
            let written = rewrite(&side.server.endpoint, watched, number);
            let seen = tokio::time::timeout(PATIENCE, read_until(&mut output, &mut text, &end));
            tokio::select! {
                seen = seen => seen.context("kubectl does not print a change")??,
                Err(error) = written => return Err(error),
            }
        }
        child.kill().await?;
        printed.push(text);
    }
    let mut tally = Tally::default();
    for (who, text) in ["directly", "through the gateway"].iter().zip(&printed) {
        tally.holds(&format!("kubectl get -w {who}"), text.ends_with("4,"), || text.clone());
    }
    Ok(tally)
}

/// Writes the number repeatedly, since kubectl misses changes between its get and its watch.
async fn rewrite(api: &Endpoint, path: &str, number: usize) -> Result<()> {
    for attempt in 0.. {
        let change = serde_json::json!({"data": {"n": number.to_string(), "attempt": attempt.to_string()}});
        api.patch(path, &change).await?;
        tokio::time::sleep(REWRITE).await;
    }
    Ok(())
}

/// Appends output until it ends with `end`: one read may return less than a line, or more.
async fn read_until(output: &mut ChildStdout, text: &mut String, end: &str) -> Result<()> {
    let mut buffer = [0; 256];
    while !text.ends_with(end) {
        let length = output.read(&mut buffer).await?;
        anyhow::ensure!(length > 0, "kubectl ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    Ok(())
}

fn command(kubectl: &Path, kubeconfig: &Path, arguments: &str) -> Command {
    let mut command = Command::new(kubectl);
    let cache = kubeconfig.with_extension("cache");
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--cache-dir={}", cache.display()))
        .args(arguments.split(' '))
        .env_remove("KUBECONFIG")
        .env("KUBE_EDITOR", "sed -i s/owned/edited/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output(kubectl: &Path, kubeconfig: &Path, arguments: &str, input: &str) -> Result<String> {
    let mut child = command(kubectl, kubeconfig, arguments).spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE * 2, child.wait_with_output()).await.context("kubectl hangs")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr)))
}

/// Masks what differs between runs: ages, times, uids, versions, addresses, the order of a hash map.
fn masked(text: &str) -> String {
    let mut lines: Vec<_> =
        text.lines().map(|line| line.split_whitespace().map(masked_word).collect::<Vec<_>>().join(" ")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn masked_word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| "\",".contains(c));
    let digits = bare.bytes().filter(u8::is_ascii_digit).count();
    let is_age = digits > 0
        && bare.ends_with(['s', 'm', 'h', 'd'])
        && bare.bytes().all(|b| b.is_ascii_digit() || b"smhd".contains(&b));
    let is_number = digits == bare.len() && digits > 2;
    let is_uid = bare.len() == 36 && bare.matches('-').count() == 4;
    let is_time = bare.len() == 20 && bare.ends_with('Z');
    if is_age || is_number || is_uid || is_time || bare.contains("127.0.0.1:") {
        "*".to_owned()
    } else {
        word.to_owned()
    }
}
