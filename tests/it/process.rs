//! The built gateway as a process: what the pipes and files that it writes to may do to it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use kube_fanout::sim::{Sim, SimServer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{Child, Command},
};

use crate::harness::{until, within, world::pod};

/// A pipe holds 64 KiB.
const LONG_AGENT: usize = 1_000;

/// In front of an embedded server, on Unix sockets; ends with its test.
struct Process {
    child: Child,
    client: PathBuf,
    admin: PathBuf,
    _server: SimServer,
    _folder: TempDir,
}

impl Process {
    /// With further fields of the configuration. Nothing reads its standard error.
    async fn start(fields: &str) -> Self {
        let sim = Sim::new();
        sim.create(pod("default", "a", "x")).unwrap();
        let (server, folder) = (sim.start().await.unwrap(), tempfile::tempdir().unwrap());
        let [client, admin, kubeconfig, config] =
            ["client.sock", "admin.sock", "kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
        let cluster = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{{name: a, user: {{}}}}]\n\
             clusters: [{{name: a, cluster: {{server: \"{}\"}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n",
            server.url()
        );
        std::fs::write(&kubeconfig, cluster).unwrap();
        let text = format!(
            "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nlisteners: [{{address: \"unix:{}\"}}]\n\
             admin: {{address: \"unix:{}\"}}\nupstream: {{kubeconfig: \"{}\"}}\n{fields}\n",
            client.display(),
            admin.display(),
            kubeconfig.display()
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
            .args(["run", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let process = Self { child, client, admin, _server: server, _folder: folder };
        let up = async || UnixStream::connect(&process.admin).await.ok().map(drop);
        until("the gateway listens", up).await;
        process
    }

    async fn get(&self, path: &str) -> String {
        within(path, ask(&self.client, path)).await
    }

    async fn admin(&self, path: &str) -> String {
        within(path, ask(&self.admin, path)).await
    }
}

/// The whole answer.
async fn ask(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let agent = "x".repeat(LONG_AGENT);
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_log_that_is_not_read_stops_nothing() {
    let mut gateway = Process::start("logging: {access: all}").await;
    for _ in 0..400 {
        let answer = gateway.get("/api/v1/pods?resourceVersion=0").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(gateway.admin("/livez").await.starts_with("HTTP/1.1 200"));
    // It ends all the same, with most of its log unread.
    let id = i32::try_from(gateway.child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    let ended = within("the end of the process", gateway.child.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_gateway_that_cannot_log_its_reads_is_not_ready() {
    let gateway = Process::start("audit: {path: /dev/full}").await;
    assert!(gateway.admin("/readyz").await.starts_with("HTTP/1.1 200"));
    let failed = async || {
        let answer = gateway.get("/api/v1/pods?resourceVersion=0").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(gateway.admin("/readyz").await).filter(|answer| answer.starts_with("HTTP/1.1 500"))
    };
    let answer = until("an event that cannot be written", failed).await;
    assert!(answer.contains("[-]audit failed: not ready\n"), "{answer}");
    gateway.get("/api/v1/pods?resourceVersion=0").await;
    let metrics = gateway.admin("/metrics").await;
    assert!(metrics.contains(r#"outcome="forwarded",reason="unaudited"} "#), "{metrics}");
    assert!(gateway.admin("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn why_a_gateway_does_not_start_is_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nupstream: {kubeconfig: /nowhere}\n";
    std::fs::write(&config, text).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_kube-fanout")).args(["run", "--config"]).arg(&config).output();
    let output = within("the end of the process", run).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("Error: "), "{text}");
}
