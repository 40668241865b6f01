//! Texts that many objects have: label keys, namespaces, phases, names of nodes.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Each text that is kept here has one allocation for all objects that have it.
#[derive(Debug, Default)]
pub(super) struct Interner(Mutex<HashSet<Arc<str>>>);

/// The maximum number of texts. Beyond it all are forgotten, those of many objects come back with the next ones.
const WORDS_MAX: usize = 8192;
/// Longer texts, in bytes, are hardly shared.
const LENGTH_MAX: usize = 64;

impl Interner {
    /// The text, shared with other objects where that is possible.
    pub(super) fn share(&self, text: &str) -> Arc<str> {
        if text.len() > LENGTH_MAX {
            return text.into();
        }
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = words.get(text) {
            return word.clone();
        }
        if words.len() == WORDS_MAX {
            words.clear();
        }
        let word: Arc<str> = text.into();
        words.insert(word.clone());
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_texts_is_shared() {
        let interner = Interner::default();
        let node = interner.share("node");
        assert!(Arc::ptr_eq(&node, &interner.share("node")));
        let long = "x".repeat(LENGTH_MAX + 1);
        assert_eq!(*interner.share(&long), *long);
        for number in 0..2 * WORDS_MAX {
            assert_eq!(*interner.share(&number.to_string()), *number.to_string());
        }
        assert!(interner.0.lock().unwrap().len() <= WORDS_MAX);
        assert_eq!(interner.share("node"), node);
    }
}
