//! States of caches that survive the process (`cache.persist`): written from time to time, and read when a gateway
//! starts again (the manual's chapter `consistency`, "States that survive the gateway").
//!
//! Invariants: a file is only replaced by a whole one. What is read is used only if it is whole, and upstream confirms
//! what it is of, as for the state of a peer.

mod file;
mod sources;

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::geteuid;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::spawn_blocking,
};

use base::{
    apimachinery::{Provenance, ResourceVersion},
    config::PersistConfig,
    telemetry::{limit_reached, show_limit, state_persisted},
};
use engine::{
    reflector::PeerOutcome,
    store::{Schema, Snapshot},
};

use file::{Description, write_state};

pub use file::KeptState;
pub use sources::Sources;

const SUFFIX: &str = ".state";
/// A file that is not whole.
const BEGUN: &str = ".begun";
/// Begins the names of files with Secrets. No other name begins so, since `-` is encoded in these.
const SECRET: &str = "secret-";
/// The maximum length of a file's name without its suffix: file systems have 255 bytes.
const NAME_MAX: usize = 200;

/// The folder of all states. Cheap to clone.
#[derive(Clone, Debug)]
pub struct States(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    limit: u64,
    max_age: Duration,
    secrets: bool,
    /// The bytes of each file.
    sizes: Mutex<HashMap<String, u64>>,
    /// One state is written at a time.
    turn: Semaphore,
    /// Held while files are changed. A task goes on with that when the future that started it is dropped.
    changing: Mutex<()>,
    /// Whether the last attempt to write failed, so that the log says so once.
    is_failing: AtomicBool,
    /// Held while this gateway uses the folder.
    _lock: File,
}

/// Why states cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("cannot use {}: this user has to be able to create it, and files in it", .0.display())]
    Io(PathBuf, #[source] io::Error),
    #[error("others may read {}, or own it: remove it, or give it to the gateway's user with mode 0700", .0.display())]
    Exposed(PathBuf),
    #[error("another gateway uses {}: each needs a folder of its own", .0.display())]
    InUse(PathBuf),
}

impl States {
    /// Blocking.
    ///
    /// # Errors
    /// The folder cannot be used, others may read it, or another gateway uses it.
    pub fn open(config: &PersistConfig) -> Result<Self, PersistError> {
        let folder = config.folder();
        let within = |error| PersistError::Io(folder.clone(), error);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(within(error)),
            Ok(()) | Err(_) => {}
        }
        let metadata = fs::symlink_metadata(&folder).map_err(within)?;
        if !metadata.is_dir() || metadata.mode() & 0o077 != 0 || metadata.uid() != geteuid().as_raw() {
            return Err(PersistError::Exposed(folder));
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"));
        let lock = lock.map_err(within)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PersistError::InUse(folder)),
            Err(TryLockError::Error(error)) => return Err(within(error)),
        }
        let sizes = Mutex::new(tidied(&folder, config).map_err(within)?);
        let (turn, changing, is_failing) = (Semaphore::new(1), Mutex::default(), AtomicBool::new(false));
        let PersistConfig { bytes: limit, max_age, secrets, .. } = *config;
        let shared =
            Arc::new(Shared { folder, limit, max_age, secrets, sizes, turn, changing, is_failing, _lock: lock });
        let shown = Arc::downgrade(&shared);
        show_limit("persist_bytes", move || Some((shown.upgrade()?.sizes().values().sum(), limit)));
        Ok(Self(shared))
    }

    /// The file of the store with that name; `None` if it is not kept. `is_secret`: it has Secrets.
    pub fn file_of(&self, store: String, is_secret: bool) -> Option<StateFile> {
        let name = utf8_percent_encode(&store, NON_ALPHANUMERIC).to_string();
        let name = if is_secret { SECRET.to_owned() + &name } else { name };
        let is_kept = name.len() <= NAME_MAX && (self.0.secrets || !is_secret);
        is_kept.then(|| StateFile { states: self.clone(), store, name })
    }
}

impl Shared {
    fn sizes(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str, suffix: &str) -> PathBuf {
        self.folder.join(format!("{name}{suffix}"))
    }
}

/// Removes what is not whole, too old, or not to be kept any more, and returns the bytes of the other files.
fn tidied(folder: &Path, PersistConfig { max_age, secrets, .. }: &PersistConfig) -> io::Result<HashMap<String, u64>> {
    let mut sizes = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let (entry, now) = (entry?, SystemTime::now());
        let Ok(file) = entry.file_name().into_string() else { continue };
        let (metadata, name) = (entry.metadata()?, file.strip_suffix(SUFFIX));
        let is_old = metadata.modified().is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > *max_age));
        match name {
            Some(name) if !is_old && (*secrets || !name.starts_with(SECRET)) => {
                sizes.insert(name.to_owned(), metadata.len());
            }
            None if !file.ends_with(BEGUN) => {}
            Some(_) | None => fs::remove_file(entry.path())?,
        }
    }
    Ok(sizes)
}

