//! Checks what a configuration needs of the machine, and changes nothing there: the directories of sockets, of the
//! audit log and of kept states, and the kubeconfig that is found without being named.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access},
    process::geteuid,
};

use crate::config::{
    Address, Config, Problem, Problems, Redacted, UpstreamConfig, UpstreamConfigError, upstream::kubectl_paths,
};

/// The audit log goes to standard output.
const STANDARD_OUTPUT: &str = "-";
/// The maximum length of a socket's path, in bytes: the system allows 107, and the gateway binds under a temporary name
/// with its process id.
const SOCKET_PATH_MAX: usize = 107 - ".4194304".len();
const DIRECTORY: &str = "a directory that exists, and in which this user may create files";

impl Config {
    /// Where the gateway would fail on this machine, or with this user, though its configuration and its files are
    /// valid. Not checked: whether an address is free, and whether a server answers.
    pub(super) fn check_surroundings(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let listeners = self.listeners.iter().enumerate();
        let addresses = listeners.map(|(index, listener)| (format!("listeners[{index}].address"), &listener.address));
        for (field, address) in addresses.chain([("admin.address".to_owned(), &self.admin.address)]) {
            if let Address::Unix(path) = address {
                problems.extend(socket(path).err().map(|problem| problem.of(&field)));
            }
        }
        if let Some(path) = self.audit.path.as_deref().filter(|path| *path != Path::new(STANDARD_OUTPUT)) {
            problems.extend(audit_log(path).err().map(|problem| problem.of("audit.path")));
        }
        if let Some(persist) = &self.cache.persist {
            problems.extend(states(&persist.folder()).err().map(|problem| problem.of("cache.persist.path")));
        }
        problems
    }

    /// Which kubeconfig the gateway would use; nothing if one is named, as [`Config::check_files`] reads that.
    ///
    /// # Errors
    /// One is found, and cannot be used.
    pub(super) async fn default_upstream(&self) -> Result<Option<String>, Problems> {
        let UpstreamConfig { kubeconfig: None, context: None } = self.upstream else { return Ok(None) };
        let found = match self.upstream.resolve().await {
            Err(UpstreamConfigError::NotFound(_)) => {
                let note = "there is none, and this is no pod: in a pod, the gateway uses its service account";
                return Ok(Some(format!("{UNNAMED}; {note}")));
            }
            Err(_) => None,
            Ok(access) => Some(access),
        };
        self.check_unnamed().await?;
        let server = found.map(|access| Redacted::url(&access.cluster_url).to_string()).unwrap_or_default();
        let paths: Vec<_> = kubectl_paths().into_iter().filter(|path| path.exists()).collect();
        let from = if paths.is_empty() { "the pod's service account".to_owned() } else { shown(&paths) };
        Ok(Some(format!("{UNNAMED}; the gateway would use {from}: {server}")))
    }
}

const UNNAMED: &str = "upstream.kubeconfig is not set";

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a path, and what is allowed.
#[derive(Debug, PartialEq, Eq)]
struct Unusable {
    found: String,
    allowed: String,
}

impl Unusable {
    fn new(path: &Path, found: impl std::fmt::Display, allowed: &str) -> Self {
        Self { found: format!("{}: {found}", path.display()), allowed: allowed.to_owned() }
    }

    fn of(self, field: &str) -> Problem {
        Problem::new(field, &self.found, &self.allowed)
    }
}

/// As the listener finds it when it binds.
fn socket(path: &Path) -> Result<(), Unusable> {
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        let allowed = format!("a path of at most {SOCKET_PATH_MAX} bytes");
        return Err(Unusable::new(path, format!("{length} bytes are too long for a socket"), &allowed));
    }
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(Unusable::new(
            path,
            "a file that is no socket is there",
            "no file, or a socket, which is replaced",
        ));
    }
    parent(path)
}

/// As the audit log finds it when it is opened: it is created if it is not there.
fn audit_log(path: &Path) -> Result<(), Unusable> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(Unusable::new(path, "it is a directory", "the path of a file")),
        Ok(_) => access(path, Access::WRITE_OK)
            .map_err(|error| Unusable::new(path, io::Error::from(error), "a file that this user may write to")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => parent(path),
        Err(error) => Err(Unusable::new(path, error, "the path of a file")),
    }
}

/// As the states of caches find their folder: it is created if it is not there.
fn states(folder: &Path) -> Result<(), Unusable> {
    let allowed = "a directory with mode 0700 that belongs to this user, or none, so that it is created";
    match fs::symlink_metadata(folder) {
        Ok(found) if !found.is_dir() => Err(Unusable::new(folder, "it is no directory", allowed)),
        Ok(found) if found.uid() != geteuid().as_raw() => {
            Err(Unusable::new(folder, format_args!("it belongs to user {}", found.uid()), allowed))
        }
        Ok(found) if found.mode() & 0o077 != 0 => {
            Err(Unusable::new(folder, format_args!("it has mode {:o}", found.mode() & 0o7777), allowed))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => parent(folder),
        Err(error) => Err(Unusable::new(folder, error, allowed)),
    }
}

/// The directory in which a file is to be created.
fn parent(path: &Path) -> Result<(), Unusable> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Err(error) => Err(Unusable::new(folder, error, DIRECTORY)),
        Ok(found) if !found.is_dir() => Err(Unusable::new(folder, "it is no directory", DIRECTORY)),
        Ok(_) => access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| Unusable::new(folder, io::Error::from(error), DIRECTORY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn directories_have_to_be_there_and_nothing_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        for usable in ["new", "socket"] {
            assert_eq!(socket(&path(usable)), Ok(()), "{usable}");
        }
        for usable in ["new", "file"] {
            assert_eq!(audit_log(&path(usable)), Ok(()), "{usable}");
        }
        assert_eq!(audit_log(Path::new("/dev/full")), Ok(()));
        let long = "s".repeat(SOCKET_PATH_MAX);
        for (name, word) in
            [("none/s", "os error 2"), ("file/s", "no directory"), ("file", "no socket"), (&long, "too long")]
        {
            let problem = socket(&path(name)).unwrap_err().of("admin.address").to_string();
            assert!(problem.contains(word) && problem.contains("; allowed: "), "{name}: {problem}");
        }
        for (name, word) in [("none/log", "os error 2"), ("file/log", "os error 20"), ("", "it is a directory")] {
            let problem = audit_log(&path(name)).unwrap_err().of("audit.path").to_string();
            assert!(problem.contains(word) && problem.contains("; allowed: "), "{name}: {problem}");
        }
        for (name, word) in [("none/states", "os error 2"), ("file/states", "os error 20"), ("file", "no directory")] {
            let problem = states(&path(name)).unwrap_err().of("cache.persist.path").to_string();
            assert!(problem.contains(word) && problem.contains("; allowed: "), "{name}: {problem}");
        }
        assert_eq!(states(&path("states")), Ok(()));
        assert!(states(Path::new("/tmp")).unwrap_err().of("cache.persist.path").to_string().contains("mode 1777"));
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["file", "socket"]);
    }
}
