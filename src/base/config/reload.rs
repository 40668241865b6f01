//! Reloads a configuration file, and selects the changes that a running gateway applies.

use std::{
    io,
    mem::discriminant,
    path::{Path, PathBuf},
};

use crate::config::{
    API_VERSION, AuthenticationConfig, CacheConfig, ClientsConfig, Config, DelegatedConfig, KIND, LoadError,
    LoggingConfig, Overrides, Problems, TracingConfig,
};

/// The file that a gateway was started with, and the text that was last used from it.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    overrides: Overrides,
    text: String,
    /// The new text at the last check, which may not have been written to its end.
    seen: Option<String>,
}

impl ConfigFile {
    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads the file's configuration; values of the command line override it.
    ///
    /// # Errors
    /// The file cannot be read or has problems: all of them.
    pub fn load(path: PathBuf, overrides: Overrides) -> Result<(Self, Config), LoadError> {
        let text = super::load::read(&path)?;
        let config = Config::parse_file(&text, &overrides)?;
        Ok((Self { path, overrides, text, seen: None }, config))
    }

    /// The file's current configuration; `None` if its text was used already, or has changed since the last check: it
    /// may not have been written to its end.
    ///
    /// # Errors
    /// The file cannot be read or has problems, or one of the files that it names has.
    pub async fn changed(&mut self) -> Option<Result<Config, LoadError>> {
        let text = match self.read().await {
            Ok(text) if text == self.text => return None,
            Ok(text) => text,
            // Reported once for each text.
            Err(error) => return (!std::mem::take(&mut self.text).is_empty()).then_some(Err(error)),
        };
        if self.seen.as_ref() != Some(&text) {
            self.seen = Some(text);
            return None;
        }
        self.text = text;
        Some(self.checked().await)
    }

    /// The same, whether or not the text has changed.
    ///
    /// # Errors
    /// The file cannot be read or has problems, or one of the files that it names has.
    pub async fn again(&mut self) -> Result<Config, LoadError> {
        self.text = self.read().await?;
        self.checked().await
    }

    /// Reads on a thread that serves no requests, and only a regular file: any other kind may block its reader.
    async fn read(&self) -> Result<String, LoadError> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || {
            if std::fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
                let source = io::Error::other("it is not a file");
                return Err(LoadError::Read { path, source });
            }
            super::load::read(&path)
        });
        let ended = read.await;
        ended.unwrap_or_else(|error| Err(LoadError::Read { path: self.path.clone(), source: io::Error::other(error) }))
    }

    async fn checked(&self) -> Result<Config, LoadError> {
        let config = Config::parse_file(&self.text, &self.overrides)?;
        let checked = config.check_files().await;
        checked.map_err(|problems| LoadError::Invalid(problems.located(&self.text)))?;
        Ok(config)
    }
}

impl Config {
    /// This configuration, with the values of `new` that can change while a gateway runs; and the fields of `new`
    /// whose changes need a restart.
    ///
    /// If `clients.mode` changes, nothing of `new` is taken: defaults of other fields depend on the mode, and the file
    /// was written for a gateway in the new mode.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> (Self, Vec<String>) {
        if discriminant(&self.clients) != discriminant(&new.clients) {
            return (self.clone(), self.differing_in_mode(new));
        }
        let LoggingConfig { level, access, .. } = new.logging;
        let logging = LoggingConfig { level, access, ..self.logging };
        let (clients, cache) = (self.clients.reloaded(&new.clients), self.cache.reloaded(&new.cache));
        let (reads, limits, drain) = (new.reads, new.limits, new.drain);
        let tracing = reloaded_tracing(self.tracing.as_ref(), new.tracing.as_ref());
        let taken = Self { clients, cache, reads, limits, logging, tracing, drain, ..self.clone() };
        let restart = taken.differing(new);
        (taken, restart)
    }

    /// The fields that differ from those of a configuration in another mode, except those that only have the default of
    /// its mode in both.
    fn differing_in_mode(&self, new: &Self) -> Vec<String> {
        let mut differing = self.differing(new);
        let (Ok(defaults), Ok(new_defaults)) = (self.defaults_of_mode(), new.defaults_of_mode()) else {
            return differing;
        };
        let mut given = self.differing(&defaults);
        given.extend(new.differing(&new_defaults));
        given.extend(["clients.mode", CONNECTIONS].map(str::to_owned));
        differing.retain(|field| given.contains(field));
        differing
    }

    /// The configuration that has nothing but this one's mode, and what other defaults of the mode depend on.
    fn defaults_of_mode(&self) -> Result<Self, Problems> {
        let mode = match self.clients {
            ClientsConfig::Trusted(_) => "trusted",
            ClientsConfig::Delegated(_) => "delegated",
        };
        let (version, kind, connections) = (API_VERSION, KIND, self.limits.connections);
        let text = format!(
            "{{apiVersion: {version}, kind: {kind}, clients: {{mode: {mode}}}, limits: {{connections: {connections}}}}}"
        );
        Self::parse(&text, &Overrides::default())
    }
}

/// The default of the connections of one address depends on it.
const CONNECTIONS: &str = "limits.connections";

