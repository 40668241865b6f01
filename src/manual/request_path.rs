//! What is answered from where, and every reason for forwarding.
//!
//! # The path
//!
//! 1. [`crate::listener`] accepts, does TLS, limits, and hands on the request.
//!    A request that two servers could read as two different ones ([`crate::listener::check_form`]) is refused with 400; so is, with
//!    403 in `trusted` mode, what a web page makes a browser on the same machine send (see *Browsers* below).
//! 2. [`crate::apimachinery::RequestInfo`] says what it is about, from method and path alone. What two parsers could read
//!    differently (an encoded slash, dots, empty segments) is ambiguous and is forwarded untouched.
//! 3. [`crate::authn`] takes the client's credentials off (`Authorization`, `X-Remote-*`), and verifies certificates and front
//!    proxies against the authorities of the moment. Whose a bearer token is, is asked of upstream only where memory could
//!    answer. A request with `Impersonate-*` gets no permit and is forwarded: upstream decides who may.
//! 4. A plain read goes to [`crate::serve`] with the cache of its resource and encoding. The first request starts that cache.
//!    Reads that the cache will be able to answer wait until it is filled (`reads.fillWait`), so that one fill serves all of them;
//!    others are forwarded meanwhile. [`super::consistency`] says which are which.
//! 5. Whatever memory cannot certainly answer comes back as a [`crate::serve::ForwardReason`], and is forwarded. A watch whose
//!    reason passes goes on from memory in mid-stream ([`super::consistency`]).
//!
//! Upstream's answers pass unchanged and unbuffered, trailers and upgrades included. When a client goes, its request
//! upstream is cancelled.
//!
//! # Browsers
//!
//! In `trusted` mode a request needs no credentials, and a browser on the same machine can be made to send one by any page that it
//! shows. Over TCP these are refused with 403, upgrades included, and the message names the field that would allow them:
//!
//! | Request | Reason | Allowed by |
//! |---|---|---|
//! | `Host` is none of the gateway's names: the page's own name leads to a loopback address | `foreign_host` | `clients.acceptHosts` |
//! | `Origin` is not the gateway's own, which is the listener's scheme and the request's `Host` with its port; or is `null`, no origin, or there are several | `foreign_origin` | `clients.acceptOrigins` |
//! | `Sec-Fetch-Site` is neither `same-origin` nor `none`: what a page loads without an `Origin`, and links from other sites | `foreign_origin` | `clients.acceptOrigins`, for requests with an `Origin` |
//! | `exec`, `attach`, `portforward`, the `proxy` of a node, or an ambiguous path, with the gateway's own `Origin` | `own_page` | `clients.acceptOrigins` with the gateway's own |
//!
//! A page of an origin that `clients.acceptOrigins` names (a local dashboard's) is a client like every other: it acts with the gateway's
//! credentials. Its browser is told that it may read the answers, and preflight requests (`OPTIONS` with
//! `Access-Control-Request-Method`) are answered here, as an API server does with `--cors-allowed-origins`.
//!
//! `kubectl proxy` looks at `Host` alone; `exec` and `attach` of pods it refuses to every client (`--reject-paths`). Here they work for
//! clients that send no `Origin` (kubectl does not; a client that does, with the gateway's own, has to have it named), since a browser
//! sends one with everything that can run a command. Pages of the gateway's own origin are those that pods and services answer
//! behind their `proxy`: as with `kubectl proxy`, whoever opens one lets it do what the gateway may, commands excepted.
//!
//! What is left: a browser that does not send `Sec-Fetch-Site` (it is sent to loopback addresses and over TLS, by versions since
//! 2023 at the latest) can be made to send a GET, whose answer the page cannot read. Unix sockets are not looked at, since no browser reaches
//! them. In `delegated` mode nothing of this applies: a page has no credentials to send, but for a client certificate that the
//! browser holds and may show for pages of other origins too. Such a request is answered as the API server answers it, which does not look at
//! `Origin` either.
//!
//! # Reads
//!
//! *From history* means: from the window of changes that the store keeps (by default five minutes, see
//! [`super::operations`]), with the state after each.
//!
//! | Request | Answered |
//! |---|---|
//! | get or list, `resourceVersion=0` | from memory as it is; a `limit` is ignored, as the API server does |
//! | get or list, `resourceVersion=N` | from memory when it has reached N: it waits up to `reads.freshnessWait` for its watch to say so, then has it proven, 3 s in all; else forwarded (`not_reached`) |
//! | get or list, no version | `reads.mostRecent` says: `forward` (the default) forwards it (`most_recent`); `prove` has memory proven to be recent, then answers, else forwards (`unproven`); `auto` does that where it is neither slower nor dearer, else forwards (`most_recent_small`, `most_recent_quiet`); see [`super::consistency`] |
//! | list, `continue` with a token of the latest state | the same |
//! | list, `resourceVersionMatch=Exact`, or `resourceVersion=N` with a `limit` | from history, else forwarded (`outside_history`) |
//! | list, `continue` with any other token | from history at the token's version, wherever the token came from; else forwarded |
//! | exact list of one `metadata.name` | forwarded (`exact_single_name`): the API server has a rule of its own |
//! | label selectors | from memory |
//! | field selectors | from memory for the fields of [`crate::apimachinery::selectable_fields`] that upstream knows, and of a definition's `selectableFields` that are plain paths; else forwarded (`unsupported_field`) |
//! | `Accept` whose first choice is JSON, protobuf or PartialObjectMetadata in either | from the store of that encoding; a custom resource has no protobuf but for its metadata, which is made from its JSON, once an object |
//! | `Accept` whose first choice is a Table, of a custom resource | as the list or get itself, in JSON, with each `includeObject`, if upstream says that the definition has not changed; else forwarded (`unprintable`): see [`super::consistency`] |
//! | `Accept` whose first choice is another: the Table of a built-in resource, YAML, CBOR | forwarded (`representation`) |
//!
//! A get of an object that is not there is a 404 from memory, worded as the API server words it; forwarded
//! (`representation`) where metadata or a Table is asked for, or protobuf first of a custom resource.
//!
//! Bodies of more than 128 KiB are sent in gzip to clients that accept it, under the API server's own rule: the word `gzip`
//! in the first `Accept-Encoding` line, whatever its `q`. Leaves of full and namespaced lists are compressed once for all
//! clients; whatever else is that large is compressed while it is sent.
//!
//! # Watches
//!
//! | Request | Answered |
//! |---|---|
//! | `resourceVersion=N` | from history; forwarded (`before_fill`) if N is older than the fill that history begins with, or lies in a gap that was bridged; 200 and one ERROR event (410, `Expired`) if history has lost what follows N; a version ahead is waited for in silence, as the API server does |
//! | `resourceVersion=0` | from memory: the state as ADDED events, then changes |
//! | no version; `sendInitialEvents=true` without a version | the same after a freshness proof ([`super::consistency`]); without one, forwarded (`unproven`), or always (`most_recent`) with `reads.mostRecentWatch: forward` |
//! | `sendInitialEvents=true`, `resourceVersion=N` | from memory when it has reached N, as a list; else forwarded (`not_reached`) |
//! | `sendInitialEvents=true`, upstream without watch-list | forwarded (`no_watch_list`): see [`super::old_upstreams`] |
//! | `sendInitialEvents=false`, `resourceVersion=0` | from memory, changes only |
//! | `sendInitialEvents=false`, no version | forwarded (`most_recent`) |
//!
//! A watch whose events are Tables (`kubectl get -w`) is forwarded (`representation`).
//!
//! With `allowWatchBookmarks`, the initial events end with the bookmark that has `k8s.io/initial-events-end`; also where
//! the client did not ask for it, as the API server does, but not for the deprecated `/watch/` paths. Later bookmarks come
//! once a minute and two seconds before the end, and only when the version has risen.
//!
//! An object that leaves a selector is DELETED with its last matching content and the new version; one that enters it is
//! ADDED.
//!
//! # Reasons
//!
//! Label `reason` of `kube_fanout_requests_total{outcome="forwarded"}`, and field `reason` of the access log.
//!
//! | Reason | Why |
//! |---|---|
//! | `not_a_read` | a write, or a method that is none of get, list, watch (HEAD too) |
//! | `non_resource_path` | `/version`, `/healthz`, discovery, OpenAPI, … |
//! | `ambiguous_path` | two parsers could read it differently |
//! | `subresource` | `status`, `scale`, `log`, `exec`, … |
//! | `upgrade` | a change of protocol, such as a WebSocket watch |
//! | `impersonated` | `Impersonate-*`: upstream decides |
//! | `unauthenticated` | nothing in the request names a user to the gateway: no credentials, wrong ones, a token that upstream rejects |
//! | `denied` | upstream has said that the user may not, and words it |
//! | `no_verdict` | upstream could not be asked whose a token is, or whether the user may |
//! | `unaudited` | the audit log cannot be written, or not fast enough, and `audit.mode` is `blocking` |
//! | `invalid_options` | parameters that upstream refuses, or that only it can be sure of |
//! | `representation` | a form that memory does not hold |
//! | `unprintable` | a Table of a custom resource that the gateway cannot print with certainty: its columns are not understood, upstream did not say that they are still the same, or a cell may be printed in two ways |
//! | `excluded` | `cache.exclude` names the resource |
//! | `cache_filling` | the cache is being filled, and the read does not wait for that, or has waited for as long as it may |
//! | `fill_failed` | the last attempt to fill the cache failed, or what it held was given up; the next attempt begins after a pause |
//! | `draining` | the gateway was told to stop while the cache was being filled |
//! | `unknown_resource` | upstream does not serve it, or not with this path; or it has just gone |
//! | `not_watchable` | it cannot be listed and watched |
//! | `aggregated` | another server answers for it behind the API server |
//! | `undiscovered` | upstream could not say what it is; looked at again after ten seconds, as is what cannot be cached |
//! | `too_many_resources` | as many resources are cached as one gateway takes on |
//! | `most_recent` | the most recent state is wanted, and the configuration leaves it to upstream |
//! | `most_recent_small` | the most recent state is wanted, of little, with `reads.mostRecent: auto`: a get, or a list of at most 256 KiB of objects, which upstream answers as fast as it tells its head version |
//! | `most_recent_quiet` | the most recent state is wanted, with `reads.mostRecent: auto`: upstream answers in less time than a proof takes, as recent ones show |
//! | `stale` | a watch of a cache that has been without upstream for longer than `cache.maxStaleness`, with `cache.staleWatches: end` |
//! | `not_reached` | the cache has not reached the version in time |
//! | `outside_history` | history does not cover the version |
//! | `before_fill` | a watch goes on from a version that is older than the fill of the cache, or lies in a gap that was bridged: upstream may still know what came between |
//! | `unsupported_field` | a field that may be selectable, but not from memory |
//! | `exact_single_name` | an exact list of one name |
//! | `no_watch_list` | upstream does not know `sendInitialEvents`, and says so itself |
//! | `no_bookmark` | an end bookmark is due, and upstream has not shown yet what its bookmarks look like |
//! | `unproven` | the cache could not be shown to be recent, or not in time |
//!
//! # Answers of the gateway itself
//!
//! Every request upstream names this process in `Via` (RFC 9110, 7.6.3). One that comes back to it is answered with 508 (`loop`): the
//! address of the API server leads to the gateway itself, as it does in a pod whose `KUBERNETES_SERVICE_HOST` was rewritten
//! together with those of its clients. `upstream.kubeconfig` names another one.
//!
//! A request that could not be forwarded gets a `Status`: 503 with `Retry-After: 1` when upstream cannot be reached or the
//! connection broke before the answer, 502 when what it said is not HTTP, 429 with `Retry-After: 1` at a limit of requests
//! upstream, 400 for what may not be forwarded at all (CONNECT, an identity header named in `Connection`). Their messages begin with `kube-fanout:`. The outcome is `rejected`, and the reason says which error it was. A
//! get or HEAD without a body is asked once more when a connection that had worked before turns out to be dead; a write
//! never is.
