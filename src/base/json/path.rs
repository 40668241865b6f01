//! `JSONPath` as used in the printer columns of custom resources: client-go's dialect, as far as definitions use it.
//!
//! Supported are names (`.spec.color`, `['color']`), indices (`[0]`, `[-1]`), all elements (`[*]`), and the elements
//! whose member equals, or does not equal, a string or a boolean (`[?(@.type=="Ready")]`). Any other path that
//! client-go accepts is not supported, because its result is not certain here.

use super::{Elements, InvalidJson, Members, text};

/// A path that is supported as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Box<[Step]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The member of each object. A value that is not an object has none.
    Member(Box<str>),
    /// The element at that index; a negative index counts from the end.
    Place(i64),
    All,
    Filter(Filter),
}

/// Selects the elements whose member at `path` equals `operand`, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    path: Box<[Box<str>]>,
    is_equal: bool,
    operand: Operand,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Text(Box<str>),
    Boolean(bool),
}

/// Why there is no value.
enum Failure {
    /// client-go ends with an error, which leaves the cell empty.
    NoResult,
    Json(InvalidJson),
}

impl From<InvalidJson> for Failure {
    fn from(invalid: InvalidJson) -> Self {
        Self::Json(invalid)
    }
}

impl JsonPath {
    /// `None` if any part of the path is not supported.
    pub fn parse(path: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = path;
        while !rest.is_empty() {
            let (step, behind) = if let Some(filter) = rest.strip_prefix("[?(") {
                let (filter, behind) = filter.split_once(")]")?;
                (Step::Filter(Filter::parse(filter)?), behind)
            } else if let Some(bracket) = rest.strip_prefix('[') {
                let (inside, behind) = bracket.split_once(']')?;
                (Step::in_brackets(inside)?, behind)
            } else {
                let (name, behind) = member_name(rest.strip_prefix('.')?)?;
                (Step::Member(name), behind)
            };
            steps.push(step);
            rest = behind;
        }
        (!steps.is_empty()).then(|| Self(steps.into()))
    }

    /// The text of the first value at the path; `None` if there is none, or if client-go would fail. client-go fails if
    /// any element lacks a value where the path requires one, even if the first value was found.
    ///
    /// # Errors
    /// `object` is not the JSON of an object.
    pub fn first<'a>(&self, object: &'a [u8]) -> Result<Option<&'a [u8]>, InvalidJson> {
        let mut values = vec![object];
        for step in &self.0 {
            values = match step.walk(&values) {
                Ok(values) if values.is_empty() => return Ok(None),
                Ok(values) => values,
                Err(Failure::NoResult) => return Ok(None),
                Err(Failure::Json(invalid)) => return Err(invalid),
            };
        }
        Ok(values.first().copied())
    }
}

