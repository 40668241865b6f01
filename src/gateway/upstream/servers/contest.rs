//! Finds the members that are not on the storage of the others. Pure.

use base::apimachinery::ResourceVersion;

/// What a member showed in an earlier round, and shows in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) server: usize,
    pub(super) before: ResourceVersion,
    pub(super) now: ResourceVersion,
}

impl Shown {
    /// Whether the two cannot be on one storage: one of them was asked after the other had shown a higher version.
    fn contradicts(&self, other: &Self) -> bool {
        self.now < other.before || other.now < self.before
    }
}

/// Takes out of `members` those that contradict the others, and returns them.
///
/// A higher version proves that there are two storages, not which of them is the wrong one: the one that contradicts
/// the most others is taken out first, until no contradiction is left. The reference stays where numbers do not decide,
/// as between two.
pub(super) fn odd(members: &mut Vec<Shown>, reference: Option<usize>) -> Vec<Shown> {
    let reference = members.iter().find(|member| Some(member.server) == reference).or(members.first()).copied();
    let Some(reference) = reference else { return Vec::new() };
    let mut odd = Vec::new();
    loop {
        let against = |member: &Shown| members.iter().filter(|other| member.contradicts(other)).count();
        let rank = |(_, member): &(usize, &Shown)| {
            (against(member), member.server != reference.server, member.contradicts(&reference), member.server)
        };
        match members.iter().enumerate().max_by_key(rank) {
            Some((place, worst)) if against(worst) > 0 => odd.push(members.remove(place)),
            _ => return odd,
        }
    }
}
