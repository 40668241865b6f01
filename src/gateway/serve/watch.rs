//! A watch (read-path 1.4, 3).

use std::{ops::Range, sync::Arc, time::Duration};

use http::{Response, StatusCode};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Body, Downstream, ForwardReason, Read,
    freshness::{is_not_old, newest, state},
    response_head::Writer,
    watch_body::WatchBody,
};
use crate::{authz::Permit, cacher::Instance};
use base::{
    apimachinery::{Freshness, ResourceVersion, ResponseKind, ShardSelector, Verb, WatchOptions, WatchStart},
    config::{MostRecentWatch, ReadsConfig},
};
use engine::{
    encode::EventForm,
    fanout::{Bookmarks, Interest, Session, SessionOptions, Start, Template},
    store::{Expired, Predicate, View},
};

/// The duration of a watch without `timeoutSeconds`: from `--min-request-timeout` to twice that (read-path 3.5).
const DEFAULT_TIMEOUT_SECONDS: Range<u64> = 1800..3600;

/// The longest watch with which another gateway asks how far memory is proven (`cacher::progress_probe`). Its own
/// watches take minutes.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// A watch as requested, except for its start.
struct Wanted<'a> {
    options: &'a WatchOptions,
    view: View,
    predicate: Predicate,
    form: EventForm,
    bookmarks: Option<Bookmarks>,
}

/// Answers a watch. If history does not reach back to its version, the watch is forwarded: upstream may still know the
/// changes after it, and a 410 from the gateway would cost upstream a list.
pub async fn watch(read: &Read<'_>, options: &WatchOptions, permit: Permit) -> Result<Response<Body>, ForwardReason> {
    let form = match Writer::of(read)? {
        Writer::Objects(form) => EventForm::Objects(form),
        Writer::Table(table) => table.events(read).await?,
    };
    let shards = read.shards(options.shards.as_ref()).await?;
    let wanted = Wanted::of(read, options, shards, &permit, form)?;
    let view = &wanted.view;
    let after = start(view, &read.instance, wanted.options.start, read.config).await?;
    let first = match after {
        None => view.progress_and_next().1,
        Some(version) => match view.after(version) {
            Ok(first) => first,
            Err(Expired::BeforeFill) => return Err(ForwardReason::BeforeFill),
            Err(Expired::Trimmed) => return Err(ForwardReason::OutsideHistory),
        },
    };
    let body = wanted.stream(read, permit, after, first)?;
    Ok(read.answer(StatusCode::OK, ResponseKind::Watch).body(body).expect("headers are valid"))
}

impl<'a> Wanted<'a> {
    fn of(
        read: &Read<'_>,
        options: &'a WatchOptions,
        shards: Option<ShardSelector>,
        permit: &Permit,
        mut form: EventForm,
    ) -> Result<Self, ForwardReason> {
        let instance = &read.instance;
        if options.asked_send_initial_events && !instance.has_watch_list() {
            return Err(ForwardReason::NoWatchList);
        }
        if instance.refuses_watches() {
            return Err(ForwardReason::Stale);
        }
        let view = instance.view(permit, Verb::Watch, &options.fields)?;
        let predicate = Predicate::new(options.labels.clone(), &options.fields, view.schema())?.within(shards);
        let bookmarks = bookmarks(instance, options, &mut form)?;
        Ok(Self { options, view, predicate, form, bookmarks })
    }

