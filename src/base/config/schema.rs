//! The JSON schema of a configuration file, for editors and for checks before it is rolled out.
//!
//! It is the gateway's part of the chart's schema, so that the schema exists only once.

use serde_json::{Map, Value, json};

use crate::config::{API_VERSION, KIND, quantity, validate::RESOURCE};

/// The chart's `helm/values.schema.json`. Its definition `gateway` is a configuration file's document without
/// `apiVersion` and `kind`.
const CHART: &str = include_str!("../../../helm/values.schema.json");

/// The chapter with the table of fields, whose rows become the fields' descriptions.
const MANUAL: &str = include_str!("../../manual/operations.md");

/// The schema, in the same draft as the chart's.
///
/// # Panics
/// Never: the text is part of the build.
pub fn schema() -> Value {
    let mut chart: Map<String, Value> = serde_json::from_str(CHART).expect("the chart's schema is an object");
    let mut definitions = chart.remove("definitions").expect("the chart's schema has definitions");
    let mut document = definitions["gateway"].take();
    let fields = document["properties"].take();
    let mut properties = Map::from_iter([
        ("apiVersion".to_owned(), json!({"const": API_VERSION})),
        ("kind".to_owned(), json!({"const": KIND})),
    ]);
    properties.extend(fields.as_object().cloned().unwrap_or_default());
    let mut schema = json!({
        "$schema": chart["$schema"],
        "title": format!("{KIND} of {API_VERSION}"),
        "type": "object",
        "additionalProperties": false,
        "required": ["apiVersion", "kind"],
        "properties": properties,
        "definitions": used(&properties, &definitions),
    });
    for (field, description) in descriptions() {
        // Definitions that several fields share are described by the first one.
        if let Some(place) = place(&schema, &field)
            && let Some(Value::Object(described)) = schema.pointer_mut(&place)
        {
            described.entry("description").or_insert(description.into());
        }
    }
    schema
}

/// The fields of the manual's table with their descriptions, in the table's order.
fn descriptions() -> Vec<(String, String)> {
    let rows = MANUAL.lines().skip_while(|line| !line.starts_with("| Field |")).skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    let mut described = Vec::new();
    for row in rows {
        let [names, default, allowed] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else { continue };
        let [default, allowed] = [default, allowed].map(|cell| cell.replace('`', "").trim().to_owned());
        let allowed = if allowed.is_empty() { allowed } else { format!(" Allowed: {allowed}.") };
        let description = format!("Default: {default}.{allowed}");
        let mut parent = "";
        for name in names.split('`').skip(1).step_by(2) {
            let field = if name.starts_with('.') { format!("{parent}{name}") } else { name.to_owned() };
            if !name.starts_with('.') {
                parent = name.rsplit_once('.').map_or("", |(parent, _)| parent);
            }
            described.push((field, description.clone()));
        }
    }
    described
}

/// The JSON pointer of a field in the schema.
fn place(schema: &Value, field: &str) -> Option<String> {
    let mut place = String::new();
    for step in field.split('.') {
        place = format!("{}/properties/{}", resolved(schema, place)?, step.trim_end_matches("[]"));
        if step.ends_with("[]") {
            place = format!("{}/items", resolved(schema, place)?);
        }
    }
    Some(place)
}

/// What is allowed at a place of a document, in words; `None` if there is no such field. `field` is written as in
/// problems: `listeners[0].tls`. Empty for the whole document.
pub(super) fn form(field: &str) -> Option<String> {
    let schema = schema();
    // The index of an item says nothing of its form.
    let mut steps = field.split('[');
    let first = steps.next()?.to_owned();
    let field =
        steps.fold(first, |path, step| format!("{path}[]{}", step.split_once(']').map_or("", |(_, rest)| rest)));
    let place = if field.is_empty() { String::new() } else { place(&schema, &field)? };
    words(&schema, &place)
}

