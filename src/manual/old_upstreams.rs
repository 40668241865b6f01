//! How today's clients work before a server without watch-list.
//!
//! Informers of client-go 1.35 and later start with a watch-list: `watch` with `sendInitialEvents=true` and
//! `allowWatchBookmarks=true`, and wait for the bookmark that ends the initial events. A server from before watch-list (1.20
//! to 1.26; later ones where the feature is off) does not know this.
//!
//! The gateway could answer such a watch from memory, end bookmark and all, but not as that server would have answered it, and
//! client-go has a way of its own that costs upstream next to nothing:
//!
//! 1. The watch is forwarded (`no_watch_list`). Upstream refuses it: 422, since `resourceVersionMatch` is forbidden for its
//!    watches.
//! 2. client-go takes 422 for "no watch-list here" and falls back to what it did before: a list with `resourceVersion=0`, then
//!    a watch from that version.
//! 3. Both of these come from memory.
//!
//! So one refused request for each start of an informer reaches upstream, and no list and no watch. Whether upstream has
//! watch-list, the gateway finds out by itself when it fills a cache: it asks for one, and where that is refused, or its end
//! bookmark does not come within 30 seconds, it lists and watches instead.
//!
//! The other differences of such an upstream:
//!
//! * A watch without a version gets the state as ADDED events, and no end bookmark, as upstream itself does.
//! * Upstream's caches learn nothing of other resources' versions, so that small watches prove nothing and are not opened: a watch
//!   without a version is answered from memory where the cache has reached the head anyway, else forwarded at once (`unproven`).
//! * What bookmarks look like is known only after upstream's first one, about a minute after the start. Until then watches get
//!   none, which clients have to bear anyway.
//! * Not every field label of today is known: at each fill upstream is asked for them, and selectors with others are forwarded.
//! * Indented JSON (`pretty`, curl, browsers) is forwarded (`representation`): before 1.23 it was indented in another way.
//! * The metadata of custom resources in protobuf is forwarded (`representation`): older servers have other fields in it.
//! * Tables of custom resources are forwarded (`unprintable`): what is printed here is what today's servers print.
//! * Discovery is read from the documents of each group version where there is no aggregated discovery (before 1.26).
