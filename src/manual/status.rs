//! The status page, `/status.json` and `kube-fanout status`: what each number means, and who may read it.
//!
//! # Where it is
//!
//! On the admin port (`admin.address`), as three forms of the same facts:
//!
//! * `/`: a page for people. It refreshes itself every five seconds (every 15 without JavaScript), changes nothing, and loads nothing
//!   from elsewhere.
//! * `/status.json`: for programs.
//! * `kube-fanout status`: a text in a terminal; `--watch` writes it again every two seconds. It ends with 0 if the gateway is ready, with
//!   2 if it is not, or drains, and with 1 if it cannot be asked.
//!
//! ```sh
//! kubectl port-forward --namespace kube-fanout deployment/kube-fanout 9090     # then open http://127.0.0.1:9090/
//! kube-fanout status --watch --admin unix:/run/kube-fanout/admin.sock
//! kube-fanout status --admin https://gateway:9090 --certificate-authority ca.crt --token-file token
//! ln -s "$(command -v kube-fanout)" ~/.local/bin/kubectl-fanout                 # then: kubectl fanout status
//! ```
//!
//! # Who may read it
//!
//! It names users, which `/metrics` does not. So:
//!
//! * With `admin.metricsAuthorization: delegated`, page and JSON are for those alone whom the API server lets `get` the path
//!   `/status.json` (a rule with `nonResourceURLs: [/status.json]`), asked as for `/metrics`: 401 or 403 for others. Leave to read
//!   `/metrics` is not enough. A browser can show a client's certificate, not a token: with tokens use `kube-fanout status`.
//! * Without it, at a loopback address or a Unix socket, whoever reaches the port may read everything, as with `kubectl proxy`. Over TCP
//!   that takes a request to an address or to `localhost`: a web page that found the port under a name of its own is told no more than
//!   the next case.
//! * Without it, at any other address, names of users, the namespaces and objects of watches, and the configuration are left out
//!   (`namesWithheld`). User agents stay.
//!
//! Credentials, what files hold, and the content of objects are in none of them. Style sheet, script and icon are for everybody.
//!
//! # The fields
//!
//! `apiVersion: kube-fanout.io/v1alpha1`, `kind: GatewayStatus`. Within a version fields are added, and none changes its meaning.
//! Every number that `/metrics` has too is the same one. Counts are since the start of the process; rates and "now" are of the last
//! minute; `lastHour` has steps of ten seconds in the first ten minutes, and of a minute later.
//!
//! | Field | Meaning |
//! |---|---|
//! | `gateway.state` | `ready`, `notReady`, `draining`: as `/readyz` says; `gateway.checks` are its lines |
//! | `upstream.server`, `.version` | the API server's address, and what it last said to be: none until a cache was filled |
//! | `savings.watchers`, `.upstreamWatches` | watches served from memory now, and those that the gateway has open for them; `.watchesAvoided` is the difference |
//! | `savings.gets`, `.lists`, `.watches`, `.bytes`, `.eventsSent` | answered from memory |
//! | `savings.estimatedApiServerCpuSeconds` | an estimate, see below |
//! | `reads.hitRatio` | gets, lists and watches of resources that memory answered, of those that memory or the API server answered. A watch counts when it ends |
//! | `caches[].state` | `ready`, `stale` (`cache.maxStaleness`), or the reason why reads are forwarded |
//! | `caches[].bytes` | of the objects; joined, compressed (`deflated`) and derived for lists, and shared by them; held for history alone |
//! | `caches[].historySeconds` | how far back a watch can start, at least |
//! | `caches[].lagSeconds` | since upstream last showed the cache to be complete: a minute or so on a quiet resource |
//! | `caches[].epoch` | fills that were not bridged; more than one means that watches have ended for it |
//! | `caches[].proofs`, `.restarts`, `.lastRestart` | words as in [`super::operations`], metrics |
//! | `resources[]`, `forwarded[]` | reads by resource and by reason; reasons as in [`super::request_path`] |
//! | `limits[]` | used now and allowed, where that is known, and how often it was reached; names as in [`super::operations`] |
//! | `clients[]` | the 20 that ask and watch most, by user agent and, where it is known, user. Of 200 that are counted (`top_clients`): when there are more, who asks least gives way, and `uncertain` says how many requests its successor may have missed |
//! | `slowestWatchers[]` | watchers that have had a change waiting for a second or more: their clients do not read |
//! | `configuration[]` | every field that is in effect, defaults included |
//!
//! # The estimate
//!
//! What a kube-apiserver would have spent on the answers that memory gave, by [`super::figures`]: 64.9 µs for each event in JSON
//! and 28.9 µs in protobuf, 0.184 ms for each get, 6.0 ms for each MB of lists, which is its lowest figure for lists: that of
//! protobuf without gzip. Answers in gzip count with their compressed size, so the truth is higher by far where clients list in
//! gzip. It says what order of magnitude is saved, on a machine like the one that was measured, and no more.
