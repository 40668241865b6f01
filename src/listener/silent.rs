//! Connections that have not asked for anything yet: they give way when there is no room for others.
//!
//! Invariant: whoever has to wait for a place waits for connections that have asked for something, never for silent
//! ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::listener::{Connection, Handler};

/// All silent connections, as many as there are connections at most. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SilentConnections(Arc<Mutex<Queue>>);

/// In the order of their acceptance.
#[derive(Debug, Default)]
struct Queue {
    accepted: u64,
    silent: BTreeMap<u64, CancellationToken>,
}

/// A connection's place among the silent ones, until it asks or is closed.
#[derive(Debug)]
pub(super) struct Silence {
    number: u64,
    all: SilentConnections,
    gives_way: CancellationToken,
}

impl SilentConnections {
    pub(super) fn enter(&self) -> Silence {
        let gives_way = CancellationToken::new();
        let mut queue = self.lock();
        queue.accepted += 1;
        let number = queue.accepted;
        queue.silent.insert(number, gives_way.clone());
        drop(queue);
        Silence { number, all: self.clone(), gives_way }
    }

    /// Tells the one that has been silent longest to give way. Whether there is one.
    pub(super) fn oldest_gives_way(&self) -> bool {
        let oldest = self.lock().silent.pop_first();
        oldest.inspect(|(_, gives_way)| gives_way.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Silence {
    /// The connection has asked for something, and stays.
    fn ends(&self) {
        self.all.lock().silent.remove(&self.number);
    }

    /// Resolves when the connection has to be closed for another one.
    pub(super) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.ends();
    }
}

/// Ends the silence of a connection with its first request.
#[derive(Clone, Debug)]
pub(super) struct EndSilence<H> {
    pub(super) handler: H,
    pub(super) silence: Arc<Silence>,
}

impl<H: Handler> Handler for EndSilence<H> {
    type Body = H::Body;

    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<H::Body> {
        self.silence.ends();
        self.handler.handle(request, connection).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_still_silent_gives_way() {
        let all = SilentConnections::default();
        let [closed, asked, oldest, youngest] = [(); 4].map(|()| all.enter());
        drop(closed);
        asked.ends();
        assert!(all.oldest_gives_way());
        let gave_way = [&asked, &oldest, &youngest].map(|silence| silence.gives_way.is_cancelled());
        assert_eq!(gave_way, [false, true, false]);
        assert!(all.oldest_gives_way());
        assert!(!all.oldest_gives_way());
    }
}
