//! What there is to protect, who is trusted with what, and what an attacker at each place can do.
//!
//! # Assets
//!
//! * **Objects in memory**: every object of each cached resource, of all namespaces, and minutes of their history. With the rights for it
//!   that includes Secrets.
//! * **The gateway's own credentials**: a token or certificate that may list and watch what is cached and, in `delegated` mode, ask for
//!   reviews; with `identity.impersonation` or `identity.frontProxy` it may act as other users, as all of them unless it is narrowed.
//! * **Clients' credentials** on their way: bearer tokens that are forwarded and reviewed.
//! * **The API server**, whose load the gateway is to lower and must not raise, and its word on who may do what.
//! * **The service itself**: for many clients it is the way to the API server.
//! * **Records**: the audit log (who read what from memory), the access log.
//!
//! # Who is trusted with what
//!
//! | Party | `trusted` mode | `delegated` mode |
//! |---|---|---|
//! | whoever reaches a listener | everything that the gateway's credentials may do | what the API server says its user may do |
//! | processes of the same machine | the same: loopback is open to all users of the machine, a Unix socket to its user and group | nothing more than others |
//! | the API server | believed: on objects, users, rights | the same |
//! | authorities of `clientCAFile` | | to name any user |
//! | authorities of `requestHeader.caFile`, for `allowedNames` | | to say in headers who asks |
//! | operators (configuration, environment, files) | everything | everything |
//! | those who reach the admin port | health; metrics, which name resources and counts, never objects or users | the same |
//! | readers of the audit log | | users, addresses, names of objects; no contents |
//! | readers of the access log | paths, which have names of objects in them, and user agents; no queries, bodies, or credentials | the same |
//!
//! # Attackers, by place
//!
//! **A client without credentials, in `delegated` mode.** Its requests are forwarded without credentials, and the API server refuses them;
//! memory answers nothing unless `authentication.anonymous` is on, and then what `system:anonymous` may read. It can take
//! connections up to `limits.connectionsPerAddress`, and places among the requests of unknown clients, which those of known ones do not share.
//! Many addresses together can fill these places: then a token that was never seen waits or is refused (429), known clients are not
//! touched.
//!
//! **A client with credentials.** It reads from memory what a SubjectAccessReview allows, with the attributes that the API server itself
//! would authorize; the [`crate::authz::Permit`] that this gives is the scope of what is read, and no code reads a store without one.
//! A right that was taken away counts for `authorization.allowedTTL` (10 s) more in requests, and for up to `authorization.watchInterval`
//! (5 min) in a watch that is open: longer than 10 s, which is how long the API server would remember it, but shorter than its own watches,
//! which run on to their end. A deleted token counts for `tokenReview.successTTL`. It cannot name another user: its `X-Remote-*` are removed, and
//! what has `Impersonate-*` is forwarded under its own identity, or refused where the gateway impersonates itself. Its shares of forwarded
//! requests and watches are bounded by user.
//!
//! **A client that does not read, or asks for much.** Limits of connections, streams, heads, and shares are in [`super::operations`],
//! each with its metric. A watch that falls out of the history ends. There is no limit on the memory of all caches together: who may
//! write many large objects in the cluster makes the gateway's memory grow, as it does the API server's.
//!
//! **A web page in a browser on the same machine, in `trusted` mode.** It can send requests to loopback addresses. A name of its own
//! that resolves there is refused by `Host` (403). Browsers that keep to the rules do not let it read answers of another origin; what
//! they let it send is a reason to prefer a Unix socket, which no page reaches.
//!
//! **Another user of the same machine, in `trusted` mode.** A loopback port is open to all local users, and to all containers of a pod:
//! as with `kubectl proxy`, they have the gateway's rights. A Unix socket is for its user and group (0660).
//!
//! **On the network between client and gateway.** Outside of loopback and Unix sockets listeners have TLS, or are not started. Keys and certificates
//! are read again when they change. Who breaks TLS has what clients send: tokens.
//!
//! **On the network between gateway and API server.** The gateway verifies the API server as the kubeconfig says. With
//! `insecure-skip-tls-verify`, or plain HTTP, which a kubeconfig can ask for, an attacker there is the API server: they get tokens, and make up
//! objects, users and rights. Where the gateway asserts users (`identity`), plain HTTP is refused.
//!
//! **A false or broken upstream.** It is believed in what it says, and bounded in how much: pages of lists, events, reviews and documents
//! have limits, no answer of it makes the process panic (the parsers are fuzzed), and what contradicts itself stops the cache, which means
//! forwarding.
//!
//! **In the place of the gateway** (its process, its memory, a core dump). All objects in caches, tokens of requests under way, keys of
//! its certificates. Tokens that are remembered are hashes under a key of this process only. Keep core dumps off (`LimitCORE=0`; pods
//! of the chart cannot gain privileges, and have no writable file system to put one on), swap encrypted, and debuggers away: the rights of
//! its service account are what limits the damage. Narrow them to the resources worth caching; leave Secrets out (`cache.exclude`, and
//! no right to list them: the chart's default).
//!
//! **With the gateway's credentials alone.** What they may do directly, at the API server, without any rule of the gateway: list everything
//! cached; ask for reviews, which tells who has which token and right; with impersonation or a front proxy's key, act as any user that is
//! allowed by `resourceNames`, or believed by `--requestheader-allowed-names`. Keep those keys where the API server's are.
//!
//! **At the logs.** The access log has no query, no header but the user agent, no body. A user agent is whatever the client says, in visible
//! ASCII: others are left out. The audit log is as sensitive as the API server's at level Metadata. What memory answers is
//! not in the API server's own audit log: `audit.path` is not optional where reads have to be accounted for.
//!
//! **At the admin port.** Plain HTTP without authentication: who reaches it reads health and metrics, and changes nothing. A network policy
//! can name those who may (`networkPolicy.metrics` of the chart).
//!
//! **Among the dependencies.** Everything compiled in is in `Cargo.lock`, by hash, from one registry, under listed licences
//! (`deny.toml`); this crate has no `unsafe`. A malicious release of a dependency that was locked has all that the process has.
//!
//! # Out of scope
//!
//! * A malicious API server, etcd, kubelet, or operator; whoever may write the gateway's configuration, files or environment, or create pods
//!   with its service account.
//! * Local users in `trusted` mode (see above): that mode is for those who share an identity anyway.
//! * Denial of service by many addresses at once, below TCP, or by who may create objects without end.
//! * Side channels: timing tells whether a request was answered from memory, and so whether somebody asked for the resource lately.
//! * That an answer from memory is older than a read of etcd: [`super::consistency`] says how much, and that is what
//!   `resourceVersion` asks for.
