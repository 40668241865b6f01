//! Charts in SVG that use only attributes: a histogram, and a measured time during the turns.

use maud::{Markup, html};

use crate::report::{Bucket, IntervalReport, TimelineReport, TimesReport};

/// The coordinates of a chart, and the space below it for labels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 150.0;
const LABELS: f64 = 18.0;
/// The space at the top for the label of the largest value.
const TOP: f64 = 14.0;
/// The space between the bars of two buckets.
const GAP: f64 = 1.5;
/// The maximum number of labels below a histogram.
const BOUNDS_MAX: usize = 10;

/// The CSS class for the colour of an endpoint.
pub(super) fn class(side: usize) -> &'static str {
    if side == 0 { "first" } else { "second" }
}

/// The distribution of a measured time and its course during the turns, for one or two endpoints. Empty if there are no
/// times.
pub(super) fn charts(times: &[Option<&TimesReport>], timelines: &[Option<TimelineReport>]) -> Markup {
    if times.iter().all(Option::is_none) {
        return html! {};
    }
    html! {
        div.charts {
            figure {
                (histogram(times))
                figcaption { "Share of all by milliseconds (up to, logarithmic)" }
            }
            @if timelines.iter().flatten().any(|timeline| timeline.intervals.len() > 1) {
                figure {
                    (over_time(timelines))
                    figcaption { "Mean (line) and maximum (thin) in ms over the seconds of all turns" }
                }
            }
        }
    }
}

fn histogram(times: &[Option<&TimesReport>]) -> Markup {
    let sides: Vec<&[Bucket]> = times.iter().map(|times| times.map_or(&[][..], |times| &times.histogram)).collect();
    let longest = sides.iter().copied().max_by_key(|buckets| buckets.len()).unwrap_or_default();
    // Leaves out empty buckets on the left.
    let is_empty = |index: usize| sides.iter().all(|buckets| buckets.get(index).is_none_or(|bucket| bucket.count == 0));
    let from = (0..longest.len()).find(|index| !is_empty(*index)).unwrap_or_default();
    let share = |side: usize, index: usize| {
        let total = times[side].map_or(1, |times| times.count).max(1);
        sides[side].get(index).map_or(0.0, |bucket| bucket.count as f64 / total as f64)
    };
    let shares = (0..sides.len()).flat_map(|side| (from..longest.len()).map(move |index| (side, index)));
    let top = shares.map(|(side, index)| share(side, index)).fold(0.0, f64::max);
    let step = WIDTH / (longest.len() - from).max(1) as f64;
    let width = (step - GAP) / sides.len() as f64;
    let every = (longest.len() - from).div_ceil(BOUNDS_MAX).max(1);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", HEIGHT + LABELS)) role="img" aria-label="histogram" {
            (frame(&format!("{:.0} %", top * 100.0)))
            @for (place, (index, bucket)) in longest.iter().enumerate().skip(from).enumerate() {
                @for side in 0..sides.len() {
                    (Bar {
                        x: place as f64 * step + side as f64 * width,
                        width,
                        share: share(side, index),
                        top,
                        side,
                        up_to: bucket.up_to,
                    }.draw())
                }
                @if place % every == every - 1 {
                    text x=(format!("{:.1}", (place + 1) as f64 * step)) y=(HEIGHT + LABELS - 4.0) text-anchor="end" {
                        (short(bucket.up_to))
                    }
                }
            }
        }
    }
}

/// A bar of a histogram.
struct Bar {
    x: f64,
    width: f64,
    /// The share of all times that are in the bucket, from 0 to 1.
    share: f64,
    /// The share at which a bar is as high as the chart.
    top: f64,
    side: usize,
    /// The upper bound of the bucket in milliseconds.
    up_to: f64,
}

impl Bar {
    /// Empty if the bucket is.
    fn draw(&self) -> Markup {
        let Self { x, width, share, top, side, up_to } = *self;
        if share <= 0.0 || top <= 0.0 {
            return html! {};
        }
        let height = (share / top * (HEIGHT - TOP)).max(1.0);
        html! {
            rect.(class(side)) x=(format!("{x:.1}")) y=(format!("{:.1}", HEIGHT - height)) width=(format!("{width:.1}"))
                height=(format!("{height:.1}")) {
                title { (format!("{:.2} % up to {} ms", share * 100.0, short(up_to))) }
            }
        }
    }
}

fn over_time(timelines: &[Option<TimelineReport>]) -> Markup {
    let all = || timelines.iter().flatten();
    let seconds = all().map(|timeline| timeline.seconds * timeline.intervals.len() as f64).fold(0.0, f64::max);
    let maxima = all().flat_map(|timeline| &timeline.intervals).filter_map(|interval| interval.max);
    let top = maxima.fold(0.0, f64::max);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", HEIGHT + LABELS)) role="img" aria-label="over time" {
            (frame(&format!("{} ms", short(top))))
            @for (side, timeline) in timelines.iter().enumerate() {
                @if let Some(timeline) = timeline {
                    polyline.thin.(class(side)) points=(points(timeline, |interval| interval.max, seconds, top)) {}
                    polyline.(class(side)) points=(points(timeline, |interval| interval.mean, seconds, top)) {}
                }
            }
            text x=(WIDTH) y=(HEIGHT + LABELS - 4.0) text-anchor="end" { (format!("{seconds:.0} s")) }
            text x="0" y=(HEIGHT + LABELS - 4.0) { "0" }
        }
    }
}

/// The points of a line; each is in the middle of an interval that is not empty. The chart is `seconds` wide and `top`
/// milliseconds high.
fn points(timeline: &TimelineReport, of: impl Fn(&IntervalReport) -> Option<f64>, seconds: f64, top: f64) -> String {
    let point = |(index, value): (usize, f64)| {
        let x = (index as f64 + 0.5) * timeline.seconds / seconds.max(f64::EPSILON) * WIDTH;
        format!("{x:.1},{:.1}", HEIGHT - value / top.max(f64::EPSILON) * (HEIGHT - TOP))
    };
    let values = timeline.intervals.iter().enumerate().filter_map(|(index, interval)| Some((index, of(interval)?)));
    values.map(point).collect::<Vec<_>>().join(" ")
}

/// The base line, and a line at the largest value with its label.
fn frame(top: &str) -> Markup {
    html! {
        line.axis x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
        line.grid x1="0" y1=(TOP) x2=(WIDTH) y2=(TOP) {}
        text x="0" y=(TOP - 3.0) { (top) }
    }
}

/// Formats a value with two or three digits.
fn short(value: f64) -> String {
    match value {
        ..9.95 => format!("{value:.1}"),
        9.95..10_000.0 => format!("{value:.0}"),
        _ => format!("{:.0}k", value / 1e3),
    }
}
