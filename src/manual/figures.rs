//! What the gateway costs, beside the API server that it stands before.
//!
//! Measured in one run on 2026-11-20 on one machine: two x86-64 cores that were shared with builds, so that times say little and CPU
//! per unit of work is what to read; release build, TLS on both sides, kube-apiserver 1.20.2, 10,000 pods of 7.6 KB of JSON
//! (76 MB). *Floor* is a server that does nothing but send the same bytes from memory, or relay one watch to all.
//!
//! | Work, CPU of the server | kube-apiserver | kube-fanout | floor |
//! |---|---|---|---|
//! | full list, JSON, HTTP/1.1 | 857 ms | 33.5 ms | 33.5 ms |
//! | the same, HTTP/2 | | 34 ms | |
//! | full list, JSON, gzip (from the second on) | 833 ms | 2.3 ms | |
//! | full list, protobuf (57 MB) | 230 ms | 27 ms | |
//! | list of one namespace (7.6 MB) | 68 ms | 3.1 ms | |
//! | list by label, 200 of 1,000 pods | 14 ms | 1.1 ms | |
//! | get at `resourceVersion=0` | 0.205 ms | 0.017 ms | |
//! | get, forwarded | | 0.14 ms beside upstream's | |
//! | 1,000 watches of all pods, JSON: a delivery | 67.6 µs | 5.8 µs | 7.3 µs |
//! | the same, protobuf | | 5.3 µs | |
//! | the same, JSON, HTTP/2, 100 watches a connection | | 4.8 µs | |
//!
//! Between two runs of the same work up to a third may lie on that machine: the floor above the gateway in one row is noise.
//!
//! | Resident memory | kube-apiserver | kube-fanout |
//! |---|---|---|
//! | pods in JSON (76 MB), nobody lists | 1.5 to 2.4 GB | 121 MB |
//! | for each of 1,000 open watches, a TLS connection each | 104 KB | 54 KB |
//!
//! # Forms
//!
//! Measured later on the same day and machine, as busy, over plain HTTP/1.1 without TLS, 10,000 pods as above. What is made for the
//! first list of a kind is kept for those that follow, for as long as somebody asks.
//!
//! | Full list | bytes, MB | of kube-apiserver, MB | first list, CPU | from the second on |
//! |---|---|---|---|---|
//! | JSON | 75.6 | 75.6 | 20 ms | 21 ms |
//! | JSON, gzip | 3.30 | 3.01 | 160 ms | 2 ms |
//! | protobuf | 57.0 | 57.0 | 20 ms | 15 ms |
//! | protobuf, gzip | 2.81 | 2.47 | 170 ms | 1 ms |
//! | PartialObjectMetadata, JSON | 43.6 | | 120 ms | 7 ms |
//! | the same, gzip | 1.63 | | 90 ms | 2 ms |
//! | PartialObjectMetadata, protobuf | 40.0 | | 140 ms | 8 ms |
//!
//! Before, gzip of JSON took 5.8 MB, and a list of metadata 104 ms each time (kube-apiserver: 373 ms), both with TLS, and 689 MB at
//! most under two at once.
//!
//! | Held, in this order | objects' bytes, MB | made for lists, MB | resident, MB |
//! |---|---|---|---|
//! | pods in JSON, nobody lists | 75.6 | 0 | 128 |
//! | after lists in JSON | 75.6 | 0 | 121 |
//! | after lists in gzip | 75.6 | 3.3 | 134 |
//! | with protobuf too, just filled (the highest of all) | 132.6 | 3.3 | 317 |
//! | after lists in protobuf | 132.6 | 3.3 | 200 |
//! | after lists in protobuf with gzip | 132.6 | 6.1 | 211 |
//! | after lists of metadata, in JSON and in protobuf, two at once | 132.6 | 90 | 302 |
//! | two minutes after the last list | 132.6 | 0 | 244 |
//!
//! One finding of the measuring itself: a list of *one* object with a field selector that matches nothing makes kube-apiserver 1.20
//! read the whole collection from etcd, an object at a time. The gateway asks no such thing of it.