impl Step {
    /// Parses the text between brackets.
    fn in_brackets(inside: &str) -> Option<Self> {
        if inside == "*" {
            return Some(Self::All);
        }
        if let Some(name) = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) {
            // client-go parses it like a name after a dot, so another dot would begin another name.
            let (name, behind) = member_name(name)?;
            return behind.is_empty().then_some(Self::Member(name));
        }
        let digits = inside.strip_prefix('-').unwrap_or(inside);
        let is_number = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        // client-go reads `-0` as zero for the start of the slice and as one for its end.
        (is_number && inside != "-0").then(|| inside.parse().ok().map(Self::Place))?
    }

    /// The values that this step reaches from `values`.
    fn walk<'a>(&self, values: &[&'a [u8]]) -> Result<Vec<&'a [u8]>, Failure> {
        let mut found = Vec::new();
        for value in values.iter().copied() {
            match self {
                Self::Member(name) => found.extend(member(value, name)?),
                // `null` is skipped, and any other value that is not an array is an error. Filters treat `null` as an
                // error, too.
                Self::Place(_) | Self::All if value == b"null" => {}
                Self::Place(place) => found.push(element(value, *place)?),
                Self::All => {
                    let before = found.len();
                    for element in elements(value)? {
                        found.push(element?);
                    }
                    // As in client-go, the values after an empty array are ignored.
                    if found.len() == before {
                        return Ok(found);
                    }
                }
                Self::Filter(filter) => {
                    for element in elements(value)? {
                        let element = element?;
                        if filter.takes(element)? {
                            found.push(element);
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Filter {
    fn parse(text: &str) -> Option<Self> {
        let at = text.find(['!', '<', '>', '='])?;
        let (path, operator) = text.split_at(at);
        let (is_equal, operand) = match operator.split_at_checked(2)? {
            ("==", operand) => (true, operand),
            ("!=", operand) => (false, operand),
            _ => return None,
        };
        let (mut names, mut rest) = (Vec::new(), path.trim_matches(' ').strip_prefix('@')?);
        while !rest.is_empty() {
            let (name, behind) = member_name(rest.strip_prefix('.')?)?;
            names.push(name);
            rest = behind;
        }
        Some(Self { path: names.into(), is_equal, operand: Operand::parse(operand.trim_matches(' '))? })
    }

    /// Whether the filter selects the element.
    fn takes(&self, element: &[u8]) -> Result<bool, Failure> {
        let mut value = element;
        for name in &self.path {
            let Some(next) = member(value, name)? else { return Ok(false) };
            value = next;
        }
        let is_same = match (&self.operand, value) {
            (Operand::Text(operand), [b'"', ..]) => text(value)? == **operand,
            (Operand::Boolean(operand), b"true") => *operand,
            (Operand::Boolean(operand), b"false") => !*operand,
            // Values of different types are not comparable.
            _ => return Err(Failure::NoResult),
        };
        Ok(is_same == self.is_equal)
    }
}

impl Operand {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "true" => return Some(Self::Boolean(true)),
            "false" => return Some(Self::Boolean(false)),
            _ => {}
        }
        let quoted = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        let inside = quoted('"').or_else(|| quoted('\''))?;
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b' ' | b':');
        inside.bytes().all(is_plain).then(|| Self::Text(inside.into()))
    }
}

/// The name at the start of `text`, and the text after it. A backslash makes the next character part of the name.
fn member_name(text: &str) -> Option<(Box<str>, &str)> {
    let (mut name, mut is_escaped, mut end) = (String::new(), false, text.len());
    for (at, character) in text.char_indices() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            // client-go drops every backslash of a sequence.
            '\\' => return None,
            '.' | '[' if !is_escaped => {
                end = at;
                break;
            }
            '.' | '/' | '-' | '_' | ':' | '[' | ']' | '$' | '@' => {
                if !is_escaped && matches!(character, ']' | '$' | '@') || is_escaped && matches!(character, '[' | ']') {
                    return None;
                }
                name.push(character);
                is_escaped = false;
            }
            character if character.is_ascii_alphanumeric() => {
                name.push(character);
                is_escaped = false;
            }
            _ => return None,
        }
    }
    (!is_escaped && !name.is_empty()).then(|| (name.into(), &text[end..]))
}

