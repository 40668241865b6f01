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
//! | full list, PartialObjectMetadata in JSON (44 MB) | 373 ms | 104 ms | |
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
//! | after lists in JSON, then in gzip | | 205, 219 MB |
//! | with protobuf (57 MB) too, after lists of both | | 361 MB |
//! | the same, a minute after the last list | | 248 MB |
//! | for each of 1,000 open watches, a TLS connection each | 104 KB | 54 KB |
//!
//! # What these figures show is left
//!
//! * gzip at level 1 of the backend makes 5.8 MB of these very repetitive pods, the API server 3.0 MB.
//! * A list of metadata is put together for every request; whole objects are joined once and shared.
//! * During lists of metadata memory rose to 689 MB: each answer is one buffer.
//!
//! One finding of the measuring itself: a list of *one* object with a field selector that matches nothing makes kube-apiserver 1.20
//! read the whole collection from etcd, an object at a time. The gateway asks no such thing of it.
