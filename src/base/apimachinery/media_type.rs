//! Negotiates the representation of a response by the `Accept` header (read-path 4.4).

use http::HeaderValue;

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Json,
    Protobuf,
}

/// How much of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    Whole,
    /// `PartialObjectMetadata`, or a list of them.
    Partial(MetaVersion),
    /// A Table with a row for each object; the query says how much of the object a row contains.
    Table(MetaVersion),
}

/// The version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    V1,
    V1beta1,
}

/// A representation of objects that can be served from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Representation {
    pub encoding: Encoding,
    pub view: View,
}

/// The kind of response, as far as it decides which representations exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    Object,
    List,
    Watch,
}

impl Encoding {
    pub const ALL: [Self; 2] = [Self::Json, Self::Protobuf];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }
}

impl MetaVersion {
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl Representation {
    pub const JSON: Self = Self { encoding: Encoding::Json, view: View::Whole };

    /// The `Content-Type` of a response: without a charset, and with `stream=watch` only in protobuf (read-path 3.1).
    pub const fn content_type(self, kind: ResponseKind) -> &'static str {
        match (self.encoding, kind) {
            (Encoding::Json, _) => "application/json",
            (Encoding::Protobuf, ResponseKind::Object | ResponseKind::List) => "application/vnd.kubernetes.protobuf",
            (Encoding::Protobuf, ResponseKind::Watch) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// The API server would choose, or might choose, a representation that memory cannot give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the requested representation is not served from memory")]
pub struct NotFromMemory;

/// Negotiates like the API server: clauses are ordered by falling quality, and the first one with a type that the
/// server supports wins.
///
/// Returns the representations that may win, the best first. A later one wins if the resource lacks the ones before it
/// (custom resources have no protobuf); if it lacks all of them, upstream decides. `accept` are all header lines of
/// that name. The API server reads only the first line, so requests with several lines are forwarded.
pub fn negotiate<'a>(
    accept: impl IntoIterator<Item = &'a HeaderValue>,
    kind: ResponseKind,
) -> Result<Vec<Representation>, NotFromMemory> {
    let mut lines = accept.into_iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Ok(vec![Representation::JSON]),
        (Some(line), None) => line.to_str().map_err(|_| NotFromMemory)?,
        (Some(_), Some(_)) => return Err(NotFromMemory),
    };
    if line.is_empty() {
        return Ok(vec![Representation::JSON]);
    }
    let mut clauses = line.split(',').map(Clause::parse).collect::<Result<Vec<_>, _>>()?;
    if clauses.len() > CLAUSES_MAX {
        return Err(NotFromMemory);
    }
    clauses.sort_by_key(Clause::rank);
    clauses.retain(|clause| !clause.is_unknown_to_server());
    let is_json = |clause: &Clause<'_>| clause.representation(kind) == Some(Representation::JSON);
    let certain = |at: usize| {
        // The API server's sort order is not strict: a concrete type may come before a wildcard of higher quality.
        clauses[at].media_type != "*" || clauses[at..].iter().all(is_json)
    };
    let forms = (0..clauses.len()).map_while(|at| clauses[at].representation(kind).filter(|_| certain(at)));
    let forms: Vec<_> = forms.collect();
    if forms.is_empty() { Err(NotFromMemory) } else { Ok(forms) }
}

/// One alternative of the header.
struct Clause<'a> {
    media_type: &'a str,
    subtype: &'a str,
    /// In thousandths.
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

    /// Higher quality first; with equal quality, the more specific type first; otherwise the order of the header.
    fn rank(&self) -> (std::cmp::Reverse<u16>, bool, bool) {
        (std::cmp::Reverse(self.quality), self.media_type == "*", self.subtype == "*")
    }

    /// Whether certainly no API server supports the type, so that it tries the next clause.
    fn is_unknown_to_server(&self) -> bool {
        !matches!(self.media_type, "application" | "*")
    }

    /// The representation of the clause, if memory can give it.
    ///
    /// `application/*` is refused for built-in resources (read-path 4.1). A quality of zero is left to the API server.
    fn representation(&self, kind: ResponseKind) -> Option<Representation> {
        let encoding = match (self.media_type, self.subtype) {
            ("application", "json") | ("*", "*") => Encoding::Json,
            ("application", "vnd.kubernetes.protobuf") => Encoding::Protobuf,
            _ => return None,
        };
        let view = match self.parameter("as") {
            None => View::Whole,
            Some("Table") => self.table(encoding)?,
            Some(_) => self.partial(kind)?,
        };
        let is_watch = kind == ResponseKind::Watch;
        let harmless = |(name, value): &(&str, &str)| match *name {
            "charset" => true,
            "stream" => is_watch && *value == "watch",
            // A watch is never pretty (read-path 3.1).
            "pretty" => is_watch,
            "as" | "g" | "v" => view != View::Whole,
            _ => false,
        };
        (self.quality > 0 && self.parameters.iter().all(harmless)).then_some(Representation { encoding, view })
    }

    /// The name in the clause must be the one for lists, or the one for objects and watches (read-path 2).
    fn partial(&self, kind: ResponseKind) -> Option<View> {
        let name = match kind {
            ResponseKind::List => "PartialObjectMetadataList",
            ResponseKind::Object | ResponseKind::Watch => "PartialObjectMetadata",
        };
        (self.parameter("as")? == name).then(|| self.meta_version().map(View::Partial))?
    }

