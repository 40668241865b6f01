//! When the servers of `upstream.fallback` are used: in an outage of all others, by a share of the gateways. Pure, but
//! for chance.

use std::time::Duration;

use base::telemetry::fallback_is_used;
use tokio::time::Instant;

/// How long no other server can be used until these are; up to twice as long by chance, so that gateways do not come at
/// the same time.
const AFTER: Duration = Duration::from_secs(10);
/// How long the gateway's own watches stay here at most when another server can be used again. They leave by chance, so
/// that gateways do not come back at the same time.
const LEFT_WITHIN: Duration = Duration::from_secs(60);

/// Whether the servers of the fallback are used.
#[derive(Debug)]
pub(super) struct Fallback {
    /// Whether this gateway is of the share that goes there. Drawn once, so that it is the same share in all outages:
    /// of upstreams that come and go for hours, too.
    is_drawn: bool,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Unused,
    /// No other server can be used. `None`: this gateway waits for one.
    Lost {
        used_from: Option<Instant>,
    },
    Used,
    /// Another server can be used, and new connections go there.
    Left {
        unused_from: Instant,
    },
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    /// The servers are to be checked, and to be used.
    Begin,
    /// The gateway's own watches go back to the others.
    End,
}

impl Fallback {
    pub(super) fn new(percent: u32) -> Self {
        fallback_is_used(false);
        Self { is_drawn: fastrand::u32(..100) < percent, state: State::Unused }
    }

    /// Whether its servers are to be checked, so that they may be used.
    pub(super) fn is_used(&self) -> bool {
        matches!(self.state, State::Used | State::Left { .. })
    }

    /// Takes note of whether another server can be used at `now`.
    pub(super) fn judge(&mut self, are_others_usable: bool, now: Instant) -> Turn {
        match (&self.state, are_others_usable) {
            (State::Unused, false) => {
                let used_from = self.is_drawn.then(|| now + AFTER + AFTER.mul_f64(fastrand::f64()));
                self.state = State::Lost { used_from };
                Turn::None
            }
            (State::Lost { .. }, true) => {
                self.state = State::Unused;
                Turn::None
            }
            (State::Lost { used_from: Some(from) }, false) if now >= *from => {
                self.state = State::Used;
                fallback_is_used(true);
                Turn::Begin
            }
            (State::Used, true) => {
                self.state = State::Left { unused_from: now + LEFT_WITHIN.mul_f64(fastrand::f64()) };
                Turn::None
            }
            (State::Left { .. }, false) => {
                self.state = State::Used;
                Turn::None
            }
            (State::Left { unused_from }, true) if now >= *unused_from => {
                self.state = State::Unused;
                fallback_is_used(false);
                Turn::End
            }
            _ => Turn::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = 100;

    #[tokio::test(start_paused = true)]
    async fn it_is_used_after_a_while_and_left_after_another() {
        let (mut fallback, begin) = (Fallback::new(ALL), Instant::now());
        let mut at = |seconds, are_others_usable| {
            let turn = fallback.judge(are_others_usable, begin + Duration::from_secs(seconds));
            (turn, fallback.is_used())
        };
        assert_eq!(at(0, true), (Turn::None, false));
        assert_eq!(at(1, false), (Turn::None, false));
        assert_eq!(at(10, false), (Turn::None, false), "not before the shortest time");
        assert_eq!(at(10, true), (Turn::None, false), "an outage that was short");
        assert_eq!(at(20, false), (Turn::None, false));
        assert_eq!(at(29, false), (Turn::None, false), "the time begins anew");
        assert_eq!(at(40, false), (Turn::Begin, true), "twice the time at most");
        assert_eq!(at(50, false), (Turn::None, true));
        assert_eq!(at(60, true), (Turn::None, true));
        assert_eq!(at(61, false), (Turn::None, true), "gone again");
        assert_eq!(at(70, true), (Turn::None, true));
        assert_eq!(at(130, true), (Turn::End, false));
        assert_eq!(at(131, true), (Turn::None, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_of_the_gateways_goes_there() {
        let now = Instant::now();
        let used = (0..1_000).filter(|_| {
            let mut fallback = Fallback::new(20);
            fallback.judge(false, now);
            fallback.judge(false, now + AFTER * 3) == Turn::Begin
        });
        // Six standard deviations.
        assert!((124..276).contains(&used.count()));
    }
}
