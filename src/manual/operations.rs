//! Health, metrics, logs, every limit with its default, and the rights that the gateway needs.
//!
//! # Configuration
//!
//! | Field | Default | Allowed |
//! |---|---|---|
//! | `listeners[].address` | `127.0.0.1:8001` | a loopback address with its port, `localhost:PORT`, `unix:/PATH`; in `delegated` mode any address, with TLS |
//! | `listeners[].tls.certFile`, `.keyFile` | none: plain HTTP | PEM files |
//! | `listeners[].tls.minVersion` | `VersionTLS12` | `VersionTLS12`, `VersionTLS13`, as `--tls-min-version` of Kubernetes' components |
//! | `listeners[].tls.cipherSuites` | all of those | as `--tls-cipher-suites`: `TLS_AES_128_GCM_SHA256`, `TLS_AES_256_GCM_SHA384`, `TLS_CHACHA20_POLY1305_SHA256`, and `TLS_ECDHE_RSA_WITH_` or `TLS_ECDHE_ECDSA_WITH_` with one of these three; if the list names no TLS 1.3 suite, all three of them stay enabled |
//! | `listeners[].maxConnectionAge` | none | 1 min to 1 day: after about so long (a tenth more or less) a connection takes no further requests, so that clients find their way to replicas that were added later (`--goaway-chance` of an API server has the same purpose). HTTP/2 is told GOAWAY, HTTP/1.1 `Connection: close`; watches that are open stay until they end |
//! | `upstream.kubeconfig`, `.context` | what kubectl finds: `$KUBECONFIG`, `~/.kube/config`, else the pod's service account | |
//! | `clients.mode` | `trusted` | `trusted`, `delegated` |
//! | `clients.acceptHosts` | none | names and addresses by which clients on TCP call the gateway, besides `localhost`, `127.0.0.1`, `[::1]` and the listeners' own addresses; in `trusted` mode |
//! | `clients.acceptOrigins` | none | origins of web pages that may ask over TCP: `http://localhost:4466`; in `trusted` mode, see [`super::request_path`] |
//! | `clients.authentication.clientCAFile` | none: no certificate names a user | PEM file of authorities |
//! | `clients.authentication.requestHeader.caFile` | none: `X-Remote-*` is believed of nobody | PEM file of authorities |
//! | `clients.authentication.requestHeader.allowedNames` | any | common names; needed if an authority is in `clientCAFile` too |
//! | `clients.authentication.requestHeader.usernameHeaders`, `.uidHeaders`, `.groupHeaders`, `.extraHeaderPrefixes` | `[X-Remote-User]`, `[X-Remote-Uid]`, `[X-Remote-Group]`, `[X-Remote-Extra-]` | names, and beginnings of names, of headers; `usernameHeaders` has at least one |
//! | `clients.authentication.kubeconfig` | none: `upstream` | whom to ask for TokenReviews |
//! | `clients.authentication.tokenReview.audiences` | the reviewer's own | texts |
//! | `clients.authentication.tokenReview.successTTL`, `.failureTTL` | `10s`, `0` | 0 to 10 min |
//! | `clients.authentication.anonymous` | `false` | `true`, `false` |
//! | `clients.authorization.kubeconfig` | none: `upstream` | whom to ask for SubjectAccessReviews |
//! | `clients.authorization.allowedTTL`, `.deniedTTL` | `10s`, `10s` | 0 to 10 min |
//! | `clients.authorization.watchInterval` | `5m` | 10 s to 24 h |
//! | `clients.identity.frontProxy.certFile`, `.keyFile` | none | PEM files; this or the next one, if there is `clientCAFile` or `requestHeader` |
//! | `clients.identity.frontProxy.usernameHeader`, `.uidHeader`, `.groupHeader`, `.extraHeaderPrefix` | `X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group`, `X-Remote-Extra-` | those of the API server's `--requestheader-*` |
//! | `clients.identity.impersonation` | none | `{}` |
//! | `cache.exclude` | `[events, events.events.k8s.io]`, in `delegated` mode `secrets` too | what takes the place of the default, `[]` too: plural words, with their group: `deployments.apps` |
//! | `cache.prewarm` | none | the same; their JSON is kept |
//! | `cache.idleTimeout` | `10m` | 10 s to 7 days |
//! | `cache.listBytesTimeout` | `1m` | 5 s to 24 h |
//! | `cache.history.age` | `5m` | 10 s to 24 h |
//! | `cache.history.bytes` | `256Mi` | from `8Mi` |
//! | `cache.bridge` | `true` | `true`, `false`: whether watches go on when upstream has forgotten what came behind them, see [`super::consistency`] |
//! | `cache.maxStaleness` | none: no limit | 10 s to 24 h |
//! | `cache.staleWatches` | `keep` | `keep`, `end`; needs `cache.maxStaleness` |
//! | `cache.verifyInterval` | `5m` | 0 for never, or 30 s to 24 h: how often each cache is compared with upstream |
//! | `reads.freshnessWait` | `100ms` | 0 to 3 s |
//! | `reads.fillWait` | `30s` | 0 to 60 s |
//! | `reads.mostRecentWatch` | `prove` | `prove`, `forward` |
//! | `reads.mostRecent` | `forward` | `forward`, `auto`, `prove`: gets and lists without a version, see [`super::consistency`] |
//! | `admin.address` | `127.0.0.1:9090` | any address |
//! | `admin.tls.certFile`, `.keyFile`, `.minVersion`, `.cipherSuites` | none: plain HTTP | as of listeners |
//! | `admin.metricsAuthorization` | `none` | `none`, `delegated`: then with TLS, or at a loopback address or a Unix socket |
//! | `limits.connections` | `10000` | 1 to 1,000,000 |
//! | `limits.connectionsPerAddress` | `1000` in `delegated` mode, else all | 1 to `limits.connections` |
//! | `limits.forwardedPerClient` | `1000` | 1 to 1,000, a quarter of what can be on its way; in delegated mode |
//! | `limits.watchesPerClient` | `10000` | 1 to 10,000,000; in delegated mode |
//! | `limits.answerTimeout` | `60s` | 1 s to 1 h |
//! | `limits.answerBytes` | `1Gi` | from `16Mi` |
//! | `limits.answerBytesPerClient` | a quarter of all | `16Mi` to `limits.answerBytes`; in delegated mode |
//! | `audit.path` | none: no audit log | a file, or `-` for standard output |
//! | `audit.mode` | `blocking` | `blocking`: what cannot be logged is not answered from memory; `bestEffort`: it is; with `audit.path` |
//! | `logging.format`, `.level` | `text`, `info` | `text`, `json`; `off`, `error`, `warn`, `info`, `debug`, `trace` |
//! | `logging.access` | `notable` | `all`, `notable`, `none`: which finished requests and watches have a line, at `info` and below |
//! | `drain.timeout` | `20s` | 0 to 1 h |
//!
//! Why a default is what it is stands at its constant in [`crate::config`]. Unknown fields are problems, and so are the fields
//! of the other mode. `kube-fanout check --config FILE` names every problem of one at once, with its line and column and what would be
//! allowed, and ends with 2; if there is none, it looks at the files that the configuration names too, as `run` does. `--listen`, `--admin-listen`,
//! `--kubeconfig` and `--context` win over the file. Certificates are read again when their files change.
//!
//! The configuration file is read again on SIGHUP, and when its text has changed (it is looked at every five seconds, and has to be
//! the same twice, so that a mounted ConfigMap needs no signal). For what comes from then on, these take effect: `reads`, `limits`,
//! `drain.timeout`, `logging.level`, `logging.access`, `cache.exclude` (a cache that is excluded ends within five seconds, and so do its
//! watches), `cache.prewarm`, `cache.idleTimeout`, `cache.listBytesTimeout`, and the `audiences`, `successTTL` and `failureTTL` of
//! `clients.authentication.tokenReview` (no token is known then). Who holds more than a new limit allows keeps it. The log names the other
//! fields that have changed, which need a restart. A file with problems, or that names files with
//! problems, changes nothing: the log says what is wrong, and `kube_fanout_config_last_reload_successful` is 0.
//!
//! `kube-fanout schema` prints the JSON schema of the file (it is the chart's, for `config`).
//!
//! # Rights
//!
//! A cache is always of the whole cluster, whatever its clients ask for. The gateway's identity needs:
//!
//! * `list` and `watch` on each resource that is to be cached, in all namespaces. Where it lacks them, requests are forwarded.
//! * `get` on `customresourcedefinitions`, to know a custom resource when it changes. Without it, only resources of the core group
//!   are cached: everything else is `undiscovered`.
//! * `list` on `apiservices`, to leave aggregated APIs alone. Without it, only the core group and custom resources are cached:
//!   everything else is `undiscovered`.
//! * in `trusted` mode whatever its clients are to do: every forwarded request is made with the gateway's credentials.
//! * in `delegated` mode `create` on `tokenreviews` and `subjectaccessreviews` (`system:auth-delegator`), and what [`super::identity`] says.
//!
//! # Health
//!
//! On the admin port (`admin.address`), in plain HTTP or with `admin.tls`:
//!
//! * `/livez`: the process answers.
//! * `/readyz`: every resource of `cache.prewarm` is in memory (of those that the configuration named when the gateway was started), no cache has been without a watch of upstream for longer
//!   than `cache.maxStaleness`, and no drain has begun. `?verbose` shows each cache; one
//!   that is not in `cache.prewarm` does not count, even while it fills.
//!   With `audit.mode: blocking` the last write to the audit log has to have succeeded (`audit`).
//!   That the API server can be reached is not part of it: with neither `cache.prewarm` nor `cache.maxStaleness` a gateway is ready
//!   whose API server has a wrong address. Name in `cache.prewarm` what your clients need.
//! * `/metrics`: Prometheus' text format. With `admin.metricsAuthorization: delegated` for those alone whom the API server lets `get` the
//!   path `/metrics` (a rule with `nonResourceURLs: [/metrics]`), as its own components have it: a TokenReview and a SubjectAccessReview for each scrape,
//!   401 or 403 where they fail, 503 where the API server does not answer. In `delegated` mode certificates of clients
//!   count too. The gateway's identity needs `system:auth-delegator` for it, in `trusted` mode too. `/livez` and `/readyz` stay open.
//! * `/`, `/status.json`: what the gateway is and what it saves, for people and programs; see [`super::status`].
//!
//! # Metrics
//!
//! | Metric | Labels | Meaning |
//! |---|---|---|
//! | `kube_fanout_build_info` | version | 1 |
//! | `kube_fanout_requests_total` | verb, resource, outcome, reason | finished requests and watches; outcome is `served`, `forwarded` or `rejected` |
//! | `kube_fanout_request_duration_seconds` | verb, outcome | histogram; without watches |
//! | `kube_fanout_response_bytes_total` | verb, outcome | bytes of bodies |
//! | `kube_fanout_cache_objects` | resource, version, encoding | objects |
//! | `kube_fanout_cache_object_bytes` | resource, version, encoding | their encoded bytes |
//! | `kube_fanout_cache_joined_bytes` | resource, version, encoding | metadata joined for lists, shared by all lists |
//! | `kube_fanout_cache_deflated_bytes` | resource, version, encoding | bytes compressed for gzip lists, shared by all of these |
//! | `kube_fanout_cache_derived_bytes` | resource, version, encoding | bytes of metadata made for those who ask for it alone, where it is no slice of the object |
//! | `kube_fanout_cache_resource_version` | resource, version, encoding | version that the cache has reached, brought up to date every few seconds |
//! | `kube_fanout_cache_progress_version` | resource, version, encoding | version up to which upstream has shown it to be complete |
//! | `kube_fanout_cache_progress_lag_seconds` | resource, version, encoding | time since then: about a minute at most on a quiet resource |
//! | `kube_fanout_cache_staleness_seconds` | resource, version, encoding | how long the cache has been without a watch of upstream; 0 while there is one, however quiet. `cache.maxStaleness` limits it |
//! | `kube_fanout_cache_epoch` | resource, version, encoding | fills since the cache was started, without those that were bridged; 1 is the first |
//! | `kube_fanout_cache_history_changes` | resource, version, encoding | changes that a watch can start behind |
//! | `kube_fanout_cache_history_bytes` | resource, version, encoding | bytes held for them only, estimated |
//! | `kube_fanout_watchers` | resource, version, encoding | watches served now |
//! | `kube_fanout_upstream_watches` | resource, version, encoding | watches of upstream that are open for the cache: 1, or 0 while it is not followed |
//! | `kube_fanout_watch_events_sent_total` | resource, version, encoding | events given to watches, bookmarks included |
//! | `kube_fanout_watches_taken_over_total` | resource, version, encoding | forwarded watches that went on from the cache in mid-stream |
//! | `kube_fanout_watches_ended_total` | resource, version, encoding, cause | `deadline`, `lagged`, `relisted`, `lost` (upstream's versions went back), `corrupt` (the cache differed from upstream: with an ERROR event, so that clients list anew), `stale` (`cache.maxStaleness`), `stopped`, `drained`, `unencodable` (metadata that upstream would not write so), `revoked` (its user may no longer), `unconfirmed` (it could not be found out for too long whether its user still may), `client_gone` |
//! | `kube_fanout_reflector_restarts_total` | resource, version, encoding, cause | `ended` (in time), `expired`, `too_large`, `refused`, `not_found`, `denied`, `unavailable`, `malformed`, `silent`, `stalled` (in the middle of the initial events), `stuck` (another watch shows what it does not) |
//! | `kube_fanout_freshness_proofs_total` | resource, version, encoding, outcome | `proven`, `no_head`, `no_bookmark`, `ahead` (a client wants a version that upstream has not reached), `backwards` (the head is behind the cache), `late` (it took longer than it may) |
//! | `kube_fanout_cache_verifications_total` | resource, version, encoding, outcome | comparisons with upstream at the same version (`cache.verifyInterval`): `same`, `different` (filled anew; the log names the object), `version_not_there` (upstream has compacted it or not reached it, three times), `failed` |
//! | `kube_fanout_cache_bridges_total` | resource, version, encoding, outcome | fills of a cache whose version upstream had forgotten: `made` (its watches went on); `off`, `server`, `definition`, `backwards`, `contradiction`, `too_large` (they ended, see [`super::consistency`]) |
//! | `kube_fanout_limits_reached_total` | limit | see below |
//! | `kube_fanout_limit` | limit | what a limit allows, of those of which it is known how much is used |
//! | `kube_fanout_limit_used` | limit | how much of it is used |
//! | `kube_fanout_connections` | | open connections of clients |
//! | `kube_fanout_connections_accepted_total` | | |
//! | `kube_fanout_connection_errors_total` | cause | `accept`, `handshake`, `handshake_timeout`, `header_timeout`, `protocol` |
//! | `kube_fanout_certificate_reloads_total` | outcome | `replaced`, `failed` |
//! | `kube_fanout_token_lookups_total` | outcome | requests with a bearer token that could be answered from memory: its user was `known`, or had to be `asked` for |
//! | `kube_fanout_token_reviews_total` | verdict | `accepted`, `rejected`, `none` (upstream could not be asked, or did not say: forwarded) |
//! | `kube_fanout_audit_writes_total` | outcome | pieces of the audit log, some hundred events each: `written`, `failed` |
//! | `kube_fanout_audit_events_lost_total` | | events that the audit log lacks: of `bestEffort`, of the ends of watches and of refusals without room, and of a process that ended with a full disk |
//! | `kube_fanout_config_reloads_total` | outcome | times that the configuration file had changed and was put into effect (`success`) or has problems (`failure`) |
//! | `kube_fanout_config_last_reload_successful` | | 1 or 0: whether the last one was a success |
//! | `kube_fanout_log_lines_dropped_total` | cause | log lines that nothing read in time (`queue_full`), or that could not be written (`unwritten`) |
//! | `kube_fanout_access_reviews_total` | verdict | SubjectAccessReviews asked for: `allowed`, `denied`, `none` (upstream did not say) |
//! | `process_cpu_seconds_total` | | CPU time of the process |
//! | `process_resident_memory_bytes` | | its memory that is resident |
//! | `process_start_time_seconds` | | when it began, since 1970 |
//!
//! The label `resource` is the plural word with its group (`deployments.apps`), `version` the API version. Worth an alert: a
//! verification that is `different`, a
//! progress lag of minutes, an epoch that keeps rising, `lagged` watches, any limit, and a share of `forwarded` reads that grows.
//!
//! # Logs
//!
//! To standard error, as text or JSON (`logging.format`, `logging.level`). Finished requests and watches have a line with the
//! target `access`: verb, path without the query, resource, namespace, outcome, reason, status, duration in milliseconds, bytes
//! of the body, the user's name where the gateway knows it, the client's address, the audit ID of the answer, user agent.
//!
//! `logging.access: notable` leaves out what is neither an error (5xx), nor a refusal (rejected by the gateway, 401, 403, 429), nor
//! slow: a second or more to the end of the answer. Of watches, upgrades and the subresources `attach`, `exec`, `log`, `portforward`
//! and `proxy`, the time to the response headers counts: how long they last is up to the client. `all` has a line for each,
//! `none` has no line; the metrics count every request in any case.
//!
//! Logging never delays an answer: lines wait in a queue, and a thread of their own writes them. When nothing reads standard error,
//! lines that find no room are dropped and counted, and a line says how many once it is read again. At the end of the process
//! the queue is written as far as it is read within a second.
//!
//! At `debug` only the gateway itself says more; at `trace` the libraries below do too, frame by frame. At no level is a credential or the
//! content of a Secret shown.
//!
//! # Limits
//!
//! What is reached is counted by `kube_fanout_limits_reached_total` under the name in the last column, or by the metric
//! that stands there. Values with a field can be configured.
//!
//! | What | Default | Beyond it | Counted as |
//! |---|---|---|---|
//! | open connections of clients (`limits.connections`) | 10,000 | wait in the kernel's queue | `connections` |
//! | open connections from one IP address, or IPv6 network of 64 bits (`limits.connectionsPerAddress`) | 1,000 in `delegated` mode | closed | `connections_per_address` |
//! | connections without a request under way, while others wait | none | one is closed: first those that never asked, then the one that has been idle for longest | `idle_connections` |
//! | time in which a client reads an answer that ends by itself, from its head on (`limits.answerTimeout`) | 60 s | the stream is reset, the HTTP/1.1 connection closed | `answer_seconds` |
//! | time in which a client takes nothing of a watch that has something for it | 5 to 10 min | the stream is reset, the HTTP/1.1 connection closed | `unread_watch_seconds` |
//! | bytes that answers from memory hold for themselves while they are sent (`limits.answerBytes`) | 1 GiB | 429 | `answer_bytes` |
//! | the same of one client (`limits.answerBytesPerClient`) | a quarter of it in `delegated` mode | 429 | `client_answer_bytes` |
//! | time in which a client's machine takes no byte that is sent to it | 2 min | closed | |
//! | streams that an HTTP/2 client resets before they are looked at | 20 | closed | connection error `protocol` |
//! | streams of an HTTP/2 connection that are reset because the client broke the protocol | 1,024 | closed | the same |
//! | age of a connection (`listeners[].maxConnectionAge`) | none | it takes no further requests | `connection_age` |
//! | open connections of the admin port | 100 | the oldest is closed | `connections`, `idle_connections` |
//! | time in which an answer of the admin port is read | 10 s | closed | `answer_seconds` |
//! | scrapes that the API server is asked about (`admin.metricsAuthorization`) | 20 | 429 | `metrics_reviews` |
//! | the same for one address | 5 | 429 | `address_metrics_reviews` |
//! | TLS handshake of a client | 10 s | closed | connection error `handshake_timeout` |
//! | first request's head | 30 s | closed | connection error `header_timeout` |
//! | idle HTTP/1.1 connection | 100 s | closed | |
//! | bytes of a request's head | 256 KiB | 431 | `request_header_bytes` (HTTP/1.1) |
//! | lines of a request's head (HTTP/1.1) | 512 | 431 | `request_header_bytes` |
//! | streams of an HTTP/2 connection | 1,000 | the client has to wait | |
//! | bytes kept for an HTTP/2 stream whose client does not read | 256 KiB | its watch falls behind | |
//! | silence of an HTTP/2 client after a ping | 30 s, then 20 s | closed | |
//! | caches: resources, each in one encoding | 1,000 | forwarded (`too_many_resources`) | `cached_resources` |
//! | resources of which it is remembered that they cannot be cached, for 10 s | 1,000 | some are looked up again | `uncached_resources` |
//! | age of history (`cache.history.age`) | 5 min | older changes go; 100 stay | watches ended `lagged` |
//! | bytes of history (`cache.history.bytes`) | 256 MiB a cache | the same | the same |
//! | changes in history | 102,400 | older ones go | the same |
//! | changes and bytes of a bridge | what history holds | no bridge: watches end | bridges `too_large` |
//! | gaps of bridges that history tells apart | 64 a cache | the oldest count as one: more is forwarded | |
//! | age of a cache without upstream (`cache.maxStaleness`) | none | not ready; watches are kept, or ended and forwarded (`cache.staleWatches`) | watches ended `stale` |
//! | unused cache (`cache.idleTimeout`) | 10 min | stopped | watches ended `stopped` |
//! | metadata joined, items compressed for lists, metadata made from objects (`cache.listBytesTimeout`) | 1 min without being asked for | given back, made again when asked for | `kube_fanout_cache_joined_bytes`, `_deflated_bytes`, `_derived_bytes` |
//! | wait for the watch to tell a version (`reads.freshnessWait`) | 100 ms | it is proven | |
//! | wait for a version, with its proof | 3 s | forwarded | requests with reason `not_reached` |
//! | answer to `/version` when a cache is filled or resumed | 5 s | taken for the same as before | |
//! | head version of a proof | 5 s | forwarded | proofs `no_head` |
//! | wait for a cache to be filled (`reads.fillWait`) | 30 s, and half of a watch's `timeoutSeconds` at most | forwarded | requests with reason `cache_filling` |
//! | caches that are compared with upstream at once | 1, for 5 min at most | wait; `failed` | verifications `failed` |
//! | gets and lists of one resource that wait for a proof | 10,000 | forwarded (`unproven`) | `proof_waiters` |
//! | reads that wait for caches to be filled | 10,000 | forwarded (`cache_filling`) | `fill_waiters` |
//! | small watches at once that show a resource to have been quiet, for each cache | 1 | share it, or wait for the next; the clients have upstream's answers | |
//! | the time of such a watch | 5 s | the watches that waited for it stay upstream's until something tells them a version | |
//! | event of a forwarded watch that is read along | 16 MiB | the watch stays upstream's | `takeover_event_bytes` |
//! | small watch of a proof | 5 s, twice | forwarded | proofs `no_bookmark` |
//! | wait for the store to follow a small watch | 3 s | the same; the main watch is opened anew | the same; restarts `stuck` |
//! | headers of an answer to the reflector: lists, all else | 65 s, 30 s | tried again | restarts `unavailable` |
//! | silence of upstream in a list, or between initial events | 30 s | tried again | restarts `unavailable`, `silent`, `stalled` |
//! | silence of a watch whose upstream sends bookmarks; of any | 4 min; 11 min | opened anew | restarts `silent` |
//! | requests of the gateway itself on their way | 2,000 | fail, and are tried again | `upstream_own_requests` |
//! | brief forwarded requests, a connection for each (of each identity) | 1,000 | they share connections | `upstream_exclusive_requests` |
//! | such connections that nobody uses | 64, 60 s | closed | |
//! | forwarded requests that share connections: watches, and what the others leave | 4,000 | 429 | `upstream_forwarded_requests` |
//! | verdicts on access that are kept | 8,192 | some go that were not asked for lately | `access_verdicts` |
//! | the same of one user | 2,048 | further ones are asked for each time | `client_access_verdicts` |
//! | bytes of attributes whose verdict is kept | 10,000 | asked for each time | |
//! | reviews of access under way | 1,000 | forwarded (`no_verdict`) | `access_reviews` |
//! | the same of one user | 250 | the same | `client_access_reviews` |
//! | of these, on their way upstream at once | 8; the others wait, up to 5 s | the same | `client_review_wait` |
//! | reviews of watches that go on under way | 1,000 more | tried again, 8 times an interval | `watch_reviews` |
//! | the same of one user | 250 | the same | `client_watch_reviews` |
//! | time without a review of a watch, since there is no room for it | 3 × `watchInterval` | watches ended `unconfirmed` | |
//! | time without a verdict on a watch, since upstream gives none | 1 h, or 3 × `watchInterval` | the same | |
//! | upgraded connections | 1,000 | 429 | `upstream_upgrades` |
//! | requests of clients with credentials of their own | 4,000 | 429 | `upstream_client_requests` |
//! | connections that these have upgraded | 1,000 | 429 | `upstream_client_upgrades` |
//! | requests of clients who show nothing that has been good before, a connection for each | 1,000 | 429 | `upstream_unknown_requests` |
//! | tokens that are known to have been good, and so share connections | 20,000, 10 min | some prove themselves again | `proven_tokens` |
//! | connections that these have upgraded | 1,000 | 429 | `upstream_unknown_upgrades` |
//! | requests of users asserted by a front proxy's certificate | 4,000 | 429 | `upstream_front_proxy_requests` |
//! | connections that these have upgraded | 1,000 | 429 | `upstream_front_proxy_upgrades` |
//! | requests of users who are impersonated | 4,000 | 429 | `upstream_impersonated_requests` |
//! | connections that these have upgraded | 1,000 | 429 | `upstream_impersonated_upgrades` |
//! | connecting to upstream, with proxy and TLS | 10 s | 503 | requests with reason `connect_timed_out` |
//! | unread bytes of a forwarded answer | 512 KiB | upstream has to wait | |
//! | bytes of an answer's head (HTTP/2) | 256 KiB | 503 | |
//! | page of a list from upstream | 4 GiB | not cached, forwarded | `upstream_list_bytes` |
//! | one event of upstream's watch | 64 MiB | the cache is filled again | restarts `malformed` |
//! | reviews of tokens under way | 500 | no verdict: forwarded | `token_reviews` |
//! | the same for one address | 125 | the same | `address_token_reviews` |
//! | tokens of which it is known for whom they count | 20,000, 10 min | some count for their address | `counted_tokens` |
//! | tokens whose user is known | 20,000 | some are asked for again | `known_tokens` |
//! | client certificates that were verified, for a minute each | 10,000 | some are verified again | `verified_certificates` |
//! | answer to a review | 4 MiB, 10 s | no verdict: forwarded | `upstream_review_bytes` |
//! | document of discovery, or definition | 64 MiB, 30 s | forwarded (`undiscovered`) | `upstream_document_bytes` |
//! | requests of one client on their way upstream (`limits.forwardedPerClient`) | 1,000 | 429 | `client_forwarded_requests` |
//! | of these, with a connection each | 250 | they share connections | `client_exclusive_requests` |
//! | of these, that share connections | 1,000 | 429 | `client_shared_requests` |
//! | of these, upgraded connections | 250 | 429 | `client_upgrades` |
//! | of one client, requests that show nothing that has been good before | 250 | 429 | `client_unknown_requests` |
//! | of these, upgraded connections | 250 | 429 | `client_unknown_upgrades` |
//! | watches of one client from memory (`limits.watchesPerClient`) | 10,000 | 429 | `client_watches` |
//! | bytes of log lines that wait to be written | 4 MiB | dropped | `kube_fanout_log_lines_dropped_total` |
//! | audit events that wait to be written | 10,000, of which refusals take half | `audit.mode: blocking`: reads wait for 1 s, then are forwarded (`unaudited`); `bestEffort`, refusals, ends of watches: not logged | `audit_queue` |
//! | a write to the audit log | 5 s, twice that at most | as a write that failed: reads are forwarded until one succeeds | |
//! | path and query in an audit event; user agent; addresses | 8 KiB; 1 KiB; the last 32 | cut | |
//! | group versions asked for by name, before a server without `/apis` | 1,000 | forwarded (`unknown_resource`) | `unlisted_group_versions` |
//! | clients that are counted apart for the status | 200 | who asks least gives way | `top_clients` |
//! | bytes of a user agent, or of a user's name, in the status | 200 | cut | |
//! | samples for the status, one every 10 s | an hour; of each cache a minute | the oldest go | |
//! | label sets of requests | 20,000 | counted as resource `other` | `request_series` |
//! | drain (`drain.timeout`) | 20 s | aborted | |
//! | watches that end in a drain | 100 a second, or as many as end within half of `drain.timeout` | | |
//!
//! There is no limit on the bytes of all caches together: they take what their objects take. Watches are bounded by
//! connections and streams, and in `delegated` mode by client.
