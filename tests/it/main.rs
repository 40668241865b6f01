//! Hermetic integration tests: the library as a whole, without a cluster. One binary, for link time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

// What every test stands on.
mod harness;

// The operator's port.
mod admin;
// What is told of reads, and what happens when it cannot be.
mod audit;
// An upstream that has forgotten what came behind open watches.
mod bridge;
// Caches that are being filled.
mod cold;
// Answers in gzip.
mod compression;
// Clients with names and rights.
mod delegated;
// Random requests, compared with upstream's own answers.
mod differential;
// Requests that nobody looks at.
mod edge;
// What can go wrong upstream.
mod faults;
// Watches of the most recent state.
mod freshness;
// Answers that a real API server was recorded to give.
mod golden;
// Gets and lists of the most recent state.
mod most_recent;
// Clients of others.
mod kube_rs;
// What `kube-fanout load` measures.
mod load;
// Caches that come and go, drains.
mod life;
// The built binary.
mod process;
// Gets and lists.
mod reads;
// What the log never shows.
mod secrecy;
// Random changes, faults and clients.
mod shares;
mod simulation;
// What kubectl prints.
mod tables;
// Watches that begin upstream and go on from memory.
mod takeover;
// The source itself.
mod tidy;
// Clients that do not read what they asked for.
mod unread;
// What memory holds against what upstream has.
mod verifier;
// Watches from memory.
mod watches;
