//! Fetches what happened before a fill: the events of a watch from an earlier version, and the state at that version.

use std::{sync::Arc, time::Duration};

use super::{
    EventStream, Failure, FillSource, ListWatch, UpstreamEvent, WatchFrom, WatchRequest, fill,
    item_readers::ItemReaders,
};
use crate::store::{Backfill, NotBefore, Schema};

/// The `timeoutSeconds` of the watch. With 3, a current API server sends a bookmark after about a second (measured on
/// 1.36), which shows that there are no more events. A longer backfill is read by several watches, one after another.
const WATCH_SECONDS: u64 = 3;
/// Longer than such a watch is silent.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Why there is no backfill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBackfill {
    #[error("upstream cannot replay the events before the fill")]
    Upstream(#[from] Failure),
    #[error("upstream does not say that there are no more events: its watch ended without an event and a bookmark")]
    Unconfirmed,
    #[error("upstream took too long to replay them")]
    TooSlow,
    #[error("the replayed events cannot be joined to the cache")]
    Unusable(#[from] NotBefore),
}

/// The events of `backfill`, as upstream says them. May take as long as upstream likes, so the caller must set a
/// timeout.
///
/// # Errors
/// Upstream has forgotten the version, or the backfill cannot be used.
pub async fn backfill_events<L: ListWatch>(
    upstream: &L,
    schema: &Schema,
    mut backfill: Backfill,
) -> Result<Backfill, NoBackfill> {
    while !watched(upstream, schema, &mut backfill).await? {}
    Ok(backfill)
}

/// The objects at the version with which `backfill` begins, which has its events. As [`backfill_events`]; upstream
/// lists the whole collection.
///
/// # Errors
/// As [`backfill_events`].
pub async fn backfill_state<L: ListWatch>(
    upstream: &L,
    schema: &Arc<Schema>,
    mut backfill: Backfill,
) -> Result<Backfill, NoBackfill> {
    let mut token = None;
    loop {
        let mut readers = ItemReaders::new(schema.clone(), FillSource::Upstream);
        let stream = upstream.list_at(backfill.from(), token.as_deref()).await?;
        let page = fill::page(stream, schema, &mut readers).await?;
        if page.version != backfill.from() {
            return Err(Failure::Malformed.into());
        }
        for object in readers.objects().await?.as_slice() {
            backfill.held(object)?;
        }
        if page.continue_token.is_empty() {
            return Ok(backfill);
        }
        token = Some(page.continue_token);
    }
}

/// Reads the events of one watch. Returns whether there are no more before the fill.
async fn watched<L: ListWatch>(upstream: &L, schema: &Schema, backfill: &mut Backfill) -> Result<bool, NoBackfill> {
    let before = backfill.reached();
    let request = WatchRequest { seconds: WATCH_SECONDS, ..WatchRequest::new(WatchFrom::After(before)) };
    let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
    loop {
        match events.next(schema, SILENCE_MAX).await? {
            Some(UpstreamEvent::Change { kind, object, line }) => {
                if !backfill.push(kind, object, line)? {
                    return Ok(true);
                }
            }
            Some(UpstreamEvent::Bookmark { version, .. }) if version >= backfill.until() => return Ok(true),
            Some(UpstreamEvent::Bookmark { .. }) => {}
            // If a part of the changes of that version is missing, they do not lead to the state of the fill.
            None if backfill.reached() == backfill.until() => return Ok(true),
            // The next watch would end in the same way.
            None if backfill.reached() == before => return Err(NoBackfill::Unconfirmed),
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reflector::tests::{Script, bookmark, event, list},
        store::{HistoryLimits, Object, Objects, Reader, Shape, Writer, store},
    };
    use base::apimachinery::{ObjectKey, ResourceVersion};

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::typed("Pod", "v1"), Vec::new()))
    }

    /// A cache that was filled at version 20 with pods `a` at 12 and `b` at 5.
    fn filled() -> (Writer, Reader) {
        let pod = |name: &str, version: u64| {
            let metadata = format!(r#"{{"name":"{name}","namespace":"ns","resourceVersion":"{version}"}}"#);
            let json = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata}}}"#);
            Arc::new(Object::from_event(json.into(), &schema()).unwrap())
        };
        let limits = HistoryLimits { age: Duration::from_secs(60), bytes: 1 << 20 };
        store(schema(), &Objects::new(vec![pod("a", 12), pod("b", 5)]).unwrap(), version(20), limits)
    }

    /// What upstream says of the time since version 10, whether history begins there then, and the requests for it.
    async fn extended(watches: &[&[String]], lists: &[String]) -> (Result<(), NoBackfill>, Vec<String>) {
        let script = Script::new(&[], watches.iter().map(|events| Ok(events.concat())));
        script.lists.lock().unwrap().extend(lists.iter().cloned());
        let (_writer, reader) = filled();
        let backfill = reader.backfill(version(10)).unwrap();
        let read = async {
            let backfill = backfill_events(&script, &schema(), backfill).await?;
            Ok(reader.prepend(backfill_state(&script, &schema(), backfill).await?)?)
        };
        let read = read.await;
        assert_eq!(reader.after(version(10)).is_ok(), read.is_ok());
        let asked = script.asked.lock().unwrap().clone();
        (read, asked)
    }

    fn at_ten() -> [String; 2] {
        [list(10, "more", &[("a", 3)]), list(10, "", &[("b", 5), ("c", 7)])]
    }

    fn changes() -> [String; 2] {
        [event("MODIFIED", "a", 12), event("DELETED", "c", 14)]
    }

    #[tokio::test]
    async fn a_backfill_is_read_by_watches_one_after_another_and_page_by_page() {
        let [first, second] = changes();
        // A watch without bookmarks ends, and the next one has the rest.
        let (extended, asked) = extended(&[&[first], &[second, bookmark(21)]], &at_ten()).await;
        assert_eq!(extended, Ok(()));
        assert_eq!(asked, ["after 10", "after 12", "list at 10 None", "list at 10 Some(\"more\")"]);
    }

    #[tokio::test]
    async fn a_backfill_ends_with_the_first_event_after_the_fill() {
        let [first, second] = changes();
        let later = [first, second, event("MODIFIED", "a", 21), event("MODIFIED", "b", 22)];
        assert_eq!(extended(&[&later], &at_ten()).await.0, Ok(()));
    }

    #[tokio::test]
    async fn a_watch_that_ends_at_the_version_of_the_fill_has_all_events() {
        let [first, _] = changes();
        let (read, asked) = extended(&[&[first, event("DELETED", "c", 20)]], &at_ten()).await;
        assert_eq!((read, asked.len()), (Ok(()), 3));
    }

    #[tokio::test]
    async fn a_backfill_of_which_upstream_may_know_more_is_not_used() {
        let (read, asked) = extended(&[&changes(), &[]], &at_ten()).await;
        assert_eq!((read, asked), (Err(NoBackfill::Unconfirmed), vec!["after 10".to_owned(), "after 14".to_owned()]));
    }

    #[tokio::test]
    async fn a_state_that_is_compacted_between_two_pages_is_not_used() {
        let [first, second] = changes();
        let watch = [first, second, bookmark(20)];
        let read = async |lists: &[String]| extended(&[&watch], lists).await.0;
        assert_eq!(read(&at_ten()).await, Ok(()));
        assert_eq!(read(&at_ten()[..1]).await, Err(Failure::Expired.into()));
        let [page, _] = at_ten();
        // The rest as of now, which is what a token says after compaction.
        assert_eq!(read(&[page, list(20, "", &[("b", 5)])]).await, Err(Failure::Malformed.into()));
    }

    #[tokio::test]
    async fn a_version_that_upstream_forgot_has_no_backfill() {
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#.to_owned() + "\n";
        assert_eq!(extended(&[&[expired]], &[]).await.0, Err(Failure::Expired.into()));
    }

    #[tokio::test]
    async fn a_backfill_that_does_not_lead_to_the_fill_is_not_used() {
        let key = ObjectKey::new(Some("ns"), "a");
        let read = extended(&[&[event("DELETED", "c", 14), bookmark(20)]], &at_ten()).await.0;
        assert_eq!(read, Err(NotBefore::Contradiction(key).into()));
    }
}
