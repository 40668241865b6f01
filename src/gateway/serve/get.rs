//! One object (read-path 1.1).

use http::{Response, StatusCode, header};

use super::{
    Body, ForwardReason, Read, Unanswered,
    concurrency::Work,
    freshness::{Selected, read_state},
    response_head::Writer,
};
use crate::authz::Permit;
use base::apimachinery::{FieldSelector, GetOptions, ResponseKind, Status, Verb, View, negotiate};
use engine::{
    encode::{self, ListPosition},
    store::{Page, Scope},
};

/// Answers a get: with the object, or with 404 if it does not exist.
pub async fn get(read: &Read<'_>, options: &GetOptions, permit: Permit) -> Result<Response<Body>, Unanswered> {
    let view = read.instance.view(&permit, Verb::Get, &FieldSelector::default())?;
    let Scope::Object(key) = view.scope() else { return Err(ForwardReason::UnknownResource.into()) };
    let is_pretty = read.is_pretty(options.pretty)?;
    let writer = Writer::of(read)?;
    let mut work = Work::new(&read.turns);
    let state = read_state(read, &view, options.freshness, Selected::One, &mut work).await?;
    let (status, body) = match (state.object(), writer) {
        (Some(object), Writer::Objects(form)) => {
            let json = form.object(object).map_err(|_| ForwardReason::Representation)?;
            (StatusCode::OK, Body::json(json, is_pretty))
        }
        (Some(object), Writer::Table(table)) => {
            let position = ListPosition::of(object.version);
            let page = Page { objects: vec![object.clone()], bytes: object.tail_len(), next: None };
            (StatusCode::OK, table.body(read, page, &position, is_pretty, work).await?)
        }
        // For clients that only accept metadata, the Status has its own form (read-path 2).
        (None, _) if read.representation.view != View::Whole => return Err(ForwardReason::Representation.into()),
        // A custom resource has no protobuf, but a Status has: a client that prefers protobuf gets the Status in it.
        (None, _) if !is_first_choice(read) => return Err(ForwardReason::Representation.into()),
        (None, _) => {
            let status = Status::not_found(&read.instance.resource.group_resource(), key.name());
            let body = encode::status(status.to_json(), read.representation.encoding);
            (status.code(), Body::json(body, is_pretty))
        }
    };
    Ok(read.respond(status, body))
}

/// Whether the response has the form that the client prefers.
fn is_first_choice(read: &Read<'_>) -> bool {
    let accepted = negotiate(read.headers.get_all(header::ACCEPT), ResponseKind::Object);
    accepted.is_ok_and(|accepted| accepted.first() == Some(&read.representation))
}
