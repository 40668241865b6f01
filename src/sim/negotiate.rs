//! Negotiates the representation: JSON, and what can be derived from it.

use http::{HeaderMap, header};

use crate::{
    definition::Definition,
    failure::Failure,
    shapes::{
        representation::Representation,
        table::{IncludeObject, TableFormat},
    },
};

/// The first supported clause of `Accept`, by falling `q`. YAML and protobuf are not supported. `named` is set if the
/// request is for one object, and `lists` if the response is a list.
pub(crate) fn representation(
    headers: &HeaderMap,
    definition: &Definition,
    include_object: &str,
    named: bool,
    lists: bool,
) -> Result<Representation, Failure> {
    let accept = header_text(headers, &header::ACCEPT);
    if accept.trim().is_empty() {
        return Ok(Representation::Json);
    }
    let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    let custom = definition.custom;
    let mut known = custom;
    for clause in &clauses {
        let json = match clause.media_type {
            "application/json" | "*/*" => true,
            "application/*" => custom,
            _ => false,
        };
        known |= json;
        match (json, clause.parameter("as")) {
            (true, None) => return Ok(Representation::Json),
            (true, Some(kind)) if clause.parameter("g") == Some("meta.k8s.io") => {
                let version = match clause.parameter("v") {
                    Some("v1") => "v1",
                    Some("v1beta1") => "v1beta1",
                    _ => continue,
                };
                match (kind, lists) {
                    ("Table", _) => {
                        let include = include(include_object)?;
                        return Ok(Representation::Table(TableFormat { version, include }));
                    }
                    ("PartialObjectMetadata", false) | ("PartialObjectMetadataList", true) => {
                        return Ok(Representation::Metadata(version));
                    }
                    ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => {
                        return Err(wrong_partial(definition, kind, lists));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    if known {
        return Err(Failure::not_acceptable(format!("only the following media types are accepted: {MEDIA_TYPES}")));
    }
    // In an API server, another layer detects a plain mismatch.
    let streams = if named { "" } else { MEDIA_TYPES_OF_STREAMS };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{streams}");
    Err(Failure::not_acceptable(message).with_details(serde_json::json!({})))
}

/// Whether the client asks for the aggregated discovery documents.
pub(crate) fn aggregated_discovery(headers: &HeaderMap) -> bool {
    header_text(headers, &header::ACCEPT).split(',').map(Clause::parse).any(|clause| {
        clause.media_type == "application/json"
            && clause.parameter("as") == Some("APIGroupDiscoveryList")
            && clause.parameter("g") == Some("apidiscovery.k8s.io")
            && clause.parameter("v") == Some("v2")
    })
}

fn wrong_partial(definition: &Definition, kind: &str, lists: bool) -> Failure {
    let package = if definition.group.is_empty() { "core" } else { definition.group.split('.').next().unwrap_or("") };
    let go_type = match (definition.custom, lists) {
        (true, true) => "*unstructured.UnstructuredList".to_owned(),
        (true, false) => "*unstructured.Unstructured".to_owned(),
        (false, true) => format!("*{package}.{}", definition.list_kind),
        (false, false) => format!("*{package}.{}", definition.kind),
    };
    let is = if lists { "is" } else { "is not" };
    Failure::not_acceptable(format!("you requested {kind}, but the requested object {is} a list ({go_type})"))
}

fn include(text: &str) -> Result<IncludeObject, Failure> {
    match text {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        _ => Err(Failure::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: \
             must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

fn header_text(headers: &HeaderMap, name: &header::HeaderName) -> String {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|parameter| parameter.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok());
        Self { media_type, parameters, quality: quality.unwrap_or(1.0) }
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// The list of a real server, although this one supports less.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const MEDIA_TYPES_OF_STREAMS: &str =
    ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::built_in;

    fn negotiated(accept: &str) -> Option<Representation> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        representation(&headers, &built_in()[0], "", false, true).ok()
    }

    #[test]
    fn json_and_json_tables_are_supported() {
        let table = Representation::Table(TableFormat { version: "v1", include: IncludeObject::Metadata });
        for (accept, expected) in [
            ("application/json", Some(Representation::Json)),
            ("*/*", Some(Representation::Json)),
            ("application/json;stream=watch", Some(Representation::Json)),
            ("application/vnd.kubernetes.protobuf,application/json;q=0.1", Some(Representation::Json)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(table)),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Some(Representation::Json)),
            ("application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io", Some(table)),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Some(Representation::Metadata("v1"))),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", None),
            ("application/yaml", None),
            ("application/json;as=Table;v=v1;g=example.com", None),
        ] {
            assert_eq!(negotiated(accept), expected, "{accept}");
        }
    }
}
