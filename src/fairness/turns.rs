//! Turns: limits how many tasks of one client run at once; the others wait in the order in which they came.
//!
//! Invariant: there is one line for each client that has or waits for a turn now.

use std::sync::Arc;

use dashmap::{DashMap, Entry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ClientKey;

/// The turns of all clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Turns {
    lines: Lines,
    at_once: usize,
}

type Lines = Arc<DashMap<ClientKey, Line>>;

/// The line of one client.
#[derive(Debug)]
struct Line {
    /// Number of tasks that have or wait for a turn.
    members: usize,
    turns: Arc<Semaphore>,
}

/// A place in a client's line, until it is dropped.
#[derive(Debug)]
struct Member {
    lines: Lines,
    client: ClientKey,
}

/// Permission to run, released when dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    _member: Member,
}

impl Turns {
    /// Each client has `at_once` turns.
    pub fn new(at_once: usize) -> Self {
        Self { lines: Arc::default(), at_once }
    }

    /// Waits for one of the client's turns. The caller has to limit how many may wait.
    pub async fn take(&self, client: ClientKey) -> Turn {
        let turns = {
            let mut line = self.lines.entry(client).or_insert_with(|| Line::new(self.at_once));
            line.members += 1;
            line.turns.clone()
        };
        let member = Member { lines: self.lines.clone(), client };
        // The semaphore is never closed.
        let permit = turns.acquire_owned().await.ok();
        Turn { _permit: permit, _member: member }
    }
}

impl Line {
    fn new(at_once: usize) -> Self {
        Self { members: 0, turns: Arc::new(Semaphore::new(at_once)) }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Entry::Occupied(mut line) = self.lines.entry(self.client) {
            line.get_mut().members -= 1;
            if line.get().members == 0 {
                line.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;

    #[test]
    fn a_client_waits_for_its_own_turns_in_order_and_for_no_others() {
        let turns = Turns::new(2);
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let [first, second] = [turns.take(jane), turns.take(jane)].map(|turn| turn.now_or_never().expect("one of two"));
        let (mut third, mut fourth) = (Box::pin(turns.take(jane)), Box::pin(turns.take(jane)));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        assert!(turns.take(john).now_or_never().is_some());
        drop(first);
        assert!((&mut fourth).now_or_never().is_none(), "the third goes first");
        let third = third.now_or_never().expect("its turn");
        drop((second, third));
        assert!(fourth.now_or_never().is_some());
        assert!(turns.lines.is_empty(), "who is done or gone stands in no line");
    }

    #[test]
    fn a_cancelled_waiter_does_not_block_the_next() {
        let turns = Turns::new(1);
        let jane = ClientKey::of(&"jane");
        let first = turns.take(jane).now_or_never().expect("the only one");
        let (mut goes, mut stays) = (Box::pin(turns.take(jane)), Box::pin(turns.take(jane)));
        assert!((&mut goes).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(goes);
        drop(first);
        assert!(stays.now_or_never().is_some());
        assert!(turns.lines.is_empty());
    }
}
