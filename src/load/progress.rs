//! Shows the progress of a run on standard error if that is a terminal; otherwise nothing is written.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{profile::Profile, recorder::Recorded, side::Side, times::Times};

const DRAW_EVERY: Duration = Duration::from_millis(250);
const TIME: &str = "{msg:<40} [{bar:30}] {elapsed}";
const WORKLOAD: &str = "  {msg}";

/// A bar for the time, and a line for each workload.
#[derive(Debug)]
pub(super) struct Progress {
    all: MultiProgress,
    time: ProgressBar,
    workloads: Vec<ProgressBar>,
}

impl Progress {
    pub(super) fn new(profile: &Profile) -> Self {
        let all = MultiProgress::new();
        let bar = |template| {
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            all.add(ProgressBar::new(0).with_style(style.progress_chars("=> ")))
        };
        let time = bar(TIME);
        let workloads = profile.workloads.iter().map(|_| bar(WORKLOAD)).collect();
        Self { time, workloads, all }
    }

    /// Shows what the run is doing now.
    pub(super) fn show(&self, what: impl Into<String>) {
        self.time.set_message(what.into());
        self.time.tick();
    }

    /// Shows the measurements of a turn until it is dropped.
    pub(super) async fn follow(&self, profile: &Profile, side: &Side, began: Instant, duration: Duration) {
        if self.all.is_hidden() {
            return std::future::pending().await;
        }
        self.show(format!("{} {}", side.endpoint.name, side.endpoint.url()));
        self.time.set_length(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let mut ticks = interval(DRAW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let counts = |recorded: &Recorded| (recorded.answered, recorded.events);
        let mut last: Vec<_> = side.recorders.iter().map(|recorder| counts(&recorder.lock())).collect();
        loop {
            ticks.tick().await;
            let elapsed = began.elapsed().min(duration);
            self.time.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
            for (index, recorder) in side.recorders.iter().enumerate() {
                let recorded = recorder.lock();
                let now = counts(&recorded);
                let (requests, events) = (now.0 - last[index].0, now.1 - last[index].1);
                let line = line(&profile.workloads[index].name, &recorded, requests, events);
                drop(recorded);
                last[index] = now;
                self.workloads[index].set_message(line);
            }
        }
    }

    /// Clears the terminal for the report that follows.
    pub(super) fn end(&self) {
        // An error of the terminal does not matter any more.
        self.all.clear().unwrap_or_default();
    }
}

/// The rates of the `requests` and `events` since the last line, and the percentiles of everything so far.
fn line(name: &str, recorded: &Recorded, requests: u64, events: u64) -> String {
    let a_second = |count: u64| count as f64 / DRAW_EVERY.as_secs_f64();
    let mut line = format!("{name:<20} {:>8.0} requests/s", a_second(requests));
    let mut add = |what: &str, times: &Times| {
        if times.count() > 0 {
            line.push_str(&format!("  {what} p99 {:.1} ms", times.percentile(99.0)));
        }
    };
    add("latency", &recorded.latency);
    add("event delay", &recorded.delay);
    if recorded.events > 0 {
        line.push_str(&format!("  {:.0} events/s", a_second(events)));
    }
    let errors = recorded.failures.total();
    if errors > 0 {
        line.push_str(&format!("  {errors} errors"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ErrorKind;

    #[test]
    fn a_line_has_rates_and_percentiles() {
        let mut recorded = Recorded { answered: 100, events: 500, ..Recorded::default() };
        recorded.latency.add(Duration::from_millis(2));
        recorded.failures.add_many(ErrorKind::Connect, 3, String::new());
        let line = line("lists", &recorded, 25, 50);
        assert_eq!(line, "lists                     100 requests/s  latency p99 2.0 ms  200 events/s  3 errors");
    }
}
