//! Labels and label selectors, as apimachinery writes them.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

use super::{NONE, Unprintable, source::or_default};
use base::apimachinery::{is_label_value, is_qualified_name};

/// Go sorts up to this many requirements stably (by insertion sort).
const SORTED_STABLY_MAX: usize = 12;

/// The selector of a workload.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LabelSelector<'a> {
    match_labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    match_expressions: Vec<Expression<'a>>,
}

#[derive(Deserialize)]
struct Expression<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    operator: Cow<'a, str>,
    #[serde(default, deserialize_with = "or_default")]
    values: Vec<String>,
}

impl LabelSelector<'_> {
    /// Empty if it selects nothing or everything. `Unprintable` if it is not valid: upstream prints such selectors in
    /// another way.
    pub(super) fn print(&self) -> Result<String, Unprintable> {
        let mut requirements = Vec::new();
        for (key, value) in &self.match_labels {
            check(key, [&**value])?;
            requirements.push((&**key, format!("{key}={value}")));
        }
        for expression in &self.match_expressions {
            requirements.push((&*expression.key, expression.print()?));
        }
        requirements.sort_by_key(|(key, _)| *key);
        if requirements.len() > SORTED_STABLY_MAX && requirements.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Unprintable);
        }
        Ok(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
    }
}

impl Expression<'_> {
    fn print(&self) -> Result<String, Unprintable> {
        let Self { key, operator, values } = self;
        check(key, values.iter().map(String::as_str))?;
        let mut values: Vec<_> = values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match (&**operator, self.values.is_empty()) {
            ("In", false) => Ok(format!("{key} in ({values})")),
            ("NotIn", false) => Ok(format!("{key} notin ({values})")),
            ("Exists", true) => Ok(key.to_string()),
            ("DoesNotExist", true) => Ok(format!("!{key}")),
            _ => Err(Unprintable),
        }
    }
}

fn check<'a>(key: &str, values: impl IntoIterator<Item = &'a str>) -> Result<(), Unprintable> {
    (is_qualified_name(key) && values.into_iter().all(is_label_value)).then_some(()).ok_or(Unprintable)
}

/// Labels in the order of their texts.
pub(super) fn labels(labels: &BTreeMap<Cow<'_, str>, Cow<'_, str>>) -> String {
    let mut texts: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    texts.sort_unstable();
    if texts.is_empty() { NONE.to_owned() } else { texts.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(selector: &str) -> Option<String> {
        serde_json::from_str::<LabelSelector<'_>>(selector).unwrap().print().ok()
    }

    #[test]
    fn requirements_are_in_the_order_of_their_keys() {
        for (selector, expected) in [
            ("{}", Some("")),
            (r#"{"matchLabels":{"b":"1","a":""}}"#, Some("a=,b=1")),
            (
                concat!(
                    r#"{"matchLabels":{"b":"1"},"matchExpressions":[{"key":"b","operator":"Exists"},"#,
                    r#"{"key":"a","operator":"In","values":["z","9","10"]}]}"#,
                ),
                Some("a in (10,9,z),b=1,b"),
            ),
            (r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["x"]}]}"#, Some("a notin (x)")),
            (r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist","values":null}]}"#, Some("!a")),
            (r#"{"matchExpressions":[{"key":"a","operator":"In","values":[]}]}"#, None),
            (r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}"#, None),
            (r#"{"matchExpressions":[{"key":"a","operator":"Is"}]}"#, None),
            (r#"{"matchExpressions":[{"key":"-a","operator":"Exists"}]}"#, None),
            (r#"{"matchLabels":{"a":"-"}}"#, None),
        ] {
            assert_eq!(printed(selector).as_deref(), expected, "{selector}");
        }
    }

    #[test]
    fn many_requirements_of_one_key_have_no_certain_order() {
        let selector = |keys: &[usize]| {
            let expression = |key| format!(r#"{{"key":"k{key}","operator":"Exists"}}"#);
            let all: Vec<_> = keys.iter().map(expression).collect();
            format!(r#"{{"matchExpressions":[{}]}}"#, all.join(","))
        };
        let distinct: Vec<_> = (0..13).collect();
        assert!(printed(&selector(&distinct)).is_some());
        assert!(printed(&selector(&[7; 12])).is_some());
        assert!(printed(&selector(&[7; 13])).is_none());
    }
}
