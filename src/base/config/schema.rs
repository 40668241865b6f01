//! The JSON schema of a configuration file, for editors and for checks before it is rolled out.

use serde_json::{Map, Value, json};

use crate::config::fields::{Purpose, rows};
use crate::config::{API_VERSION, Config, KIND};

/// The schema, in the draft that Helm reads.
#[must_use]
pub fn schema() -> Value {
    let mut schema = Map::from_iter([
        ("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#")),
        ("title".to_owned(), json!(format!("{KIND} of {API_VERSION}"))),
    ]);
    let mut config = Config::default();
    if let (_, Value::Object(document)) = rows(Purpose::Describe, |fields| config.fields(fields)) {
        schema.extend(document);
    }
    schema.insert("definitions".to_owned(), definitions());
    Value::Object(schema)
}

/// What several fields refer to.
fn definitions() -> Value {
    json!({
        "duration": {"type": ["string", "integer"], "pattern": "^(0|([0-9]+(ms|s|m|h))+)$", "maximum": 0},
        "size": {"type": ["string", "integer"], "pattern": "^[0-9]+(Ki|Mi|Gi)?$"},
        "path": {"type": "string", "minLength": 1},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fields::Row;
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

    /// Files that contain texts which the declared fields make. With `UPDATE=1` in the environment they are written.
    fn compare(file: &str, made: impl FnOnce(&str) -> String) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let made = made(&text);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, made).unwrap();
        } else {
            assert!(
                made == text,
                "{file} is not as the fields are declared: UPDATE=1 cargo test -p kube-fanout-base writes it"
            );
        }
    }

    /// JSON with each object on one line where it fits there.
    fn json_text(value: &Value, depth: usize) -> String {
        let line =
            serde_json::to_string(value).unwrap().replace("\":", "\": ").replace(",\"", ", \"").replace("},{", "}, {");
        let fields = value.as_object().filter(|_| depth < 2 || line.len() + 2 * depth > 110);
        let Some(fields) = fields else { return line };
        let indent = "  ".repeat(depth + 1);
        let field = |(name, value): (&String, &Value)| format!("{indent}\"{name}\": {}", json_text(value, depth + 1));
        let fields: Vec<_> = fields.iter().map(field).collect();
        format!("{{\n{}\n{}}}", fields.join(",\n"), "  ".repeat(depth))
    }

    fn without_descriptions(schema: &mut Value) {
        if let Some(keywords) = schema.as_object_mut() {
            keywords.retain(|name, value| name != "description" || !value.is_string());
            keywords.values_mut().for_each(without_descriptions);
        } else if let Value::Array(schemas) = schema {
            schemas.iter_mut().for_each(without_descriptions);
        }
    }

    #[test]
    fn the_chart_has_the_schema() {
        compare("helm/values.schema.json", |chart| {
            let mut chart: Value = serde_json::from_str(chart).unwrap();
            let mut gateway = schema().as_object().unwrap().clone();
            let definitions = gateway.shift_remove("definitions").unwrap();
            gateway.retain(|keyword, _| !["$schema", "title", "required"].contains(&keyword.as_str()));
            let properties = gateway["properties"].as_object_mut().unwrap();
            properties.retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
            gateway.values_mut().for_each(without_descriptions);
            let of_chart = chart["definitions"].as_object_mut().unwrap();
            of_chart.extend(definitions.as_object().unwrap().clone());
            of_chart.insert("gateway".to_owned(), Value::Object(gateway));
            json_text(&chart, 0) + "\n"
        });
    }

    #[test]
    fn the_manual_has_the_table() {
        let mut config = Config::default();
        let (rows, _) = rows(Purpose::Describe, |fields| config.fields(fields));
        let table: Vec<_> = rows.iter().map(Row::markdown).collect();
        compare("src/manual/operations.md", |manual| {
            let is_row = |line: &&str| line.starts_with('|');
            let before = manual.lines().take_while(|line| !line.starts_with("| Field |")).collect::<Vec<_>>();
            let rest = manual.lines().skip(before.len()).skip_while(is_row).collect::<Vec<_>>();
            let head = vec!["| Field | Default | Allowed |", "|---|---|---|"];
            let lines = [before, head, table.iter().map(String::as_str).collect(), rest].concat();
            lines.join("\n") + "\n"
        });
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
