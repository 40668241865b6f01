//! A profile: which requests an endpoint gets, and how often. Parsed from YAML or JSON; an invalid one is refused with
//! all its problems and their places.

mod built_in;
mod fields;

use std::{io, path::Path, time::Duration};

use base::apimachinery::GroupVersionResource;
use base::config::Problems;

pub use built_in::BUILT_IN;
pub(super) use fields::DURATIONS;

/// Stands in selectors for the number of the client.
pub(super) const CLIENT: &str = "{client}";
/// `kind` of a profile; its `apiVersion` is the one of the configuration.
pub(super) const KIND: &str = "LoadProfile";

/// A valid profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name of the file without its extension, or of the built-in profile.
    pub name: String,
    /// How long each endpoint is measured.
    pub duration: Duration,
    /// How long to wait for events that have not arrived yet.
    pub settle: Duration,
    /// The maximum time from sending a request to the end of its response; for watches, to the head of the response.
    pub timeout: Duration,
    /// Never empty; the names are unique.
    pub workloads: Vec<Workload>,
}

/// A number of clients that send the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    /// The maximum number of concurrent requests; for watches, the number of watches.
    pub clients: usize,
    /// The number of connections that the clients share in HTTP/2. In HTTP/1.1 each client has its own.
    pub connections: usize,
    /// Requests per second of all clients together, on a schedule that does not wait for responses. `None`: each client
    /// sends its next request after it got a response. For watches: how many are opened per second; `None`: all at
    /// once.
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

/// The encoding that clients accept.
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
    /// Gets the objects that exist at the start of a turn (the first 500, if there are more), one after the other.
    Get {
        resource: GroupVersionResource,
        namespace: Option<String>,
        version: ReadVersion,
    },
    List(ListWork),
    Watch(WatchWork),
    Informer(InformerWork),
    SlowReader(SlowReaderWork),
    Reconnect(ReconnectWork),
    Churn(ChurnWork),
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWork {
    pub selection: Selection,
    pub version: ReadVersion,
    /// Objects per page; `None`: without pages.
    pub limit: Option<usize>,
}

/// Watches that are opened at the start of a turn, and again when they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchWork {
    pub selection: Selection,
    pub start: Start,
}

/// Clients that follow a collection as client-go's reflector does: they read all objects once, then watch from that
/// version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerWork {
    pub selection: Selection,
    /// Whether all objects are read by a watch-list, as client-go 1.35 and later do. If the server refuses it, they are
    /// listed.
    pub watch_list: bool,
    /// Objects per page of a list that does not start at version 0, as the `WatchListPageSize` of client-go.
    pub limit: Option<usize>,
}

/// Clients that read responses more slowly than the server could send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowReaderWork {
    pub selection: Selection,
    pub request: SlowRequest,
    /// How long a client reads nothing after the head of a response.
    pub stop_for: Duration,
    /// How fast it reads after that; `None`: as fast as it can.
    pub bytes_per_second: Option<u64>,
}

/// The request whose response is read slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowRequest {
    List(ReadVersion),
    Watch(Start),
}

/// Informers whose connections are cut at intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconnectWork {
    pub informer: InformerWork,
    /// The time between two cuts, and between the start of the turn and the first cut.
    pub every: Duration,
    /// The connections are cut one after the other over this time; zero: all at once.
    pub spread: Duration,
}

/// Writes to objects that the run itself created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChurnWork {
    pub resource: ChurnResource,
    /// The number of objects that are created before the run, to be updated.
    pub objects: usize,
    /// The approximate size of an object in JSON.
    pub bytes: u64,
    /// The relative frequencies of updates, creations and deletions.
    pub updates: usize,
    pub creates: usize,
    pub deletes: usize,
    /// The number of nodes to which pods are bound, named `load-node-0` and so on. 0: pods stay unbound, since their
    /// scheduler does not exist.
    pub nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChurnResource {
    ConfigMaps,
    Pods,
}

/// The selected objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub resource: GroupVersionResource,
    /// `None`: all namespaces, or a cluster-scoped resource.
    pub namespace: Option<String>,
    /// In both selectors, `{client}` is replaced by the client's number, from 0.
    pub labels: Option<String>,
    pub fields: Option<String>,
}

/// The `resourceVersion` of gets and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// `0`.
    Any,
    /// Unset.
    MostRecent,
    /// The newest version at the start of the turn, with `NotOlderThan`.
    NotOlderThan,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the newest version at the start of the turn: only changes are sent.
    Now,
    /// `resourceVersion=0`: all objects are sent first.
    Any,
    /// No version: all objects are sent first, from the most recent state.
    MostRecent,
    /// `sendInitialEvents`: all objects of the most recent state are sent first, then a bookmark.
    WatchList,
}

/// A profile could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "cannot read the profile {0:?}; allowed: a YAML or JSON file, or a built-in profile: {names}",
        names = BUILT_IN.map(|(name, _)| name).join(", ")
    )]
    Read(String, #[source] io::Error),
    #[error("the profile {0} has problems")]
    Invalid(String, #[source] Problems),
}

impl Profile {
    /// Loads the built-in profile with that name, otherwise the file.
    ///
    /// # Errors
    /// There is no such profile, or it has problems: all of them, with their places.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text).map_err(|problems| ProfileError::Invalid((*name).to_owned(), problems));
        }
        let text = std::fs::read_to_string(name).map_err(|error| ProfileError::Read(name.to_owned(), error))?;
        let stem = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.display().to_string());
        Self::parse(&stem, &text).map_err(|problems| ProfileError::Invalid(name.to_owned(), problems))
    }

    /// Parses the profile in `text`.
    ///
    /// # Errors
    /// All its problems, with their places.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        fields::parse(name, text).map_err(|problems| problems.located(text))
    }

    /// The profile with another duration, if one is given.
    #[must_use]
    pub fn lasting(self, duration: Option<Duration>) -> Self {
        Self { duration: duration.unwrap_or(self.duration), ..self }
    }
}

impl Work {
    /// The name in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get { .. } => "get",
            Self::List(_) => "list",
            Self::Watch(_) => "watch",
            Self::Informer(_) => "informer",
            Self::SlowReader(_) => "slowReader",
            Self::Reconnect(_) => "reconnect",
            Self::Churn(_) => "churn",
        }
    }
}

impl Selection {
    /// Whether its clients select different objects.
    pub(super) fn depends_on_client(&self) -> bool {
        [&self.labels, &self.fields].into_iter().flatten().any(|selector| selector.contains(CLIENT))
    }
}

impl WireEncoding {
    /// The name in profiles and reports.
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

    /// The `Accept` header; `list` is set for a list, as opposed to an object or a watch.
    pub(super) fn accept(self, list: bool) -> &'static str {
        match (self, list) {
            (Self::Json, _) => "application/json",
            // As client-go does, because custom resources have no protobuf.
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
    /// The name in profiles and reports.
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
