//! The turns of a run: their order, and what those of one endpoint have in sum.

use std::sync::Arc;

use crate::{
    profile::Work,
    report::{EndpointReport, ProcessReport, WorkloadReport},
    side::Side,
    turn::{Course, Turned},
};

/// Takes all turns of all endpoints. Ends early when the run is stopped.
pub(super) async fn take_turns(course: &Course, sides: &[Side], turns: usize) -> Vec<EndpointReport> {
    let mut totals: Vec<_> = sides.iter().map(|_| Total::new(course)).collect();
    for round in 0..turns {
        for index in order(round, sides.len()) {
            if !course.stop.is_cancelled() {
                totals[index].add(&course.turn(&sides[index]).await);
            }
        }
    }
    totals.into_iter().zip(sides).map(|(total, side)| total.report(course, side)).collect()
}

/// The order of the sides in a round. It alternates: what grows during a run, such as the history of a server, does not
/// always meet the same side.
fn order(round: usize, sides: usize) -> Vec<usize> {
    let all = 0..sides;
    if round.is_multiple_of(2) { all.collect() } else { all.rev().collect() }
}

/// The turns of one endpoint.
struct Total {
    turns: usize,
    seconds: f64,
    processes: Vec<ProcessReport>,
}

impl Total {
    fn new(course: &Course) -> Self {
        let processes = course.processes.iter().map(|process| ProcessReport::new(&process.name)).collect();
        Self { turns: 0, seconds: 0.0, processes }
    }

    fn add(&mut self, turned: &Turned) {
        self.turns += 1;
        self.seconds += turned.seconds;
        for (process, usage) in self.processes.iter_mut().zip(&turned.usage) {
            process.add(usage);
        }
    }

    fn report(self, course: &Course, side: &Side) -> EndpointReport {
        let workloads = course.profile.workloads.iter().zip(&side.recorders);
        let writes_elsewhere = !Arc::ptr_eq(&side.endpoint, &side.writes);
        let is_asked = |work: &Work| !(writes_elsewhere && matches!(work, Work::Churn(_)));
        EndpointReport {
            has_answered: workloads
                .clone()
                .any(|(workload, recorder)| is_asked(&workload.work) && recorder.lock().answered > 0),
            name: side.endpoint.name,
            url: side.endpoint.url().to_owned(),
            turns: self.turns,
            seconds: (self.seconds * 1e3).round() / 1e3,
            workloads: workloads
                .map(|(workload, recorder)| WorkloadReport::new(workload, &recorder.lock(), self.seconds))
                .collect(),
            processes: self.processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_side_always_comes_first() {
        let turns: Vec<_> = (0..4).flat_map(|round| order(round, 2)).collect();
        assert_eq!(turns, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(order(1, 1), [0]);
    }
}
