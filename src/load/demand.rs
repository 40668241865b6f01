//! Which of the run's writes each client of a workload has to receive, in a watch that keeps up.

use std::{collections::HashMap, sync::Arc};

use crate::{
    churn::Churn,
    profile::{InformerWork, ReconnectWork, Selection, WatchWork, Work, Workload},
    scope::Scope,
};

/// What the clients of one workload have to receive in every turn.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// The sets that contain the objects of a scope, by the number of the churn.
    sets: HashMap<(usize, Scope), Vec<usize>>,
    set_count: usize,
    /// The set of each client; those beyond its end have the first.
    of_client: Arc<[usize]>,
    /// Whether some selector depends on what the tool does not know.
    is_unknown: bool,
}

/// The writes of a turn, which clients have to receive.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    /// The times of the writes of each set, the oldest first.
    sets: Vec<Vec<u64>>,
    of_client: Arc<[usize]>,
}

impl Demand {
    /// `churns`: those of all workloads. Slow readers are not expected to keep up.
    pub(super) fn new(workload: &Workload, churns: &[Option<Arc<Churn>>]) -> Self {
        let Some(selection) = selection(&workload.work) else { return Self::default() };
        let (mut demand, mut known, mut of_client) = (Self::default(), HashMap::new(), Vec::new());
        let different = if selection.depends_on_client() { workload.clients } else { 1 };
        for client in 0..different {
            let scope = |churn: &Option<Arc<Churn>>| {
                churn.as_ref().map_or(Scope::Nothing, |churn| Scope::of(selection, client, churn))
            };
            let scopes: Vec<_> = churns.iter().map(scope).collect();
            of_client.push(match known.get(&scopes) {
                Some(set) => *set,
                None => {
                    let set = demand.add(&scopes);
                    known.insert(scopes, set);
                    set
                }
            });
        }
        demand.of_client = of_client.into();
        demand
    }

    /// Adds a set of objects, by the scope in each churn. Returns its number.
    fn add(&mut self, scopes: &[Scope]) -> usize {
        let set = self.set_count;
        for (number, scope) in scopes.iter().enumerate() {
            match scope {
                Scope::Nothing => {}
                Scope::Unknown => self.is_unknown = true,
                Scope::Everything | Scope::Node(_) | Scope::Object(_) => {
                    self.sets.entry((number, *scope)).or_default().push(set);
                }
            }
        }
        self.set_count += 1;
        set
    }

    /// The note for a report in which events of writes may have been missed, and do not count.
    pub(super) fn note(&self, workload: &Workload) -> Option<String> {
        let selection = selection(&workload.work).filter(|_| self.is_unknown)?;
        let selectors = [&selection.labels, &selection.fields].into_iter().flatten();
        let selectors: Vec<_> = selectors.map(|selector| format!("{selector:?}")).collect();
        Some(format!(
            "{}: which of the run's writes its selectors match is not known ({}); events that have not come do not \
             count as undelivered there",
            workload.name,
            selectors.join(", ")
        ))
    }

    /// What is due of the turn's writes.
    pub(super) fn due(&self, churns: &[Option<Arc<Churn>>]) -> Due {
        let mut sets = vec![Vec::new(); self.set_count];
        for (number, churn) in churns.iter().enumerate() {
            let Some(churn) = churn.as_ref().filter(|_| self.sets.keys().any(|(of, _)| *of == number)) else {
                continue;
            };
            for (sent, index) in churn.writes() {
                let scopes = Scope::with_object(index, churn);
                let found = scopes.filter_map(|scope| self.sets.get(&(number, scope)));
                found.flatten().for_each(|set| sets[*set].push(sent));
            }
        }
        sets.iter_mut().for_each(|set| set.sort_unstable());
        Due { sets, of_client: self.of_client.clone() }
    }
}

impl Due {
    /// The times of the writes of each set, the oldest first.
    pub(super) fn sets(&self) -> &[Vec<u64>] {
        &self.sets
    }

    /// The number of the client's set.
    pub(super) fn set_of(&self, client: usize) -> usize {
        self.of_client.get(client).copied().unwrap_or_default()
    }

    /// The time of the newest write that the client has to receive.
    pub(super) fn newest(&self, client: usize) -> Option<u64> {
        self.sets.get(self.set_of(client))?.last().copied()
    }
}

/// What clients of that work follow without a pause.
fn selection(work: &Work) -> Option<&Selection> {
    match work {
        Work::Watch(WatchWork { selection, .. })
        | Work::Informer(InformerWork { selection, .. })
        | Work::Reconnect(ReconnectWork { informer: InformerWork { selection, .. }, .. }) => Some(selection),
        Work::Get { .. } | Work::List(_) | Work::SlowReader(_) | Work::Churn(_) => None,
    }
}

#[cfg(test)]
impl Due {
    pub(crate) fn new(sets: Vec<Vec<u64>>, of_client: &[usize]) -> Self {
        Self { sets, of_client: of_client.into() }
    }
}
