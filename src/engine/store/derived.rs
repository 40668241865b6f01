//! Values that are computed from objects on first use and shared from then on.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Derived values, at most one for each kind `K`. A value is kept until it is no longer used or its source retires;
/// otherwise history would hold one copy for every version that was listed.
///
/// The lock is only held briefly, never while a value is computed, so that a writer that retires a leaf does not wait
/// for that.
///
/// Takes 16 bytes if no value is kept, which is usual.
pub(super) struct Derived<K, T>(Mutex<Option<Box<State<K, T>>>>);

enum State<K, T> {
    /// Values that are kept or being computed. Only a few kinds exist.
    Open(Vec<Place<K, T>>),
    Retired,
}

struct Place<K, T> {
    kind: K,
    value: Arc<OnceLock<T>>,
    /// Whether the value was used since the last sweep.
    asked: bool,
}

impl<K: Copy + Eq, T: Clone> Derived<K, T> {
    /// One caller computes the value while other callers wait for it. After [`Derived::retire`], every caller computes
    /// its own value.
    pub(super) fn get_or_make(&self, kind: K, make: impl FnOnce() -> T) -> T {
        match self.place(kind) {
            Some(value) => value.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// The same, and the value is kept only if `is_kept` says so of it when it was made. Those who wait for it get it.
    pub(super) fn get_or_make_if(&self, kind: K, make: impl FnOnce() -> T, is_kept: impl FnOnce(&T) -> bool) -> T {
        let mut is_made = false;
        let value = self.get_or_make(kind, || {
            is_made = true;
            make()
        });
        if is_made && !is_kept(&value) {
            self.remove(kind);
        }
        value
    }

    /// The value that is kept now. The call does not count as a use.
    pub(super) fn kept(&self, kind: K) -> Option<T> {
        let state = self.lock();
        let State::Open(places) = state.as_deref()? else { return None };
        places.iter().find(|place| place.kind == kind)?.value.get().cloned()
    }

    /// The sum of `of` over all values that are kept now.
    pub(super) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        let state = self.lock();
        let Some(State::Open(places)) = state.as_deref() else { return 0 };
        places.iter().filter_map(|place| place.value.get()).map(of).sum()
    }

    /// Drops the values that were not used since the last sweep; they are computed again on their next use.
    pub(super) fn sweep(&self) {
        self.retain(|place| std::mem::take(&mut place.asked));
    }

    fn remove(&self, kind: K) {
        self.retain(|place| place.kind != kind);
    }

    fn retain(&self, keep: impl FnMut(&mut Place<K, T>) -> bool) {
        let mut state = self.lock();
        let Some(State::Open(places)) = state.as_deref_mut() else { return };
        places.retain_mut(keep);
        places.shrink_to_fit();
        if places.is_empty() {
            *state = None;
        }
    }

    /// Drops all values that are kept now.
    pub(super) fn clear(&self) {
        self.retain(|_| false);
    }

    /// Drops all values; from now on none is kept.
    pub(super) fn retire(&self) {
        *self.lock() = Some(State::Retired.into());
    }

    fn place(&self, kind: K) -> Option<Arc<OnceLock<T>>> {
        let mut state = self.lock();
        let State::Open(places) = &mut **state.get_or_insert_with(|| State::Open(Vec::new()).into()) else {
            return None;
        };
        if let Some(place) = places.iter_mut().find(|place| place.kind == kind) {
            place.asked = true;
            return Some(place.value.clone());
        }
        let value = Arc::default();
        places.reserve_exact(1);
        places.push(Place { kind, value: Arc::clone(&value), asked: true });
        Some(value)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<State<K, T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Default for Derived<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, T> fmt::Debug for Derived<K, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Derived")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_computed_once_and_dropped_at_the_end() {
        let derived = Derived::default();
        assert_eq!(derived.kept('a'), None);
        assert_eq!([derived.get_or_make('a', || 1), derived.get_or_make('a', || 2)], [1, 1]);
        assert_eq!(derived.get_or_make('b', || 5), 5);
        assert_eq!((derived.kept('a'), derived.kept('b'), derived.sum(|made| *made)), (Some(1), Some(5), 6));
        derived.retire();
        assert_eq!((derived.kept('a'), derived.sum(|made| *made)), (None, 0));
        assert_eq!([derived.get_or_make('a', || 3), derived.get_or_make('a', || 4)], [3, 4]);
    }

    #[test]
    fn a_value_is_made_again_if_it_was_not_to_be_kept() {
        let derived = Derived::default();
        assert_eq!([derived.get_or_make_if('a', || 1, |_| false), derived.get_or_make_if('a', || 2, |_| true)], [1, 2]);
        assert_eq!(derived.get_or_make_if('a', || 3, |_| false), 2);
    }

    #[test]
    fn each_kind_is_swept_on_its_own() {
        let derived = Derived::default();
        derived.get_or_make('a', || 1);
        derived.get_or_make('b', || 2);
        derived.sweep();
        derived.get_or_make('b', || 3);
        assert_eq!(derived.kept('a'), Some(1));
        derived.sweep();
        assert_eq!((derived.kept('a'), derived.kept('b')), (None, Some(2)));
    }

    #[test]
    fn retiring_does_not_wait_for_a_computation() {
        let derived = Derived::default();
        let made = derived.get_or_make('a', || {
            derived.retire();
            7
        });
        assert_eq!((made, derived.kept('a')), (7, None));
    }
}
