//! The search for the objects of a list, in units of bounded work.

use std::{mem, sync::Arc};

use super::{Extract, Object, Predicate};

/// A page of a list, or all of it.
#[derive(Debug)]
pub struct Page {
    pub objects: Vec<Arc<Object>>,
    /// The total length of the objects' tails, in bytes.
    pub bytes: usize,
    /// The start of the next page; `None` if this page is the last one.
    pub next: Option<NextPage>,
}

/// The start of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct NextPage {
    /// The first key of the page, without the scope's prefix.
    pub start: String,
    /// How many objects follow this page, as upstream counts them: those from its start on, without those on it. In a
    /// page of shards that includes the ones between them (read-path 5.5). `None` if there is another selector.
    pub remaining: Option<usize>,
}

/// The search for the objects of a page. If any key follows the last one of a full page, matching or not, there is a
/// next page (read-path 1.3).
#[derive(Debug)]
pub struct Search<'a> {
    state: &'a Extract,
    predicate: &'a Predicate,
    limit: usize,
    prefix: String,
    /// The smallest key of the page.
    start: String,
    /// The smallest key that has not been examined yet.
    from: String,
    found: Vec<Arc<Object>>,
    bytes: usize,
}

/// Why a unit of the search ends.
enum End {
    Work,
    FullPage,
    LastKey,
}

impl<'a> Search<'a> {
    pub(super) fn new(state: &'a Extract, start: &str, limit: usize, predicate: &'a Predicate) -> Self {
        let prefix = state.prefix();
        let from = format!("{prefix}{start}");
        Self { state, predicate, limit, prefix, start: from.clone(), from, found: Vec::new(), bytes: 0 }
    }

    /// Examines some objects. Returns the page once it is found; until then, other tasks should get a turn.
    pub fn step(&mut self) -> Option<Page> {
        let (mut keys, mut last) = (self.predicate.objects_at_once(), None);
        let (state, predicate) = (self.state, self.predicate);
        let mut examined = state.examine(&self.prefix, &self.from, predicate);
        let end = loop {
            let Some((key, selected)) = examined.next() else { break End::LastKey };
            if self.found.len() == self.limit {
                break End::FullPage;
            }
            last = Some(key);
            if let Some(object) = selected {
                self.bytes += object.tail_len();
                self.found.push(object.clone());
            }
            keys -= 1;
            if keys == 0 {
                break End::Work;
            }
        };
        drop(examined);
        if let Some(last) = last {
            // The smallest key after it.
            self.from = format!("{}\0", last.as_str());
        }
        match end {
            End::Work => None,
            End::FullPage => Some(self.page(true)),
            End::LastKey => Some(self.page(false)),
        }
    }

    fn page(&mut self, has_next: bool) -> Page {
        let next = has_next.then(|| NextPage {
            start: self.from[self.prefix.len()..].to_owned(),
            remaining: self.predicate.tells_rest().then(|| {
                let all = self.state.count_from(&self.prefix, &self.start);
                all.saturating_sub(self.found.len())
            }),
        });
        Page { objects: mem::take(&mut self.found), bytes: mem::take(&mut self.bytes), next }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{self, HistoryLimits, Objects, Schema, Scope, Shape, View};
    use base::apimachinery::{FieldSelector, LabelSelector, ResourceVersion, ShardSelector};

    /// 3,000 objects in two namespaces; a third of them has a label.
    fn state(scope: Scope) -> (Extract, Arc<Schema>) {
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()));
        let object = |number: usize| {
            let namespace = ["a", "b"][number % 2];
            let labels = if number.is_multiple_of(3) { r#","labels":{"third":"yes"}"# } else { "" };
            let metadata =
                format!(r#"{{"name":"n-{number}","namespace":"{namespace}","resourceVersion":"1"{labels}}}"#);
            Arc::new(Object::from_event(format!(r#"{{"metadata":{metadata}}}"#).into(), &schema).unwrap())
        };
        let objects = Objects::new((0..3000).map(object).collect()).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let (_writer, reader) = store::store(schema.clone(), &objects, ResourceVersion::new(1).unwrap(), limits);
        (View::new(reader, scope).newest(), schema)
    }

    /// That label, and the absence of many others.
    fn third(schema: &Schema) -> Predicate {
        let absent = (0..63).map(|number| format!(",!k{number}")).collect::<String>();
        predicate(&format!("third{absent}"), schema)
    }

    fn predicate(labels: &str, schema: &Schema) -> Predicate {
        Predicate::new(LabelSelector::parse(labels).unwrap(), &FieldSelector::default(), schema).unwrap()
    }

    fn keys(page: &Page) -> Vec<String> {
        page.objects.iter().map(|object| object.key.to_string()).collect()
    }

    /// The page, and the number of units of work.
    fn found(mut search: Search<'_>) -> (Page, usize) {
        let mut units = 1;
        loop {
            match search.step() {
                Some(page) => return (page, units),
                None => units += 1,
            }
        }
    }

    #[test]
    fn a_search_is_done_in_units_of_bounded_work() {
        for (scope, examined, thirds) in [
            (Scope::Everything, 3000, 1000),
            (Scope::Namespace("a".into()), 1500, 500),
            (Scope::Named("n-3".into()), 3000, 1),
        ] {
            let (state, schema) = state(scope.clone());
            for (predicate, matching) in [(third(&schema), thirds), (predicate("no-such-label", &schema), 0)] {
                let at_once = predicate.objects_at_once();
                let (page, units) = found(state.search("", usize::MAX, &predicate));
                assert_eq!((page.objects.len(), page.next), (matching, None), "{scope:?}");
                assert_eq!(units, examined / at_once + 1, "{scope:?}");
            }
        }
        let (_, schema) = state(Scope::Everything);
        let work = |predicate: &Predicate| predicate.objects_at_once();
        assert!((20..200).contains(&work(&third(&schema))) && work(&predicate("third", &schema)) < 2000);
    }

    #[test]
    fn pages_of_shards_count_all_objects() {
        let (state, schema) = state(Scope::Namespace("b".into()));
        let all = "shardRange(object.metadata.uid,'0x0000000000000000','0x10000000000000000')";
        let none = "shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')";
        for (shards, found, rest) in [(all, 40, Some(1460)), (none, 0, None)] {
            let shards = ShardSelector::parse(shards).unwrap();
            let (page, _) = self::found(state.search("", 40, &predicate("", &schema).within(Some(shards))));
            assert_eq!((page.objects.len(), page.next.and_then(|next| next.remaining)), (found, rest));
        }
    }

    #[test]
    fn pages_do_not_depend_on_the_units() {
        let (state, schema) = state(Scope::Namespace("b".into()));
        let predicate = third(&schema);
        let (all, _) = found(state.search("", usize::MAX, &predicate));
        assert_eq!(all.bytes, all.objects.iter().map(|object| object.tail_len()).sum::<usize>());
        for limit in [1, 40, 499, 500] {
            let (mut paged, mut start) = (Vec::new(), Some(String::new()));
            while let Some(from) = start {
                let (page, _) = found(state.search(&from, limit, &predicate));
                assert!(page.objects.len() <= limit);
                paged.extend(keys(&page));
                start = page.next.map(|next| next.start);
            }
            assert_eq!(paged, keys(&all), "pages of {limit}");
        }
    }
}
