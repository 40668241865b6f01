//! Delegated mode: who asks, what they may read, and as whom their requests go upstream.
//!
//! The gateway holds what its own credentials may read and `cache.exclude` does not leave out, and decides who sees it. It decides as the
//! API server would, by asking it; what it cannot decide it forwards, as the client and never as itself. So a 401 or 403
//! is always the API server's own.
//!
//! # Who asks
//!
//! As an API server does it (read-path 8.1), the first that names a user wins:
//!
//! 1. **A front proxy**: a client certificate of `requestHeader.caFile` whose common name is one of `requestHeader.allowedNames` (any,
//!    if there are none) makes `X-Remote-User`, `-Uid`, `-Group` and `-Extra-*` believed. Everybody else's `X-Remote-*` are removed before
//!    anything looks at the request.
//! 2. **A client certificate** of `clientCAFile`: common name and organisations are user and groups. A handshake accepts any
//!    certificate whose key the client has; one that no authority vouches for is 401, as it is directly.
//!    A browser with such a certificate may show it for a page of any origin, and neither the API server nor the gateway looks
//!    at `Origin` here: certificates of users do not belong into browsers.
//! 3. **A bearer token**, by TokenReview. A good one is remembered for `tokenReview.successTTL`, a bad one not at all unless
//!    `tokenReview.failureTTL` says so, under a hash whose key only this process knows. Reviews are asked for when memory could
//!    answer; whatever is forwarded is for upstream to judge.
//! 4. **Nobody**: forwarded without credentials. With `authentication.anonymous: true`, for upstreams that have anonymous users,
//!    `system:anonymous` is authorized like others.
//!
//! A token in the subprotocols of a WebSocket passes with its request: upgrades are always forwarded.
//!
//! # What they may read
//!
//! A SubjectAccessReview, with the attributes that the API server itself would authorize (read-path 8.3): verb, resource, namespace,
//! name (from the path, or an exact `metadata.name` of a field selector), selectors. Verdicts are remembered for `authorization.allowedTTL`
//! and `.deniedTTL`; identical reviews under way are one. Where there is no verdict, because reviews fail, nothing is
//! answered from memory but what was allowed within its time.
//!
//! The code reads from memory only with a [`crate::authz::Permit`], which only [`crate::authz`] makes. What is authorized and what is
//! served is the same [`crate::apimachinery::RequestInfo`]; a path that could mean two things is forwarded.
//!
//! Secrets are left out of memory by default (`cache.exclude`): each read of one is decided and answered by the API server. A list
//! without `secrets`, `[]` for instance, takes them in; they are then kept in this process as every other resource is, for the
//! whole cluster.
//!
//! A watch is authorized again every `authorization.watchInterval`, and ends like one whose time is over when its right is gone.
//! These reviews have room of their own, which other reviews cannot take. A watch ends, too, when there was no room for its review for
//! three intervals, and when upstream has given no verdict on it for an hour (or three intervals, if that is longer). One whose
//! client did not read for two intervals gets nothing more before it is authorized again. The API server itself lets a watch run to
//! its end, for an hour at most.
//!
//! Requests with `Impersonate-*` are never answered from memory.
//!
//! # As whom requests go upstream
//!
//! | Client | Upstream sees |
//! |---|---|
//! | bearer token, or none | the same `Authorization`, unchanged |
//! | certificate, front proxy; `identity.frontProxy` | `X-Remote-*` of the user, over the certificate configured there |
//! | certificate, front proxy; `identity.impersonation` | `Impersonate-*` of the user, with the gateway's own credentials; a request that brings `Impersonate-*` itself is refused |
//! | a certificate of no known authority | a token that cannot be valid, so that the API server says 401 |
//!
//! The gateway's own credentials carry its lists, watches and reviews, and impersonations. Connections that carry clients' requests
//! have none: [`crate::forward::Forward`] is made of other types than [`crate::upstream::Upstream`] in this mode.
//!
//! What shows who a client is, and the questions about it, go to an API server in verified TLS only, or without TLS to a loopback
//! address: `http://` to another machine and `insecure-skip-tls-verify` in a kubeconfig (at a loopback address too, where it
//! is the end of a tunnel) are refused at the start.
//!
//! # Rights
//!
//! Beside those of [`super::operations`]: `system:auth-delegator` (to create token reviews and subject access reviews), and with
//! `identity.impersonation`:
//!
//! ```yaml
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: ClusterRole
//! metadata: {name: kube-fanout-impersonator}
//! rules:
//! # Narrow these with resourceNames where you can: groups without any include system:masters. Service accounts are `serviceaccounts`.
//! - {apiGroups: [""], resources: [users, groups], verbs: [impersonate]}
//! # Where users have a uid (from 1.22 on) or extra values, one resource for each key of these.
//! - {apiGroups: [authentication.k8s.io], resources: [uids, userextras/scopes], verbs: [impersonate]}
//! ```
//!
//! With `identity.frontProxy` the API server needs `--requestheader-client-ca-file`, `--requestheader-allowed-names` with the certificate's
//! common name, and the usual `X-Remote-*` names; for uids, from 1.32 on, `--requestheader-uid-headers`. The authority must
//! not be among those of its `--client-ca-file`: there the certificate would show a user of its own, and every client would be that user.
//!
//! At its start, and until it is known, the gateway asks the API server by this certificate as a made-up user without rights, and looks as
//! whom it is seen (a SelfSubjectReview; servers before 1.28 refuse it, and name the user in the refusal). If it is seen as another
//! user, as nobody or without its groups, the gateway does not start and says why; if that becomes known later, it says so
//! in the log and forwards nothing with the certificate. If the API server cannot be asked at the start, requests are forwarded meanwhile.
//!
//! Whoever may impersonate everybody is as mighty as everybody: a front proxy's certificate is no less so. Keep either where
//! the keys of the API server are kept.
//!
//! # Shares
//!
//! One client cannot take from others what all have to share: `limits.forwardedPerClient` requests on their way upstream,
//! `limits.watchesPerClient` watches from memory, and a quarter of each pool: connections of one kind, upgraded connections, reviews of
//! access. Beyond its share it gets 429 with `Retry-After`; reviews beyond it are not asked for, and the request is forwarded.
//! Of its reviews of access 8 at a time are on their way, and the others wait for their turn: upstream takes all reviews for the gateway's,
//! and its own priority and fairness cannot tell their clients apart.
//!
//! A client is a user, by name, whatever shows that: all tokens and certificates of one user are one client. A token counts for its
//! user when it has been reviewed within the last ten minutes, which it is when memory could have answered it. Everything else counts
//! for its address (IPv6: its network of 64 bits): requests without credentials and of `system:anonymous` as one client, those with tokens
//! that no review has told of as another one. Behind a proxy that hides addresses these share what one address has. Reviews of tokens always count for an address.
//!
//! A place upstream is held for work, and not for a client that does not read: an answer that is not long-running, and every refusal,
//! has `limits.answerTimeout`.
//!
//! In trusted mode clients are not told apart, and all share everything.
//!
//! # Audit
//!
//! Upstream's audit log does not see what the gateway answers itself. With `audit.path` the gateway logs it: events of `audit.k8s.io/v1`
//! at level Metadata, one JSON object a line. A read from memory has the annotation `kube-fanout.io/answered-from: memory`, and a
//! watch two events, its beginning and its end. What the gateway refuses itself (400, 403, 429, and the errors of requests that could not
//! be forwarded) has the annotation `kube-fanout.io/answered-from: gateway`, the `responseStatus` that the client got, and the user as far
//! as it is known by then.
//!
//! What is forwarded, 401 and 403 among it, is in upstream's own log: as the client, with the client's audit ID if it sent one, and with the
//! client's address in `sourceIPs`, in front of the gateway's (the gateway appends it to `X-Forwarded-For`). In the gateway's events
//! `sourceIPs` are those that the API server would name: the first `X-Forwarded-For`, `X-Real-Ip`, and the address of the connection, which
//! is the last one. As there, only the last one is certain: clients can send these headers.
//!
//! `audit.mode: blocking`, the default, answers nothing from memory that it cannot log. An answer begins when its event has a place in the
//! queue. When a write fails, or does not end, reads are forwarded (`unaudited`), so that upstream logs them, and `/readyz` fails, until the
//! same events have been written: they are tried again each second, in their order, and a line that a full disk has cut is completed. Some
//! reads are answered before the first failed write is noticed: their events wait in memory. They are lost, and counted, if the process
//! ends in that state. `audit.mode: bestEffort` goes on answering from memory, and counts what it could not log.
//!
//! A file that is moved away is made anew. A file that ends within a line gets a line break first.