/// The state of one store.
#[derive(Clone, Debug)]
pub struct StateFile {
    states: States,
    /// The store, as the log names it.
    store: String,
    name: String,
}

impl StateFile {
    /// Waits for the turn to write.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.states.0.turn.acquire().await.ok()
    }

    /// Replaces what is kept of the store, in its turn. A failure is logged.
    pub async fn write(&self, state: Snapshot, schema: Arc<Schema>, provenance: Provenance) {
        let (shared, file) = (self.states.0.clone(), self.clone());
        let written = spawn_blocking(move || file.write_now(&state, &schema, provenance)).await;
        let (outcome, error) = match written {
            Ok(Ok(())) => ("written", None),
            Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
                limit_reached("persist_bytes");
                ("no_room", Some(error.to_string()))
            }
            Ok(Err(error)) => ("failed", Some(error.to_string())),
            Err(panicked) => ("failed", Some(panicked.to_string())),
        };
        state_persisted(outcome);
        let was_failing = shared.is_failing.swap(error.is_some(), Relaxed);
        match error {
            Some(error) if !was_failing => {
                tracing::warn!(store = self.store, error, "the state of a cache is not written");
            }
            Some(_) => {}
            None if was_failing => tracing::info!(store = self.store, "states of caches are written again"),
            None => {}
        }
    }

    fn write_now(&self, state: &Snapshot, schema: &Schema, provenance: Provenance) -> io::Result<()> {
        let shared = &self.states.0;
        let _changing = shared.changing();
        let others: u64 = shared.sizes().iter().filter(|(name, _)| **name != self.name).map(|(_, bytes)| bytes).sum();
        let begun = shared.path(&self.name, BEGUN);
        let whole = || {
            let room = shared.limit.saturating_sub(others);
            match fs::remove_file(&begun) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&begun)?;
            let mut file = BufWriter::with_capacity(256 << 10, Bounded { file, room });
            Description::new(self.store.clone(), seconds_now(), state.version(), provenance).write(&mut file)?;
            write_state(&mut file, state, schema)?;
            let Bounded { file, room } = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            fs::rename(&begun, shared.path(&self.name, SUFFIX))?;
            Ok(shared.limit.saturating_sub(others) - room)
        };
        let written = whole();
        match &written {
            Ok(bytes) => drop(shared.sizes().insert(self.name.clone(), *bytes)),
            Err(_) => drop(fs::remove_file(&begun)),
        }
        written.map(drop)
    }

    /// What is kept of the store, if it can be read and is not too old: what it is of, its version, and its records.
    pub(super) async fn open(&self) -> Option<(Provenance, ResourceVersion, KeptState)> {
        let file = self.clone();
        let opened = spawn_blocking(move || file.open_now()).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        match opened {
            Ok(opened) => Some(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                state_persisted("malformed");
                tracing::warn!(store = self.store, %error, "the kept state of a cache is not used");
                None
            }
        }
    }

    fn open_now(&self) -> io::Result<(Provenance, ResourceVersion, KeptState)> {
        let shared = &self.states.0;
        let mut file = BufReader::with_capacity(256 << 10, File::open(shared.path(&self.name, SUFFIX))?);
        let description = Description::read(&mut file)?;
        let age = seconds_now().checked_sub(description.written);
        if description.store != self.store {
            return Err(io::Error::other("it is of another store"));
        }
        if age.is_none_or(|age| age > shared.max_age.as_secs()) {
            return Err(io::Error::other("it is older than cache.persist.maxAge, or the clock was set back"));
        }
        let version = description.version().ok_or_else(|| io::Error::other("it has no version"))?;
        Ok((description.provenance(), version, KeptState::new(file)))
    }

    /// Logs what came of the kept state.
    pub(super) fn told(&self, outcome: PeerOutcome) {
        let store = &self.store;
        if outcome == PeerOutcome::Used {
            tracing::debug!(store, "the kept state of a cache is used");
        } else {
            tracing::info!(store, reason = outcome.as_str(), "the kept state of a cache is not used");
        }
    }

    /// The time after which the same state is written again, so that it does not become too old.
    pub fn written_again_after(&self) -> Duration {
        self.states.0.max_age / 2
    }

    /// Removes what is kept of the store. What is being written of it is removed, too.
    pub fn remove(&self) {
        let file = self.clone();
        drop(spawn_blocking(move || {
            let shared = &file.states.0;
            let _changing = shared.changing();
            shared.sizes().remove(&file.name);
            drop(fs::remove_file(shared.path(&file.name, SUFFIX)));
        }));
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// A file that may have so many bytes.
#[derive(Debug)]
struct Bounded {
    file: File,
    room: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.room {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "it does not fit into cache.persist.bytes"));
        }
        let written = self.file.write(bytes)?;
        self.room -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