fn words(schema: &Value, place: &str) -> Option<String> {
    let named = schema.pointer(place)?["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    let of_name = match named {
        Some("duration") => Some(quantity::DURATION),
        Some("size") => Some(quantity::SIZE),
        Some("resource") => Some(RESOURCE),
        Some("path") => Some("the path of a file"),
        _ => None,
    };
    if let Some(words) = of_name {
        return Some(words.to_owned());
    }
    let place = resolved(schema, place.to_owned())?;
    let at = schema.pointer(&place)?;
    if let Some(allowed) = at["enum"].as_array() {
        return Some(allowed.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    }
    Some(match at["type"].as_str()? {
        "array" => format!("a list, each item: {}", words(schema, &format!("{place}/items"))?),
        "object" => match at["properties"].as_object() {
            Some(fields) => format!("the fields {}", fields.keys().cloned().collect::<Vec<_>>().join(", ")),
            None => "{}".to_owned(),
        },
        "boolean" => "true, false".to_owned(),
        "integer" => "a number".to_owned(),
        _ => "a text".to_owned(),
    })
}

/// The target of a reference; the place itself if it is not a reference. `None` if the place does not exist.
fn resolved(schema: &Value, place: String) -> Option<String> {
    match schema.pointer(&place)?["$ref"].as_str() {
        Some(reference) => Some(reference.trim_start_matches('#').to_owned()),
        None => Some(place),
    }
}

/// The definitions that fields use, directly or through others.
fn used(fields: &Map<String, Value>, definitions: &Value) -> Map<String, Value> {
    let mut used = Map::new();
    let mut texts = vec![Value::Object(fields.clone()).to_string()];
    while let Some(text) = texts.pop() {
        for (name, definition) in definitions.as_object().into_iter().flatten() {
            if text.contains(&format!("\"#/definitions/{name}\"")) && !used.contains_key(name) {
                used.insert(name.clone(), definition.clone());
                texts.push(definition.to_string());
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    /// Collects the schemas of an object and of the objects in it, with references resolved, by their paths.
    fn objects<'a>(schema: &'a Value, at: &'a Value, path: &[String], found: &mut Vec<(Vec<String>, &'a Value)>) {
        let at = match at["$ref"].as_str() {
            Some(reference) => &schema["definitions"][reference.rsplit('/').next().unwrap()],
            None => at,
        };
        let below = |step: &str| [path, &[step.to_owned()]].concat();
        if let Some(fields) = at["properties"].as_object() {
            found.push((path.to_vec(), at));
            for (name, field) in fields {
                objects(schema, field, &below(name), found);
            }
        } else if at["type"] == "array" {
            objects(schema, &at["items"], &below("[]"), found);
        } else {
            found.push((path.to_vec(), at));
        }
    }

    /// A document in which the field at `path` has `value`.
    fn document(path: &[String], value: &Value) -> String {
        let mut inner = value.clone();
        for step in path.iter().rev() {
            inner = if step == "[]" { json!([inner]) } else { json!({ step.as_str(): inner }) };
        }
        let mut document = json!({"apiVersion": API_VERSION, "kind": KIND});
        // These are validated in `delegated` mode only.
        let of_mode = ["authentication", "authorization", "identity"];
        if path[0] == "clients" && path.get(1).is_some_and(|step| of_mode.contains(&step.as_str())) {
            inner["clients"]["mode"] = json!("delegated");
        }
        document.as_object_mut().unwrap().extend(inner.as_object().unwrap().clone());
        document.to_string()
    }

    fn problems(path: &[String], value: &Value) -> Vec<String> {
        match Config::parse(&document(path, value), &Overrides::default()) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
        }
    }

    fn all(schema: &Value) -> Vec<(Vec<String>, &Value)> {
        let mut found = Vec::new();
        objects(schema, schema, &[], &mut found);
        found
    }

    #[test]
    fn the_parser_and_the_schema_know_the_same_fields() {
        let schema = schema();
        let mut compared = 0;
        for (path, at) in all(&schema) {
            let Some(fields) = at["properties"].as_object() else { continue };
            let problems = problems(&[path.as_slice(), &["noSuchField".to_owned()]].concat(), &json!(1));
            let problems = problems.iter().filter(|problem| problem.contains("noSuchField: no such field"));
            for problem in problems {
                let allowed = problem.rsplit_once("allowed: ").map_or("", |(_, allowed)| allowed);
                let mut allowed: Vec<_> = allowed.split(", ").filter(|name| !name.is_empty()).collect();
                let mut known: Vec<_> = fields.keys().map(String::as_str).collect();
                allowed.sort_unstable();
                known.sort_unstable();
                assert_eq!(allowed, known, "{path:?}");
                compared += 1;
            }
        }
        assert!(compared >= 18, "{compared} objects were compared");
    }

    #[test]
    fn every_field_is_described_as_in_the_manual() {
        let schema = schema();
        let mut undescribed = Vec::new();
        for (path, at) in all(&schema) {
            for (name, field) in at["properties"].as_object().into_iter().flatten() {
                let target =
                    field["$ref"].as_str().map_or(field, |to| schema.pointer(to.trim_start_matches('#')).unwrap());
                let has_fields = target["properties"].is_object() || target["items"]["properties"].is_object();
                if !has_fields && !field["description"].is_string() && field.get("const").is_none() {
                    undescribed.push(format!("{path:?} {name}"));
                }
            }
        }
        assert_eq!(undescribed, [""; 0]);
        let of = |field: &str| schema.pointer(&place(&schema, field).unwrap()).unwrap()["description"].clone();
        assert_eq!(of("reads.fillWait"), "Default: 30s. Allowed: 0 to 60 s.");
        assert_eq!(of("listeners[].tls.keyFile"), "Default: none: plain HTTP. Allowed: PEM files.");
        for (field, _) in descriptions() {
            assert!(of(&field).is_string(), "the manual's {field} is not in the schema");
        }
    }

    #[test]
    fn words_of_the_schema_are_those_of_the_parser() {
        let schema = schema();
        let mut compared = 0;
        for (path, at) in all(&schema) {
            let Some(words) = at["enum"].as_array() else { continue };
            let field = path.join(".").replace(".[]", "[0]") + ":";
            let problems = problems(&path, &json!("no-such-word"));
            let of_word = |problem: &&String| problem.starts_with(&field) && problem.contains("was given; allowed");
            let Some(problem) = problems.iter().find(of_word) else {
                panic!("{field} takes any word: {problems:?}");
            };
            let allowed = problem.rsplit_once("allowed: ").unwrap().1;
            let words: Vec<_> = words.iter().map(|word| word.as_str().unwrap()).collect();
            let mut given: Vec<_> = allowed.split(", ").collect();
            let mut known = words.clone();
            given.sort_unstable();
            known.sort_unstable();
            assert_eq!(given, known, "{field}");
            compared += 1;
        }
        assert!(compared >= 8, "{compared} fields were compared");
    }
}
