//! The labels of one object.

use std::sync::Arc;

/// Sorted by key, without duplicate keys. Keys and values are shared between the objects that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// The value of a label, by binary search.
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(label, _)| (**label).cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    /// About the memory that the labels take if no other object has them, in bytes.
    pub fn bytes(&self) -> usize {
        /// Two pointers with lengths, and the two counts of each text.
        const EACH: usize = 64;
        self.0.iter().map(|(key, value)| EACH + key.len() + value.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Labels {
    /// If a key occurs twice, the last value counts, as in Go's maps.
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self(pairs.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_in_any_order() {
        let pairs = [("tier", "web"), ("app", "old"), ("app", "new"), ("zone", "")];
        let labels: Labels = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("app", "new"), ("tier", "web"), ("zone", "")]);
        assert_eq!((labels.get("tier"), labels.get("zone"), labels.get("no")), (Some("web"), Some(""), None));
    }
}
