//! Asks the API servers of a configuration whether they answer, and about the resources that it names.

use std::time::Duration;

use tokio::time::timeout;

use super::RunError;
use crate::{
    apimachinery::{GroupResource, GroupVersionResource},
    cacher::{AGGREGATED, NO_SUCH_GROUP, NO_SUCH_RESOURCE, NOT_WATCHABLE},
    config::{ClientsConfig, Config, DEFAULT_EXCLUDE, Problem, UpstreamConfig, meant},
    connector::{Connector, TroubleKind},
    telemetry::Chain,
    upstream::{Discovery, ServedBy, Upstream},
};

/// What the API servers of a configuration have shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    pub problems: Vec<Problem>,
    /// What is worth knowing though it is no problem.
    pub notes: Vec<Problem>,
}

/// Asks every API server of the configuration for its version, as the gateway does at its start; and the upstream about
/// the resources of `cache.prewarm` and `cache.exclude`: those that it does not have, or that cannot be kept warm.
///
/// # Errors
/// Connections cannot be set up.
pub async fn look_up(config: &Config) -> Result<LookedUp, RunError> {
    let mut found = LookedUp::default();
    let upstream = found.reached("upstream.kubeconfig", &config.upstream).await?;
    if let ClientsConfig::Delegated(delegated) = &config.clients {
        let reviews = [&delegated.authentication.reviews, &delegated.authorization.reviews];
        for (section, reviewer) in ["authentication", "authorization"].into_iter().zip(reviews) {
            if let Some(reviewer) = reviewer {
                found.reached(&format!("clients.{section}.kubeconfig"), reviewer).await?;
            }
        }
    }
    if let Some(upstream) = upstream {
        found.problems.extend(unusable_resources(config, upstream).await);
    }
    Ok(found)
}

impl LookedUp {
    /// The API server that a field leads to; `None` if there is none, which becomes a problem of the field.
    async fn reached(&mut self, field: &str, config: &UpstreamConfig) -> Result<Option<Upstream>, RunError> {
        let access = config.resolve().await.map_err(RunError::UpstreamConfig)?;
        let upstream = Upstream::new(Connector::new(&access).map_err(RunError::Upstream)?);
        upstream.probe_once().await;
        let mut is_reached = true;
        for trouble in upstream.troubles() {
            let error = if trouble.error.is_empty() { "no reason was given" } else { &trouble.error };
            let told = problem(field, format!("{}: {}: {error}", trouble.server, trouble.kind.advice()));
            // The gateway does without a version, as it does without any other document that it may not get.
            if trouble.kind == TroubleKind::Forbidden {
                self.notes.push(told);
            } else {
                self.problems.push(told);
                is_reached = false;
                // The others follow from the worst one.
                break;
            }
        }
        Ok(is_reached.then_some(upstream))
    }
}

/// Time limit for reading what the server has, to suggest a name.
const SUGGESTION_MAX: Duration = Duration::from_secs(10);
/// The longest name of a group (RFC 1123), and a resource.
const NAME_MAX: usize = 2 * 253;

async fn unusable_resources(config: &Config, upstream: Upstream) -> Vec<Problem> {
    let discovery = Discovery::new(upstream.clone());
    let mut problems = Vec::new();
    let mut cacheable = None;
    for (place, name) in config.named_resources() {
        // An API server for custom resources alone has no events, and they are excluded by default.
        if DEFAULT_EXCLUDE.contains(&name.to_string().as_str()) {
            continue;
        }
        let mut found = match unusable(&upstream, &discovery, name).await {
            // What is not cached may be excluded.
            Ok(None) => continue,
            Ok(Some(NOT_WATCHABLE | AGGREGATED)) if place.starts_with("cache.exclude") => continue,
            Ok(Some(found)) => found.to_owned(),
            // The others would most likely fail alike, each after its time limit.
            Err(error) => {
                problems.push(problem(&place, format!("\"{name}\": the API server cannot be asked about it: {error}")));
                break;
            }
        };
        if [NO_SUCH_GROUP, NO_SUCH_RESOURCE].contains(&found.as_str()) {
            if cacheable.is_none() {
                // A suggestion is worth no long wait, and no long names.
                cacheable = Some(timeout(SUGGESTION_MAX, discovery.cacheable()).await.unwrap_or_default());
            }
            let known = cacheable.iter().flatten().map(|known| (&*known.group, &*known.resource));
            let known = known.filter(|(group, resource)| group.len() + resource.len() <= NAME_MAX);
            if let Some(meant) = meant(name, known) {
                found = format!("{found}; {meant} may be meant");
            }
        }
        problems.push(problem(&place, format!("\"{name}\": {found}")));
    }
    problems
}

fn problem(field: &str, found: String) -> Problem {
    Problem { field: field.to_owned(), found, allowed: String::new(), at: None }
}

/// Why it is no resource to cache.
///
/// # Errors
/// Upstream gave no usable answer: the error with its causes.
async fn unusable(
    upstream: &Upstream,
    discovery: &Discovery,
    name: &GroupResource,
) -> Result<Option<&'static str>, String> {
    let version = upstream.preferred_version(&name.group).await.map_err(|error| Chain(&error).to_string())?;
    let Some(version) = version else { return Ok(Some(NO_SUCH_GROUP)) };
    let resource = GroupVersionResource::new(&name.group, &version, &name.resource);
    let known = discovery.resource(&resource).await.map_err(|error| Chain(&error).to_string())?;
    Ok(match known {
        None => Some(NO_SUCH_RESOURCE),
        Some(resource) if resource.served_by == ServedBy::Another => Some(AGGREGATED),
        Some(resource) if !resource.is_watchable() => Some(NOT_WATCHABLE),
        Some(_) => None,
    })
}
