//! Which representation of an answer the `Accept` header asks for (read-path 4.4).

use http::HeaderValue;

/// A form of objects that can be answered from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Representation {
    Json,
}

impl Representation {
    /// The `Content-Type` of an answer: without a charset, and for a watch without `stream=watch` (read-path 3.1).
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
        }
    }
}

/// The server would choose, or might choose, what memory cannot give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the representation that is asked for is not served from memory")]
pub struct NotFromMemory;

/// Follows the API server: clauses by falling quality, the first that names a type it knows wins.
///
/// `accept` are all header lines of that name. The server reads only the first; more than one is left to it.
pub fn negotiate<'a>(
    accept: impl IntoIterator<Item = &'a HeaderValue>,
    watch: bool,
) -> Result<Representation, NotFromMemory> {
    let mut lines = accept.into_iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Ok(Representation::Json),
        (Some(line), None) => line.to_str().map_err(|_| NotFromMemory)?,
        (Some(_), Some(_)) => return Err(NotFromMemory),
    };
    if line.is_empty() {
        return Ok(Representation::Json);
    }
    let mut clauses = line.split(',').map(Clause::parse).collect::<Result<Vec<_>, _>>()?;
    if clauses.len() > CLAUSES_MAX {
        return Err(NotFromMemory);
    }
    clauses.sort_by_key(Clause::rank);
    let mut known = clauses.iter().filter(|clause| !clause.is_unknown_to_server());
    let winner = known.next().ok_or(NotFromMemory)?;
    // The server's sort is not strict: a named type may come before a wildcard of higher quality.
    let certain = winner.media_type != "*" || known.all(|clause| clause.is_plain_json(watch));
    if certain && winner.is_plain_json(watch) { Ok(Representation::Json) } else { Err(NotFromMemory) }
}

/// One alternative of the header.
struct Clause<'a> {
    media_type: &'a str,
    subtype: &'a str,
    /// Thousandths.
    quality: u16,
    /// Without the quality.
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Result<Self, NotFromMemory> {
        let mut parts = text.split(';').map(str::trim);
        let (media_type, subtype) = parts.next().and_then(|name| name.split_once('/')).ok_or(NotFromMemory)?;
        let mut clause = Self { media_type, subtype, quality: 1000, parameters: Vec::new() };
        for part in parts {
            match part.split_once('=').ok_or(NotFromMemory)? {
                ("q", value) => clause.quality = parse_quality(value).ok_or(NotFromMemory)?,
                parameter => clause.parameters.push(parameter),
            }
        }
        Ok(clause)
    }

    /// Higher quality first; of the same quality what is more specific; else the order of the header.
    fn rank(&self) -> (std::cmp::Reverse<u16>, bool, bool) {
        (std::cmp::Reverse(self.quality), self.media_type == "*", self.subtype == "*")
    }

    /// Whether it is certain that no API server has such a type, so that it goes on to the next clause.
    fn is_unknown_to_server(&self) -> bool {
        !matches!(self.media_type, "application" | "*")
    }

    /// `application/*` is refused for built-in resources (read-path 4.1), and a quality of zero is odd.
    fn is_plain_json(&self, watch: bool) -> bool {
        let fits = matches!((self.media_type, self.subtype), ("application", "json") | ("*", "*"));
        let harmless = |(name, value): &(&str, &str)| match *name {
            "charset" => true,
            "stream" => watch && *value == "watch",
            // A watch is never pretty (read-path 3.1).
            "pretty" => watch,
            _ => false,
        };
        fits && self.quality > 0 && self.parameters.iter().all(harmless)
    }
}

/// In thousandths: `1`, `0.5`, `0.875`, `1.000`.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(whole, "0" | "1") || fraction.len() > 3 || !digits(fraction) {
        return None;
    }
    let quality = format!("{whole}{fraction:0<3}").parse().ok()?;
    (quality <= 1000).then_some(quality)
}

/// Up to here the server's sort is known to keep the order of equals.
const CLAUSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn from_memory(lines: &[&str], watch: bool) -> bool {
        let lines: Vec<_> = lines.iter().map(|line| HeaderValue::from_str(line).unwrap()).collect();
        negotiate(&lines, watch).is_ok()
    }

    #[test]
    fn plain_json_is_served() {
        let lines = [
            "",
            "application/json",
            "*/*",
            "application/json, */*",
            "application/json;q=0.9,*/*;q=0.1",
            "application/yaml;q=0.5,application/json",
            "*/*,application/json",
            "text/html,application/json",
            "application/json;charset=utf-8",
            "application/*;q=0.5, application/json;q=0.8",
            "application/json ; q=1.000",
            "application/vnd.kubernetes.protobuf;q=0.999,application/json",
        ];
        for line in lines {
            assert!(from_memory(&[line], false), "{line}");
        }
        assert!(from_memory(&[], false));
    }

    #[test]
    fn everything_else_is_left_to_the_server() {
        let lines = [
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;q=0.5,application/vnd.kubernetes.protobuf;q=0.9",
            "application/cbor",
            "text/html",
            "application/*",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;pretty=1",
            "application/json;stream=watch",
            "application/json;q=0",
            "application/json;q=2",
            "application/json;q=abc",
            "application/json;foo",
            "*/*;q=0.9,application/yaml;q=0.5",
            "*",
            "json",
            "application/json,",
            "Application/JSON",
            "application/yaml,*/*",
            "a/b,a/b,a/b,a/b,a/b,a/b,a/b,a/b,application/json",
        ];
        for line in lines {
            assert!(!from_memory(&[line], false), "{line}");
        }
        assert!(!from_memory(&["application/json", "application/json"], false));
    }

    #[test]
    fn a_watch_ignores_pretty_and_may_name_its_stream() {
        for line in ["application/json;stream=watch", "application/json;pretty=1", "application/json"] {
            assert!(from_memory(&[line], true), "{line}");
        }
        assert!(!from_memory(&["application/json;stream=foo"], true));
    }
}
