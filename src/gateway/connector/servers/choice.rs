//! Decides which server the next connection goes to. Pure, but for chance between equals.

use tokio::time::Instant;

use super::{Choice, Known, Server, Version};

impl Known {
    /// The server for a connection that has tried `tried`; `None` if there is none left.
    ///
    /// The one with the fewest connections of those that are not set aside: a server that has come back gets the next
    /// ones. Those of the fallback come after all others. If all are set aside, those of the cluster are chosen in the
    /// same way, at last those that did not take their last connection.
    pub(super) fn choose(&mut self, choice: Choice, tried: &[usize], now: Instant) -> Option<usize> {
        let is_left = |index: &usize| !tried.contains(index);
        if let Choice::Only(index) = choice {
            return is_left(&index).then_some(index);
        }
        let member = |index: &usize| self.servers[*index].is_member();
        let members: Vec<usize> = (0..self.servers.len()).filter(member).filter(is_left).collect();
        let well = |index: &usize| !self.servers[*index].is_set_aside(now);
        let mut well: Vec<usize> = members.iter().copied().filter(well).collect();
        let is_fallback = |index: &usize| self.servers[*index].is_fallback;
        if !well.iter().all(is_fallback) {
            well.retain(|index| !is_fallback(index));
        }
        if choice == Choice::OneVersion && !well.is_empty() {
            let followed = self.follow(&well);
            well.retain(|index| self.servers[*index].version == followed);
        }
        fastrand::shuffle(&mut well);
        well.into_iter().min_by_key(|index| self.servers[*index].connections).or_else(|| {
            let rank = |index: &usize| (self.servers[*index].is_refusing(now), self.servers[*index].connections);
            members.into_iter().min_by_key(rank)
        })
    }

    /// The version to follow while these servers are well: the one before, or else the one of most of them. Connections
    /// of the gateway's own requests to servers of other versions are broken when it changes: each cache then finds out
    /// that another program answers.
    fn follow(&mut self, well: &[usize]) -> Version {
        let of = |index: &usize| &self.servers[*index].version;
        if let Some(followed) = &self.followed
            && well.iter().any(|index| of(index) == followed)
        {
            return followed.clone();
        }
        let share = |index: &&usize| well.iter().filter(|other| of(other) == of(index)).count();
        // The last of equals is taken: of equals, the first in the configuration.
        let chosen = well.iter().rev().max_by_key(share).and_then(|index| of(index).clone());
        let is_other = |server: &&mut Server| server.version != chosen;
        self.servers.iter_mut().filter(is_other).for_each(|server| server.breaks.own());
        self.followed = Some(chosen.clone());
        chosen
    }
}
