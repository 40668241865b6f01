//! Failed responses: `Status` bodies as the API server words them (read-path 2).

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::definition::Definition;

/// The failure of a request, to be written as a `Status`.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: Box<str>,
    /// `None` omits the member; an empty object is printed as `{}`.
    details: Option<Box<Value>>,
    /// The new token for `metadata.continue` when a token expired.
    continue_token: Option<Box<str>>,
}

impl Failure {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<Box<str>>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    pub(crate) fn bad_request(message: impl Into<Box<str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!({"causes": [{"message": &message}]});
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(details)
    }

    /// The resource is not served, but its group and version are.
    pub(crate) fn unknown_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn not_found(definition: &Definition, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", definition.group_resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(object_details(definition, name))
    }

    pub(crate) fn already_exists(definition: &Definition, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", definition.group_resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(object_details(definition, name))
    }

    pub(crate) fn conflict(definition: &Definition, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", definition.group_resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(object_details(definition, name))
    }

    /// An object or options that violate rules. `field` and `message` of a cause are printed like `spec.names: Invalid
    /// value: …`.
    pub(crate) fn invalid(kind: &str, group: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let text = if let [one] = &*texts { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let separator = if group.is_empty() { "" } else { "." };
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        let causes = causes
            .iter()
            .map(|Cause { reason, message, field }| json!({"reason": reason, "message": message, "field": field}));
        details.insert("causes".into(), causes.collect());
        let message = format!("{kind}{separator}{group} \"{name}\" is invalid: {text}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(details.into())
    }

    /// A version above the newest one. `retry` is set if the server has waited for the version (read-path 2).
    pub(crate) fn too_large_version(asked: u64, current: u64, retry: bool) -> Self {
        let mut details = json!({"causes": [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        if retry {
            details["retryAfterSeconds"] = 1.into();
        }
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with_details(details)
    }

    pub(crate) fn expired(message: impl Into<Box<str>>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn expired_token(new_token: String) -> Self {
        let mut expired = Self::expired(concat!(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list ",
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of ",
            "the results. Continuing with the provided token results in an inconsistent list - objects that were ",
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list."
        ));
        expired.continue_token = Some(new_token.into());
        expired
    }

    pub(crate) fn method_not_allowed(definition: Option<(&Definition, &str)>) -> Self {
        let (message, details) = match definition {
            Some((custom, verb)) if custom.custom => (
                format!("{verb} is not supported on resources of kind \"{}\"", custom.group_resource()),
                json!({"group": custom.group, "kind": custom.plural}),
            ),
            _ => ("the server does not allow this method on the requested resource".into(), json!({})),
        };
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_details(details)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_acceptable(message: impl Into<Box<str>>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The value of the `Retry-After` header, in whole seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    pub(crate) fn status(&self) -> Value {
        let metadata = self.continue_token.as_ref().map_or(json!({}), |token| json!({"continue": token}));
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message});
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status["code"] = self.code.as_u16().into();
        status
    }
}

/// One violated rule of an invalid object.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    /// `FieldValueForbidden`, `FieldValueNotSupported`, …
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

fn object_details(definition: &Definition, name: &str) -> Value {
    let mut details = json!({"name": name});
    if !definition.group.is_empty() {
        details["group"] = definition.group.as_str().into();
    }
    details["kind"] = definition.plural.as_str().into();
    details
}
