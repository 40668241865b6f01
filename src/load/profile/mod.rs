//! What is asked of an endpoint, and how often: a profile, from YAML or JSON, valid or refused with every problem and its place.

mod built_in;
mod raw;
mod validate;

use std::{io, path::Path, time::Duration};

use crate::apimachinery::GroupVersionResource;
use crate::config::{Problems, parse_document};

pub use built_in::BUILT_IN;

/// `kind` of a profile; its `apiVersion` is the configuration's.
pub(super) const KIND: &str = "LoadProfile";

/// A valid profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Of the file, without its extension, or of the built-in profile.
    pub name: String,
    /// How long is measured on each endpoint.
    pub duration: Duration,
    /// How long events that are still on their way are waited for.
    pub settle: Duration,
    /// What a request may take from when it is sent to the end of its answer, or to the head of a watch's.
    pub timeout: Duration,
    /// Each has a name of its own. Never empty.
    pub workloads: Vec<Workload>,
}

/// Clients that all do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    /// Requests that are under way at once, at most; for watches, how many there are.
    pub clients: usize,
    /// Connections that they share in HTTP/2. In HTTP/1.1 each client has its own.
    pub connections: usize,
    /// Requests a second of all clients together, on a schedule that does not wait for answers. None: each client sends its next
    /// request once it has its answer. Of watches: how many are opened a second; None: all at once.
    pub rate: Option<f64>,
    pub transport: Transport,
    pub work: Work,
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    pub http: HttpVersion,
    pub encoding: WireEncoding,
    pub gzip: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    Http1,
    Http2,
}

/// What clients accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEncoding {
    Json,
    Protobuf,
    /// `PartialObjectMetadata` in JSON.
    Metadata,
    /// `PartialObjectMetadata` in protobuf.
    MetadataProtobuf,
}

/// What the clients of a workload do.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// One object after the other, of those that there are when a turn begins.
    Get {
        resource: GroupVersionResource,
        namespace: Option<String>,
        version: ReadVersion,
    },
    List(ListWork),
    Watch(WatchWork),
    Churn(ChurnWork),
}

/// A list, all its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWork {
    pub selection: Selection,
    pub version: ReadVersion,
    /// Objects a page; None: no pages.
    pub limit: Option<usize>,
}

/// Watches that are opened when a turn begins, and again when they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchWork {
    pub selection: Selection,
    pub start: Start,
}

/// Writes, to objects that the run itself has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChurnWork {
    pub resource: ChurnResource,
    /// How many are there from the beginning, to be updated.
    pub objects: usize,
    /// The size of an object in JSON, about.
    pub bytes: usize,
    /// How many of the writes are updates, creations and deletions, relative to one another.
    pub updates: usize,
    pub creates: usize,
    pub deletes: usize,
    /// Pods are bound to so many nodes, `load-node-0` and on; 0: to none, and no scheduler takes them.
    pub nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChurnResource {
    ConfigMaps,
    Pods,
}

/// Which objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub resource: GroupVersionResource,
    /// None: of all namespaces, or of the cluster.
    pub namespace: Option<String>,
    /// In both, `{client}` is the client's number, from 0.
    pub labels: Option<String>,
    pub fields: Option<String>,
}

/// The `resourceVersion` of gets and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// `0`.
    Any,
    /// None.
    MostRecent,
    /// The newest one when the turn begins, `NotOlderThan`.
    NotOlderThan,
}

/// Where watches start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the newest version when the turn begins: nothing but changes comes.
    Now,
    /// `resourceVersion=0`: all objects come first.
    Any,
    /// No version: all objects come first, from the newest state.
    MostRecent,
    /// `sendInitialEvents`, from the newest state, with a bookmark at the end of the initial objects.
    WatchList,
}

/// There is no profile to work with.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("cannot read the profile {0}; a file, or one of {names}", names = BUILT_IN.map(|(name, _)| name).join(", "))]
    Read(String, #[source] io::Error),
    #[error("the profile {0} has problems")]
    Invalid(String, #[source] Problems),
}

impl Profile {
    /// The built-in profile of that name, else the file.
    ///
    /// # Errors
    /// There is none, or it has problems: all of them, with their places.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text).map_err(|problems| ProfileError::Invalid((*name).to_owned(), problems));
        }
        let text = std::fs::read_to_string(name).map_err(|error| ProfileError::Read(name.to_owned(), error))?;
        let stem = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.display().to_string());
        Self::parse(&stem, &text).map_err(|problems| ProfileError::Invalid(name.to_owned(), problems))
    }

    /// The profile that a text holds.
    ///
    /// # Errors
    /// All its problems, with their places.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        let parsed = parse_document(text).and_then(|document| validate::validate(name, &document));
        parsed.map_err(|problems| problems.located(text))
    }

    /// The same for another time, if one is given.
    #[must_use]
    pub fn lasting(self, duration: Option<Duration>) -> Self {
        Self { duration: duration.unwrap_or(self.duration), ..self }
    }
}

impl Work {
    /// What the report calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get { .. } => "get",
            Self::List(_) => "list",
            Self::Watch(_) => "watch",
            Self::Churn(_) => "churn",
        }
    }
}

impl WireEncoding {
    /// As profiles and reports write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Metadata => "metadata",
            Self::MetadataProtobuf => "metadataProtobuf",
        }
    }

    pub(super) fn is_protobuf(self) -> bool {
        matches!(self, Self::Protobuf | Self::MetadataProtobuf)
    }

    /// The Accept header; `list`: of a list, not of an object or of a watch.
    pub(super) fn accept(self, list: bool) -> &'static str {
        match (self, list) {
            (Self::Json, _) => "application/json",
            // As client-go asks: custom resources have no protobuf.
            (Self::Protobuf, _) => "application/vnd.kubernetes.protobuf,application/json",
            (Self::Metadata, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            (Self::Metadata, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (Self::MetadataProtobuf, false) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Self::MetadataProtobuf, true) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
        }
    }
}

impl HttpVersion {
    /// As profiles and reports write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "1.1",
            Self::Http2 => "2",
        }
    }
}

impl ChurnResource {
    pub(super) fn resource(self) -> GroupVersionResource {
        let plural = match self {
            Self::ConfigMaps => "configmaps",
            Self::Pods => "pods",
        };
        GroupVersionResource::new("", "v1", plural)
    }
}
