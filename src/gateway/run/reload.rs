//! Puts a changed configuration file into effect, as far as a running gateway can.

use std::time::{Duration, SystemTime};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{cacher_config, clients::token_reviews, connection_limits, tell_doubts, tell_ineffective};
use crate::{authn::Authenticator, cacher::Cachers, handler::Settings, listener::Places, traces::Tracer};
use base::{
    config::{ClientsConfig, Config, ConfigFile, LoadError},
    fairness::{ByteBudget, Shares},
    lifecycle::Hangups,
    telemetry::{Chain, LogLevel, config_needs_restart, config_reloaded},
};

/// How often the file is checked: it takes a minute anyway until a changed ConfigMap reaches a pod.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A configuration file that is followed while the gateway runs.
#[derive(Debug)]
pub struct Reloads {
    pub file: ConfigFile,
    /// Signals that request an immediate reload.
    pub hangups: Hangups,
    /// The level of the log.
    pub level: LogLevel,
}

/// The configuration of a running gateway, and what of its file is not in effect.
#[derive(Clone, Debug)]
pub(super) struct InEffect {
    pub config: Config,
    /// When and why the file was refused after its last change; `None` if it was not.
    pub refused: Option<(SystemTime, String)>,
    /// The fields that have changed in the file and need a restart.
    pub needs_restart: Vec<String>,
}

/// The parts of a running gateway that a changed configuration affects.
#[derive(Debug)]
pub(super) struct Reloaded {
    pub settings: Settings,
    pub cachers: Cachers,
    pub authenticator: Authenticator,
    pub places: Places,
    pub watches: Shares,
    pub forwarded: Shares,
    pub room: ByteBudget,
    pub tracer: Tracer,
}

impl Reloads {
    /// Runs until the drain begins. `current` is the configuration in effect.
    pub(super) async fn follow(
        mut self,
        current: watch::Sender<InEffect>,
        reloaded: Reloaded,
        draining: CancellationToken,
    ) {
        config_needs_restart(0);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let read = tokio::select! {
                () = draining.cancelled() => return,
                () = self.hangups.recv() => Some(self.file.again().await),
                _ = looks.tick() => self.file.changed().await,
            };
            match read {
                Some(Ok(new)) => self.apply(&new, &current, &reloaded),
                Some(Err(error)) => not_reloaded(&error, &current),
                None => {}
            }
        }
    }

    fn apply(&self, new: &Config, current: &watch::Sender<InEffect>, reloaded: &Reloaded) {
        let (taken, restart) = current.borrow().config.reloaded(new);
        let changed = taken.differing(&current.borrow().config).join(", ");
        self.level.set(taken.logging.level);
        if taken.cache.exclude != current.borrow().config.cache.exclude {
            tell_doubts(&taken);
        }
        if taken.limits != current.borrow().config.limits {
            tell_ineffective(&taken);
        }
        reloaded.set(&taken);
        current.send_replace(InEffect { needs_restart: restart.clone(), ..InEffect::new(taken) });
        config_reloaded(true);
        config_needs_restart(restart.len());
        match (changed.is_empty(), restart.is_empty()) {
            (true, true) => tracing::info!("configuration read again; no field has changed"),
            (false, _) => tracing::info!(fields = changed, "configuration reloaded; these fields take effect"),
            (true, false) => {}
        }
        if !restart.is_empty() {
            tracing::warn!(fields = restart.join(", "), "these fields of the configuration need a restart");
        }
    }
}

impl Reloaded {
    fn set(&self, config: &Config) {
        self.settings.set(config.reads, config.logging.access);
        self.cachers.set(cacher_config(config));
        if let ClientsConfig::Delegated(delegated) = &config.clients {
            self.authenticator.set_token_reviews(token_reviews(delegated));
        }
        self.places.set(connection_limits(config));
        let limits = config.limits;
        self.watches.set(limits.watches_per_client);
        self.forwarded.set(limits.forwarded_per_client);
        self.room.set(limits.answer_bytes, limits.answer_bytes_per_client);
        if let Some(tracing) = &config.tracing {
            self.tracer.set_rate(tracing.sampling_rate_per_million);
        }
    }
}

impl InEffect {
    pub(super) fn new(config: Config) -> Self {
        Self { config, refused: None, needs_restart: Vec::new() }
    }
}

fn not_reloaded(error: &LoadError, current: &watch::Sender<InEffect>) {
    config_reloaded(false);
    current.send_modify(|current| current.refused = Some((SystemTime::now(), Chain(error).to_string())));
    tracing::warn!(error = %Chain(error), "configuration not reloaded; the old one stays in effect");
}
