//! What an API server answers to get, list and watch: the contract that the gateway keeps with its clients.
//!
//! The code refers to the numbers of these sections as `read-path 1.2`. They describe kube-apiserver 1.36; what differs
//! before, where it matters here, stands in [`super::old_upstreams`]. Most of it was seen in answers of a real server; what was
//! only read in its source has a †. *Typed* is a resource that is compiled into the server, *custom* is one that a definition
//! makes. *Cache* is the API server's own watch cache, which the gateway stands in for. RV is `resourceVersion`, match is
//! `resourceVersionMatch`, SIE is `sendInitialEvents`.
//!
//! # 1 What is answered from where
//!
//! ## 1.0 Order of evaluation
//!
//! Authentication (401), impersonation, overload (429), authorization (403), routing (404, 405), negotiation (406), decoding of
//! parameters (400), validation of options (422), field labels (400), then storage: tokens and versions (400, 500, 504, 410). What
//! comes first words the answer: who may not ask for a resource that does not exist gets 403.
//!
//! ## 1.1 Get
//!
//! | RV | Answered |
//! |---|---|
//! | none | most recent |
//! | `0` | from the cache, however stale |
//! | `N` | from the cache once it has reached N; after 3 s of waiting 504. The object may be older than N: nothing has changed it since |
//! | no number | 500 without a reason |
//!
//! Other parameters but `pretty` have no effect; `watch` neither. The body of a 404 is the same from everywhere.
//!
//! ## 1.2 List
//!
//! | RV | match | limit | Answered | Version of the collection | Limit |
//! |---|---|---|---|---|---|
//! | none | | any | most recent | the cache's, not behind the head | kept |
//! | `0` | none, NotOlderThan | any | from the cache, however stale | the cache's | **ignored** |
//! | `N` | none | none | from the cache once it has reached N | the cache's | |
//! | `N` | NotOlderThan | any | the same | the cache's | kept |
//! | `N` | none | set | **exact**, by an old rule | N | kept |
//! | `N` | Exact | any | exact | N | kept |
//! | none, `0` | none | any, with `continue` | exact at the token's version; a token of a negative version: most recent from its key on | the token's | kept |
//!
//! Everything else is refused: a match without a version, Exact at `0`, a match or a version beside `continue`, SIE in any form. A
//! negative limit, or 0, is none. `timeoutSeconds` has no effect, but has to be a number.
//!
//! A selector that requires one `metadata.name`, where the key can be known, makes the list a get of one key: a version with a limit
//! is then *not* exact, exact ones never come from the cache, there are no pages, and a missing name is an empty list.
//!
//! A cache that is not ready: 429.†
//!
//! ## 1.3 Continue tokens
//!
//! Base64url without padding of `{"v":"meta.k8s.io/v1","rv":5489,"start":"/cm-b\u0000"}`. The start is the last key given and a
//! NUL, counted from the scope of the request: from the namespace for a namespaced list, or one that a field pins to a
//! namespace, else from the resource. Tokens of the cache have a slash before the start, tokens of etcd have none; both are
//! taken everywhere. Tokens are neither signed nor bound to selectors; any negative version means the latest.
//!
//! A page is full when `limit` objects *match*; there is a next page when any key follows, matching or not, so that the last page
//! may be empty. `remainingItemCount` is there only beside a token and only without selectors. All pages of a chain have one
//! version. A token whose version is compacted: 410 with a new token of version -1.
//!
//! ## 1.4 Watch
//!
//! Where RV is none or `0` and neither SIE nor match is given, SIE becomes true and match NotOlderThan before anything is looked at.
//! Deprecated paths (`/api/v1/watch/…`) without `watch=1` do not get this: they give the state from the cache as it is, without an
//! end bookmark, and are validated as lists.
//!
//! | RV | SIE | match | The watch |
//! |---|---|---|---|
//! | none | none, true | none, NotOlderThan | waits for the head; ADDED for everything; the end bookmark if bookmarks are allowed; then changes |
//! | `0` | none, true | the same | the same from the cache as it is |
//! | `N` | true | NotOlderThan | the same once the cache has reached N. An old N is never too old; one too high: ERROR 504 after 3 s |
//! | none | false | NotOlderThan | changes behind the head |
//! | `0` | false | NotOlderThan | changes behind the cache's version |
//! | `N` | none, false | none, NotOlderThan | changes behind N, then live; too old: ERROR 410; in the future: silence, nothing at or below N ever |
//! | no number | | | 500 without a reason |
//!
//! Everything else is 422: any match but NotOlderThan, SIE without a match, a match without SIE, `continue`. `limit` has no effect.
//!
//! History window: a ring of 100 to 102,400 changes for each resource, large enough for 75 s while it can be;† after a fill it begins
//! at the fill's version.
//!
//! # 2 Errors
//!
//! `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":…,"reason":…,"details":{…},"code":N}`
//! and a newline. The members stand in this order, those of `details` in the order name, group, kind, uid, causes,
//! retryAfterSeconds; empty ones are left out; `<`, `>` and `&` are escaped. `Retry-After` is set with `retryAfterSeconds`. A Status
//! is written in the form that was asked for; where that is none that a Status has (Table), in indented JSON.
//!
//! * Missing: 404 NotFound, `configmaps "nope" not found`; `kind` in the details is the plural word.
//! * RV too high: 504 Timeout, `Timeout: Too large resource version: N, current: M`, cause `ResourceVersionTooLarge`, retry after 1 s;
//!   from etcd without the advice and without the wait. Clients look for the cause.
//! * RV too old: list 410 Expired; watch as in 2.1.
//!
//! ## 2.1 Errors inside a watch
//!
//! Until the watch has begun, an error is an HTTP status. From then on it is 200, one event `{"type":"ERROR","object":<Status>}`, and
//! a clean end. Too old: 410 Expired, `too old resource version: N (oldest)`. A watcher that is too slow, a cache that is filled
//! again, a definition that changes or goes, a shutdown, the timeout: a clean end and no event.
//!
//! # 3 Watch streams
//!
//! ## 3.1 Headers and frames
//!
//! 200 at once, before the first event; after the wait where the start needs one. `application/json` without `stream=watch`, an event a
//! line, never indented, never compressed. Protobuf: `application/vnd.kubernetes.protobuf;stream=watch`, four bytes of length (big
//! endian) before each `WatchEvent`, whose raw object has an envelope of its own. YAML: 406.
//!
//! ## 3.3 Events
//!
//! * Initial ADDED events have the objects' own versions and come in the order of keys: the bytes of `namespace/name` as one string, so
//!   that `a-b/x` stands before `a/x`.
//! * A change has the version of the write; DELETED is the last state with the version of the deletion.
//! * An object that begins to match is ADDED; one that ceases to is DELETED with its last matching content and the version of the
//!   write that made it leave.
//! * Versions rise strictly after the initial events; events are never merged.
//!
//! ## 3.4 Bookmarks
//!
//! Only with `allowWatchBookmarks`. The object is the zero value of the type with a version (appendix A). The end of the initial
//! events has the annotation `k8s.io/initial-events-end: "true"`, once, at the version of the state that was sent. Then about once a
//! minute, and about two seconds before the deadline; only if the version is above the one that the watch began at. Never guaranteed.
//!
//! ## 3.5 timeoutSeconds
//!
//! None or 0: between 30 and 60 minutes.† Negative, or too large for Go's durations: ends at once.
//!
//! ## 3.8 Metadata alone
//!
//! As `PartialObjectMetadata` every object is kind, apiVersion (`meta.k8s.io/v1` or `v1beta1`) and its whole metadata, bookmarks too, in
//! JSON or protobuf. Annotations that are made when an object is converted to its version are not part of it: the template generation
//! of daemon sets, what older versions of autoscalers say of metrics.
//!
//! # 4 Answers
//!
//! ## 4.1 Shape of JSON
//!
//! | | typed | custom |
//! |---|---|---|
//! | members of a list | kind, apiVersion, metadata, items | apiVersion, items, kind, metadata |
//! | its metadata | resourceVersion, continue, remainingItemCount; empty ones left out | continue (always, also empty), remainingItemCount, resourceVersion |
//! | items | without kind and apiVersion | with both |
//! | members of an object | order of the Go struct | alphabetical on each level |
//! | HEAD | 405 | 200 |
//! | `Accept: application/*` | 406 | JSON |
//! | protobuf | yes | only for PartialObjectMetadata |
//!
//! No items: `[]`, but `null` in a PartialObjectMetadataList, whose items have kind and apiVersion. A newline ends the body. Indented by
//! two spaces, without that newline, with `pretty=true`, with `;pretty=1` in Accept, or for curl, Wget and browsers that do not say.
//!
//! Protobuf: an envelope of `k8s\0` and an `Unknown` message that has apiVersion, kind and the object; items of a list stand in it without
//! envelopes of their own. Empty fields that are no pointers are written. In a `PartialObjectMetadataList` of `v1beta1` the items come
//! before the metadata.
//!
//! ## 4.2 Headers
//!
//! `Audit-Id` (the client's own, if it sent one), `Cache-Control: no-cache, private`, `Content-Type` without a charset, `Date`; no
//! ETag. `Warning: 299 - "…"` on every answer of a deprecated API, watches too.
//!
//! ## 4.3 Compression
//!
//! gzip, for gets and lists of more than 128 KiB whose first line of `Accept-Encoding` has a token that is exactly `gzip`;
//! then also `Vary: Accept-Encoding`. Never for watches.
//!
//! ## 4.4 Paths, parameters, Accept
//!
//! A trailing slash is taken. Names are percent-decoded; a decoded slash makes a subresource. Booleans: `0` and `false` in any case are
//! false, everything else is true, the empty text too. The first of several values counts. Accept: by quality, the first clause that
//! names a type the server has, with parameters it takes.
//!
//! # 5 Selectors
//!
//! ## 5.1 Field labels
//!
//! `metadata.name` and `metadata.namespace` everywhere, with exceptions; a few typed resources have more
//! ([`crate::apimachinery::selectable_fields`]); custom resources have the `selectableFields` of the version that is asked for.
//!
//! Value rules: equality of texts. Booleans are `true` and `false`, integers are decimal. A field that an object does not have is the
//! empty text, or what Go's zero value prints as: `spec.unschedulable=false` finds nodes that say nothing.
//!
//! ## 5.2 One name, one namespace
//!
//! Several names that contradict each other select nothing. `metadata.namespace` on all namespaces narrows the list, and counts as a
//! selector.
//!
//! ## 5.3 Grammar of field selectors
//!
//! Terms between commas; in each the first of `!=`, `==`, `=`. Empty terms do not count. `\\`, `\,` and `\=` are escapes. No sets.
//!
//! ## 5.4 Grammar of label selectors
//!
//! `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k>1`, `k<1`, between commas, with white space anywhere. `!=` and
//! `notin` select objects without the key, too; `>` and `<` only integers.
//!
//! # 6 Tables
//!
//! What kubectl prints. Cells of many types are ages, which change without a write: seconds below two minutes,
//! minutes and seconds below ten, minutes below three hours, and so on with two units, or one, up to years.
//!
//! `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{…},"columnDefinitions":[…],"rows":[{"cells":[…],"object":{…}}]}`; the
//! metadata is that of the list, or the version of the one object. `object` is its PartialObjectMetadata in the Table's version, with
//! `includeObject=Object` all of it, with `None` null; another word is a 400.
//!
//! A custom resource has its name, then the `additionalPrinterColumns` of its definition; without any, its age. A column without
//! a description has one made of its path. A cell is the first value at the path, null if there is none, or if anything on the way does not lead on:
//! a place that an array does not have, elements of what is no array, a comparison of two kinds. Missing members are no error. Of an
//! empty array in the midst of `[*]` client-go makes the end of the results.
//!
//! | Type | Printed |
//! |---|---|
//! | `string` | a text as it is; true, false; numbers as Go prints them; objects and arrays as JSON in a text; null as `<no value>` |
//! | `integer` | a number without its fraction; else null |
//! | `number` | a number as a floating-point one; else null |
//! | `boolean` | true, false; else null |
//! | `date` | the age of an RFC 3339 time; `<invalid>` of another text, and of the future; `<unknown>` of the empty one; else null |
//!
//! # 7 Consistency
//!
//! Most recent means: a list that begins after a write was acknowledged has that write. Comparability: clients may compare versions
//! of one resource as numbers, so that none may be made up.
//!
//! # 8 Identity
//!
//! ## 8.1 Credentials
//!
//! First who succeeds wins: a front proxy's headers, a client certificate, a bearer token (in `Authorization`, or for
//! WebSockets a subprotocol `base64url.bearer.authorization.k8s.io.<token>`). Whoever fails is remembered: a request that has
//! shown something wrong and nothing right is 401, and only one that has shown nothing is `system:anonymous`, in the
//! group `system:unauthenticated`.
//!
//! | A request has | It is from |
//! |---|---|
//! | nothing; `Bearer` without a token; `Basic`; an unknown scheme | `system:anonymous` |
//! | a bad bearer token | 401 |
//! | a certificate of the client CA | its common name, in the groups that its organizations are; with extra `authentication.kubernetes.io/credential-id` = `X509SHA256=<hex>` |
//! | that, and a bearer token, good or bad | the certificate's user |
//! | that, without a common name | as if there were no certificate |
//! | a certificate of another CA, expired, or not for clients | 401 |
//! | that, and a good bearer token | the token's user |
//! | a certificate of the request-header CA with an allowed name, and `X-Remote-User` | that user, whatever token there is |
//! | that, without `X-Remote-User` | as any certificate |
//! | that, with a name that is not allowed, and `X-Remote-User` | as any certificate; the headers mean nothing |
//! | `X-Remote-User` without a certificate | as if it were not there |
//!
//! The token is the second word, up to the next space, of the first `Authorization` header. `X-Remote-Group` may come more than once;
//! the rest of `X-Remote-Extra-<key>` is in lower case, then percent-decoded (left as it is where it is badly encoded).
//! Everybody is in `system:authenticated` too, but for `system:anonymous`, whoever says so, and for those that are in
//! `system:unauthenticated` already.
//!
//! ## 8.2 Token reviews
//!
//! Asked with the token and the audiences of the API server. A token counts if `status.authenticated` is true and the audiences of the
//! answer, if it has any, meet those asked for. The API server itself remembers a success for 10 seconds and a failure not at all.
//!
//! ## 8.4 Impersonation
//!
//! `Impersonate-User`, `-Uid`, `-Group`, `-Extra-<key>`. Which rights that takes depends on the version and on what the same user
//! impersonated before, so that only the API server can say.
//!
//! ## 8.3 What is authorized
//!
//! Verb, group, version, resource, subresource, namespace and name of the path. `namespaces/x` lies in namespace x. A list or
//! watch whose field selector demands one `metadata.name` has that name, if all its options can be decoded and the name can
//! stand in a path. Lists, watches and deletions of collections have their selectors, as requirements; those that compare
//! numbers, those that cannot be parsed, and all of the `/watch/` paths are left out.
//!
//! # 9 Long-running requests
//!
//! The verbs `watch` and `proxy`, and the subresources `attach`, `exec`, `log`, `portforward` and `proxy`. All other requests have
//! `--request-timeout` (60 s) for their whole answer; a client that has not read it by then loses its stream or connection.
//!
//! # Appendix A: objects of bookmarks
//!
//! Zero values print what Go does not leave out: a pod's is
//! `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"N"},"spec":{"containers":null},"status":{}}`, a node's has a dozen
//! empty texts, a daemon set's an annotation of its own. So they are recorded from upstream's bookmarks, and not composed.
