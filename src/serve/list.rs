//! A collection or a page of it (read-path 1.2, 1.3).

use std::{borrow::Cow, sync::Arc};

use http::{Response, StatusCode};
use tokio::task::yield_now;

use super::{Body, ForwardReason, Read};
use crate::{
    apimachinery::{ContinueAt, ContinueToken, Freshness, ListOptions, ObjectKey},
    authz::Permit,
    encode::{Form, ListEnvelope, ListPosition},
    fanout::Scope,
    store::{Object, Predicate, Snapshot},
};

/// What all objects of one namespace are selected by, whatever the path says.
const NAME_FIELD: &str = "metadata.name";
const NAMESPACE_FIELD: &str = "metadata.namespace";

/// Answers a list.
pub async fn list(read: &Read<'_>, _permit: Permit) -> Result<Response<Body>, ForwardReason> {
    let options = ListOptions::parse(read.query).map_err(|_| ForwardReason::InvalidOptions)?;
    let scope = scope(read, options.fields.exact(NAME_FIELD))?;
    let is_page = options.limit.is_some() || options.continue_token.is_some();
    // Pages of a collection that a field pins to a namespace count from that namespace.
    if is_page && matches!(scope, Scope::Everything) && options.fields.exact(NAMESPACE_FIELD).is_some() {
        return Err(ForwardReason::OutsideHistory);
    }
    let freshness = match &options.continue_token {
        None => options.freshness,
        Some(ContinueToken { version: ContinueAt::At(version), .. }) => Freshness::Exact(*version),
        Some(ContinueToken { version: ContinueAt::Latest, .. }) => Freshness::MostRecent,
    };
    if matches!((freshness, &scope), (Freshness::Exact(_), Scope::Object(_))) {
        return Err(ForwardReason::ExactSingleName);
    }
    let schema = read.instance.reader.schema();
    let predicate =
        Predicate::new(options.labels.clone(), &options.fields, schema).map_err(|_| ForwardReason::UnsupportedField)?;
    let pretty = read.is_pretty(options.pretty)?;
    let form = read.writer()?;
    let snapshot = read.snapshot(freshness).await?;

    let body = if is_page && !matches!(scope, Scope::Object(_)) {
        let (objects, position) = page(&snapshot, &scope, &predicate, &options);
        selected(read, form, &objects, &position, pretty)?
    } else if predicate.is_everything() {
        everything(read, form, &snapshot, &scope, pretty).await?
    } else {
        let matching: Vec<_> = in_scope(&snapshot, &scope).filter(|object| predicate.matches(object)).collect();
        selected(read, form, &matching, &position_of(&snapshot), pretty)?
    };
    Ok(read.respond(StatusCode::OK, body))
}

/// The part of the collection that path and name selector leave.
pub(super) fn scope(read: &Read<'_>, name: Option<&str>) -> Result<Scope, ForwardReason> {
    let namespace = read.request.namespace.as_deref();
    let name = match (read.request.name.as_deref(), name) {
        // Upstream refuses a selector that names another object than the path does.
        (Some(path), Some(selector)) if path != selector => return Err(ForwardReason::InvalidOptions),
        (path, selector) => path.or(selector),
    };
    match (read.instance.namespaced, namespace, name) {
        (true, Some(namespace), Some(name)) => Ok(Scope::Object(ObjectKey::new(Some(namespace), name))),
        (true, Some(namespace), None) => Ok(Scope::Namespace(namespace.into())),
        (false, None, Some(name)) => Ok(Scope::Object(ObjectKey::new(None, name))),
        (_, None, _) => Ok(Scope::Everything),
        (false, Some(_), _) => Err(ForwardReason::UnknownResource),
    }
}

fn position_of(snapshot: &Snapshot) -> ListPosition {
    ListPosition { version: snapshot.version(), continue_token: None, remaining_item_count: None }
}

