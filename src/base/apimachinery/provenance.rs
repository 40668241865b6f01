//! The conditions under which a state was fetched from an API server. Gateways compare them before one takes a state
//! from another (the manual's chapter `consistency`, "Peers").

use http::{HeaderMap, HeaderName, HeaderValue};

/// In a request: another gateway asks, which wants an answer from memory or none. The value is the name of that
/// gateway.
pub const PEER: HeaderName = HeaderName::from_static("kube-fanout-peer");

/// In a request of a peer: the format in which it reads states as they are kept. In the answer: the format in which the
/// state is, instead of a list.
pub const STATE_FORMAT: HeaderName = HeaderName::from_static("kube-fanout-state-format");

const CLUSTER: HeaderName = HeaderName::from_static("kube-fanout-cluster");
const SERVER: HeaderName = HeaderName::from_static("kube-fanout-server");
const DEFINITION: HeaderName = HeaderName::from_static("kube-fanout-definition");

/// The longest value that is read, in bytes: a peer's text gets into logs and the status.
const VALUE_BYTES_MAX: usize = 256;

/// Two states with the same provenance, of the same resource, version of the API, and encoding, differ only in their
/// resource versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The uid of the namespace `kube-system`, which identifies a cluster.
    pub cluster: Box<str>,
    /// The program that wrote the objects, as upstream reports it (`/version`).
    pub server: Box<str>,
    /// The uid and generation of the definition of a custom resource; `None` for a built-in resource.
    pub definition: Option<Box<str>>,
}

impl Provenance {
    /// Adds it to the headers of a response to a peer. Returns false if that is not possible: a value is no header
    /// value.
    pub fn write(&self, headers: &mut HeaderMap) -> bool {
        let definition = self.definition.as_ref().map(|definition| (DEFINITION, definition));
        let named = [(CLUSTER, &self.cluster), (SERVER, &self.server)].into_iter().chain(definition);
        for (name, text) in named {
            let Ok(value) = HeaderValue::from_str(text) else { return false };
            headers.insert(name, value);
        }
        true
    }

    /// What a peer said; `None` if it said nothing, or what no gateway says: it is no gateway that answers peers.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let text = |value: &HeaderValue| {
            let text = value.to_str().ok().filter(|text| text.len() <= VALUE_BYTES_MAX)?;
            Some(Box::from(text))
        };
        let (cluster, server) = (text(headers.get(&CLUSTER)?)?, text(headers.get(&SERVER)?)?);
        let definition = match headers.get(&DEFINITION) {
            Some(value) => Some(text(value)?),
            None => None,
        };
        Some(Self { cluster, server, definition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for definition in [None, Some("c7a71ef4-d716-43a0-8e9b-f1055fb2c4de/3".into())] {
            let written = Provenance { cluster: "a".into(), server: "v1.36.2 4a9358e 1.36".into(), definition };
            let mut headers = HeaderMap::new();
            assert!(written.write(&mut headers));
            assert_eq!(Provenance::read(&headers), Some(written));
        }
        assert_eq!(Provenance::read(&HeaderMap::new()), None);
        for (name, value) in [(CLUSTER, "a".repeat(VALUE_BYTES_MAX + 1)), (DEFINITION, "\u{e9}".to_owned())] {
            let mut headers = HeaderMap::new();
            let written = Provenance { cluster: "a".into(), server: "b".into(), definition: None };
            assert!(written.write(&mut headers));
            headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            assert_eq!(Provenance::read(&headers), None, "{value}");
        }
        let odd = Provenance { cluster: "a\n".into(), server: "b".into(), definition: None };
        assert!(!odd.write(&mut HeaderMap::new()));
    }
}
