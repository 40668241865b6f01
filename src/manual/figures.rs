//! What the gateway costs, beside the API server that it stands before and beside the least that any server could do.
//!
//! # How it is measured
//!
//! ```sh
//! export KUBEBUILDER_ASSETS=...                       # a folder with kube-apiserver and etcd, as .ci/upstreams makes one
//! cargo bench --bench end_to_end                      # everything, some ten minutes
//! cargo bench --bench end_to_end -- list watchers     # the rows with these words in their names
//! BENCH_PODS=1000 cargo bench --bench end_to_end      # a tenth of everything
//! BENCH_GATEWAY=... cargo bench --bench end_to_end    # the same of another build, to compare with
//! cargo bench --bench parts                           # how the parts grow; needs no server
//! ```
//!
//! `benches/end_to_end` starts the API server (`sim`, if there is no real one), fills it with pods, and starts the gateway and a
//! *floor*: a server that sends a list that it once fetched, and relays one watch to all, with the same TLS, HTTP and allocator.
//! CPU and resident memory are those of the server processes, as the kernel counts them. Compare within one run, in ratios: between
//! runs on a shared machine a third may lie. Both benches run once, tiny, as tests (`cargo test --benches`).
//!
//! # The figures
//!
//! 2026-11-20, two x86-64 cores (Xeon, 2.3 GHz) *shared with builds* (load average 5 to 10), kube-apiserver 1.20.2, 10,000 pods,
//! 74 MB of JSON, TLS on both sides:
//!
//! | work | unit | API server | floor | kube-fanout | reached | goal | |
//! |---|---|---|---|---|---|---|---|
//! | full list, JSON, HTTP/1.1 | ms CPU | 626 | 35.0 | 35.4 | 1.01 | ≤ 1.40 × floor | ok |
//! | full list, JSON, HTTP/2 | ms CPU | 602 | 31.8 | 36.1 | 1.14 | ≤ 1.60 × floor | ok |
//! | full list, protobuf, HTTP/1.1 | ms CPU | 391 | 23.7 | 26.7 | 1.13 | ≤ 1.40 × floor | ok |
//! | full list, protobuf, HTTP/2 | ms CPU | 471 | 22.8 | 27.0 | 1.18 | ≤ 1.60 × floor | ok |
//! | full list, JSON, gzip | ms CPU | 852 | | 1.60 | 0.0019 | ≤ 0.017 × API server | ok |
//! | its size | MB | 2.81 | | 3.26 | 1.16 | ≤ 1.25 × API server | ok |
//! | watch of all from RV=0, until all objects have come | ms CPU | 1601 | 30.8 | 31.9 | 1.04 | ≤ 2.00 × floor | ok |
//! | list of one namespace, a tenth of all | ms CPU | 77.1 | | 3.39 | 0.044 | ≤ 0.100 × API server | ok |
//! | list by label, a fifth of a namespace | ms CPU | 13.5 | | 1.02 | 0.076 | ≤ 0.100 × API server | ok |
//! | get | ms CPU | 0.185 | | 0.015 | 0.081 | ≤ 0.250 × API server | ok |
//! | 1,000 watchers, JSON, HTTP/1.1: a delivery | µs CPU | 64.6 | 7.29 | 8.15 | 1.12 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, JSON, HTTP/2: a delivery | µs CPU | | 6.09 | 6.46 | 1.06 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, protobuf, HTTP/1.1: a delivery | µs CPU | 23.8 | 7.74 | 6.52 | 0.842 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, protobuf, HTTP/2: a delivery | µs CPU | | 4.95 | 5.10 | 1.03 | ≤ 1.30 × floor | ok |
//! | 50 watchers of a node each: a change | µs CPU | | | 207 | | | |
//! | 5,000 watchers of a node each: a change | µs CPU | | | 249 | 1.20 | ≤ 1.30 × few | ok |
//! | latency of a delivery to 100 watchers, p50 | ms | 8.05 | | 8.71 | 0.664 | ≤ 1.00 ms added | ok |
//! | the same, p99 | ms | 13.0 | | 13.8 | 0.813 | ≤ 5.00 ms added | ok |
//! | memory, pods in JSON, idle | MB | 2480 | | 133 | 1.79 | ≤ 2.00 × bytes | ok |
//! | right after a list in protobuf | MB | | | 209 | | | |
//! | pods in JSON and protobuf, idle again | MB | | | 209 | 1.60 | ≤ 2.00 × bytes | ok |
//! | memory while 64 clients list, one in four at 1 MB/s | MB | | | 146 | 1.18 | ≤ 1.25 × idle | ok |
//! | some seconds after the last list | MB | | | 138 | | | |
//! | memory of an idle watcher, HTTP/2 | KiB | | 0.21 | 3.23 | 3.23 | ≤ 4.00 KiB | ok |
//! | memory of a TLS connection with an idle watch | KiB | | 32.8 | 30.5 | 0.93 | ≤ 1.10 × floor | ok |
//! | first sync beside a mere download (floor): time | ms | | 962 | 1021 | 1.06 | ≤ 1.20 × floor | ok |
//! | the same: most memory | MB | | 121 | 137 | 1.13 | ≤ 1.50 × floor | ok |
//! | forwarded get: CPU of the proxy (floor: nginx/1.22.1) | µs CPU | | 162 | 247 | 1.52 | ≤ 1.00 × floor | **missed** |
//! | forwarded get: p50 latency added (floor: nginx/1.22.1) | µs | | 202 | 302 | 1.49 | ≤ 1.00 × floor | **missed** |
//!
//! Latency and forwarding are of a second run when nobody else was at work (load average 1.3); full lists were at 1.14 and 1.19 ×
//! floor in that one. While the machine had five times more to do than cores, the latency of both sides was tens of milliseconds.
//!
//! Memory of a watcher and of a connection were measured later that day, before `sim`, without LTO; of two runs the dearer one (the
//! other: 2.50, and 24.6 KiB).
//!
//! How costs grow, of `parts`, not optimized: a change in a collection of 1,000, 10,000, 100,000 objects 27, 31, 44 µs; a list of 200
//! objects of them 25, 26, 26 µs; opening a watch on them 1.6 µs each; a change for each of 10, 1,000, 8,000 watchers 3.5, 0.58,
//! 0.56 µs; a change that one of 50, of 5,000 watchers of a node each sees 27, 31 µs.
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
//!
//! # Delegated clients
//!
//! The same day and machine, alone on it, TLS, HTTP/1.1, eight connections with one bearer token, verdicts remembered; three rounds, one
//! mode after the other:
//!
//! | Read from memory | `trusted` | `delegated` |
//! |---|---|---|
//! | get of a pod, CPU | 18.5, 18.0, 18.5 µs | 21.0, 23.5, 25.5 µs |
//! | list of 1,000 pods, CPU | 3.5, 3.0, 3.4 ms | 3.6, 3.3, 3.3 ms |
//!
//! Some 5 µs each: an HMAC of the token, two look-ups in caches that keep the order of use, the attributes of the request and their
//! hash. A quarter of the cheapest read there is (the aim was 15 %), and nothing to a list.
//!
//! # What was tried
//!
//! Before and after, in one hour on one machine, from the same bench:
//!
//! | what | before | after |
//! |---|---|---|
//! | full list, JSON, HTTP/1.1, HTTP/2: × floor | 1.00, 0.95 | 1.01, 1.14 |
//! | watch of all from RV=0: × floor | 1.29 | 1.04 |
//! | memory while 64 clients list: × idle | 1.81 | 1.18 |
//! | memory of each of 27,000 idle watchers, HTTP/2, before a demo of 1,000 objects | 2.02 KiB | 1.65 KiB |
//! | memory of a TLS connection with an idle watch (floor: 27 to 33 KiB) | 41.6 to 49.2 KiB | 24.6 to 30.5 KiB |
//! | first sync: time, × a mere download | 1.48 | 1.06 |
//! | first sync: most memory, × a mere download | 1.98 | 1.13 |
//!
//! * **Whole objects are joined for each list anew, 64 KiB at a time**, instead of once and kept for the lists to come. What was
//!   just joined is still in the core's cache when it is encrypted, so that the copy shows little (up to 15 % on HTTP/2); the kept
//!   copy was as large as all objects.
//! * **A first sync takes the list apart while it comes.** It held three copies of the collection: pieces, body, objects; and it
//!   began to read when upstream had written all.
//! * **Initial events are written where they are sent from, 64 KiB at a time**, not one by one and then copied into a buffer that
//!   grows up to half a megabyte.
//! * **The future that answers a request stands in a box**, which is gone when there is an answer. It is 4.5 KB, and a task of
//!   HTTP/2 had room for it twice (`async move { task.await }` has: the task as captured and as awaited).
//! * **A connection's bytes stand in a box, its handshake and its HTTP in another.** By heap profile a TLS connection held 16 KiB of
//!   hyper's read buffer, which doubles when the first 24 bytes come as a read of their own (`hyper_util::server::conn::auto`
//!   does so, the floor with it), and 10 KiB of task, with room for the TLS session in each phase. Now 8 and 1.2 KiB, and 1.8 KiB
//!   in boxes. The rest is what libraries keep: 8 KiB to write, in hyper, 4 KiB to read, 0.6 KiB and two keys of 0.6 KiB, in rustls.
//! * **Resident memory of thousands of watches is mostly the allocator's**: a watcher seemed to cost between 0.9 and 5.6 KiB, the
//!   floor's between 0 and 5. Of its 1.8 KiB of live bytes, before they became fewer, 512 were the task, 504 the watch, 420 h2's
//!   (a table that doubles), 112 a timer; the floor's live bytes are 0.85 KiB.
//! * **gzip at level 4 of the backend** is as small as the API server's level 1 (figures beside the constant).
//!
//! # What is left
//!
//! * A forwarded get costs more than nginx, in CPU and in latency. Suspected: HTTP/2 upstream, where each request passes two
//!   channels to and from the connection's task, and the layers of headers and credentials. Not profiled yet.
//! * aws-lc-rs has not been held against ring yet.
