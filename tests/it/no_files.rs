//! The process leaves no files behind and opens none to write to, unless it is told to: it runs with a read-only root.
//! `.ci/image` runs the image so.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use kube_fanout::sim::Sim;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{net::UnixStream, process::Command};

use crate::{
    harness::{until, upstream::pod, within},
    process::{CLUSTER, ask},
};

/// The folders that programs write to, all in one: home, caches, temporary files, and the current one.
struct Folders {
    all: TempDir,
    sockets: TempDir,
}

/// Each file with its time and size.
type Contents = BTreeMap<PathBuf, (SystemTime, u64)>;

fn contents(folder: &Path, found: &mut Contents) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let about = entry.metadata().unwrap();
        found.insert(entry.path(), (about.modified().unwrap(), about.len()));
        if about.is_dir() {
            contents(&entry.path(), found);
        }
    }
}

impl Folders {
    fn new(server: &str) -> Self {
        let (all, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(all.path().join(".kube")).unwrap();
        fs::write(all.path().join(".kube/config"), CLUSTER.replace("SERVER", server)).unwrap();
        let configuration = "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n";
        fs::write(all.path().join("gateway.yaml"), configuration).unwrap();
        Self { all, sockets }
    }

    fn contents(&self) -> Contents {
        let mut found = Contents::new();
        contents(self.all.path(), &mut found);
        found
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-fanout"));
        command.args(arguments).current_dir(&self.all).kill_on_drop(true);
        for name in ["HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
            command.env(name, self.all.path());
        }
        command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
        command
    }
}

/// The files of the file system that a process has open to write to.
fn written_to(id: u32) -> Vec<PathBuf> {
    const ACCESS: u32 = 0o3;
    let opened = fs::read_dir(format!("/proc/{id}/fd")).unwrap().map(Result::unwrap);
    let files = opened.filter_map(|entry| {
        let path = fs::read_link(entry.path()).ok()?;
        let about = fs::read_to_string(format!("/proc/{id}/fdinfo/{}", entry.file_name().display())).ok()?;
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let is_writable = u32::from_str_radix(flags.trim(), 8).unwrap() & ACCESS != 0;
        (is_writable && fs::metadata(&path).is_ok_and(|about| about.is_file())).then_some(path)
    });
    files.collect()
}

/// Runs a command that serves, has it answer from memory, and ends it.
async fn serve(folders: &Folders, command: &[&str]) {
    let [client, admin] = [command[0].to_owned(), format!("{}-admin", command[0])].map(|name| folders.socket(&name));
    let (listen, admin_listen) = (format!("unix:{}", client.display()), format!("unix:{}", admin.display()));
    let arguments = [command, &["--listen", &listen, "--admin-listen", &admin_listen]].concat();
    // The test's own output may be a file.
    let mut running = folders.command(&arguments);
    running
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut running = running.spawn().unwrap();
    let served = async || {
        UnixStream::connect(&client).await.ok()?;
        let answer = ask(&client, "/api/v1/pods?resourceVersion=0").await;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    until("a list is answered", served).await;
    assert!(ask(&admin, "/status.json").await.starts_with("HTTP/1.1 200"));
    assert!(ask(&admin, "/metrics").await.contains("kube_fanout_requests_total"));
    let id = running.id().unwrap();
    let written = written_to(id);
    assert!(written.is_empty(), "{arguments:?}: {written:?}");
    let admin = format!("unix:{}", admin.display());
    let status = within("the status", folders.command(&["status", "--admin", &admin]).output()).await.unwrap();
    assert!(status.status.success(), "{status:?}");
    kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), Signal::TERM).unwrap();
    let ended = within("the end", running.wait()).await.unwrap();
    assert!(ended.success(), "{arguments:?}: {ended}");
}

#[tokio::test]
async fn no_command_writes_a_file_that_was_not_asked_for() {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let server = sim.start().await.unwrap();
    let folders = Folders::new(&server.url());
    let before = folders.contents();
    assert_eq!(before.len(), 3, "{before:?}");
    // Shows that `written_to` finds an open file.
    let file = fs::File::create(folders.socket("file")).unwrap();
    assert!(written_to(std::process::id()).contains(&folders.socket("file")));
    drop(file);
    for arguments in [
        &["schema"][..],
        &["kubeconfig"],
        &["check", "--config", "gateway.yaml"],
        &["check", "--config", "gateway.yaml", "--online"],
        &["load", "--profile", "controllers", "--duration", "200ms"],
    ] {
        let output = within("the end of the command", folders.command(arguments).output()).await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    serve(&folders, &["run"]).await;
    serve(&folders, &["demo", "--objects", "50", "--watches", "3"]).await;
    assert_eq!(folders.contents(), before);
}
