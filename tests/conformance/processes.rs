//! Programs that the suite and the bench start: on free ports of 127.0.0.1, with logs in a temporary folder, killed
//! when dropped.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with its output in `folder/name.log`.
    pub(crate) fn start(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        folder: &Path,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let program = program.as_ref();
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(arguments.into_iter().map(Into::into))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.id())?).context("no process")?;
        Ok(kill_process(id, signal)?)
    }

    /// Kills it at once, as a crash would, and returns when it has ended.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Fails with the end of its log if it is not running any more.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                anyhow::bail!("{} ended: {status}\n{}", self.name, lines[lines.len().saturating_sub(15)..].join("\n"))
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        self.kill().ok();
    }
}
