//! Continue tokens in the API server's own format (read-path 1.3), so that consecutive pages can come from different
//! servers.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::apimachinery::ResourceVersion;
use crate::apimachinery::go_json::write_string;

/// The start of the next page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    pub version: ContinueAt,
    /// The first key that may be on the page, relative to the scope of the request, without a leading slash. It is the
    /// last key of the previous page followed by a NUL, which no key contains. A token without the NUL is inclusive.
    pub start: String,
}

/// The state of the collection that the next page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueAt {
    /// The current state, whatever it is: an inconsistent continuation.
    Latest,
    At(ResourceVersion),
}

/// The token is not one that the API server makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContinueToken {
    #[error("the continue token is not base64url")]
    Base64,
    #[error("the continue token is not the expected JSON")]
    Json,
    #[error("the continue token has an unsupported format version")]
    Format,
    #[error("the continue token has no resource version")]
    Version,
    #[error("the continue token has an invalid start key")]
    Start,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    /// The token that follows a page whose last key, relative to the scope of the request, is `last`.
    pub fn after(version: ResourceVersion, last: &str) -> Self {
        Self { version: ContinueAt::At(version), start: format!("{last}\0") }
    }

    /// Parses a token. Refuses what the API server accepts but never writes itself: padding, unknown members, stray
    /// bits.
    pub fn parse(text: &str) -> Result<Self, InvalidContinueToken> {
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidContinueToken::Base64)?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| InvalidContinueToken::Json)?;
        if wire.v != FORMAT {
            return Err(InvalidContinueToken::Format);
        }
        let version = match u64::try_from(wire.rv) {
            Err(_) => ContinueAt::Latest,
            Ok(number) => ContinueAt::At(ResourceVersion::new(number).ok_or(InvalidContinueToken::Version)?),
        };
        // Tokens of lists that the API server read from etcd have no slash (read-path 1.3).
        let start = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if start.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(InvalidContinueToken::Start);
        }
        Ok(Self { version, start: start.to_owned() })
    }

    /// The text that the API server's watch cache writes: base64url without padding, `start` with a leading slash
    /// (read-path 1.3).
    pub fn encode(&self) -> String {
        let number = match self.version {
            ContinueAt::Latest => "-1".to_owned(),
            ContinueAt::At(version) => version.to_string(),
        };
        let mut json = format!(r#"{{"v":"{FORMAT}","rv":{number},"start":"#).into_bytes();
        write_string(&mut json, &format!("/{}", self.start));
        json.push(b'}');
        URL_SAFE_NO_PAD.encode(json)
    }
}

const FORMAT: &str = "meta.k8s.io/v1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    fn token(json: &str) -> Result<ContinueToken, InvalidContinueToken> {
        ContinueToken::parse(&URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn tokens_equal_those_of_the_api_server() {
        let recorded = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9wb2QtMDRcdTAwMDAifQ";
        let token = ContinueToken::after(version(359), "pod-04");
        assert_eq!(token.encode(), recorded);
        assert_eq!(ContinueToken::parse(recorded), Ok(token));
    }

    #[test]
    fn all_forms_of_the_server_are_parsed() {
        let cases = [
            (r#"{"v":"meta.k8s.io/v1","rv":5489,"start":"cm-b\u0000"}"#, ContinueAt::At(version(5489)), "cm-b\0"),
            (r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"cm-b\u0000"}"#, ContinueAt::Latest, "cm-b\0"),
            (r#"{"v":"meta.k8s.io/v1","rv":-5,"start":"/ns/a\u0000"}"#, ContinueAt::Latest, "ns/a\0"),
            (r#"{"v":"meta.k8s.io/v1","rv":7,"start":"cm-b"}"#, ContinueAt::At(version(7)), "cm-b"),
        ];
        for (json, at, start) in cases {
            assert_eq!(token(json), Ok(ContinueToken { version: at, start: start.to_owned() }), "{json}");
        }
    }

    #[test]
    fn other_tokens_are_refused() {
        let cases = [
            (r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#, InvalidContinueToken::Format),
            (r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#, InvalidContinueToken::Version),
            (r#"{"v":"meta.k8s.io/v1","start":"a"}"#, InvalidContinueToken::Json),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a","x":1}"#, InvalidContinueToken::Json),
            (r#"{"V":"meta.k8s.io/v1","rv":1,"start":"a"}"#, InvalidContinueToken::Json),
            (r#"{"v":"meta.k8s.io/v1","rv":1"#, InvalidContinueToken::Json),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#, InvalidContinueToken::Start),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/"}"#, InvalidContinueToken::Start),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#, InvalidContinueToken::Start),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/"}"#, InvalidContinueToken::Start),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"//a"}"#, InvalidContinueToken::Start),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/./b"}"#, InvalidContinueToken::Start),
        ];
        for (json, error) in cases {
            assert_eq!(token(json), Err(error), "{json}");
        }
        for text in ["garbage!", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ=="] {
            assert_eq!(ContinueToken::parse(text), Err(InvalidContinueToken::Base64), "{text}");
        }
    }

    proptest! {
        #[test]
        fn tokens_round_trip(number in 1..=i64::MAX as u64, key in "[a-z0-9.<&é-]{0,8}x(/[a-z0-9-]{1,8})?") {
            let token = ContinueToken::after(version(number), &key);
            prop_assert_eq!(ContinueToken::parse(&token.encode()), Ok(token));
        }
    }
}
