//! Puts a changed configuration file into effect, as far as a running gateway can.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{access_lines, serve_config};
use crate::{
    config::{Config, ConfigFile, LoadError},
    gateway::Settings,
    lifecycle::Hangups,
    telemetry::{Chain, LogLevel, config_reloaded},
};

/// How often the file is looked at: a ConfigMap's new content takes a minute to a pod anyway.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A configuration file that is followed while its gateway runs.
#[derive(Debug)]
pub struct Reloads {
    pub file: ConfigFile,
    /// Signals that ask for it to be read again at once.
    pub hangups: Hangups,
    /// The log's level.
    pub level: LogLevel,
}

impl Reloads {
    /// Until the drain begins. `current` is the configuration in effect.
    pub(super) async fn follow(
        mut self,
        current: watch::Sender<Config>,
        settings: Settings,
        draining: CancellationToken,
    ) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let read = tokio::select! {
                () = draining.cancelled() => return,
                () = self.hangups.recv() => Some(self.file.again().await),
                _ = looks.tick() => self.file.changed().await,
            };
            match read {
                Some(Ok(new)) => self.apply(&new, &current, &settings),
                Some(Err(error)) => not_reloaded(&error),
                None => {}
            }
        }
    }

    fn apply(&self, new: &Config, current: &watch::Sender<Config>, settings: &Settings) {
        let (taken, restart) = current.borrow().reloaded(new);
        self.level.set(taken.logging.level);
        settings.set(serve_config(&taken), access_lines(&taken));
        current.send_replace(taken);
        config_reloaded(true);
        if restart.is_empty() {
            tracing::info!("configuration reloaded");
        } else {
            tracing::warn!(fields = restart.join(", "), "configuration reloaded; these fields need a restart");
        }
    }
}

fn not_reloaded(error: &LoadError) {
    config_reloaded(false);
    tracing::warn!(error = %Chain(error), "configuration not reloaded; the old one stays in effect");
}
