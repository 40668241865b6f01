//! kube-fanout: a watch cache and fan-out gateway in front of a Kubernetes API server.
//!
//! Holds every collection that is asked for as the bytes that the API server sent, those of JSON and those of protobuf in stores
//! of their own, follows each with one watch, and answers get, list and watch from there to any number of clients. What it
//! cannot answer with certainty it forwards.
//!
//! This page is the map of the code. How requests are answered and what is promised stands in the [`manual`]; how to run
//! it stands in the README.
//!
//! # Two flows
//!
//! Requests go down on the left, data on the right. They meet in [`serve`].
//!
//! ```text
//!   a client's request                               the API server's data
//!
//!   listener   sockets, TLS, HTTP/1.1 and HTTP/2     upstream    one list and one watch a store
//!      │                                                │
//!   gateway    parse, decide, respond                reflector   state machine: fill, follow, resume
//!      │                                                │
//!   authn      who asks                              store       snapshots of shared leaves, history
//!   authz      a Permit, or none                        │
//!      │                                             fanout      who waits for what; cursors into history
//!      ├──► serve ◄── cacher ◄──────────────────────────┘
//!      │      get, list, watch: bytes joined by encode
//!      │
//!      └──► forward ──► upstream ──► the API server
//! ```
//!
//! The request path on one screen is `gateway/handle.rs`; whether memory may answer at all is a pure function,
//! `gateway/route.rs`; what a reflector does next is another one, [`reflector::Machine`]; what a watch sends next is
//! [`fanout::Session`].
//!
//! # Three rules
//!
//! 1. **When in doubt, forward.** An answer from memory is one that the API server itself could have given. Everything
//!    else goes upstream, and upstream words it: refusals, unknown selectors, versions that are too high. Each forward has a
//!    [`serve::ForwardReason`], which is a field of the log, a label of a metric and what tests assert.
//! 2. **Bytes in, bytes out.** Objects are never decoded into types and encoded again. The few things that have to be
//!    known of them are read once, on the way in ([`store::Object`]); answers are spliced from their bytes ([`encode`]).
//! 3. **Once per change, never once per watcher.** A change's frame is made once and shared ([`store::Change::frame`]); a
//!    leaf's items are compressed once, and shared by all lists ([`store::Leaf`]). What is left per watcher
//!    is a cursor and the writing to its socket.
//!
//! # Nouns
//!
//! | Noun | Where | What it is |
//! |---|---|---|
//! | resource version | [`apimachinery::ResourceVersion`] | upstream's number; compared only within one resource |
//! | freshness | [`apimachinery::Freshness`], [`apimachinery::WatchStart`] | what `resourceVersion` and `resourceVersionMatch` mean, parsed once |
//! | request info | [`apimachinery::RequestInfo`] | verb and target of a request; a path that could be read in two ways is ambiguous |
//! | object | [`store::Object`] | an object's bytes, its key, version, labels and selectable fields |
//! | leaf, snapshot | [`store::Leaf`], [`store::Snapshot`] | a run of neighbouring objects; all objects at one version. Immutable, shared |
//! | change, history | [`store::Change`], [`store::HistoryLimits`] | what happened to one object; the bounded window of it, with the snapshot after each |
//! | progress | [`store::Reader::progress`] | the version up to which a store is known to be complete |
//! | frame | [`store::FrameKind`], [`encode::frame`] | the bytes of one event, one for each way a watcher can see a change |
//! | reflector | [`reflector::Reflector`] | keeps one store equal to upstream |
//! | interest, session | [`fanout::Interest`], [`fanout::Session`] | what wakes a watcher; what it sends next |
//! | cacher, instance | [`cacher::Cachers`], [`cacher::Instance`] | store, reflector and watchers of one resource in one encoding; an instance lasts from one fill to the next, over bridges |
//! | form | [`encode::Form`] | how one request wants objects written: encoding, whole or metadata alone |
//! | attributes | [`authz::Attributes`] | what a read is authorized as, derived as the API server does |
//! | permit, lease | [`authz::Permit`], [`authz::Lease`] | leave to read from memory, once; only `authz` makes one. For a watch: leave that is asked for again |
//! | upstream | [`upstream::Upstream`] | the API server; the only thing that is dialled |
//! | sim | [`sim::Sim`] | an API server in memory, for the demo and the tests |
//!
//! # Modules
//!
//! Which module may use which is a table in `tests/it/tidy/layering.rs`, and a test. [`run`] and the binary wire them.
//!
//! | Module | Owns |
//! |---|---|
//! | [`apimachinery`] | Kubernetes' words: parsing, comparing, writing. Pure |
//! | [`json`] | where values stand in a text of JSON, found without reading them. Pure |
//! | [`lifecycle`] | tasks, shutdown, drain, open files |
//! | [`config`] | from YAML to a valid configuration, or every problem at once |
//! | [`telemetry`] | every metric, the log, the access log |
//! | [`store`] | one resource's objects in one encoding: one writer, many readers |
//! | [`encode`] | bytes of lists, events, bookmarks |
//! | [`reflector`] | keeping a store equal to upstream; says what it asks of it ([`reflector::ListWatch`]) |
//! | [`remembered`] | what upstream has said: asked for once, kept for a short while |
//! | [`audit`] | the log of what was read from memory, and by whom |
//! | [`fairness`] | how much of something bounded one client may hold |
//! | [`fanout`] | who watches, where each stands, whom a change wakes |
//! | [`upstream`] | connections to the API server, discovery, definitions; does what the reflector asks |
//! | [`cacher`] | a resource's life: started on first use, proven fresh, stopped when idle |
//! | [`authn`], [`authz`] | who asks; whether they may |
//! | [`serve`] | answers from memory |
//! | [`forward`] | answers from upstream |
//! | [`listener`] | sockets, TLS, limits of connections; hands requests to a [`listener::Handler`] |
//! | [`status`] | what the gateway is and saves: as a value, a page, a text |
//! | [`gateway`] | the order of the stages, and the gateway's own errors |
//! | [`admin`] | livez, readyz, metrics, the status |
//! | [`load`] | a client that measures: load on an API server, and what came of it |
//! | [`sim`] | the embedded API server |
//! | [`manual`] | prose |

pub mod admin;
pub mod apimachinery;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod cacher;
pub mod config;
pub mod encode;
pub mod fairness;
pub mod fanout;
pub mod forward;
pub mod gateway;
pub mod json;
pub mod lifecycle;
pub mod listener;
pub mod load;
pub mod manual;
pub mod reflector;
pub mod remembered;
pub mod serve;
pub mod sim;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod upstream;

mod demo;
mod run;
mod status_command;

pub use demo::{DemoError, DemoOptions, demo, load_demo};
pub use run::{Reloads, RunError, Sockets, run, run_config};
pub use status_command::{StatusError, StatusOptions, status as show_status};
