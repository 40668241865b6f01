//! A store that was filled again because upstream has forgotten what came behind it: whether the same store may go on, so that
//! its watchers are told the difference and not sent away ([`crate::manual::consistency`], "The bridge").

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Machine,
    fill::{Head, State},
};
use crate::{
    apimachinery::ResourceVersion,
    encode::BookmarkTemplate,
    store::{Change, NotBridged, Schema, Writer},
};

/// What leads from the state that a store had to the one that it was filled with again.
#[derive(Debug)]
pub struct Bridged {
    /// The version that had been reached.
    pub from: ResourceVersion,
    pub to: ResourceVersion,
    /// In the order in which they are told.
    pub changes: Vec<Arc<Change>>,
    /// Known where upstream has watch-list.
    pub bookmark: Option<BookmarkTemplate>,
}

/// Why a store was not led to its new state, and its watches end.
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
    /// The word for metric labels.
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

/// What a fill has brought.
pub(super) struct Refill<S> {
    pub(super) head: Head,
    pub(super) schema: Arc<Schema>,
    pub(super) state: State<S>,
    /// What upstream said it was before it was asked for the state.
    pub(super) server: Option<String>,
    pub(super) began: Instant,
}

impl<S> Refill<S> {
    /// Whether the state is of the same kind as that of a store with `schema`, whose answers looked as `head` says.
    pub(super) fn may_follow(
        &self,
        schema: &Schema,
        head: Option<&Head>,
        machine: &Machine,
        bridges: bool,
    ) -> Result<(), Unbridged> {
        if !bridges {
            return Err(Unbridged::Off);
        }
        if !machine.is_known_server(self.server.as_deref()) {
            return Err(Unbridged::Server);
        }
        let is_same = head == Some(&self.head) && schema.fields() == self.schema.fields();
        if is_same { Ok(()) } else { Err(Unbridged::Definition) }
    }

    /// Leads the store to the state.
    pub(super) fn bridge(&mut self, writer: &mut Writer) -> Result<Bridged, Unbridged> {
        let (from, to) = (writer.progress(), self.state.version);
        let changes = writer.bridge(&mut self.state.objects, to)?;
        Ok(Bridged { from, to, changes, bookmark: self.state.bookmark.take() })
    }
}
