//! Threat model: what is protected, who is trusted with what, what an attacker at each position can do, and what is out of scope.
//!
//! # Assets
//!
//! * **Cached objects**: every object of each cached resource, in all namespaces, plus several minutes of history. This includes
//!   Secrets if the gateway has the rights to read them.
//! * **The gateway's credentials**: a token or certificate that can list and watch the cached resources and, in `delegated` mode, create
//!   reviews. With `identity.impersonation` or `identity.frontProxy` it can also act as other users, as any user unless it is restricted.
//! * **Client credentials in transit**: bearer tokens, which the gateway forwards and sends to TokenReview.
//! * **The API server**: its load, which the gateway must not raise, and its authorization decisions.
//! * **Availability**: for its clients the gateway is the path to the API server.
//! * **Records**: the audit log (who read what from memory) and the access log.
//!
//! # Trust
//!
//! | Party | `trusted` mode | `delegated` mode |
//! |---|---|---|
//! | a process that can connect to a listener | everything the gateway's credentials allow | what the API server allows its user |
//! | other processes on the same machine | the same; loopback is open to all local users, a Unix socket to its user and group | nothing more than remote clients |
//! | the API server | trusted for objects, users and rights | the same |
//! | certificate authorities in `clientCAFile` | not used | can name any user |
//! | certificate authorities in `requestHeader.caFile`, for `allowedNames` | not used | can assert users in headers |
//! | operators: configuration, environment, files | fully trusted | fully trusted |
//! | a process that can connect to the admin port | can read health and metrics, which contain resource names and counts but no object or user names | the same |
//! | readers of the access log | see paths, which contain object names, addresses and user agents; no queries, bodies or credentials | the same, and user names |
//! | readers of the audit log | see addresses and object names; users have no names here | see users, addresses and object names; no contents |
//!
//! # Attackers
//!
//! **Unauthenticated client (`delegated` mode).** Its requests are forwarded without credentials, and the API server decides. Memory answers
//! them only with `authentication.anonymous: true`, and then only what `system:anonymous` may read. It can hold
//! `limits.connectionsPerAddress` connections, and compete for the pool of requests whose credentials have not been seen before. Enough addresses
//! together can fill that pool: new tokens then get 429 until there is room, clients that are known already are not affected.
//!
//! **Authenticated client (`delegated` mode).** It reads from memory what a SubjectAccessReview allows, with the same attributes the API
//! server would use. The resulting [`crate::authz::Permit`] is required to read a store and fixes the scope of the read. After a
//! right is revoked, cached verdicts remain valid for `authorization.allowedTTL` (10 s), and an open watch for up to
//! `authorization.watchInterval` (5 min); on the API server itself, open watches are not re-authorized at all. A deleted token stays
//! valid for `tokenReview.successTTL` (10 s). The client cannot assert another user: inbound `X-Remote-*` headers are removed, and requests
//! with `Impersonate-*` are forwarded as the client, or refused if the gateway itself uses impersonation. Forwarded requests and watches
//! are limited per user.
//!
//! **Slow or greedy client.** Connections, streams, header sizes and per-client shares are limited; [`super::operations`] lists every
//! limit with its metric. A watch that falls behind the history is ended. There is no limit on the total memory of all caches: a user who can
//! create many large objects in the cluster increases the gateway's memory, as well as the API server's.
//!
//! **Web page in a local browser (`trusted` mode).** It can send requests to loopback addresses. DNS rebinding is prevented by checking
//! `Host` (403). Requests with the `Origin` of another page, or marked by `Sec-Fetch-Site`, are refused (403), WebSockets and writes included,
//! unless `clients.acceptOrigins` names the page; a named page has the gateway's rights. A browser without `Sec-Fetch-Site` can still be
//! made to send a GET, whose response the same-origin policy keeps from the page. Pages that pods and services serve through the
//! gateway's `proxy` paths have its own origin: they have its rights, except to run commands. See [`super::request_path`]. A Unix socket
//! cannot be reached by web pages and is the safer choice where browsers run.
//!
//! **Web page in a browser with a client certificate (`delegated` mode).** The browser may present the certificate for requests of any
//! page. `Origin` is not checked, as it is not by the API server. Do not install certificates of users in browsers.
//!
//! **Local user on the same machine (`trusted` mode).** A loopback port is open to all local users, and to all containers of the pod: they
//! have the gateway's rights, as with `kubectl proxy`. A Unix socket has mode 0660.
//!
//! **Network between client and gateway.** Listeners on addresses other than loopback require TLS. An attacker who can break TLS obtains
//! bearer tokens.
//!
//! **Network between gateway and API server.** The API server is verified as the kubeconfig says. If the kubeconfig uses plain HTTP or
//! `insecure-skip-tls-verify`, an attacker on this network can act as the API server: obtain tokens and forge objects, users and
//! verdicts. In `delegated` mode both are refused, for the kubeconfigs of reviews too; plain HTTP is accepted for loopback addresses. In
//! `trusted` mode they are accepted, as kubectl does.
//!
//! **Faulty or malicious upstream.** Its content is trusted, its volume is not: list pages, events, reviews and documents have size limits.
//! No response may cause a panic; the parsers are fuzzed. A stream that contradicts itself stops the cache, and requests are forwarded.
//!
//! **Access to the process, its memory or a core dump.** Exposes all cached objects, tokens of requests in progress, and private keys.
//! Tokens in the cache of reviews are stored as keyed hashes. Disable core dumps and encrypt swap. Limit the damage by limiting the rights of
//! the gateway: grant only the resources worth caching, and exclude Secrets (`cache.exclude`, which does so by default in `delegated` mode,
//! and no right to list them: the chart's default).
//!
//! **Stolen gateway credentials.** They can be used directly against the API server, without the rules of the gateway: to list cached resources,
//! to test tokens and rights through reviews, and, with impersonation or a front-proxy key, to act as any user permitted by
//! `resourceNames` or by `--requestheader-allowed-names`. Protect these keys like those of the API server.
//!
//! **Readers of logs.** The access log has no query, no header except the user agent and the audit ID, and no body. Both are chosen by the
//! client and limited to visible ASCII. At no level, `trace` included, does the log show credentials or the content of Secrets. A log that
//! is not read costs log lines, never answers. The audit log is as sensitive as the API server's at level Metadata. Reads from memory do not
//! appear in the API server's audit log: set `audit.path` where all reads must be accounted for. Reads that cannot be logged there are
//! forwarded, unless `audit.mode` is `bestEffort`. All addresses of `sourceIPs` but the last can be made up by the client.
//!
//! **Access to the admin port.** Read-only. By default plain HTTP without authentication: restrict it with a network policy
//! (`networkPolicy.metrics` in the chart), or use `admin.tls` and `admin.metricsAuthorization: delegated`, which leave health open to
//! everybody.
//!
//! **Dependencies.** `Cargo.lock` pins every dependency by hash, from crates.io only, under the licences in `deny.toml`. This crate
//! contains no `unsafe`. A malicious dependency has all the rights of the process.
//!
//! # Out of scope
//!
//! * A malicious API server, etcd, kubelet or operator, and anyone who can change the gateway's configuration, files or environment, or
//!   create pods with its service account.
//! * Local users in `trusted` mode.
//! * Denial of service below HTTP or from very many addresses at once, and by users who may create objects without limit.
//! * Timing: response times reveal whether a resource was cached, and therefore whether another client requested it recently.
//! * Staleness of reads from memory, which clients ask for with `resourceVersion`; see [`super::consistency`].
