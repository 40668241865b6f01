//! What changed, newest first.
//!
//! # 0.1.0, not released
//!
//! The first whole gateway.
//!
//! * get, list and watch of every watchable resource from memory, in JSON; everything else forwarded.
//! * Selectors by labels and fields, pages with the API server's own continue tokens, exact versions from history.
//! * Watches from a version, from any and from the most recent state, watch-list with its end bookmark, bookmarks.
//! * Most-recent watches after a proof that the cache is complete, else forwarded.
//! * Protobuf, and PartialObjectMetadata in JSON and protobuf, from memory.
//! * Large answers in gzip, from blocks that all lists share.
//! * Upgrades (exec, attach, port-forward) and streams passed through.
//! * Plain HTTP, TLS and Unix sockets; HTTP/1.1 and HTTP/2; clients act with the gateway's credentials (`trusted`).
//! * `delegated` mode: tokens, certificates and front proxies, authorized by the API server, forwarded as who they are; an audit log
//!   of what was read from memory; fair shares of watches and of forwarded requests.
//! * Requests with two readings are refused, and so are those of web pages that found the gateway under a name of their own.
//! * Limits of connections, in all and from one address; connections that ask nothing give way.
//! * Health, metrics, access log; a drain that ends watches cleanly.
//! * The caches of one resource (encodings, versions of the API) are read at no older version than any of them has reached.
//! * `kube_fanout_cache_staleness_seconds`: how long a cache has been without a watch of upstream.
//! * An embedded API server for the demo and the tests.
//! * `reads.mostRecent: auto | prove`: gets and lists without a version from memory after a proof; the demo runs with `auto`. A proof
//!   no longer waits for a small watch where the cache's own watch tells sooner.
//! * `cache.verifyInterval`: caches are compared with upstream every five minutes; one that differs is filled anew, and its clients list anew.
//! * A restored etcd is noticed by the first proof; a stuck watch, an upgraded upstream and a cut-off gateway are noticed, too.
//! * A version that a client brings from another gateway is proven, not forwarded after 100 ms.
//! * Exact reads and continue tokens expire after `cache.history.age`, as an API server's do.
//! * `cache.maxStaleness` and `cache.staleWatches`: a gateway that does not hear upstream is not ready, and ends watches if asked to.
//! * The configuration is read again on SIGHUP and when the file changes: `reads`, `limits`, the lists and timeouts of `cache`,
//!   audiences and lifetimes of tokens, the log's level and lines, the drain's time. Causes of
//!   errors are in the JSON log, too.
//! * `kube-fanout kubeconfig` prints what clients use instead of the API server, `kube-fanout schema` the JSON schema of a configuration.
//! * The chart refuses values that the gateway would refuse at its start.
//! * `check` says in which line and column each problem is, and no longer names consequences of another problem.
//! * A drain ends forwarded watches (every `kubectl get -w`) between two events, and no longer lasts for its whole timeout because of them.
//! * A gateway whose API server's address leads back to itself is told so (508), and does not ask itself for ever.
//! * A chart (`helm/`): replicas, one on each node, or a sidecar, with alerts and a dashboard; manifests for a control-plane node; an image.
//! * A threat model, rules for dependencies, a way to report vulnerabilities.
//! * `cargo build --release` takes half of the time it took; what is installed and measured is `--profile dist`.
//! * Reads that memory will be able to answer wait for the fill of their cache: a herd at a cold gateway costs one list and one watch.
//! * A watch that goes on from a version before the fill is forwarded, not refused: upstream may still know what came between.
//! * A forwarded watch whose reason passes goes on from memory in mid-stream.
//! * In `trusted` mode web pages of other origins are refused over TCP, upgrades included; `clients.acceptOrigins` names those that may ask.
//! * In `delegated` mode an upstream whose certificate is not verified (`insecure-skip-tls-verify`) is refused, and so is one for reviews.
//! * In `delegated` mode Secrets are not cached unless `cache.exclude` is given without them.
//! * `tls.minVersion` and `tls.cipherSuites` of listeners, in Kubernetes' terms.
//! * The admin port with TLS (`admin.tls`), and `/metrics` for those who may get it (`admin.metricsAuthorization: delegated`).
//! * Logging never delays an answer: a bounded queue, written by a thread of its own; `logging.access: all | notable | none`, and the user,
//!   the address and the audit ID in each line.
//! * The audit log fails closed (`audit.mode: blocking`): what cannot be logged is forwarded, and `/readyz` fails; it has the gateway's own
//!   refusals, and `sourceIPs` as the API server names them.
//! * No credentials and no content of Secrets in the log, at `trace` too.
//! * Shares: a client is its user, whatever tokens it has, or its address where no user is known; it gets at most a quarter of each pool
//!   of connections, upgrades, reviews and verdicts that are kept. `limits.forwardedPerClient` is at most 1,000. Names that are made up
//!   take no place of resources.
//! * A client whose requests differ in their selectors keeps eight reviews of access at a time on their way, so that those of others come
//!   soon.
//! * Reviews of watches have room of their own; a watch that could not be reviewed ends within a stated time.
//! * The headers of front proxies have names that can be configured, those of clients' proxies and those that the API server reads.
//! * The gateway does not start with a front-proxy certificate that the API server does not believe, and says what is wrong.
//! * Without the right to list `apiservices`, only the core group and custom resources are cached.
//! * **Security:** in `delegated` mode a watch by a path that names an object without its namespace was authorized for that name and
//!   answered with the whole collection. What was authorized is now the only source of what is read.
//! * `limits.answerTimeout`, `limits.answerBytes`, `limits.answerBytesPerClient`: answers that are not read end, and what they hold is
//!   bounded. Selected lists are sent from shared bytes. Connections that are idle give way to those that wait.
//! * A drain ends many watches one after another over half of its time, and not all at once.
//! * `listeners[].maxConnectionAge`: clients connect again now and then, so that replicas that were added take their share.
//! * A watch of which the client takes nothing for five to ten minutes, although there are events for it, is reset.
//! * A status page on the admin port (`/`), `/status.json` and `kube-fanout status [--watch]`: what is saved, caches, why reads are forwarded,
//!   limits, top clients, slow watchers ([`super::status`]). With `admin.metricsAuthorization: delegated` they need `get` on `/status.json`.
//! * Tables of custom resources (`kubectl get`) from memory, printed as the API server prints them; what is not certain is forwarded
//!   (`unprintable`).
//! * `kube_fanout_upstream_watches`, `kube_fanout_limit`, `kube_fanout_limit_used`, and `process_*` in the metrics.
//! * The demo has clients of its own (`--watches`), and restarts its API server now and then.
//! * An API server that restarts costs clients nothing: caches are bridged over what it has forgotten, and watches go on (`cache.bridge`,
//!   `kube_fanout_cache_bridges_total`).
//! * `kube-fanout load` puts load on an API server, or on two in turns, and tells latencies (corrected for coordinated omission), event delay,
//!   errors by kind, CPU and memory ([`super::load`]).