/// The member of that name; `None` if `value` is no object or has no such member.
fn member<'a>(value: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, InvalidJson> {
    if !value.starts_with(b"{") {
        return Ok(None);
    }
    for member in Members::of(value)? {
        let (found, value) = member?;
        if found == name {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn elements(value: &[u8]) -> Result<Elements<'_>, Failure> {
    if value.starts_with(b"[") { Ok(Elements::of(value)?) } else { Err(Failure::NoResult) }
}

fn element(value: &[u8], place: i64) -> Result<&[u8], Failure> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let place = if place < 0 { place + count(elements(value)?.count()) } else { place };
    let place = usize::try_from(place).map_err(|_| Failure::NoResult)?;
    Ok(elements(value)?.nth(place).ok_or(Failure::NoResult)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"metadata":{"annotations":{"a.b/c":"dotted"}},
        "spec":{"color":"red","none":null,"list":[{"n":1,"tags":["x","y"]},
        {"n":2,"tags":[]},{"tags":["z"]}],"mixed":["a",null,{"n":3}],"empty":[]},
        "status":{"conditions":[{"type":"Synced","status":"False"},
        {"type":"Ready","status":"True","on":true},{"status":"?"}],"odd":[{"type":1},{"type":"Ready","status":"True"}],
        "void":[null,{"type":null}]}}"#;

    fn first(path: &str) -> Option<&'static str> {
        let path = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} is not understood"));
        path.first(OBJECT.as_bytes()).unwrap().map(|value| str::from_utf8(value).unwrap())
    }

    #[test]
    fn the_first_value_is_found() {
        for (path, expected) in [
            (".spec.color", Some("\"red\"")),
            (".spec['color']", Some("\"red\"")),
            (".spec.none", Some("null")),
            (".spec.none.x", None),
            (".spec.color.x", None),
            (".spec.list.n", None),
            (".spec.nothing", None),
            (r".metadata.annotations.a\.b/c", Some("\"dotted\"")),
            (r".metadata.annotations['a\.b/c']", Some("\"dotted\"")),
            (".spec.list[0].n", Some("1")),
            (".spec.list[-1].tags[0]", Some("\"z\"")),
            (".spec.list[-4]", None),
            (".spec.list[3]", None),
            (".spec.color[0]", None),
            (".spec.none[0]", None),
            (".spec.list[*].n", Some("1")),
            (".spec.mixed[*].n", Some("3")),
            (".spec.empty[*]", None),
            (".status[*]", None),
            (r#".status.conditions[?(@.type=="Ready")].status"#, Some("\"True\"")),
            (".status.conditions[?(@.type == 'Ready')].status", Some("\"True\"")),
            (r#".status.conditions[?(@.type!="Synced")].status"#, Some("\"True\"")),
            (".status.conditions[?(@.on==true)].type", Some("\"Ready\"")),
            (r#".status.conditions[?(@.type=="Other")].status"#, None),
            (r#".spec.list[0].tags[?(@=="y")]"#, Some("\"y\"")),
        ] {
            assert_eq!(first(path), expected, "{path}");
        }
    }

    /// As in client-go.
    #[test]
    fn an_element_without_the_value_is_an_error() {
        for path in [
            // The second element has no tags, and what follows an empty array is ignored.
            ".spec.list[*].tags[0]",
            ".spec.mixed[*][0]",
            // A number is not compared with a string, and a missing value with nothing.
            r#".status.odd[?(@.type=="Ready")].status"#,
            r#".status.void[?(@.type=="Ready")]"#,
            r#".spec.none[?(@.type=="Ready")]"#,
            r#".spec[?(@.type=="Ready")]"#,
        ] {
            assert_eq!(first(path), None, "{path}");
        }
        assert_eq!(first(".spec.list[*].tags[*]"), Some("\"x\""));
    }

    #[test]
    fn unsupported_paths_are_refused() {
        for path in [
            "",
            ".",
            "$.spec.color",
            "spec.color",
            ".spec..color",
            ".spec.*",
            ".spec.a b",
            ".spec.a ",
            "{.spec.a}",
            ".spec.a}{.spec.b",
            ".spec['a.b']",
            r#".spec["a"]"#,
            ".spec['a','b']",
            ".spec[0,1]",
            ".spec[0:2]",
            ".spec[:]",
            ".spec[]",
            ".spec[-0]",
            ".spec[+1]",
            ".spec[1234567890]",
            ".spec[0",
            r".spec.a\\b",
            r".spec.a\",
            ".spec.a$b",
            ".spec.a]",
            ".spec.ä",
            ".spec[?(@.a)]",
            ".spec[?(@.a==1)]",
            r#".spec[?(@.a="x")]"#,
            r#".spec[?(@.a=="x" && @.b=="y")]"#,
            r#".spec[?(@.a=="x\"y")]"#,
            r#".spec[?(@.a=="x)y")]"#,
            r#".spec[?(@.a[0]=="x")]"#,
            r#".spec[?(.a=="x")]"#,
            r#".spec[?(@.a=="x'")]"#,
            r#".spec[?(@.a=~"x")]"#,
            r#".spec[?("x"==@.a)]"#,
            ".spec[?(@.a==@.b)]",
            r#".spec[?(@.a=="x"]"#,
        ] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        let path = JsonPath::parse(".a[0].b").unwrap();
        for json in ["{", r#"{"a" [{}]}"#, r#"{"a":[1"#, r#"{"a":[{"b":}]}"#] {
            assert!(path.first(json.as_bytes()).is_err(), "{json}");
        }
    }
}
