//! What many objects have in common: texts such as label keys, namespaces, phases and names of nodes, and whole sets of
//! labels and fields.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use base::apimachinery::Labels;

/// What selectors compare of an object besides its key.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Selectable {
    pub(super) labels: Labels,
    /// Values of the schema's fields that are not in the key ([`super::FieldPlace::Value`]). The value of a field that
    /// the object lacks is defined by the source of the field (read-path 5.1, "Value rules").
    pub(super) fields: Box<[Arc<str>]>,
}

/// Each value that is kept here has one allocation for all objects that have it.
#[derive(Debug, Default)]
pub(super) struct Interner {
    texts: Mutex<HashSet<Arc<str>>>,
    selectables: Mutex<HashSet<Arc<Selectable>>>,
}

/// The maximum numbers of values. Beyond them all are forgotten, those of many objects come back with the next ones.
const TEXTS_MAX: usize = 8192;
const SELECTABLES_MAX: usize = 1024;
/// Longer texts, in bytes, are hardly shared.
const LENGTH_MAX: usize = 64;

impl Interner {
    /// The text, shared with other objects where that is possible.
    pub(super) fn share(&self, text: &str) -> Arc<str> {
        if text.len() > LENGTH_MAX {
            return text.into();
        }
        let mut known = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(text) {
            return known.clone();
        }
        insert(&mut known, TEXTS_MAX, text.into())
    }

    /// The same for labels and fields, whose texts are shared already.
    pub(super) fn share_selectable(&self, selectable: Selectable) -> Arc<Selectable> {
        let mut known = self.selectables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&selectable) {
            return known.clone();
        }
        insert(&mut known, SELECTABLES_MAX, selectable.into())
    }
}

fn insert<T: ?Sized + Eq + Hash>(known: &mut HashSet<Arc<T>>, max: usize, value: Arc<T>) -> Arc<T> {
    if known.len() == max {
        known.clear();
    }
    known.insert(value.clone());
    value
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
        for number in 0..2 * TEXTS_MAX {
            assert_eq!(*interner.share(&number.to_string()), *number.to_string());
        }
        assert!(interner.texts.lock().unwrap().len() <= TEXTS_MAX);
        assert_eq!(interner.share("node"), node);
    }

    #[test]
    fn equal_labels_and_fields_are_shared() {
        let interner = Interner::default();
        let selectable = |value: &str| Selectable {
            labels: [("app".into(), value.into())].into_iter().collect(),
            fields: [value.into()].into(),
        };
        let one = interner.share_selectable(selectable("one"));
        assert!(Arc::ptr_eq(&one, &interner.share_selectable(selectable("one"))));
        for number in 0..2 * SELECTABLES_MAX {
            assert_eq!(*interner.share_selectable(selectable(&number.to_string())), selectable(&number.to_string()));
        }
        assert!(interner.selectables.lock().unwrap().len() <= SELECTABLES_MAX);
    }
}
