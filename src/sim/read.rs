//! Gets and lists (read-path 1.1 to 1.3).

use std::sync::Arc;

use super::{
    Simulation,
    continue_token::ContinueToken,
    definition::Definition,
    failure::Failure,
    options::{Freshness, ListOptions, Parameters},
    path::Target,
    select::Selection,
    shapes::list::Page,
    storage::View,
    stored::Stored,
};

/// One object, as fresh as asked.
pub(crate) async fn get(
    simulation: &Simulation,
    definition: &Definition,
    target: &Target,
    parameters: &Parameters,
) -> Result<Arc<Stored>, Failure> {
    if let Freshness::NotOlderThan(revision) = parameters.get()? {
        let waited = simulation.wait_for(revision).await;
        waited.map_err(|current| Failure::too_large_version(revision, current, true))?;
    }
    let name = target.name.as_deref().unwrap_or_default();
    let key = target.key().unwrap_or_default();
    simulation.storage.get(definition, &key).ok_or_else(|| Failure::not_found(definition, name))
}

/// One page of a collection, as fresh as asked.
pub(crate) async fn list(
    simulation: &Simulation,
    definition: &Definition,
    target: &Target,
    options: ListOptions,
) -> Result<Page, Failure> {
    let ListOptions { mut freshness, mut limit, token, labels, fields } = options;
    let selection = Selection::new(definition, target, labels, fields)?;
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
    let view = view(simulation, definition, freshness, single, token.as_ref()).await?;
    let limit = limit.and_then(|limit| usize::try_from(limit.get()).ok()).unwrap_or(usize::MAX);
    Ok(page(view, &selection, &start, limit))
}

async fn view(
    simulation: &Simulation,
    definition: &Definition,
    freshness: Freshness,
    single: bool,
    token: Option<&ContinueToken>,
) -> Result<View, Failure> {
    match freshness {
        Freshness::Latest | Freshness::Any => Ok(simulation.storage.view(definition)),
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

/// Takes matching objects from `start` on until the page is full. Whether another page follows depends on any key
/// that does, matching or not (read-path 1.3).
fn page(view: View, selection: &Selection, start: &str, limit: usize) -> Page {
    let View { revision, objects: all } = view;
    let first = all.partition_point(|object| *object.key < *start);
    let in_scope = all[first..].iter().filter(|object| object.key.starts_with(&selection.prefix));
    let (mut objects, mut following) = (Vec::new(), 0);
    for object in in_scope {
        if objects.len() >= limit {
            following += 1;
        } else if selection.matches(object) {
            objects.push(object.clone());
        }
    }
    let last = objects.last().filter(|_| following > 0 && selection.key.is_none());
    let continue_token = last
        .map(|last: &Arc<Stored>| ContinueToken::after(Some(revision), &last.key[selection.prefix.len()..]).encode());
    let remaining = (continue_token.is_some() && selection.is_everything()).then_some(following);
    Page { revision, continue_token, remaining, objects }
}
