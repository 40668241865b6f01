//! Continue tokens in the API server's format (read-path 1.3).

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Serialize};

use crate::json;

/// The start of the next page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// `None` for the newest revision at the time of the request.
    pub(crate) revision: Option<u64>,
    /// The first key of the page, relative to the scope of the list, without a leading slash.
    pub(crate) start: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

impl ContinueToken {
    /// Continues after the object with this key.
    pub(crate) fn after(revision: Option<u64>, key: &str) -> Self {
        Self { revision, start: format!("{key}\0") }
    }

    /// The error has the API server's text, except where that comes from Go's decoders.
    pub(crate) fn parse(token: &str) -> Result<Self, String> {
        let text = BASE64.decode(token).map_err(|_| "illegal base64 data at input byte 0".to_owned())?;
        let wire: Wire = serde_json::from_slice(&text).map_err(|_| "unexpected end of JSON input".to_owned())?;
        if wire.v != VERSION {
            return Err(format!("server does not recognize this encoded version {}", wire.v));
        }
        if wire.rv == 0 {
            return Err(format!("incorrect encoded start resourceVersion (version {VERSION})"));
        }
        if wire.start.is_empty() {
            return Err(format!("encoded start key empty (version {VERSION})"));
        }
        let start = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if start.split('/').any(|segment| segment == "..") {
            return Err(start.to_owned());
        }
        Ok(Self { revision: u64::try_from(wire.rv).ok(), start: start.to_owned() })
    }

    pub(crate) fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        // Only tokens from the watch cache have the slash (read-path 1.3).
        let slash = if self.revision.is_some() { "/" } else { "" };
        let wire = Wire { v: VERSION.into(), rv, start: format!("{slash}{}", self.start) };
        BASE64.encode(json::encode(&wire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_equal_those_of_a_real_server() {
        let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzYyLCJzdGFydCI6Ii9wb2QtMDRcdTAwMDAifQ";
        let parsed = ContinueToken::parse(token).unwrap();
        assert_eq!(parsed, ContinueToken::after(Some(362), "pod-04"));
        assert_eq!(parsed.encode(), token);
    }

    #[test]
    fn a_token_without_version_has_no_slash() {
        let token = ContinueToken::after(None, "a/b");
        assert_eq!(BASE64.decode(token.encode()).unwrap(), br#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a/b\u0000"}"#);
        assert_eq!(ContinueToken::parse(&token.encode()), Ok(token));
    }

    #[test]
    fn errors_name_the_invalid_part_of_a_token() {
        for (text, problem) in [
            (
                r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#,
                "server does not recognize this encoded version meta.k8s.io/v2",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#, "encoded start key empty (version meta.k8s.io/v1)"),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#, "../x"),
        ] {
            assert_eq!(ContinueToken::parse(&BASE64.encode(text)), Err(problem.into()));
        }
    }
}
