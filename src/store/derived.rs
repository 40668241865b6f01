//! What is made from a leaf's objects when it is first asked for, and shared from then on.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Something derived, kept until its leaf retires: history would otherwise hold a copy for every
/// version that was listed.
///
/// The lock is held for moments only, never while something is made, so that a retiring writer waits for nobody.
pub(super) struct Derived<T> {
    state: Mutex<State<T>>,
    /// Somebody asked since the last sweep.
    asked: AtomicBool,
}

enum State<T> {
    NotYet,
    /// Kept, or in the making.
    Kept(Arc<OnceLock<T>>),
    Retired,
}

impl<T: Clone> Derived<T> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::NotYet), asked: AtomicBool::new(false) }
    }

    /// Made by one caller, while others who ask wait for it. Of a retired leaf everyone makes their own.
    pub(super) fn get_or_make(&self, make: impl FnOnce() -> T) -> T {
        self.asked.store(true, Relaxed);
        match self.place() {
            Some(place) => place.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// Reads what is kept now.
    pub(super) fn kept<U>(&self, read: impl FnOnce(&T) -> U) -> Option<U> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Kept(place) => place.get().map(read),
            State::NotYet | State::Retired => None,
        }
    }

    /// Gives back what nobody has asked for since the last sweep; it is made again when somebody does.
    pub(super) fn sweep(&self) {
        if self.asked.swap(false, Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Kept(_) = &*state {
            *state = State::NotYet;
        }
    }

    /// Nothing is kept from now on.
    pub(super) fn retire(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Retired;
    }

    fn place(&self) -> Option<Arc<OnceLock<T>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Kept(place) => Some(place.clone()),
            State::NotYet => {
                let place = Arc::default();
                *state = State::Kept(Arc::clone(&place));
                Some(place)
            }
            State::Retired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_given_up_at_the_end() {
        let derived = Derived::new();
        assert_eq!(derived.kept(|made: &u8| *made), None);
        assert_eq!([derived.get_or_make(|| 1), derived.get_or_make(|| 2)], [1, 1]);
        assert_eq!(derived.kept(|made| *made), Some(1));
        derived.retire();
        assert_eq!(derived.kept(|made| *made), None);
        assert_eq!([derived.get_or_make(|| 3), derived.get_or_make(|| 4)], [3, 4]);
    }

    #[test]
    fn retiring_does_not_wait_for_who_is_making() {
        let derived = Derived::new();
        let made = derived.get_or_make(|| {
            derived.retire();
            7
        });
        assert_eq!((made, derived.kept(|made| *made)), (7, None));
    }
}
