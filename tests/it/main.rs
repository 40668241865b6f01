//! Hermetic integration tests: the library as a whole, without a cluster. One binary, to save link time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

// What all tests use.
mod harness;

// The admin port.
mod admin;
// Errors about the command line.
mod arguments;
// The audit log, and reads that cannot be logged.
mod audit;
// Clients that start while the API server is away.
mod away;
// An upstream that has forgotten the changes after the versions of open watches.
mod bridge;
// `kube-fanout check --online`.
mod check;
// Caches that are being filled.
mod cold;
// Objects that are kept compressed.
mod compressed;
// Answers in gzip.
mod compression;
// Reads that take much CPU.
mod costly;
// Clients with users and rights of their own.
mod delegated;
// The demo.
mod demo;
// Random requests, compared with upstream's own answers.
mod differential;
// Requests that are refused before they are parsed.
mod edge;
// Faults of upstream.
mod faults;
// Watches of the most recent state.
mod freshness;
// Recorded answers of a real API server.
mod golden;
// Gets and lists of the most recent state.
mod most_recent;
// When caches are filled again and watched anew.
mod health;
// A client of another project.
mod kube_rs;
// `kube-fanout load`.
mod load;
mod load_failures;
mod load_lists;
mod load_missing;
mod load_profiles;
mod load_same_cluster;
// Caches that are started and stopped, drains.
mod life;
// What caches may take.
mod memory;
// Files that are written.
mod no_files;
// Gateways that ask each other for their state.
mod peers;
mod persist;
// The built binary.
mod process;
// Gets and lists.
mod reads;
// Definitions of custom resources that change.
mod redefined;
// A cluster that is replaced by another one.
mod replaced;
mod restart;
// Caches of what clients ask for: namespaces, nodes.
mod requested;
// Watches that start upstream and are resumed from memory.
mod resumption;
// Contents that are never logged.
mod scopes;

mod secrecy;
// Several API servers of one cluster.
mod servers;
// Parts of collections by the hash of a field.
mod shards;
// Shared limits.
mod shares;
// The `status` command.
mod status_command;
// The fields of the status.
mod status_fields;
// Tables, as kubectl prints them.
mod tables;
// The style of the source.
mod tidy;
// The spans that an OpenTelemetry collector receives.
mod traces;
mod tree;
// How the gateway reports trouble with the API server.
mod trouble;
// Clients that do not read their answers.
mod unread;
// Comparison of caches with upstream.
mod verifier;
// Watches from memory.
mod watches;
