//! A collection or a page of it (read-path 1.2, 1.3).

use std::{borrow::Cow, mem, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};

use super::{
    Body, ForwardReason, Read, Unanswered,
    concurrency::Work,
    freshness::{Selected, read_state},
    list_body::ListBody,
    response_head::Writer,
    state::state,
};
use crate::authz::Permit;
use base::{
    apimachinery::{ContinueAt, ContinueToken, FieldSelector, Freshness, ListOptions, Representation, Verb, View},
    fairness::UsedUp,
};
use engine::{
    encode::{Form, ListEnvelope, ListPosition},
    store::{Extract, Leaf, NextPage, Object, Page, Predicate, Scope},
};

/// The fields whose values follow from an object's key.
const NAME_FIELD: &str = "metadata.name";
const NAMESPACE_FIELD: &str = "metadata.namespace";

/// Selected lists whose objects have at most this many bytes are sent in one piece.
const JOINED_AT_ONCE: usize = 64 << 10;
/// The maximum number of bytes of a leaf that is made for one list; a single object may exceed it. Such a leaf is
/// compressed for that list alone. Holds as many pods as a leaf of the store.
const OWN_LEAF_MAX: usize = 512 << 10;
/// The number of objects of which leaves are made before other tasks get a turn.
const OBJECTS_AT_ONCE: usize = 4096;
/// The number of leaves whose items are counted, without making them, before other tasks get a turn.
const LEAVES_AT_ONCE: usize = 2048;

/// Answers a list.
pub async fn list(read: &Read<'_>, options: &ListOptions, permit: Permit) -> Result<Response<Body>, Unanswered> {
    if let Some(state) = state(read, options, &permit).await? {
        return Ok(state);
    }
    let view = read.instance.view(&permit, Verb::List, &options.fields)?;
    if read.downstream.asks_for_head(options) && has_head(read)? {
        return head(read).await;
    }
    let is_object = matches!(view.scope(), Scope::Object(_));
    let is_page = (options.limit.is_some() || options.continue_token.is_some()) && !is_object;
    let freshness = match &options.continue_token {
        None => options.freshness,
        Some(ContinueToken { version: ContinueAt::At(version), .. }) => Freshness::Exact(*version),
        Some(ContinueToken { version: ContinueAt::Latest, .. }) => Freshness::MostRecent,
    };
    special_rules(&options.fields, view.scope(), is_page, freshness)?;
    let schema = view.schema();
    let shards = read.shards(options.shards.as_ref()).await?;
    let predicate = Predicate::new(options.labels.clone(), &options.fields, schema)?.within(shards);
    let pretty = read.is_pretty(options.pretty)?;
    let writer = Writer::of(read)?;
    let selected_objects = Selected::Matching { predicate: &predicate, limit: page_limit(options) };
    let mut work = Work::new(&read.turns);
    let state = read_state(read, &view, freshness, selected_objects, &mut work).await?;

    let leaves = if !is_page && predicate.is_everything() { state.leaves() } else { None };
    let page = is_page.then_some(options);
    let body = match (writer, leaves) {
        (Writer::Objects(form), Some(leaves)) => {
            in_chunks(read, form, leaves, &ListPosition::of(state.version()), pretty, &mut work).await?
        }
        (Writer::Objects(form), None) => {
            let (found, mut position) = selection(read, &state, &predicate, page, &mut work).await?;
            if matches!(form, Form::Whole(_)) {
                position.shards = predicate.shards().cloned();
            }
            // In a page of metadata, current servers say how many objects follow; 1.20 does not.
            let tells_rest = matches!(form, Form::Partial(..)) && position.remaining_item_count.is_some();
            if tells_rest && !read.instance.has_watch_list() {
                return Err(ForwardReason::Representation.into());
            }
            selected(read, form, found, &position, pretty, &mut work).await?
        }
        (Writer::Table(table), _) => {
            let (found, position) = selection(read, &state, &predicate, page, &mut work).await?;
            table.body(read, found, &position, pretty, work).await?
        }
    };
    Ok(read.respond(StatusCode::OK, body))
}

