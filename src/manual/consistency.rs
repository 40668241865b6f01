//! What versions mean here, how a cache is proven fresh, and what happens when something fails.
//!
//! # Promises
//!
//! * **Versions are upstream's.** Collection versions, bookmarks and tokens are upstream's numbers, so that a client can go
//!   from one gateway to another, or to the API server, with what it has.
//! * **A collection's version is its progress**: a list at version V holds every change up to V and none behind it.
//! * **Time does not run backwards** within one gateway, unless it does upstream: a cache is filled with the most recent state, in
//!   each encoding, and filled again at no older version than it had; behind an upstream without watch-list it is first filled with
//!   what upstream's own cache has. The caches of one resource, in JSON, in protobuf and in other versions of the API, are read at no older
//!   version than any of them has reached: one that lags waits as for a version that a client names, and what cannot be waited for
//!   is forwarded; only one that upstream cannot be heard for stays as it is. Between two gateways, as between two API servers, `resourceVersion=0` may go back; a version or no version may not.
//! * **A watch gets every change behind its start once, in order**, or it ends. It is never left with a gap: where the gateway
//!   cannot be sure, the stream ends cleanly, and the client starts over from what it has. The exception is a bridge (below), which tells
//!   at once what has come of several changes, as a new list would.
//! * **Most recent means most recent.** A get or list without a version is upstream's own answer, so that one's own writes,
//!   and others', are in it; or, if `reads.mostRecent` says so, memory's after a proof that begins when the read has come. A watch
//!   without a version is answered from memory only after a proof, too.
//! * **Not older than N means N has been reached.** Where the cache cannot tell at once, it waits for its watch
//!   (`reads.freshnessWait`) and then has N proven, 3 s in all, as an API server does. A version that upstream has not reached is
//!   upstream's to refuse.
//! * **Old versions expire.** Exact reads and continue tokens of a version that was followed by another one longer ago than
//!   `cache.history.age` are forwarded, though history may still hold them: an API server's storage compacts by time, and there are
//!   clients that wait for a token to expire.
//! * **Any means any.** `resourceVersion=0` is answered from memory for as long as there is a cache, also while upstream
//!   cannot be reached. How old the state is, `kube_fanout_cache_progress_lag_seconds` says.
//!
//! # Progress
//!
//! A store knows up to which version nothing is missing ([`crate::store::Reader::progress`]). It rises with each change
//! applied, with each bookmark of upstream's watch, and with each proof. On a quiet resource bookmarks come once a minute, while
//! other resources drive upstream's head on: that is why a cache that lacks nothing can often not say so at once.
//!
//! # The freshness proof
//!
//! Answers the question: does the store hold everything that upstream had acknowledged when the question was put?
//!
//! 1. Ask upstream for its head version H: a most-recent list of at most one object. One such request serves all who were
//!    waiting when it was sent; who comes later needs the next one. The store's progress is read before the request: an H below
//!    it proves that upstream's versions went back (a restored etcd). Then nothing is proven, and every cache of the resource is
//!    given up at once, even while its reflector waits to reach upstream again.
//! 2. If the store's progress is at least H, it is proven.
//! 3. Else wait for the store's own watch: on a busy resource it passes H within milliseconds. If it has not within 50 ms, and
//!    if upstream has watch-list, open a small watch beside it at the store's progress, with bookmarks and `timeoutSeconds=3`. A current API server sends its
//!    last bookmark B about two seconds before such a watch ends, and before it every change up to B. When the store has
//!    applied the last change that the small watch showed, it is complete up to B, and its progress becomes B. One small watch
//!    serves everybody. If the store still lacks that change after 3 s, its own watch is stuck, and is opened anew.
//! 4. If B is at least H, it is proven. Else a second small watch is tried, since the first one may have been opened for
//!    somebody else, too early. Then the request is forwarded (`unproven`).
//!
//! Why it holds: both watches are upstream's and tell the same changes in the same order. Nothing lies between the last change
//! shown and B, for upstream says so with B; and everything up to the last change shown has been applied, for the store's own
//! watch tells changes in order. A proof never guesses: where upstream sends no such bookmark (older servers), there is none.
//!
//! `kube_fanout_freshness_proofs_total` counts them by outcome: `proven`, `no_head` (upstream did not say its version within
//! 5 s), `no_bookmark`, `ahead` (a client's N lies ahead of upstream), `backwards`, `late` (a get or list would have waited too long).
//!
//! A version N that a client brings is proven in the same way, with N in the place of H once H is known to be no less.
//!
//! # Gets and lists of the most recent state
//!
//! That is: gets and lists without a version, first pages with a `limit`, and pages whose token says to go on with the latest state. Later
//! pages are of the first one's version, and come from history while it has it, whoever answered the first one.
//!
//! | `reads.mostRecent` | What is promised | What it costs |
//! |---|---|---|
//! | `forward` (the default) | upstream's own answer | upstream all of it |
//! | `prove` | memory's answer after a proof that begins when the read has come: whatever had been acknowledged by then, through whatever connection, is in it. Forwarded if the proof fails or takes longer than 5 s | upstream one list of one object for all who wait, and on a quiet resource a small watch, which takes 0.6 to 1.9 s |
//! | `auto` | as `prove`, where that is neither slower nor dearer for upstream; else as `forward` | no more than `forward`, but for attempts |
//!
//! `auto` decides by a pure function of four figures (`serve/most_recent.rs`): the bytes of the answer's objects, as memory has
//! them; how long proofs of this store took in the last ten seconds; how often the resource changes; and how many lists about as large
//! came within the last second. A byte is taken to cost upstream 6 ns, which is less than any API server that was measured needs.
//!
//! * Every get, and every list of at most 256 KiB, is forwarded (`most_recent_small`): upstream answers it in the time in which
//!   it tells its head version.
//! * A proof is worth its while if proofs have taken at most half of what upstream would take for the answer; or, if none was
//!   tried lately, if the resource changes that often. It may take as long as upstream would, then the list is forwarded (`unproven`).
//! * The same holds if it takes half of what all the lists of the last second would: on a quiet resource a small
//!   watch serves a herd, and nobody waits for longer than 3 s.
//! * If nothing is known, it is tried, for an eighth of the time that upstream would take; after a failure not again for ten seconds.
//! * Else the list is forwarded (`most_recent_quiet`).
//!
//! Upstreams without watch-list tell nothing to small watches. There a list is proven only if memory has the head version
//! already, or the store's own watch tells it: on a busy resource.
//!
//! The rule of the restored etcd holds here too: a head behind what memory had when it was asked for proves nothing.
//!
//! # Tables of custom resources
//!
//! `kubectl get` asks for Tables. Those of custom resources are made from the objects in memory, row by row and for each request, since
//! ages are counted when they are asked for. Everything above holds for them as for the plain get or list. Beside it:
//!
//! * **The columns are those of the definition that upstream has now.** The first Table of a cache has upstream print one without rows: its
//!   `columnDefinitions` are kept as upstream wrote them, and have to be those of the definition that the cache was filled under.
//!   For each Table upstream is asked whether the definition is still that one (the metadata of one object; one question serves all
//!   who wait when it is sent). A changed column is therefore never printed in its old form: from the moment at which the change is
//!   acknowledged Tables are forwarded, until the cache has been filled under the new definition. So they are while upstream does
//!   not answer within 5 s.
//! * **A cell is printed only if it is certain.** Of `JSONPath` names, `[0]`, `[-1]`, `[*]` and `[?(@.a.b=="x")]` with `==` or `!=` and a text or
//!   a boolean are understood; a definition with anything else (slices, unions, `..`, `.*`) has its Tables forwarded. Numbers of which Go would print an integer
//!   in another way than a floating-point one (in `string` columns from a million on and below 0.0001, in `number` columns beyond 2^53, in `integer`
//!   columns beyond 64 bits), and times that are not plainly RFC 3339, have theirs forwarded, too: defaults and conversions can make either of one text. After
//!   such a Table none of the resource is tried for ten seconds.
//! * **Nothing is sent before all of it is certain.** Rows are made twice where they do not fit into 64 KiB: once to see that they can be,
//!   and once while they are sent, so that a Table which is not read holds no rows.
//!
//! What it costs, behind a 1.36 server on one machine with 10,000 custom resources of 2 KB and six columns: a Table of all takes 130 ms of the
//! gateway's CPU and 4 ms of the API server's, which takes 540 ms to print it itself; a first page of 500 after a proof takes 10 ms and 14 ms, printed
//! by the API server 34 ms. A get as a Table takes the API server 1.4 ms, for the question, and 0.8 ms where it is forwarded: with
//! `reads.mostRecent: auto` such gets are forwarded, as all are.
//!
//! # Trust, but verify
//!
//! Each cache of at least 100 objects is compared with upstream about once in `cache.verifyInterval` (5 min by default), one cache at a
//! time and spread over the interval: upstream lists the metadata of all objects at exactly the version that the cache has
//! reached, in pages, and key, version and labels have to be those in memory at that version. Changes meanwhile do not matter: neither
//! side looks at another version. A version that upstream has compacted or not reached is tried three times, ten seconds apart, each time
//! at the cache's newest version. Behind an upstream that does not tell its watches of progress, a cache that has not changed for longer than upstream keeps versions
//! is not compared.
//!
//! A cache that differs in two looks, ten seconds apart, is logged with the object and counted. The caches of the resource are given up
//! at once and filled anew; one that differs again within the hour is told of alone, since clients that list anew would not be helped. Their
//! watches end with an ERROR event, 410: a client that only went on from the version that it knows would never be told
//! what it lacks. What had been answered before stays wrong with who asked.
//!
//! # While a cache is filled
//!
//! A read that the cache will be able to answer waits for the fill that is under way, up to `reads.fillWait`: one fill serves
//! all who wait, and a herd of clients at a gateway that has just started costs upstream one list and one watch.
//!
//! | Request | While the cache is filled |
//! |---|---|
//! | list or watch, `resourceVersion=0`; list, or watch with `sendInitialEvents`, of the state at N or later | waits |
//! | watch or watch-list of the most recent state | waits, then for the proof; not with `reads.mostRecentWatch: forward` |
//! | get | forwarded: one object costs upstream no more than that |
//! | list of the most recent state | waits, then for the proof, with `reads.mostRecent: prove`; else forwarded |
//! | list at an exact version, with a token | forwarded: memory would not answer it |
//! | watch that goes on from a version | forwarded: the version may be older than the fill, and upstream still know what came between |
//!
//! Reads are authorized before they wait and again afterwards, and in `delegated` mode a read that waits takes one of its
//! client's places for watches. A fill that fails, and a resource that turns out not to be one that can be cached, end the wait
//! at once; so does a drain, which forwards lists and answers watches with 503 and `Retry-After`.
//!
//! # Watches that go on from memory
//!
//! A watch that had to be forwarded for a reason that passes (`cache_filling`, `fill_failed`, `before_fill`, `not_reached`,
//! `no_bookmark`, `unproven`) does not stay upstream's. The gateway reads along ([`crate::serve::Told`]) and knows the version up
//! to which its client has been told everything: that of the last event or bookmark behind the initial events. These are not in
//! the order of their versions, so that only their end bookmark counts, or, where none was asked for, anything but ADDED.
//!
//! Once a cache's history goes back to that version and the cache has come as far, the client is authorized anew, the watch
//! upstream is let go, and the same stream goes on from memory behind that version, in the same form, with the same selectors and with
//! what is left of its time. Upstream's audit log has the part before, the gateway's the part behind; the access log says
//! `forwarded`, and `kube_fanout_watches_taken_over_total` counts them.
//!
//! Where nothing tells a client a version, for its resource is quiet, the gateway asks upstream after two seconds by a small watch
//! from that version: if its first event is a bookmark, nothing has happened up to there. One small watch at a time, from the
//! oldest of their versions, serves all who wait on a resource in one encoding. A watch of a resource that is not quiet, of
//! which nothing is selected, and without bookmarks, stays upstream's until something tells it a version; so does one that asks for bookmarks of a resource of which none has come yet, and one whose client has no place left among its watches.
//!
//! # The bridge
//!
//! An API server that restarts remembers nothing older than its start, and answers 410 to the watch that goes on from before. Without a
//! gateway that ends every watch of every client, and each lists again. Here the cache is filled again (one list or watch-list), its state
//! at the new version R is compared with the one that it had at the old version P, and the watches that are open are told the difference
//! (`cache.bridge`, on by default). What was deleted and what has left a selector is told first, then what is new or changed:
//!
//! 1. What is gone at R is DELETED with its last content, at version P. For a watch with a selector that includes what it selected at P and
//!    does not at R, whatever became of it since. An object that was deleted and made again (another uid) is DELETED here and ADDED below.
//! 2. What is new or another is ADDED or MODIFIED, as it is at R, in the order of the objects' own versions, which lie between P and R.
//! 3. A bookmark of R follows at once, for those who take bookmarks.
//!
//! **Why a client may go on from any version that it was told.** Let a client be cut off behind any of these events, and go on from that
//! event's version at a server that knows all of history.
//!
//! * Behind events of version P it knows, of what was there at P, all or less, and it is told everything that happened behind P.
//! * Behind an event of version V, P < V < R, it has lost all that it has to lose. An object whose last change lies at or before V it has as
//!   it is at R. One whose last change lies behind V, that server tells it of. Told last, deletions would be missed: one that happened before V is
//!   told to nobody who goes on from V. That is why they come first, and why they have the lowest version that is certainly right: their
//!   own is not known, and a later one would be a promise.
//! * The same holds of an object that left a selector and was changed again: told at its own version, which is that of the last change,
//!   its loss would come too late.
//!
//! Meanwhile such a client may be told again what it knows: an object that it was told to be gone comes back, and goes. That is what client-go's
//! informers and kube-rs's watchers are made for. At this gateway the same events come again.
//!
//! **Versions between P and R** that come from elsewhere: of objects that were made and deleted in between nothing is known here, and who brings
//! such a version may know them. A watch from there is forwarded (`before_fill`): upstream knows what has happened since its start, or says that
//! it does not, and memory takes the watch over later. A watch that was waiting for such a version ends cleanly at the bridge. Exact reads
//! of such versions, and continue tokens, are forwarded. P and R themselves, and versions before P, are answered from history, over the bridge.
//!
//! **When there is none**, watches end cleanly, as without it, and clients start over from what they have; the log says why, and
//! `kube_fanout_cache_bridges_total` counts (outcomes `made`, `off`, and these):
//!
//! | Outcome | Because |
//! |---|---|
//! | `server` | upstream's `/version` is another one, or not told though it was: another program may write the same objects differently |
//! | `definition` | a custom resource's definition has changed, which stops the cache; the answers' kinds, warnings or selectable fields are others |
//! | `backwards` | the new state is older than what was reached. Versions that went back give the cache up before it is filled again |
//! | `contradiction` | an object that cannot be what it was and what it is now: another content of the same version, an older version, a version that is not behind P. Storage that was restored, and has passed P again, shows itself so as a rule |
//! | `too_large` | more changes, or more bytes of them, than history holds (`cache.history.bytes`): watchers read a bridge from there, and who cannot read all of it would be ended in any case |
//!
//! A gateway is never led over the bridge of another one, which it knows by `Via`: it would take what it is told for all that happened,
//! and its own clients may know of more. Its watches end at the bridge, and those that begin below R are forwarded; it fills again and builds
//! a bridge of its own.
//!
//! Each cache (JSON, protobuf) is bridged for itself, with a P and an R of its own. Until it is, it answers as it was, and says nothing
//! new: no bookmark. Nothing else is different behind a bridge: its version is R, its progress is R, comparisons with upstream go on.
//!
//! # When something fails
//!
//! | What happens | What the gateway does | What clients see |
//! |---|---|---|
//! | upstream ends a watch in time (every 5 to 10 minutes) | checks that the resource and upstream's program are still the same and the head not behind, watches on from its progress | nothing |
//! | a watch breaks, upstream restarts | the same, with waits of 0.8 s doubling to 30 s, each a quarter up or down; a watch that was well for two minutes starts them over | watches stay open and silent, then go on; reads of any version go on from memory; what has to be forwarded gets 503 until upstream is back |
//! | upstream is silent for 4 minutes where it sends bookmarks, for longer than a watch may last elsewhere; its watch lacks what a small watch shows; it accepts a request and does not answer it | the same | the same |
//! | a watch-list stops in the middle of its initial events | is tried again; the second time the state is listed. Each fill begins with a watch-list; after one that was listed, upstream is asked for watch-list again when its watch is resumed | requests are forwarded until there is a cache |
//! | upstream's `/version` is another one when a watch is resumed (an upgrade) | fills a new store at no older version; the old one answers until then | as with 410 without a bridge |
//! | 410: upstream's history does not reach back to the progress | fills the store again at no older version, which goes on over a bridge; it answers as it was until then | watches go on with the difference |
//! | the same, and a bridge is not possible or not wanted | fills a new store; the old one answers until then | watches end cleanly; a resume from a version before the new fill is forwarded, and upstream says whether it still knows that version |
//! | upstream's versions went back (a restored etcd): at the next check, or at the next proof, its head is behind the progress | gives the cache up at once, fills a new one from scratch | watches end, also in the middle of their initial events; requests are forwarded during a pause, and wait for the fill then |
//! | a comparison with upstream shows a difference | gives the resource's caches up at once, fills new ones | watches end with an ERROR event, 410, so that clients list anew; requests wait for the fill |
//! | an event that cannot follow from those before, or cannot be read | the same, with waits of their own: a fill that is followed by such an event starts nothing over | watches end cleanly, behind all that came before; requests are forwarded during a pause, and wait for the fill then |
//! | upstream has not been heard for `cache.maxStaleness` (none by default) | is not ready; with `cache.staleWatches: end` it ends watches and forwards new ones | without it, watches stay open, silent, and without bookmarks; reads of any version go on from memory |
//! | a custom resource's definition changed, was deleted, or deleted and made again | noticed when upstream ends the watch: uid and generation are compared; the cache is given up | watches end cleanly; requests are forwarded, and after ten seconds the next one starts a cache of the new definition |
//! | upstream knows no such resource | after a clean end of the watch: the cache is given up. After upstream broke off: looks four times more, for some ten seconds, since one that starts does not know its custom resources at first | watches end cleanly; or go on |
//! | the gateway's own credentials may not list or watch the resource | tries again with the same waits | requests are forwarded, and upstream words the refusal |
//! | a client reads its watch too slowly | nothing is queued for it; when history moves past it, its watch ends | a clean end |
//! | the cache is idle (`cache.idleTimeout`) | stops it | the next request starts it again |
//! | the gateway is told to stop | ends all watches cleanly, a few at once and many spread over half of `drain.timeout`, lets requests finish up to that time, aborts the rest | a clean end, `GOAWAY` or `Connection: close` |
//!
//! Not noticed: an etcd that was restored to an older state and whose versions had passed the cache's progress again before the
//! gateway could ask. Restart gateways after a restore. While API servers of several versions stand behind one address, a cache
//! may be filled by the older one when the newer one answers for `/version`; the next watch that ends shows it.
