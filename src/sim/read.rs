//! Gets and lists (read-path 1.1 to 1.3).

use std::sync::Arc;

use crate::{
    Simulation,
    continue_token::ContinueToken,
    definition::Definition,
    failure::Failure,
    options::{Freshness, ListOptions, Parameters},
    path::Target,
    select::Selection,
    servers::Server,
    shapes::list::Page,
    storage::View,
    stored::Stored,
};

/// The source of reads: the storage, and a cache that may lag behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cache<'a> {
    pub(crate) simulation: &'a Simulation,
    pub(crate) server: Option<Server>,
}

impl Cache<'_> {
    fn view(&self, definition: &Definition) -> View {
        let servers = &self.simulation.servers;
        self.simulation.storage.cached_view(definition, servers.lag(self.server), servers.started_at(self.server))
    }
}

/// One object, as fresh as requested.
pub(crate) async fn get(
    cache: Cache<'_>,
    definition: &Definition,
    target: &Target,
    parameters: &Parameters,
) -> Result<Arc<Stored>, Failure> {
    let simulation = cache.simulation;
    let freshness = parameters.get()?;
    if let Freshness::NotOlderThan(revision) = freshness {
        let waited = simulation.wait_for(revision).await;
        waited.map_err(|current| Failure::too_large_version(revision, current, true))?;
    }
    let name = target.name.as_deref().unwrap_or_default();
    let key = target.key().unwrap_or_default();
    let object = match freshness {
        Freshness::Any => cache.view(definition).objects.into_iter().find(|object| object.key == key),
        Freshness::Latest | Freshness::NotOlderThan(_) | Freshness::Exact { .. } => {
            simulation.storage.get(definition, &key)
        }
    };
    object.ok_or_else(|| Failure::not_found(definition, name))
}

/// One page of a collection, as fresh as requested.
pub(crate) async fn list(
    cache: Cache<'_>,
    definition: &Definition,
    selection: Selection,
    options: ListOptions,
) -> Result<Page, Failure> {
    let ListOptions { mut freshness, mut limit, token, .. } = options;
    let single = selection.key.is_some() && token.is_none();
    if let (true, Freshness::Exact { revision, legacy: true }) = (single, freshness) {
        freshness = Freshness::NotOlderThan(revision);
    }
    if freshness == Freshness::Any && !definition.is_events() {
        limit = None;
    }
    let mut start = String::new();
    if let Some(token) = &token {
        start = format!("{}{}", selection.prefix, token.start);
        freshness = token.revision.map_or(Freshness::Latest, |revision| Freshness::Exact { revision, legacy: false });
    }
    let view = view(cache, definition, freshness, single, token.as_ref()).await?;
    let limit = limit.and_then(|limit| usize::try_from(limit.get()).ok()).unwrap_or(usize::MAX);
    Ok(page(view, &selection, &start, limit))
}

async fn view(
    cache: Cache<'_>,
    definition: &Definition,
    freshness: Freshness,
    single: bool,
    token: Option<&ContinueToken>,
) -> Result<View, Failure> {
    let simulation = cache.simulation;
    match freshness {
        Freshness::Latest => Ok(simulation.storage.view(definition)),
        Freshness::Any => Ok(cache.view(definition)),
        Freshness::NotOlderThan(revision) => {
            let waited = simulation.wait_for(revision).await;
            waited.map_err(|current| Failure::too_large_version(revision, current, true))?;
            Ok(simulation.storage.view(definition))
        }
        Freshness::Exact { revision, .. } => {
            let current = simulation.storage.revision();
            if single && revision > current {
                return Err(Failure::too_large_version(revision, current, false));
            }
            let waited = simulation.wait_for(revision).await;
            waited.map_err(|current| Failure::too_large_version(revision, current, true))?;
            simulation.storage.view_at(definition, revision).map_err(|_| match token {
                Some(token) => {
                    let start = token.start.clone();
                    Failure::expired_token(ContinueToken { revision: None, start }.encode())
                }
                None => Failure::expired("The resourceVersion for the provided list is too old."),
            })
        }
    }
}

/// Collects matching objects from `start` on until the page is full. There is another page if any key follows, matching
/// or not (read-path 1.3).
fn page(view: View, selection: &Selection, start: &str, limit: usize) -> Page {
    let View { revision, objects: all } = view;
    let first = all.partition_point(|object| *object.key < *start);
    let in_scope = all[first..].iter().filter(|object| object.key.starts_with(&selection.prefix));
    let (mut objects, mut all, mut following) = (Vec::new(), 0, 0);
    for object in in_scope {
        all += 1;
        if objects.len() >= limit {
            following += 1;
        } else if selection.matches(object) {
            objects.push(object.clone());
        }
    }
    let last = objects.last().filter(|_| following > 0 && selection.key.is_none());
    let continue_token = last
        .map(|last: &Arc<Stored>| ContinueToken::after(Some(revision), &last.key[selection.prefix.len()..]).encode());
    // Of shards, those between the objects of the page are counted as well.
    let remaining = (continue_token.is_some() && selection.is_everything()).then(|| all - objects.len());
    Page { revision, continue_token, remaining, objects, shards: None }
}
