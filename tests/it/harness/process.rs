//! The program as a process of its own: a gateway in front of a server, and commands that end.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use kube_fanout::sim::{Sim, SimServer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, UnixStream},
    process::{Child, Command},
    task::JoinSet,
};

use super::{guarded::GATEWAY_TOKEN, until, upstream::pod, within};

/// The length of a `User-Agent`, in bytes. A pipe holds 64 KiB: a test logs several times as much.
const LONG_AGENT: usize = 1_000;

/// A kubeconfig.
pub(crate) const CLUSTER: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\n\
                       clusters: [{name: a, cluster: {server: \"SERVER\"}}]\n\
                       contexts: [{name: a, context: {cluster: a, user: a}}]\n";

/// The program with these arguments. Without input, and killed at the end of the test.
pub(crate) fn kube_fanout(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-fanout"));
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The exit code and the output of a command that ends by itself.
pub(crate) async fn finished(command: &mut Command) -> Output {
    within("the end of the command", command.output()).await.unwrap()
}

/// Sends a signal to a process that has not ended.
pub(crate) fn send(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// A gateway in front of an embedded server, on Unix sockets. Killed at the end of the test.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) client: PathBuf,
    pub(crate) admin: PathBuf,
    /// The configuration file, and its text without the fields of the test.
    pub(crate) config: (PathBuf, String),
    pub(crate) server: SimServer,
    _folder: TempDir,
}

impl Process {
    /// Starts a gateway with additional configuration fields. Nothing reads its standard error.
    pub(crate) async fn start(fields: &str) -> Self {
        Self::in_front_of(Sim::new(), fields).await
    }

    pub(crate) async fn in_front_of(sim: Sim, fields: &str) -> Self {
        Self::with_upstream(sim, "", fields).await
    }

    /// Starts a gateway with additional fields of `upstream`, and others.
    pub(crate) async fn with_upstream(sim: Sim, upstream: &str, fields: &str) -> Self {
        sim.create(pod("default", "a", "x")).unwrap();
        let (server, folder) = (sim.start().await.unwrap(), tempfile::tempdir().unwrap());
        let [client, admin, kubeconfig, config] =
            ["client.sock", "admin.sock", "kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
        std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", &server.url())).unwrap();
        let text = format!(
            "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nlisteners: [{{address: \"unix:{}\"}}]\n\
             admin: {{address: \"unix:{}\"}}\nupstream: {{kubeconfig: \"{}\"{upstream}}}\n",
            client.display(),
            admin.display(),
            kubeconfig.display()
        );
        std::fs::write(&config, format!("{text}{fields}\n")).unwrap();
        let mut command = kube_fanout(&["run", "--config"]);
        let child = command.arg(&config).stderr(Stdio::piped()).spawn().unwrap();
        let process = Self { child, client, admin, config: (config, text), server, _folder: folder };
        let up = async || UnixStream::connect(&process.admin).await.ok().map(drop);
        until("the gateway listens", up).await;
        process
    }

    /// Writes other configuration fields and sends SIGHUP.
    pub(crate) fn reload(&self, fields: &str) {
        let (path, text) = &self.config;
        std::fs::write(path, format!("{text}{fields}\n")).unwrap();
        self.send(Signal::HUP);
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        within(path, ask(&self.client, path)).await
    }

    pub(crate) async fn admin(&self, path: &str) -> String {
        within(path, ask(&self.admin, path)).await
    }
}

/// Returns the whole answer, with its head.
pub(crate) async fn ask(socket: &Path, path: &str) -> String {
    ask_as(socket, path, &"x".repeat(LONG_AGENT)).await
}

pub(crate) async fn ask_as(socket: &Path, path: &str, agent: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A gateway in front of a server at that address, and its admin socket; `client.sock` is for clients.
pub(crate) async fn in_front_of(url: &str) -> (Child, PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [client, admin, kubeconfig] = ["client.sock", "admin.sock", "kubeconfig"].map(|name| folder.path().join(name));
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", url)).unwrap();
    let mut command = kube_fanout(&["run", "--listen", &format!("unix:{}", client.display())]);
    command.args(["--admin-listen", &format!("unix:{}", admin.display()), "--kubeconfig"]).arg(&kubeconfig);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    until("the gateway listens", async || UnixStream::connect(&admin).await.ok().map(drop)).await;
    (child, admin, folder)
}

/// The same with the gateway's token, in delegated mode. Returns the process, and the socket for clients.
pub(crate) async fn delegated_in_front_of(url: &str) -> (Child, PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [client, admin, kubeconfig, config] =
        ["client.sock", "admin.sock", "kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
    let user = format!("user: {{token: {GATEWAY_TOKEN}}}");
    std::fs::write(&kubeconfig, CLUSTER.replace("SERVER", url).replace("user: {}", &user)).unwrap();
    let (listener, admin_listener) = (format!("unix:{}", client.display()), format!("unix:{}", admin.display()));
    let text = format!(
        "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nlisteners: [{{address: \"{listener}\"}}]\n\
         admin: {{address: \"{admin_listener}\"}}\nupstream: {{kubeconfig: \"{}\"}}\nclients: {{mode: delegated}}\n",
        kubeconfig.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = kube_fanout(&["run", "--config"]);
    let child = command.arg(&config).stderr(Stdio::null()).spawn().unwrap();
    until("the gateway listens", async || UnixStream::connect(&admin).await.ok().map(drop)).await;
    (child, client, folder)
}

/// The address of a server that passes connections on to a socket.
pub(crate) async fn relay(relays: &mut JoinSet<()>, socket: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    relays.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = UnixStream::connect(&socket).await.unwrap();
            connections.spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    url
}

/// Ends a process, and returns its log.
pub(crate) async fn ended(child: &mut Child) -> String {
    send(child, Signal::TERM);
    let mut log = String::new();
    within("the end of the log", child.stderr.take().unwrap().read_to_string(&mut log)).await.unwrap();
    log
}

/// Runs `status`, which must exit with `code`, and returns its output.
pub(crate) async fn shown(admin: &Path, code: i32) -> String {
    let address = format!("unix:{}", admin.display());
    let output = finished(&mut kube_fanout(&["status", "--admin", &address])).await;
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
