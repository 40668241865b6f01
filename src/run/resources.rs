//! Looks up the resources that a configuration names.

use super::RunError;
use crate::{
    apimachinery::{GroupResource, GroupVersionResource},
    cacher::{AGGREGATED, NO_SUCH_GROUP, NO_SUCH_RESOURCE, NOT_WATCHABLE},
    config::{Config, DEFAULT_EXCLUDE, Problem},
    connector::Connector,
    upstream::{Discovery, DiscoveryError, FetchError, ServedBy, Upstream},
};

/// Why the API server could not be asked about resources.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    #[error(transparent)]
    Connect(RunError),
    #[error("cannot ask the API server about {resource}")]
    Group { resource: GroupResource, source: FetchError },
    #[error("cannot ask the API server about {resource}")]
    Resource { resource: GroupResource, source: DiscoveryError },
}

/// Asks the API server about the resources of `cache.prewarm` and `cache.exclude`: those that it does not have, or that
/// cannot be kept warm.
///
/// # Errors
/// It cannot be asked.
pub async fn look_up_resources(config: &Config) -> Result<Vec<Problem>, LookUpError> {
    let connect = async {
        let access = config.upstream.resolve().await.map_err(RunError::UpstreamConfig)?;
        Connector::new(&access).map_err(RunError::Upstream)
    };
    let upstream = Upstream::new(connect.await.map_err(LookUpError::Connect)?);
    let discovery = Discovery::new(upstream.clone());
    let mut problems = Vec::new();
    for (place, name) in config.named_resources() {
        // An API server for custom resources alone has no events, and they are excluded by default.
        if DEFAULT_EXCLUDE.contains(&name.to_string().as_str()) {
            continue;
        }
        let found = match look_up(&upstream, &discovery, name).await? {
            // What is not cached may be excluded.
            Some(NOT_WATCHABLE | AGGREGATED) if place.starts_with("cache.exclude") => None,
            found => found,
        };
        problems.extend(found.map(|found| Problem {
            field: place,
            found: format!("\"{name}\": {found}"),
            allowed: String::new(),
            at: None,
        }));
    }
    Ok(problems)
}

/// Why it is no resource to cache.
async fn look_up(
    upstream: &Upstream,
    discovery: &Discovery,
    name: &GroupResource,
) -> Result<Option<&'static str>, LookUpError> {
    let version = upstream.preferred_version(&name.group).await;
    let version = version.map_err(|source| LookUpError::Group { resource: name.clone(), source })?;
    let Some(version) = version else { return Ok(Some(NO_SUCH_GROUP)) };
    let resource = GroupVersionResource::new(&name.group, &version, &name.resource);
    let known = discovery.resource(&resource).await;
    let known = known.map_err(|source| LookUpError::Resource { resource: name.clone(), source })?;
    Ok(match known {
        None => Some(NO_SUCH_RESOURCE),
        Some(resource) if resource.served_by == ServedBy::Another => Some(AGGREGATED),
        Some(resource) if !resource.is_watchable() => Some(NOT_WATCHABLE),
        Some(_) => None,
    })
}
