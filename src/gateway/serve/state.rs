//! A whole collection as it is kept: what another gateway that keeps it in the same format gets instead of a list.
//! Blocks are sent as they are, so neither side compresses them again.

use std::{mem, sync::Arc, vec};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use prost::Message as _;

use super::{Body, Read, Unanswered, chunk::PIECE, freshness};
use crate::authz::Permit;
use base::apimachinery::{Freshness, ListOptions, Representation, STATE_FORMAT, Verb, View};
use engine::{
    encode::packed,
    store::{Leaf, PACKED_FORMAT, PackedHead, RecordHead, Schema, Scope},
};

/// Records, packed while they are sent: the head of a state, then the runs of each leaf.
#[derive(Debug)]
pub struct StateBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    schema: Arc<Schema>,
}

/// Answers a list of a whole collection with its state, if the question is one for that; `None` if it wants a list.
pub(super) async fn state(
    read: &Read<'_>,
    options: &ListOptions,
    permit: &Permit,
) -> Result<Option<Response<Body>>, Unanswered> {
    let schema = read.instance.schema();
    let ListOptions { freshness, limit, continue_token, labels, fields, pretty: _ } = options;
    let kept = Representation { encoding: schema.shape.encoding(), view: View::Whole };
    let is_whole = limit.is_none() && continue_token.is_none() && labels.is_empty() && fields.is_empty();
    let is_whole = is_whole && *freshness != Freshness::MostRecent;
    let is_asked = read.headers.get(STATE_FORMAT).is_some_and(|format| format == PACKED_FORMAT);
    if !is_asked || !is_whole || read.representation != kept {
        return Ok(None);
    }
    let view = read.instance.view(permit, Verb::List, fields)?;
    let state = freshness::state(&read.instance, &view, *freshness, read.config).await?;
    let Some(leaves) = state.leaves().filter(|_| *view.scope() == Scope::Everything) else { return Ok(None) };
    let objects = leaves.iter().map(|leaf| leaf.objects().len()).sum();
    let head = record(&PackedHead::new(state.version(), objects, schema).encode_to_vec()).unwrap_or_default();
    let body = StateBody { head, leaves: leaves.into_iter(), schema: schema.clone() };
    let mut answer = read.respond(StatusCode::OK, Body::State(Box::new(body)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(STATE_FORMAT, HeaderValue::from_static(PACKED_FORMAT));
    Ok(Some(answer))
}

/// `None` if an object is too large, which none of upstream is.
fn record(bytes: &[u8]) -> Option<Bytes> {
    Some([&RecordHead::of(bytes)?.bytes()[..], bytes].concat().into())
}

impl StateBody {
    pub(super) fn own_bytes(&self) -> usize {
        self.head.len() + size_of_val(self.leaves.as_slice()) + 2 * PIECE
    }

    /// The head, then the records of a leaf at a time. Ends early if one cannot be packed: then fewer objects arrive
    /// than the head says.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(mem::take(&mut self.head));
        }
        let runs = packed(self.leaves.next()?.as_ref(), &self.schema.shape)?;
        let records: Vec<_> = runs.iter().map(|run| record(run)).collect::<Option<_>>()?;
        Some(records.concat().into())
    }
}