fn in_scope<'a>(snapshot: &'a Snapshot, scope: &'a Scope) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
    match scope {
        Scope::Everything => Box::new(snapshot.leaves().flat_map(|leaf| leaf.objects())),
        Scope::Namespace(namespace) => Box::new(snapshot.leaves_in(namespace).flat_map(|leaf| leaf.objects())),
        Scope::Object(key) => Box::new(snapshot.get(key.as_str()).into_iter()),
    }
}

/// Everything in scope: the leaves' joined bytes, shared by all lists.
async fn everything(
    read: &Read<'_>,
    form: Form,
    snapshot: &Snapshot,
    scope: &Scope,
    pretty: bool,
) -> Result<Body, ForwardReason> {
    let leaves: Vec<_> = match scope {
        Scope::Everything => snapshot.leaves().cloned().collect(),
        Scope::Namespace(namespace) => snapshot.leaves_in(namespace).cloned().collect(),
        Scope::Object(_) => {
            let objects: Vec<_> = in_scope(snapshot, scope).collect();
            return selected(read, form, &objects, &position_of(snapshot), pretty);
        }
    };
    let mut items_len = 0;
    for leaf in &leaves {
        items_len += match form.leaf_items_len(leaf) {
            Some(length) => length,
            None => {
                let length = form.leaf_items(leaf).map_err(|_| ForwardReason::Representation)?.len();
                // That was work: others get their turn.
                yield_now().await;
                length
            }
        };
    }
    let (position, envelope) = (position_of(snapshot), read.envelope(&form));
    let around = (envelope.head(&position, items_len), envelope.tail(&position, items_len));
    Ok(Body::list(around, leaves, items_len, form, pretty))
}

fn selected(
    read: &Read<'_>,
    form: Form,
    objects: &[&Arc<Object>],
    position: &ListPosition,
    pretty: bool,
) -> Result<Body, ForwardReason> {
    let items = form.items(objects.iter().copied()).map_err(|_| ForwardReason::Representation)?;
    let envelope = read.envelope(&form);
    let list = [envelope.head(position, items.len()), items.clone(), envelope.tail(position, items.len())].concat();
    Ok(Body::json(list.into(), pretty))
}

impl Read<'_> {
    /// What stands around the items of a list.
    fn envelope(&self, form: &Form) -> Cow<'_, ListEnvelope> {
        match form {
            Form::Whole(_) => Cow::Borrowed(&self.instance.envelope),
            Form::Partial(_, partial) => Cow::Owned(ListEnvelope::Partial(partial.clone())),
        }
    }
}

/// The objects of a page, and where the next one begins. A page is full when enough objects match;
/// whatever follows, matching or not, makes a next page (read-path 1.3).
fn page<'a>(
    snapshot: &'a Snapshot,
    scope: &Scope,
    predicate: &Predicate,
    options: &ListOptions,
) -> (Vec<&'a Arc<Object>>, ListPosition) {
    let prefix = scope.prefix();
    let start = options.continue_token.as_ref().map_or(prefix.clone(), |token| format!("{prefix}{}", token.start));
    let limit = options.limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
    let (mut matching, mut last, mut more) = (Vec::new(), None, false);
    for object in snapshot.objects_from(prefix.as_str(), start.as_str()) {
        if matching.len() == limit {
            more = true;
            break;
        }
        last = Some(object);
        if predicate.matches(object) {
            matching.push(object.key.clone());
        }
    }
    let mut position = position_of(snapshot);
    if let (true, Some(last)) = (more, last) {
        let next = format!("{}\0", last.key.as_str());
        if predicate.is_everything() {
            position.remaining_item_count = Some(snapshot.count_from(&prefix, &next) as u64);
        }
        let start = next[prefix.len()..].to_owned();
        position.continue_token = Some(ContinueToken { version: ContinueAt::At(snapshot.version()), start }.encode());
    }
    (matching.iter().filter_map(|key| snapshot.get(key.as_str())).collect(), position)
}
