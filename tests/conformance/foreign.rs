//! Clients in other languages, installed once for all runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::{process::Command, sync::Mutex, time::timeout};

use crate::gateway::PATIENCE;

/// The first version with an informer.
const PYTHON_CLIENT: &str = "kubernetes==37.0.2";
/// Also runs on the Node.js of Debian 12.
const JAVASCRIPT_CLIENT: &str = "@kubernetes/client-node@1.4.0";

/// Held while a client is installed: scenarios run beside each other.
static INSTALLING: Mutex<()> = Mutex::const_new(());

/// Runs a Python script that uses the Kubernetes client, with this argument.
pub(crate) async fn python(script: &str, argument: &Path) -> Result<String> {
    let folder = installed("python", PYTHON_CLIENT);
    let python = folder.join("bin/python");
    let installing = INSTALLING.lock().await;
    if !done(&folder).is_file() {
        execute(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder)).await?;
        let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", PYTHON_CLIENT];
        execute(Command::new(&python).args(pip)).await?;
        std::fs::write(done(&folder), "")?;
    }
    drop(installing);
    execute(Command::new(python).args(["-c", script]).arg(argument)).await
}

/// Runs a JavaScript module that uses the Kubernetes client, with this argument. `None` without Node.js.
pub(crate) async fn javascript(module: &str, argument: &Path) -> Result<Option<String>> {
    if execute(Command::new("node").arg("--version")).await.is_err() {
        return Ok(None);
    }
    let folder = installed("javascript", JAVASCRIPT_CLIENT);
    let installing = INSTALLING.lock().await;
    if !done(&folder).is_file() {
        std::fs::create_dir_all(&folder)?;
        let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        execute(Command::new("npm").args(npm).arg(&folder).arg(JAVASCRIPT_CLIENT)).await?;
        std::fs::write(done(&folder), "")?;
    }
    drop(installing);
    // Node.js looks for dependencies next to the module's file.
    let file = tempfile::Builder::new().suffix(".mjs").tempfile_in(&folder)?;
    std::fs::write(file.path(), module)?;
    execute(Command::new("node").arg(file.path()).arg(argument)).await.map(Some)
}

fn installed(language: &str, client: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    cache.join("kube-fanout").join(language).join(client.replace('/', "-"))
}

fn done(folder: &Path) -> PathBuf {
    folder.join(".done")
}

/// The output of a program that must succeed.
pub(crate) async fn execute(command: &mut Command) -> Result<String> {
    let output = timeout(PATIENCE * 6, command.kill_on_drop(true).output()).await.context("it takes too long")??;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
