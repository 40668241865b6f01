//! What the process may use of the machine's memory, and how it is divided.

use std::{fs, path::Path};

use crate::config::{CacheConfig, Config, LimitsConfig, Problem, quantity::size_text};

/// What a connection takes at most in most cases: TLS, buffers of HTTP, a watch. Measured: 30 KiB with TLS.
pub(super) const CONNECTION_BYTES: u64 = 32 << 10;
/// The part of the memory that answers may take by default, and connections.
const PART: u64 = 8;

/// The memory limit of this process's control group, in bytes, or of one that it lies in; `None` if there is none.
/// Reads version 2 of control groups, and version 1 as it is usually mounted (`cgroups(7)`).
pub fn memory_limit() -> Option<u64> {
    limit_of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

fn limit_of(membership: &str, root: &Path) -> Option<u64> {
    /// Above all memory that machines have: version 1 shows the largest number of pages if there is no limit.
    const NO_LIMIT: u64 = 1 << 60;
    let limit = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // In a container, the path may be the host's: then only the root is there, and is the container's.
        let group = root.join(path.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(&root));
        let limits = groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok());
        limits.filter(|limit| *limit < NO_LIMIT).min()
    };
    membership.lines().filter_map(limit).min()
}

impl LimitsConfig {
    /// The defaults for a process with that memory limit: connections and answers take at most an eighth each.
    pub(super) fn within(memory: u64) -> Self {
        let all = Self::default();
        let connections = usize::try_from(memory / PART / CONNECTION_BYTES).unwrap_or(usize::MAX);
        let connections = all.connections.min(connections.max(1));
        Self { connections, answer_bytes: all.answer_bytes.min((memory / PART).max(Self::ANSWER_BYTES_MIN)), ..all }
    }

    /// What connections and answers may take, in bytes.
    fn bytes(&self) -> u64 {
        (self.connections as u64).saturating_mul(CONNECTION_BYTES).saturating_add(self.answer_bytes)
    }
}

impl CacheConfig {
    /// The default of `cache.bytes` for a process with that memory limit: five eighths of it, less what connections and
    /// answers may take, but at least an eighth. The rest is for the process, and for what the allocator keeps while
    /// many caches are filled and dropped (benches/diary.md).
    pub(super) fn default_bytes(memory: u64, limits: &LimitsConfig) -> u64 {
        (memory - memory / PART * 3).saturating_sub(limits.bytes()).max(memory / PART)
    }
}

impl Config {
    /// What has come of the memory limit of this machine.
    pub(super) fn memory_notes(&self, memory: Option<u64>) -> Vec<Problem> {
        let note = |text: String| vec![Problem::new("cache.bytes", &text, "")];
        match (self.cache.bytes, memory) {
            (Some(bytes), Some(memory)) if bytes.saturating_add(self.limits.bytes()) > memory => note(format!(
                "{} for caches, {} for answers (limits.answerBytes) and 32Ki for each of {} connections are more \
                     than the memory limit of {}",
                size_text(bytes),
                size_text(self.limits.answer_bytes),
                self.limits.connections,
                size_text(memory),
            )),
            (Some(bytes), Some(memory)) => {
                note(format!("{} for caches, of a memory limit of {}", size_text(bytes), size_text(memory)))
            }
            (None, None) => note("not set, and there is no memory limit here: caches take what they need".to_owned()),
            (Some(_), None) | (None, Some(_)) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};

    #[test]
    fn the_lowest_limit_of_all_groups_around_the_process_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let limit = |group: &str, file: &str, text: &str| {
            fs::create_dir_all(root.join(group)).unwrap();
            fs::write(root.join(group).join(file), text).unwrap();
        };
        limit("a/b", "memory.max", "max\n");
        limit("a", "memory.max", "300000000\n");
        limit("c", "memory.max", "7\n");
        limit("memory/d", "memory.limit_in_bytes", "9223372036854771712\n");
        limit("memory", "memory.limit_in_bytes", "400000000\n");
        for (membership, expected) in [
            ("0::/a/b\n", Some(300_000_000)),
            ("0::/\n", None),
            ("12:cpu,cpuacct:/c\n5:memory:/d\n", Some(400_000_000)),
            ("5:memory:/docker/not-here\n0::/a/b\n", Some(300_000_000)),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(limit_of(membership, root), expected, "{membership}");
        }
    }

    #[test]
    fn memory_is_divided_unless_the_file_says_how() {
        let read = |text: &str, memory: u64| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}");
            Config::parse(&text, &Overrides { memory: Some(memory), ..Overrides::default() }).unwrap()
        };
        let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
        let small = read("", 256 * mib);
        assert_eq!((small.limits.connections, small.limits.answer_bytes), (1_024, 32 * mib));
        assert_eq!(small.cache.bytes, Some(160 * mib - 32 * mib - 1_024 * CONNECTION_BYTES));
        let large = read("", 64 * gib);
        assert_eq!((large.limits.connections, large.limits.answer_bytes), (10_000, gib));
        assert_eq!(large.cache.bytes, Some(39 * gib - 10_000 * CONNECTION_BYTES));
        let given = read("limits: {connections: 10000, answerBytes: 1Gi}", 512 * mib);
        assert_eq!(given.cache.bytes, Some(64 * mib));
        let given = read("cache: {bytes: 100Mi}", 512 * mib);
        assert_eq!(given.cache.bytes, Some(100 * mib));
        let note = |config: &Config, memory| config.memory_notes(memory).into_iter().map(|note| note.to_string());
        let told = |config: &Config, memory| note(config, memory).collect::<String>();
        assert!(told(&given, Some(128 * mib)).contains("more than the memory limit of 128Mi"));
        assert!(told(&small, Some(256 * mib)).contains("of a memory limit of 256Mi"));
    }
}
