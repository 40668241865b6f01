//! kube-fanout: a watch cache and fan-out gateway in front of a Kubernetes API server.
//!
//! The gateway keeps every requested collection in memory, as the bytes that the API server sent, with separate stores
//! for JSON and protobuf. It follows each collection with one watch, and answers get, list and watch requests of any
//! number of clients from memory. Requests that it cannot answer with certainty are forwarded.
//!
//! This page is the map of the code. The [`manual`] describes how requests are answered and what is guaranteed; the
//! README describes how to run the gateway.
//!
//! # Two flows
//!
//! Requests flow down on the left, data on the right. They meet in [`serve`].
//!
//! ```text
//!   a client's request                               the API server's data
//!
//!   listener   sockets, TLS, HTTP/1.1 and HTTP/2     upstream    one list and one watch per store
//!      │                                                │
//!   handler    parse, decide, respond                reflector   state machine: fill, follow, resume
//!      │                                                │
//!   authn      the user of the request               store       snapshots of shared leaves, history
//!   authz      a Permit, or none                        │
//!      │                                             fanout      watchers: index and cursors into history
//!      ├──► serve ◄── cacher ◄──────────────────────────┘
//!      │      get, list, watch: bytes joined by encode
//!      │
//!      └──► forward ──► connector ──► the API server
//! ```
//!
//! `gateway/handler/handle.rs` shows the request path on one screen. Three pure parts make the decisions: `route.rs`
//! beside it decides whether memory may answer a request, [`reflector::Machine`] what a reflector does next, and
//! [`fanout::Session`] what a watch sends next.
//!
//! # Three rules
//!
//! 1. **When in doubt, forward.** A response from memory is one that the API server itself could have given. All other
//!    requests go upstream, so that refusals, and errors about selectors and versions, have upstream's own text. Each
//!    forwarded request has a [`serve::ForwardReason`], which appears in the log, in a metric label and in the
//!    assertions of tests.
//! 2. **Bytes in, bytes out.** Objects are never decoded into types and encoded again. The few values that the gateway
//!    needs are read once, when an object arrives ([`store::Object`]); responses are spliced from the objects' bytes
//!    ([`encode`]).
//! 3. **Once per change, never once per watcher.** The frame of a change is made once and shared by all watchers
//!    ([`store::Change::frame`]); the items of a leaf are compressed once and shared by all lists ([`store::Leaf`]).
//!    Per watcher, only a cursor and the writes to its socket are left. The exception are watches of Tables, whose rows
//!    have ages ([`encode::EventForm`]).
//!
//! # Nouns
//!
//! Kubernetes' own words have their own meaning (object, resource version, bookmark, reflector, request info,
//! attributes, user info). The others:
//!
//! | Noun | Where | What it is |
//! |---|---|---|
//! | freshness | [`apimachinery::Freshness`], [`apimachinery::WatchStart`] | what `resourceVersion` and `resourceVersionMatch` mean, parsed once |
//! | store | [`store::Writer`], [`store::Reader`] | the objects of one resource in one encoding; one reflector writes, many requests read |
//! | scope | [`apimachinery::CollectionScope`], [`store::Scope`] | the part of a collection that one store holds; the part that one request may read |
//! | leaf, snapshot | [`store::Leaf`], [`store::Snapshot`] | a run of neighbouring objects, kept as text or, if they do not change, compressed in one [`store::Block`]; all objects at one version. Both are immutable and shared |
//! | change, history | [`store::Change`], [`store::HistoryLimits`] | what happened to one object; the bounded window of changes, with the snapshot after each |
//! | frame | [`store::FrameKind`], [`encode::frame`] | the bytes of one event; a change has one frame for each way in which a watcher can see it |
//! | form | [`encode::Form`] | how objects are written for one request: the encoding, and whole objects or only metadata; for a watch it is an [`encode::EventForm`], which may also be of Tables |
//! | fill, bridge, gap | [`reflector::Filled`], [`reflector::Bridged`], [`store::Gap`] | fetching the whole state; the difference to the state before, by which a store that is filled again stays in use; the versions between the two states, of which nothing is known |
//! | session | [`fanout::Session`] | the state machine that decides what one watch sends |
//! | cacher, instance | [`cacher::Cachers`], [`cacher::Instance`] | store, reflector and watchers of one resource in one encoding; an instance lasts until its resource is filled again, or longer if that fill is bridged |
//! | permit, lease | [`authz::Permit`], [`authz::Lease`] | permission for one read from memory, which only `authz` can create; for a watch, permission that is renewed from time to time |
//! | upstream | [`upstream::Upstream`] | the API server; besides it, the gateway connects only to its peers |
//!
//! # Members and modules
//!
//! The workspace's members lie below `src`. A member uses only those above it in this table, which the compiler checks;
//! within a member, a test rejects circles of modules. The binary puts the members together; `load` and `sim` also have
//! binaries of their own, and are left out of the main one without the feature `tools`.
//!
//! | Member | Module | Owns |
//! |---|---|---|
//! | `base` | [`apimachinery`] | Kubernetes' terms as types: parsing, comparing, writing. Pure |
//! | | [`json`] | finding values in JSON text without decoding them. Pure |
//! | | [`certificate`] | the fields of X.509 certificates. Pure |
//! | | [`lifecycle`] | tasks, shutdown, drain, the limit of open files |
//! | | [`config`] | parsing and validating the configuration; reports all problems at once |
//! | | [`telemetry`] | all metrics, the log, the access log |
//! | | [`memo`] | caches of upstream's answers: concurrent callers share one request, and its answer is kept for a short time |
//! | | [`fairness`] | the share of a bounded resource that one client may hold |
//! | `engine` | [`store`] | one resource's objects in one encoding: one writer, many readers |
//! | | [`encode`] | the bytes of lists, events and bookmarks |
//! | | [`reflector`] | keeping a store equal to upstream; defines the requests that it needs ([`reflector::ListWatch`]) |
//! | | [`fanout`] | the watchers, their positions, and which of them a change wakes |
//! | `gateway` | [`traces`] | requests as OpenTelemetry spans, sent to a collector |
//! | | [`audit`] | the audit log of reads from memory |
//! | | [`listener`] | sockets, TLS, connection limits; passes requests to a [`listener::Handler`] |
//! | | [`connector`] | connections to the API server, and the identity that each request shows there |
//! | | [`upstream`] | what the gateway itself asks the API server: discovery, definitions, reviews; implements the reflector's requests |
//! | | [`peers`] | asking other gateways of the cluster for the state of a new cache |
//! | | [`authn`], [`authz`] | the user of a request; whether the request is allowed |
//! | | [`cacher`] | the life of a resource's cache: started on first use, proven fresh, stopped when idle |
//! | | [`serve`] | responses from memory |
//! | | [`forward`] | responses from upstream |
//! | | [`handler`] | the order of the stages of a request, and the gateway's own errors |
//! | | [`status`] | the status of the gateway and what it saves: as a value, a web page and text |
//! | | [`admin`] | the admin port: livez, readyz, metrics, status |
//! | `load` | `load` | the load generator: puts load on an API server and measures the responses |
//! | `sim` | `sim` | an embedded API server: of the demo and the tests |
//! | binary | [`manual`] | the manual's chapters |

pub use base::{apimachinery, certificate, config, fairness, json, lifecycle, memo, telemetry};
pub use engine::{encode, fanout, reflector, store};
pub use gateway::{
    admin, audit, authn, authz, cacher, connector, forward, handler, listener, peers,
    run::{LookedUp, Reloads, RunError, Sockets, look_up, run, run_config},
    serve, status,
    status_command::{StatusError, StatusOptions, status as show_status},
    traces, upstream,
};
#[cfg(feature = "tools")]
pub use {load, sim};

#[cfg(feature = "tools")]
mod demo;
pub mod manual;

#[cfg(feature = "tools")]
pub use demo::{DemoError, DemoOptions, demo, load_demo};