    /// Tables exist in JSON only.
    fn table(&self, encoding: Encoding) -> Option<View> {
        (encoding == Encoding::Json).then(|| self.meta_version().map(View::Table))?
    }

    fn meta_version(&self) -> Option<MetaVersion> {
        match (self.parameter("g")?, self.parameter("v")?) {
            ("meta.k8s.io", "v1") => Some(MetaVersion::V1),
            ("meta.k8s.io", "v1beta1") => Some(MetaVersion::V1beta1),
            _ => None,
        }
    }

    /// The value of a parameter; `None` if it is missing or occurs twice.
    fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut values = self.parameters.iter().filter(|(given, _)| *given == name).map(|(_, value)| *value);
        values.next().filter(|_| values.next().is_none())
    }
}

/// Parses a quality into thousandths: `1`, `0.5`, `0.875`, `1.000`.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(whole, "0" | "1") || fraction.len() > 3 || !digits(fraction) {
        return None;
    }
    let quality = format!("{whole}{fraction:0<3}").parse().ok()?;
    (quality <= 1000).then_some(quality)
}

/// Up to this number of clauses, the API server's sort is known to be stable.
const CLAUSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOBUF: Representation = Representation { encoding: Encoding::Protobuf, view: View::Whole };

    fn partial(encoding: Encoding, version: MetaVersion) -> Representation {
        Representation { encoding, view: View::Partial(version) }
    }

    fn forms(lines: &[&str], kind: ResponseKind) -> Vec<Representation> {
        let lines: Vec<_> = lines.iter().map(|line| HeaderValue::from_str(line).unwrap()).collect();
        negotiate(&lines, kind).unwrap_or_default()
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
            assert_eq!(forms(&[line], ResponseKind::List).first(), Some(&Representation::JSON), "{line}");
        }
        assert_eq!(forms(&[], ResponseKind::List), [Representation::JSON]);
    }

    #[test]
    fn protobuf_is_served_and_json_where_a_resource_has_none() {
        for line in [
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;q=0.5,application/vnd.kubernetes.protobuf;q=0.9",
        ] {
            assert_eq!(forms(&[line], ResponseKind::List), [PROTOBUF, Representation::JSON], "{line}");
        }
        assert_eq!(forms(&["application/vnd.kubernetes.protobuf, application/yaml"], ResponseKind::List), [PROTOBUF]);
        assert_eq!(forms(&["application/vnd.kubernetes.protobuf;stream=watch"], ResponseKind::Watch), [PROTOBUF]);
    }

    #[test]
    fn metadata_is_requested_by_the_kind_of_the_response() {
        let object = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let list = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1";
        let json = partial(Encoding::Json, MetaVersion::V1);
        assert_eq!(forms(&[object], ResponseKind::Object), [json]);
        assert_eq!(forms(&[object], ResponseKind::Watch), [json]);
        assert_eq!(forms(&[list], ResponseKind::List), [partial(Encoding::Protobuf, MetaVersion::V1beta1)]);
        assert_eq!(forms(&[object], ResponseKind::List), []);
        assert_eq!(forms(&[list], ResponseKind::Watch), []);
    }

    #[test]
    fn tables_are_served_to_watches_too() {
        let table = |version| Representation { encoding: Encoding::Json, view: View::Table(version) };
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                       application/json";
        let all = [table(MetaVersion::V1), table(MetaVersion::V1beta1), Representation::JSON];
        assert_eq!(forms(&[kubectl], ResponseKind::Object), all);
        assert_eq!(forms(&[kubectl], ResponseKind::List), all);
        assert_eq!(forms(&[kubectl], ResponseKind::Watch), all);
    }

    #[test]
    fn other_representations_are_left_to_the_server() {
        let lines = [
            "application/yaml",
            "application/cbor",
            "text/html",
            "application/*",
            "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
            "application/json;as=Table;v=v1,application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v2",
            "application/json;as=PartialObjectMetadataList;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadataList",
            "application/json;g=meta.k8s.io;v=v1",
            "application/json;pretty=1",
            "application/json;stream=watch",
            "application/json;q=0",
            "application/json;q=2",
            "application/json;q=abc",
            "application/json;foo",
            "*/*;q=0.9,application/yaml;q=0.5",
            "*/*;q=0.9,application/vnd.kubernetes.protobuf;q=0.5",
            "*",
            "json",
            "application/json,",
            "Application/JSON",
            "application/yaml,*/*",
            "a/b,a/b,a/b,a/b,a/b,a/b,a/b,a/b,application/json",
        ];
        for line in lines {
            assert_eq!(forms(&[line], ResponseKind::List), [], "{line}");
        }
        assert_eq!(forms(&["application/json", "application/json"], ResponseKind::List), []);
    }

    #[test]
    fn a_watch_ignores_pretty_and_may_name_its_stream() {
        for line in ["application/json;stream=watch", "application/json;pretty=1", "application/json"] {
            assert_eq!(forms(&[line], ResponseKind::Watch), [Representation::JSON], "{line}");
        }
        assert_eq!(forms(&["application/json;stream=foo"], ResponseKind::Watch), []);
    }
}
