//! Checks that all servers of a run show one cluster: what is written through one has to reach the watches of the
//! others, and a comparison of two clusters says nothing about the servers.
//!
//! Compared is the `uid` of a namespace that every API server creates once: it cannot be chosen, is the same at all
//! servers of one storage, and gateways pass it on.

use std::{iter, sync::Arc};

use crate::{
    LoadError,
    channel::Channel,
    cluster::{fetch, words},
    endpoint::Endpoint,
    profile::HttpVersion,
    side::Side,
};

const NAMESPACE: &str = "/api/v1/namespaces/kube-system";

/// Checks all servers of the run. Returns a note for each that could not be checked, for the report.
///
/// # Errors
/// A server shows another cluster than the first one.
pub(super) async fn check(sides: &[Side]) -> Result<Vec<String>, LoadError> {
    let servers = servers(sides);
    let Some((first, others)) = servers.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Ok(Vec::new());
    };
    let known = match uid(first).await {
        Ok(known) => known,
        Err(why) => {
            let others: Vec<_> = others.iter().map(|other| other.url()).collect();
            return Ok(vec![note(&others.join(", "), first, &why)]);
        }
    };
    let mut notes = Vec::new();
    for other in others {
        match uid(other).await {
            Ok(uid) if uid == known => {}
            Ok(_) => return Err(LoadError::OtherCluster(first.url().to_owned(), other.url().to_owned())),
            Err(why) => notes.push(note(first.url(), other, &why)),
        }
    }
    Ok(notes)
}

/// The servers of a run, each once and without its fallbacks, which would answer for it while it is down. The first is
/// that of `--url`.
pub(super) fn servers(sides: &[Side]) -> Vec<Arc<Endpoint>> {
    let mut known: Vec<&Arc<Endpoint>> = Vec::new();
    for Side { endpoint, writes, .. } in sides {
        for server in [endpoint, writes] {
            if !known.iter().any(|known| Arc::ptr_eq(known, server)) {
                known.push(server);
            }
        }
    }
    known.into_iter().flat_map(|server| iter::once(server.first()).chain(server.others())).map(Arc::new).collect()
}

fn note(others: &str, unread: &Endpoint, why: &str) -> String {
    format!(
        "it was not checked that {others} and {} show the same cluster: the namespace kube-system of the latter cannot \
         be read ({why})",
        unread.url()
    )
}

/// # Errors
/// Why it cannot be read.
async fn uid(server: &Arc<Endpoint>) -> Result<String, String> {
    let channel = Channel::new(server.clone(), HttpVersion::Http1);
    let namespace = fetch(&channel, NAMESPACE).await.map_err(|failure| words(&failure))?;
    namespace["metadata"]["uid"].as_str().map(str::to_owned).ok_or_else(|| "it has no uid".to_owned())
}