/// Whether upstream's answer for the gateway's own question is the one to this question of a gateway below.
fn has_head(read: &Read<'_>) -> Result<bool, ForwardReason> {
    let Representation { encoding, view } = read.representation;
    let is_same = view == View::Whole && read.instance.has_head_of(read.request.namespace.as_deref(), encoding);
    Ok(is_same && !read.is_pretty(None)?)
}

/// Answers the question of a gateway below how far upstream is, with what upstream answers to the same question. All
/// that ask at the same time cost it one answer.
async fn head(read: &Read<'_>) -> Result<Response<Body>, Unanswered> {
    let _place = read.proofs.take().map_err(|UsedUp| ForwardReason::MostRecent)?;
    let page = read.instance.head().await.ok_or(ForwardReason::MostRecent)?;
    Ok(read.respond(StatusCode::OK, Body::json(page.body, false)))
}

/// Refuses the lists for which the API server has its own rules, because a selector requires one name or one namespace
/// (read-path 1.2).
fn special_rules(
    fields: &FieldSelector,
    scope: &Scope,
    is_page: bool,
    freshness: Freshness,
) -> Result<(), ForwardReason> {
    let is_named = matches!(scope, Scope::Object(_) | Scope::Named(_));
    // A name that is not valid in a path: the permit is for the collection, but the API server looks up a single key.
    if fields.exact(NAME_FIELD).is_some() && !is_named {
        return Err(ForwardReason::UnsupportedField);
    }
    // If a field requires one namespace, the API server's continue tokens are relative to that namespace.
    let of_all_namespaces = matches!(scope, Scope::Everything | Scope::Named(_));
    if is_page && of_all_namespaces && fields.exact(NAMESPACE_FIELD).is_some() {
        return Err(ForwardReason::OutsideHistory);
    }
    if matches!((freshness, scope), (Freshness::Exact(_), Scope::Object(_))) {
        return Err(ForwardReason::ExactSingleName);
    }
    Ok(())
}

/// The maximum number of objects on a page.
fn page_limit(options: &ListOptions) -> usize {
    options.limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX))
}

/// A list of whole leaves. Their items are joined while the list is sent, unless an earlier list has joined them.
async fn in_chunks(
    read: &Read<'_>,
    form: Form,
    leaves: Vec<Arc<Leaf>>,
    position: &ListPosition,
    pretty: bool,
    work: &mut Work<'_>,
) -> Result<Body, Unanswered> {
    let (mut items_len, mut has_made) = (0, false);
    for (at, leaf) in leaves.iter().enumerate() {
        // Making items takes time, and so does counting them in very many leaves.
        if mem::take(&mut has_made) || at % LEAVES_AT_ONCE == LEAVES_AT_ONCE - 1 {
            work.pause().await?;
        }
        items_len += match form.leaf_items_len(leaf) {
            Some(length) => length,
            None => {
                has_made = true;
                form.leaf_items(leaf).map_err(|_| ForwardReason::Representation)?.len()
            }
        };
    }
    let envelope = read.envelope(&form);
    let (head, tail) = (envelope.head(position, items_len), envelope.tail(position, items_len));
    Ok(Body::List(Box::new(ListBody::new(head, tail, leaves, items_len, form, pretty))))
}

/// A list of objects that do not make up whole leaves of the store. A small list is joined in one piece. A large one is
/// joined in pieces while it is sent, so that a list that the client does not read holds no copy of its objects.
async fn selected(
    read: &Read<'_>,
    form: Form,
    Page { objects, bytes, .. }: Page,
    position: &ListPosition,
    pretty: bool,
    work: &mut Work<'_>,
) -> Result<Body, Unanswered> {
    if bytes > JOINED_AT_ONCE {
        let (mut objects, mut leaves) = (objects.into_iter(), Vec::new());
        while !objects.as_slice().is_empty() {
            if !leaves.is_empty() {
                work.pause().await?;
            }
            leaves.extend(own_leaves(objects.by_ref().take(OBJECTS_AT_ONCE)));
        }
        return in_chunks(read, form, leaves, position, pretty, work).await;
    }
    let (separator, mut parts) = (Bytes::from_static(&b","[..form.separator_len()]), vec![Bytes::new()]);
    // Usually a single run; but each object may be in another compressed block.
    for run in objects.chunk_by(|one, next| one.is_beside(next)) {
        if parts.len() > 1 {
            work.pause().await?;
            parts.push(separator.clone());
        }
        parts.push(form.items(run.iter()).map_err(|_| ForwardReason::Representation)?);
    }
    let (envelope, items_len) = (read.envelope(&form), parts.iter().map(Bytes::len).sum());
    parts[0] = envelope.head(position, items_len);
    parts.push(envelope.tail(position, items_len));
    Ok(Body::json(parts.concat().into(), pretty))
}

