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
//! 2026-11-21, two x86-64 cores (Xeon, 2.3 GHz) of a virtual machine, alone in it (load average 1.3 to 2), kube-apiserver 1.20.2,
//! 10,000 pods, 74 MB of JSON, TLS on both sides:
//!
//! | work | unit | API server | floor | kube-fanout | reached | goal | |
//! |---|---|---|---|---|---|---|---|
//! | full list, JSON, HTTP/1.1 | ms CPU | 1071 | 42.5 | 45.1 | 1.06 | ≤ 1.40 × floor | ok |
//! | full list, JSON, HTTP/2 | ms CPU | 1040 | 55.3 | 62.8 | 1.14 | ≤ 1.60 × floor | ok |
//! | full list, protobuf, HTTP/1.1 | ms CPU | 497 | 34.5 | 40.5 | 1.17 | ≤ 1.40 × floor | ok |
//! | full list, protobuf, HTTP/2 | ms CPU | 588 | 45.3 | 49.3 | 1.09 | ≤ 1.60 × floor | ok |
//! | full list, JSON, gzip | ms CPU | 1609 | | 2.41 | 0.0015 | ≤ 0.017 × API server | ok |
//! | its size | MB | 2.81 | | 3.26 | 1.16 | ≤ 1.25 × API server | ok |
//! | watch of all from RV=0, until all objects have come | ms CPU | 2574 | 44.9 | 61.8 | 1.37 | ≤ 2.00 × floor | ok |
//! | list of one namespace, a tenth of all | ms CPU | 133 | | 5.28 | 0.040 | ≤ 0.100 × API server | ok |
//! | list by label, a fifth of a namespace | ms CPU | 26.7 | | 1.58 | 0.059 | ≤ 0.100 × API server | ok |
//! | get | ms CPU | 0.440 | | 0.026 | 0.060 | ≤ 0.250 × API server | ok |
//! | get by a delegated client: trusted | ms CPU | | | 0.047 | | | |
//! | get by a delegated client | ms CPU | | | 0.042 | 0.903 | ≤ 1.15 × trusted | ok |
//! | the same, HTTP/2: trusted | ms CPU | | | 0.067 | | | |
//! | the same, HTTP/2 | ms CPU | | | 0.071 | 1.06 | ≤ 1.15 × trusted | ok |
//! | list of one namespace by a delegated client: trusted | ms CPU | | | 4.84 | | | |
//! | list of one namespace by a delegated client | ms CPU | | | 4.93 | 1.02 | ≤ 1.15 × trusted | ok |
//! | 1,000 watchers, JSON, HTTP/1.1: a delivery | µs CPU | 122 | 13.3 | 14.9 | 1.12 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, JSON, HTTP/2: a delivery | µs CPU | | 12.5 | 11.2 | 0.893 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, protobuf, HTTP/1.1: a delivery | µs CPU | 36.0 | 13.5 | 15.0 | 1.11 | ≤ 1.30 × floor | ok |
//! | 1,000 watchers, protobuf, HTTP/2: a delivery | µs CPU | | 12.2 | 11.3 | 0.924 | ≤ 1.30 × floor | ok |
//! | 50 watchers of a node each: a change | µs CPU | | | 419 | | | |
//! | 5,000 watchers of a node each: a change | µs CPU | | | 410 | 0.978 | ≤ 1.30 × few | ok |
//! | latency of a delivery to 100 watchers, p50 | ms | 16.5 | | 17.9 | 1.40 | ≤ 1.00 ms added | **missed** |
//! | the same, p99 | ms | 67.2 | | 71.5 | 4.33 | ≤ 5.00 ms added | ok |
//! | memory, pods in JSON, idle | MB | 2269 | | 126 | 1.70 | ≤ 2.00 × bytes | ok |
//! | right after a list in protobuf | MB | | | 209 | | | |
//! | pods in JSON and protobuf, idle again | MB | | | 207 | 1.59 | ≤ 2.00 × bytes | ok |
//! | memory while 64 clients list, one in four at 1 MB/s | MB | | | 146 | 1.13 | ≤ 1.25 × idle | ok |
//! | some seconds after the last list | MB | | | 137 | | | |
//! | memory of an idle watcher, HTTP/2 | KiB | | 1.73 | 1.54 | 1.54 | ≤ 4.00 KiB | ok |
//! | memory of a TLS connection with an idle watch | KiB | | 32.5 | 32.8 | 1.01 | ≤ 1.10 × floor | ok |
//! | first sync beside a mere download (floor): time | ms | | 911 | 1500 | 1.65 | ≤ 1.20 × floor | **missed** |
//! | the same: most memory | MB | | 120 | 130 | 1.08 | ≤ 1.50 × floor | ok |
//! | forwarded get: CPU of the proxy (floor: nginx/1.22.1) | µs CPU | | 238 | 317 | 1.33 | ≤ 1.00 × floor | **missed** |
//! | forwarded get: p50 latency added (floor: nginx/1.22.1) | µs | | 242 | 296 | 1.23 | ≤ 1.00 × floor | **missed** |
//!
//! The machine was half as fast as on the day before: everything, the API server's full list too (626 ms then), cost 1.3 to 2 times
//! as much. The goals that are times, not ratios of CPU, show it. Then, in the same rows and before most of what stands below under
//! "What was tried": latency 0.66 ms added in the middle and 0.81 ms at p99; first sync 1.06 × a download. A build of that day on
//! this one: latency 2.24 and 2.18 ms added, first sync 1.48 ×, forwarded get 1.82 × nginx's CPU and 1.94 × its latency; this build in
//! a second run beside it: 1.23 and 11.7 ms, 1.45 ×, 1.38 × and 1.25 ×.
//!
//! How costs grow, of `parts`, not optimized: a change in a collection of 1,000, 10,000, 100,000 objects 27, 31, 44 µs; a list of 200
//! objects of them 25, 26, 26 µs; opening a watch on them 1.6 µs each; a change for each of 10, 1,000, 8,000 watchers 3.5, 0.58,
//! 0.56 µs; a change that one of 50, of 5,000 watchers of a node each sees 27, 31 µs.
//!
//! # Forms
//!
//! Measured on 2026-11-20 on such a machine, busy, over plain HTTP/1.1 without TLS, 10,000 pods as above. What is made for the
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
//! What who a client is and what it may adds to a read from memory, once upstream has said so: rows of the table above, whose client
//! has a short token. With the 870 bytes of a service account's, in turns with the build before on a busy machine (minimum of 45
//! turns of 4,000 gets each): 15.7 µs trusted and 17.4 µs delegated (+10 %); before, 16.6 and 21.1 (+27 %). In instructions, without
//! those of SHA-256 (callgrind has no hardware for it): 72,551 and 75,968; before, 73,277 and 84,382. The rest is 1 µs of HMAC for
//! such a token, two hashes of keys that clients choose, two lookups.
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
//! * **A brief forwarded request drives a connection of its own**, over HTTP/1.1, in the task of its client (`upstream::exclusive`):
//!   1.82 and 1.94 to 1.33 and 1.23 × nginx, CPU and latency. Over HTTP/2 it passed four tasks. First it was slower than hoped: what
//!   is read from a connection wakes whoever fills it, here the task that reads, which tokio then queues behind others and wakes a
//!   second thread for (a futex for each request, by strace). A gate that keeps such calls from a task that is awake took
//!   the CPU from 1.44 to 1.39. 124,000 instructions now, of which TLS are 32,000 and hyper most of the rest; nginx needs 112,000 (callgrind, both).
//! * **What upstream has said is looked up without a future** (`remembered`): one lookup by reference each for user and verdict, the
//!   token found once, counters held, the gateway one pointer. See above.
//! * **aws-lc-rs against ring**, AES-GCM alone (128 bits): 16 KiB sealed in 1.35 against 2.28 µs, 7,000 bytes in 0.66 against 1.04,
//!   1,400 in 0.37 against 0.48, 300 in 0.27 against 0.22. A full list has 4,600 records of 16 KiB: some 4 ms of its 35 could be
//!   saved, a twentieth of a delivery, nothing of a get. Not done yet: all TLS, the floor's too, is ring's.
//! * **gzip at level 4 of the backend** is as small as the API server's level 1 (figures beside the constant).
//!
//! # What is left
//!
//! * A forwarded get costs 1.3 × nginx's CPU with 1.1 × its instructions: the profile is flat, two thirds of it in user space (nginx:
//!   two thirds too), nothing above 4 % but the switch between tasks. Larger code that is cold in the cache each time, as far as one
//!   can tell. Of the gateway's own 17,000 instructions perhaps half could go (headers are looked up by name one by one).
//! * TLS by aws-lc-rs, see above.
//! * Sizes of HTTP/2 windows and frames, flattened writes, batching what woken watchers write: not tried.
