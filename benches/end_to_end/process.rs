//! Programs that the bench starts, and the resources that they use. Killed when dropped.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a program with its output in `folder/name.log`.
    pub(crate) fn start(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        folder: &Path,
    ) -> Result<Self> {
        let output = File::create(folder.join(format!("{name}.log")))?;
        let program = program.as_ref();
        let child = Command::new(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once, as a crash would, and returns when it has ended.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Fails if the program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a server ended: {status}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The program may have ended by itself. A signal that can be caught lets a program stop its own children.
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).ok();
        }
        for _ in 0..40 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The CPU that a process and its children have used: the sum over their threads, in nanoseconds.
pub(crate) fn cpu(id: u32) -> Duration {
    let mut processes = vec![id];
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    let threads = processes.iter().filter_map(|id| fs::read_dir(format!("/proc/{id}/task")).ok()).flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// The current resident memory, in bytes.
pub(crate) fn resident(id: u32) -> u64 {
    status(id, "VmRSS:")
}

/// The peak of resident memory, in bytes.
pub(crate) fn resident_peak(id: u32) -> u64 {
    status(id, "VmHWM:")
}

fn status(id: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok());
    value.unwrap_or_default() << 10
}
