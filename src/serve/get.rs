//! One object (read-path 1.1).

use http::{Response, StatusCode, header};

use super::{Body, ForwardReason, Read, freshness::read_state};
use crate::{
    apimachinery::{Answer, GetOptions, Status, Verb, View, negotiate},
    authz::Permit,
    encode,
    store::Scope,
};

/// Answers a get: the object, or that there is none.
pub async fn get(read: &Read<'_>, permit: Permit) -> Result<Response<Body>, ForwardReason> {
    let options = GetOptions::parse(read.query).map_err(|_| ForwardReason::InvalidOptions)?;
    let view = read.instance.view(&permit, Verb::Get)?;
    let Scope::Object(key) = view.scope() else { return Err(ForwardReason::UnknownResource) };
    let is_pretty = read.is_pretty(options.pretty)?;
    let form = read.writer()?;
    // One object costs upstream no more than its head version.
    let state = read_state(read, &view, options.freshness, |_| 0).await?;
    let (status, json) = match state.object() {
        Some(object) => (StatusCode::OK, form.object(object).map_err(|_| ForwardReason::Representation)?),
        // A Status for those who take metadata only has a form of its own (read-path 2).
        None if read.form.view != View::Whole => return Err(ForwardReason::Representation),
        // A custom resource has no protobuf, a Status has: who would rather have that gets it.
        None if !is_first_choice(read) => return Err(ForwardReason::Representation),
        None => {
            let status = Status::not_found(&read.instance.resource.group_resource(), key.name());
            (status.code(), encode::status(status.to_json(), read.form.encoding))
        }
    };
    Ok(read.respond(status, Body::json(json, is_pretty)))
}

/// Whether the answer is in the form that was asked for before all others.
fn is_first_choice(read: &Read<'_>) -> bool {
    let forms = negotiate(read.headers.get_all(header::ACCEPT), Answer::Object);
    forms.is_ok_and(|forms| forms.first() == Some(&read.form))
}
