//! Decides whether a store that had to be filled again can stay in use. Then its watches stay open and are sent the
//! difference (the manual's chapter `consistency`, "The bridge").

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    ByteStream, EventStream, Failure, Machine, UpstreamEvent,
    fill::{Head, State},
    watch_list::INITIAL_BYTES_MAX,
};
use crate::{
    encode::BookmarkTemplate,
    store::{Change, ChangeKind, NotBridged, Object, Schema, Writer},
};
use base::apimachinery::{ObjectKey, Provenance, ResourceVersion};

/// The difference between the old state of a store and the one that it was filled with again.
#[derive(Debug)]
pub struct Bridged {
    /// The version that the store had reached.
    pub from: ResourceVersion,
    pub to: ResourceVersion,
    /// In the order in which watches are sent them.
    pub changes: Vec<Arc<Change>>,
    /// `None` if upstream has no watch-list.
    pub bookmark: Option<BookmarkTemplate>,
}

/// Why a store was replaced by a new one, so that its watches end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbridged {
    #[error("cache.bridge is false")]
    Off,
    #[error("upstream runs another version than before, or did not report its version")]
    Server,
    #[error("the resource's definition, or the format of its objects, has changed")]
    Definition,
    #[error(transparent)]
    State(#[from] NotBridged),
}

impl Unbridged {
    /// The value of the metric label.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Server => "server",
            Self::Definition => "definition",
            Self::State(NotBridged::Backwards { .. }) => "backwards",
            Self::State(NotBridged::Contradiction(_)) => "contradiction",
            Self::State(NotBridged::TooLarge { .. }) => "too_large",
        }
    }
}

/// The result of a fill.
pub(super) struct Refill<S> {
    pub(super) head: Head,
    pub(super) schema: Arc<Schema>,
    pub(super) state: State<S>,
    /// What upstream reported as its version before it was asked for the state.
    pub(super) server: Option<String>,
    pub(super) provenance: Option<Provenance>,
    pub(super) began: Instant,
}

/// Objects that differ from those before a bridge; `None`: gone.
type Changed = BTreeMap<ObjectKey, Option<Arc<Object>>>;

/// Reads a bridge of a gateway, behind the bookmark that begins it, and the first event behind it.
///
/// The gateway sends the changes up to the gap, and then the difference up to `to`. Both together are taken for one
/// difference: that the gap may begin earlier is as if the store had not got that far.
pub(super) async fn read<S: ByteStream>(
    events: &mut EventStream<S>,
    schema: &Schema,
    to: ResourceVersion,
    silence: Duration,
) -> Result<(Changed, UpstreamEvent), Failure> {
    let (mut changed, mut claim, mut left) = (Changed::new(), schema.budget().claim(), INITIAL_BYTES_MAX);
    loop {
        match events.next(schema, silence).await?.ok_or(Failure::Unavailable)? {
            UpstreamEvent::Change { kind, object, line } if object.version <= to => {
                left = left.checked_sub(line.len()).ok_or(Failure::Expired)?;
                claim.add(1, line.len()).await?;
                let key = object.key.clone();
                changed.insert(key, (kind != ChangeKind::Deleted).then(|| Arc::new(object)));
            }
            UpstreamEvent::Bookmark { version, .. } if version < to => {}
            behind @ (UpstreamEvent::Change { .. } | UpstreamEvent::Bookmark { .. }) => return Ok((changed, behind)),
        }
    }
}

impl<S> Refill<S> {
    /// Whether a store with `schema` can continue with this state. `head` and `provenance` are those of the store, from
    /// when it was filled.
    pub(super) fn may_follow(
        &self,
        schema: &Schema,
        head: Option<&Head>,
        provenance: Option<&Provenance>,
        machine: &Machine,
        bridges: bool,
    ) -> Result<(), Unbridged> {
        if !bridges {
            return Err(Unbridged::Off);
        }
        if !machine.is_known_server(self.server.as_deref()) {
            return Err(Unbridged::Server);
        }
        if head != Some(&self.head) || schema.fields() != self.schema.fields() {
            return Err(Unbridged::Definition);
        }
        match (provenance, &self.provenance) {
            (Some(before), Some(now)) if before != now => Err(Unbridged::Server),
            _ => Ok(()),
        }
    }

    /// Applies the difference to the store.
    pub(super) fn bridge(&mut self, writer: &mut Writer) -> Result<Bridged, Unbridged> {
        let (from, to) = (writer.progress(), self.state.version);
        let changes = writer.bridge(&self.state.objects, to)?;
        Ok(Bridged { from, to, changes, bookmark: self.state.bookmark.take() })
    }
}