impl ClientsConfig {
    fn reloaded(&self, new: &Self) -> Self {
        let (Self::Delegated(old), Self::Delegated(new)) = (self, new) else { return self.clone() };
        let AuthenticationConfig { audiences, success_ttl, failure_ttl, .. } = new.authentication.clone();
        let authentication = AuthenticationConfig { audiences, success_ttl, failure_ttl, ..old.authentication.clone() };
        Self::Delegated(Box::new(DelegatedConfig { authentication, ..*old.clone() }))
    }
}

/// Where spans go, and whether there are any, stays as it was.
fn reloaded_tracing(old: Option<&TracingConfig>, new: Option<&TracingConfig>) -> Option<TracingConfig> {
    let new = new.or(old)?;
    Some(TracingConfig { endpoint: old?.endpoint.clone(), ..new.clone() })
}

impl CacheConfig {
    fn reloaded(&self, new: &Self) -> Self {
        let (exclude, prewarm) = (new.exclude.clone(), new.prewarm.clone());
        let (idle_timeout, list_bytes_timeout) = (new.idle_timeout, new.list_bytes_timeout);
        Self { exclude, prewarm, idle_timeout, list_bytes_timeout, bytes: new.bytes, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn write(file: &tempfile::NamedTempFile, fields: &str) {
        std::fs::write(file.path(), format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}\n")).unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_again_when_its_text_changes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&file, "reads: {fillWait: 10s}");
        let (mut config_file, first) = ConfigFile::load(file.path().to_owned(), Overrides::default()).unwrap();
        assert!(config_file.changed().await.is_none());
        assert_eq!(config_file.again().await.unwrap(), first);
        write(&file, "reads: {fillWait: soon}");
        assert!(config_file.changed().await.is_none(), "it may not be written to its end");
        let error = config_file.changed().await.unwrap().unwrap_err();
        assert!(matches!(error, LoadError::Invalid(_)), "{error:?}");
        // Reported once.
        assert!(config_file.changed().await.is_none());
        write(&file, "reads: {fillWait: 20s}");
        assert!(config_file.changed().await.is_none());
        let second = config_file.changed().await.unwrap().unwrap();
        assert_eq!(second.reads.fill_wait.as_secs(), 20);
        let path = file.into_temp_path();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(config_file.changed().await, Some(Err(LoadError::Read { .. }))));
        assert!(config_file.changed().await.is_none());
    }

    #[test]
    fn fields_that_need_a_restart_are_named_and_keep_their_value() {
        let of = |fields: &str| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
            Config::parse(&text, &Overrides::default()).unwrap()
        };
        let old = of("logging: {level: info}\ntracing: {endpoint: 'collector:4317'}");
        let new = of("logging: {level: debug, access: all, format: json}\nreads: {fillWait: 1s}\n\
                      drain: {timeout: 1s}\nlimits: {connections: 7}\ntracing: {samplingRatePerMillion: 7}\n\
                      cache: {idleTimeout: 1h, exclude: [secrets], verifyInterval: 1h}\n\
                      admin: {address: '127.0.0.1:1'}");
        let (taken, restart) = old.reloaded(&new);
        assert_eq!(restart, ["cache.verifyInterval", "admin.address", "logging.format", "tracing.endpoint"]);
        assert_eq!((taken.reads, taken.limits, taken.drain), (new.reads, new.limits, new.drain));
        assert_eq!((&taken.cache.exclude, taken.cache.idle_timeout), (&new.cache.exclude, new.cache.idle_timeout));
        assert_eq!(taken.cache.verify_interval, old.cache.verify_interval);
        assert_eq!((taken.logging.level, taken.logging.access), (new.logging.level, new.logging.access));
        assert_eq!((&taken.admin, taken.logging.format), (&old.admin, old.logging.format));
        let rate = TracingConfig { sampling_rate_per_million: 7, ..old.tracing.clone().unwrap() };
        assert_eq!(taken.tracing, Some(rate), "the endpoint needs a restart, the rate does not");
        let both = ["tracing.endpoint", "tracing.samplingRatePerMillion"];
        assert_eq!(of("tracing: {}").reloaded(&of("")).1, both);
        assert_eq!(of("").reloaded(&of("tracing: {}")), (of(""), both.map(str::to_owned).to_vec()));
        assert_eq!(new.reloaded(&new), (new.clone(), Vec::new()));
    }

    #[test]
    fn a_file_for_another_mode_changes_nothing() {
        let of = |fields: &str| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
            Config::parse(&text, &Overrides::default()).unwrap()
        };
        let (trusted, delegated) = (of(""), of("clients: {mode: delegated}\nlogging: {level: debug}"));
        assert_ne!(trusted.cache.exclude, delegated.cache.exclude, "the mode decides the default");
        assert_ne!(trusted.limits, delegated.limits, "the mode decides the default");
        for (old, new) in [(&trusted, &delegated), (&delegated, &trusted)] {
            let (taken, restart) = old.reloaded(new);
            assert_eq!(taken, *old);
            assert_eq!(restart, ["clients.mode", "logging.level"], "only what one of the files has");
        }
        let given = of("clients: {mode: delegated, authorization: {allowedTTL: 7s}}\ncache: {exclude: [secrets]}\n\
                        limits: {connections: 5000}");
        let given = trusted.reloaded(&given).1;
        assert_eq!(given, ["clients.mode", "cache.exclude", "limits.connections", "clients.authorization.allowedTTL"]);
    }
}