    /// The stream of the changes after the version `after`, or of the newest state and the changes after it. `first` is
    /// the number of the first change that it looks at.
    fn stream(
        self,
        read: &Read<'_>,
        permit: Permit,
        after: Option<ResourceVersion>,
        first: u64,
    ) -> Result<Body, ForwardReason> {
        let Self { options, view, predicate, mut form, bookmarks } = self;
        form.open(Timestamp::now());
        let interest = Interest::of(view.scope(), &predicate, view.schema());
        let instance = &read.instance;
        let subscription = instance.hub.subscribe(interest, first, Some(read.client.clone()));
        let subscription = if bookmarks.is_none() { subscription.lasting() } else { subscription };
        // Read after subscribing: a change between the two is in the state, or announced, or both.
        let start = match after {
            None => Start::State(view.newest()),
            // A bridge between reading history and subscribing did not notify the subscription.
            Some(version) if view.is_in_gap(version) => return Err(ForwardReason::BeforeFill),
            Some(version) => Start::After(version),
        };
        let bridged_to = after.and_then(|version| view.gap_end_behind(version));
        let (is_gateway, accepts_bridge) = match read.downstream {
            Downstream::Client => (false, true),
            Downstream::Gateway { accepts_bridge } => (true, accepts_bridge && has_bookmark(bookmarks.as_ref())),
        };
        if bridged_to.is_some() && !accepts_bridge {
            return Err(ForwardReason::BeforeFill);
        }
        let is_probe = is_gateway && bookmarks.is_some() && options.timeout.is_some_and(|time| time <= PROBE_MAX);
        let timeout = options.timeout.unwrap_or_else(|| Duration::from_secs(fastrand::u64(DEFAULT_TIMEOUT_SECONDS)));
        let options = SessionOptions { predicate, form, room: read.room.clone(), bookmarks, timeout };
        let session = Session::new(view, subscription, options, start, Instant::now());
        let session = if is_gateway { session.ending_at_bridge_behind(bridged_to) } else { session };
        let body = WatchBody::new(session, instance.clone(), permit.into_lease());
        Ok(Body::Watch(Box::new(if is_probe { body.with_proof() } else { body })))
    }
}

/// Whether a bookmark can be sent at once.
fn has_bookmark(bookmarks: Option<&Bookmarks>) -> bool {
    bookmarks.is_some_and(|bookmarks| matches!(bookmarks.template, Template::Known(_)))
}

fn bookmarks(
    instance: &Instance,
    options: &WatchOptions,
    form: &mut EventForm,
) -> Result<Option<Bookmarks>, ForwardReason> {
    let initial_events_end = options.initial_events_end && instance.has_watch_list();
    if !options.bookmarks {
        return Ok(None);
    }
    let template = match instance.bookmark().get() {
        Some(template) => {
            let template = form.bookmark(template, instance.schema());
            Template::Known(Arc::new(template.map_err(|_| ForwardReason::Representation)?))
        }
        None if initial_events_end => return Err(ForwardReason::NoBookmark),
        None => Template::Awaited(instance.bookmark().clone()),
    };
    Ok(Some(Bookmarks { template, initial_events_end }))
}

/// Waits until memory may answer a watch with that start. Returns the version after which the watch begins; `None` if
/// it begins with the newest state.
async fn start(
    view: &View,
    instance: &Instance,
    start: WatchStart,
    config: ReadsConfig,
) -> Result<Option<ResourceVersion>, ForwardReason> {
    match start {
        WatchStart::State(Freshness::MostRecent) => {
            if config.most_recent_watch == MostRecentWatch::Forward {
                return Err(ForwardReason::MostRecent);
            }
            instance.prove_most_recent().await.map_err(|_| ForwardReason::Unproven)?;
            newest(instance, view, config).await?;
            Ok(None)
        }
        WatchStart::State(freshness) => {
            state(instance, view, freshness, config).await?;
            Ok(None)
        }
        WatchStart::Now(Freshness::Any) => {
            instance.agree(config.freshness_wait).await.map_err(|_| ForwardReason::NotReached)?;
            Ok(Some(view.progress()))
        }
        WatchStart::Now(_) => Err(ForwardReason::MostRecent),
        WatchStart::After(version) => {
            // The changes after the version, which history holds, may have been reported in an old schema as well.
            is_not_old(instance, view.progress(), config).await?;
            Ok(Some(version))
        }
    }
}
