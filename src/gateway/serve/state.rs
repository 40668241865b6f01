//! A whole collection as it is kept: what another gateway that keeps it in the same format gets instead of a list.
//! Blocks are sent as they are, so neither side compresses them again. Of a collection that changes too fast to be kept
//! in blocks it gets a list.

use std::{mem, sync::Arc, vec};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use prost::Message as _;

use super::{Body, Read, Unanswered, freshness};
use crate::authz::Permit;
use base::apimachinery::{Freshness, ListOptions, Representation, STATE_FORMAT, Verb, View};
use engine::{
    encode::{BLOCK_MAX, packed_run},
    store::{Leaf, PACKED_FORMAT, PackedHead, RecordHead, Schema, Scope},
};

/// The part of a state that may have to be compressed to be sent: one in that many bytes, or so few.
const UNPACKED_PART: usize = 4;
const UNPACKED_FEW: usize = 64 << 10;

/// Records, packed while they are sent: the head of a state, then the runs of each leaf.
#[derive(Debug)]
pub struct StateBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    /// A leaf that was sent partly, and the number of its next object.
    begun: Option<(Arc<Leaf>, usize)>,
    schema: Arc<Schema>,
}

/// Answers a list of a whole collection with its state, if the question is one for that; `None` if it wants a list.
pub(super) async fn state(
    read: &Read<'_>,
    options: &ListOptions,
    permit: &Permit,
) -> Result<Option<Response<Body>>, Unanswered> {
    let schema = read.instance.schema();
    let ListOptions { freshness, limit, continue_token, labels, fields, shards, pretty: _ } = options;
    let kept = Representation { encoding: schema.shape.encoding(), view: View::Whole };
    let is_asked = read.headers.get(STATE_FORMAT).is_some_and(|format| format == PACKED_FORMAT);
    let is_selected = !labels.is_empty() || !fields.is_empty() || shards.is_some();
    let is_whole = limit.is_none() && continue_token.is_none() && !is_selected;
    if !is_asked || !is_whole || *freshness == Freshness::MostRecent || read.representation != kept {
        return Ok(None);
    }
    let view = read.instance.view(permit, Verb::List, fields)?;
    if *view.scope() != Scope::Everything {
        return Ok(None);
    }
    let state = freshness::state(&read.instance, &view, *freshness, read.config).await?;
    let Some(leaves) = state.leaves().filter(|leaves| are_packed(leaves)) else { return Ok(None) };
    let objects = leaves.iter().map(|leaf| leaf.objects().len()).sum();
    let head = RecordHead::before(&PackedHead::new(state.version(), objects, schema).encode_to_vec());
    let head = head.unwrap_or_default().into();
    let body = StateBody { head, leaves: leaves.into_iter(), begun: None, schema: schema.clone() };
    let mut answer = read.respond(StatusCode::OK, Body::State(Box::new(body)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(STATE_FORMAT, HeaderValue::from_static(PACKED_FORMAT));
    Ok(Some(answer))
}

/// Whether nearly all is in blocks that can be sent.
fn are_packed(leaves: &[Arc<Leaf>]) -> bool {
    let all: usize = leaves.iter().map(|leaf| leaf.bytes()).sum();
    let unpacked: usize = leaves.iter().filter(|leaf| !leaf.is_in_block()).map(|leaf| leaf.bytes()).sum();
    unpacked <= UNPACKED_FEW.max(all / UNPACKED_PART)
}

impl StateBody {
    pub(super) fn own_bytes(&self) -> usize {
        let large = |leaf: &&Arc<Leaf>| leaf.bytes() > BLOCK_MAX;
        let objects = self.leaves.as_slice().iter().filter(large).flat_map(|leaf| leaf.objects());
        let record_max = objects.map(|object| object.tail_len()).max().unwrap_or_default().max(BLOCK_MAX);
        self.head.len() + size_of_val(self.leaves.as_slice()) + 2 * record_max
    }

    /// The head, then a record at a time. Ends early if one cannot be made: then fewer objects arrive than the head
    /// says.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(mem::take(&mut self.head));
        }
        let (leaf, at) = match self.begun.take() {
            Some(begun) => begun,
            None => (self.leaves.next()?, 0),
        };
        let (run, next) = packed_run(&leaf, at, &self.schema.shape)?;
        if next < leaf.objects().len() {
            self.begun = Some((leaf, next));
        }
        RecordHead::before(&run).map(Bytes::from)
    }
}