/// The leaves of a selected list.
fn own_leaves(objects: impl Iterator<Item = Arc<Object>>) -> Vec<Arc<Leaf>> {
    let (mut leaves, mut run, mut bytes) = (Vec::new(), Vec::new(), 0);
    for object in objects {
        let length = object.tail_len();
        if run.len() == Leaf::LEN_MAX || !run.is_empty() && bytes + length > OWN_LEAF_MAX {
            leaves.push(Arc::new(Leaf::of(mem::take(&mut run))));
            bytes = 0;
        }
        bytes += length;
        run.push(object);
    }
    if !run.is_empty() {
        leaves.push(Arc::new(Leaf::of(run)));
    }
    leaves
}

impl Read<'_> {
    /// The envelope of a list in that form.
    fn envelope(&self, form: &Form) -> Cow<'_, ListEnvelope> {
        match form {
            Form::Whole(_) => Cow::Borrowed(&self.instance.envelope),
            Form::Partial(_, partial) => Cow::Owned(ListEnvelope::Partial(partial.clone())),
        }
    }
}

/// The matching objects: all of them, or those of a page.
async fn selection(
    read: &Read<'_>,
    state: &Extract,
    predicate: &Predicate,
    page: Option<&ListOptions>,
    work: &mut Work<'_>,
) -> Result<(Page, ListPosition), Unanswered> {
    let mut position = ListPosition::of(state.version());
    let start = page.and_then(|options| options.continue_token.as_ref()).map_or("", |token| &token.start);
    let limit = page.map_or(usize::MAX, page_limit);
    let mut page = work.find(state.search(start, limit, predicate)).await?;
    if let Some(NextPage { start, remaining }) = page.next.take() {
        position.remaining_item_count = remaining.map(|remaining| remaining as u64);
        position.continue_token = Some(ContinueToken { version: ContinueAt::At(state.version()), start }.encode());
    } else if page.objects.len() == limit && read.instance.is_selection() {
        // There is a token if any key follows, matching or not (read-path 1.3), and the store lacks those that do not.
        return Err(ForwardReason::UnsupportedField.into());
    }
    Ok((page, position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::store::{Schema, Shape};

    #[test]
    fn leaves_of_a_selected_list_have_bounded_bytes() {
        let schema = Schema::new(Shape::Custom, Vec::new());
        let object = |(at, size): (usize, usize)| {
            let text = "x".repeat(size);
            let json = format!(r#"{{"metadata":{{"name":"n{at}","resourceVersion":"7"}},"text":"{text}"}}"#);
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        let sizes = [vec![10; 100], vec![OWN_LEAF_MAX / 3; 10], vec![3 * OWN_LEAF_MAX, 10, 2 * OWN_LEAF_MAX]].concat();
        let objects: Vec<_> = sizes.into_iter().enumerate().map(object).collect();
        let leaves = own_leaves(objects.iter().cloned());
        let listed: Vec<_> = leaves.iter().flat_map(|leaf| leaf.objects()).map(|object| &object.key).collect();
        assert_eq!(listed, objects.iter().map(|object| &object.key).collect::<Vec<_>>());
        for leaf in &leaves {
            let count = leaf.objects().len();
            assert!(count == 1 || count <= Leaf::LEN_MAX && leaf.bytes() <= OWN_LEAF_MAX, "{count}: {}", leaf.bytes());
        }
        assert!(leaves.len() < 12, "{}", leaves.len());
    }
}
